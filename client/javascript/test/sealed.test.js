/** Sealed batches: keys, payloads and bodies of the vectors; the encryption itself is tests/package's. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { fromHex, toHex } from "../src/bytes.js";
import { storedReport } from "../src/batch.js";
import { makeDimensions } from "../src/dimensions.js";
import { keyId, MEDIA_TYPE, payloadsOf, sealedBody, sealedTo } from "../src/sealed.js";
import { Sender } from "../src/sender.js";
import { vectors } from "../testing/making.js";

const [ONE] = vectors("sealed");

/** In place of @hpke/core: what is "sealed" is the payload itself, between random bytes and a tag. */
const hpke = {
  CipherSuite: class {
    kem = { deserializePublicKey: async (bytes) => bytes };
    async seal(_context, payload) {
      return {
        enc: crypto.getRandomValues(new Uint8Array(32)).buffer,
        ct: Uint8Array.of(...payload, ...new Uint8Array(16)).buffer,
      };
    }
  },
  DhkemX25519HkdfSha256: class {},
  HkdfSha256: class {},
  Aes128Gcm: class {},
};

function clientOf({ application, metrics, secret }) {
  return {
    application,
    metrics: metrics.map(({ name, k, dimensions = {} }) => {
      return { name, dimensions: [...makeDimensions(dimensions).values()], params: { k } };
    }),
    secret: fromHex(secret),
  };
}

function batchOf({ batch_id: id, reports }) {
  return { id, reports: reports.map((r) => storedReport({ ...r, bits: fromHex(r.bits) })) };
}

function publicKey({ key }) {
  const text = key.split("_").slice(3).join("_").replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(`${text}=`), (character) => character.charCodeAt(0));
}

test("payloads, ids of keys and bodies are those of the vectors", async () => {
  for (const vector of vectors("sealed")) {
    const payloads = payloadsOf(batchOf(vector), clientOf(vector));
    assert.deepEqual(payloads.map(toHex), vector.payloads);
    const [, , day] = vector.key.split("_");
    const id = await keyId({ day, lastDay: "", bytes: publicKey(vector) });
    assert.equal(toHex(id), vector.key_id);
    const body = sealedBody(vector.batch_id, vector.records.map(fromHex));
    assert.equal(toHex(new Uint8Array(body)), vector.body);
  }
});

test("what is no public key, or no library, is refused at once", () => {
  const { key } = ONE;
  const faulty = [key.slice(0, -1), `${key}A`, key.replace("_seal_", "_unseal_"), "", null];
  const spare = `hub_seal_20270131_${"A".repeat(42)}B`;
  for (const text of [...faulty, spare, key.replace(/_\d{8}_/, "_20270230_")]) {
    assert.throws(() => sealedTo(text, hpke), { name: "OptionError" });
  }
  assert.throws(() => sealedTo([], hpke), { name: "OptionError" });
  assert.throws(() => sealedTo(key, {}), /@hpke\/core/);
});

test("the key that ends first of those in force is used, and none that has ended", async () => {
  const ends = ["20270320", "20270314", "20270317"];
  const keys = ends.map((day) => ONE.key.replace(/_\d{8}_/, `_${day}_`));
  const sealer = sealedTo(keys, hpke);
  const idOf = async (today) => {
    const body = await sealer.seal(batchOf(ONE), clientOf(ONE), today);
    return toHex(new Uint8Array(body, 21, 8));
  };
  const expected = async (day) => toHex(await keyId({ day, lastDay: "", bytes: publicKey(ONE) }));
  assert.equal(await idOf("2027-03-14"), await expected("20270314"));
  assert.equal(await idOf("2027-03-15"), await expected("20270317"));
  assert.equal(await idOf("2027-03-20"), await expected("20270320"));
  await assert.rejects(idOf("2027-03-21"), /no key to seal to: the last one ended on 2027-03-20/);
});

async function collector(t, status, answer = '{"accepted": 1}') {
  const received = [];
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    received.push({ type: request.headers["content-type"], body: Buffer.concat(chunks) });
    const code = typeof status === "function" ? status(Buffer.concat(chunks)) : status;
    response.writeHead(code).end(answer);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  t.after(() => server.close());
  return { url: new URL(`http://127.0.0.1:${server.address().port}`), received };
}

const post = (url, seal) => {
  const options = { signal: new AbortController().signal, outliveThePage: false };
  return new Sender(url, { timeout: 5_000, seal }).post(batchOf(ONE), options);
};

test("batches are sent sealed, and in no other form whatever is answered", async (t) => {
  const sealer = sealedTo(ONE.key, hpke);
  for (const status of [201, 400, 403, 406, 415]) {
    const { url, received } = await collector(t, status);
    const outcome = await post(url, (batch) => sealer.seal(batch, clientOf(ONE), "2027-01-01"));
    assert.equal(outcome.kind, status === 201 ? "delivered" : "refused");
    assert.deepEqual(received.map(({ type }) => type), [MEDIA_TYPE]);
    assert.ok(received[0].body.includes(fromHex(ONE.payloads[0])));
  }
});

test("what can't be sealed isn't sent, and is tried again", async (t) => {
  const { url, received } = await collector(t, 201);
  const sealer = sealedTo(ONE.key, hpke);
  const outcome = await post(url, (batch) => sealer.seal(batch, clientOf(ONE), "2099-01-01"));
  assert.deepEqual([outcome.kind, outcome.error.kind], ["retry", "sealing"]);
  assert.equal(received.length, 0);
});

test("who stops while a batch is being sealed sends nothing", async (t) => {
  const { url, received } = await collector(t, 201);
  const stopping = new AbortController();
  const seal = async () => {
    stopping.abort();
    return new ArrayBuffer(100);
  };
  /** @type {typeof globalThis.fetch} */
  const heedless = (address, request) => fetch(address, { ...request, signal: null });
  for (const own of [undefined, heedless]) {
    const sender = new Sender(url, { timeout: 5_000, seal, fetch: own });
    const options = { signal: stopping.signal, outliveThePage: false };
    assert.equal((await sender.post(batchOf(ONE), options)).kind, "retry");
  }
  assert.equal(received.length, 0);
});

test("sealed reports are refused together, since none can be named", async (t) => {
  const named = '{"errors": [{"report": 0}]}';
  const { url } = await collector(t, 422, named);
  const sealer = sealedTo(ONE.key, hpke);
  const outcome = await post(url, (batch) => sealer.seal(batch, clientOf(ONE), "2027-01-01"));
  assert.deepEqual([outcome.kind, outcome.reason], ["refused", "refused by the collector"]);
});
