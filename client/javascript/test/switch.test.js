/** The switch: files against the vectors, and what one takes away from a client. */

import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import { createServer } from "node:net";
import { test } from "node:test";

import { fromHex } from "../src/bytes.js";
import { OptionError } from "../src/errors.js";
import { dropOff, emptyOutbox, isSent } from "../src/outbox.js";
import { makeRegistry } from "../src/registry.js";
import { periodAt, sampleNumber } from "../src/schedule.js";
import { checkSwitch, NOT_SAMPLED, parseSwitch, parseVerifyKey, rateOf } from "../src/switch.js";
import { SWITCHED_OFF, SwitchError } from "../src/switch.js";
import { assertStatus, memoryStorage, report, start, startTelemetry, storedState } from "../testing/collecting.js";
import { APPLICATION, buildRegistry, vectors } from "../testing/making.js";

const DAY = 86_400_000;
const metrics = { homepage: {}, theme: {} };
const off = (...names) => names.map((metric) => ({ metric, rate: 0 }));

function document(rates = [], issued = "2026-11-27T09:30:00Z") {
  return JSON.stringify({ hubbub_switch: 1, application: APPLICATION, issued, rates });
}

const { publicKey, privateKey } = generateKeyPairSync("ed25519");
const PUBLIC = `hub_verify_${publicKey.export({ format: "jwk" }).x}`;

function signed(body, key = privateKey) {
  const signature = sign(null, Buffer.from(`hubbub/1/switch\n${body}`), key);
  return `hubbub-switch-1 ${signature.toString("base64url")}\n${body}`;
}

/** Serve one file until the test ends, and keep each request as it came. */
async function hosting(t, body) {
  const host = { body, status: "200 OK", fields: "", requests: [], url: "" };
  const server = createServer((socket) => {
    let request = "";
    socket.on("error", () => {});
    socket.on("data", (data) => {
      request += data;
      if (!request.endsWith("\r\n\r\n")) return;
      host.requests.push(request);
      const length = Buffer.byteLength(host.body);
      socket.end(
        `HTTP/1.1 ${host.status}\r\nConnection: close\r\nContent-Length: ${length}\r\n${host.fields}\r\n${host.body}`,
      );
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  t.after(() => server.close());
  host.url = `http://127.0.0.1:${server.address().port}/files/switch`;
  return host;
}

/** Start a client that asks for a hosted file. */
function startFor(t, host, options = {}) {
  return start(t, { metrics, switch: host.url, ...options });
}

/** Record and send, one after the other: the switch is asked for after a delivery. */
async function send(telemetry, ...names) {
  for (const name of names) {
    telemetry.record(name, "a");
    assert.equal(await telemetry.flush(), true);
  }
}

/** Have the switch asked for a day ago. */
async function letADayPass(t, milliseconds = DAY) {
  const now = Date.now() + milliseconds;
  t.mock.method(Date, "now", () => now);
}

test("files mean what the vectors say", async () => {
  for (const { name, file, spaces, application, key, now, rates } of vectors("switch")) {
    const bytes = Uint8Array.from([...fromHex(file), ...Array(spaces).fill(32)]);
    let found = null;
    try {
      const parsed = parseSwitch(bytes);
      await checkSwitch(parsed, application, key && parseVerifyKey(key), now * 1_000);
      found = rates?.map(([metric, version]) => [metric, version, rateOf(parsed.document, metric, version)]);
    } catch (error) {
      assert.ok(error instanceof SwitchError, `${name}: ${error}`);
    }
    // JSON has no minus zero, which is as good as zero.
    assert.deepEqual(JSON.stringify(found), JSON.stringify(rates), name);
  }
});

test("samples are those of the vectors", () => {
  for (const { application, metric, secret, period, number } of vectors("samples")) {
    const drawn = sampleNumber(metric, application, fromHex(secret), period ?? undefined);
    assert.equal(drawn, number / 2 ** 53);
  }
});

test("a metric that is off is neither recorded nor charged, and its waiting reports are dropped", async (t) => {
  const host = await hosting(t, document(off("homepage")));
  const { telemetry, storage, logged } = await startFor(t, host);
  telemetry.record("theme", "a");
  await report(telemetry, "a"); // whose cohort for life shares no batch
  assertStatus(telemetry, { delivered: 1 });
  const before = await telemetry.ledger();
  await report(telemetry, "b");
  assertStatus(telemetry, { dropped: { [SWITCHED_OFF]: 2 } });
  assert.deepEqual(await telemetry.ledger(), before);
  assert.equal((await telemetry.preview("homepage", "b")).refusal, SWITCHED_OFF);
  assert.equal(host.requests.length, 1);
  assert.deepEqual(logged, []);
  assert.deepEqual(storedState(storage).switches[""].document.rates, off("homepage"));
});

test("what is off stays off after a restart, and costs nothing when it is on again", async (t) => {
  const host = await hosting(t, document(off("homepage")));
  const { telemetry: first, storage } = await startFor(t, host);
  await report(first, "a");
  const before = await first.ledger();
  await first.close();
  const { telemetry: second } = await startFor(t, host, { storage });
  await report(second, "a");
  assertStatus(second, { dropped: { [SWITCHED_OFF]: 1 } });
  await second.close();
  host.body = document();
  await letADayPass(t);
  const { telemetry: third } = await startFor(t, host, { storage });
  await report(third, "a"); // all is off: it asks where it would have sent
  await report(third, "a");
  assertStatus(third, { delivered: 1 });
  assert.equal((await third.ledger()).committed, before.committed);
  assert.equal(host.requests.length, 2);
});

test("an app without a switch asks for none and obeys none", async (t) => {
  const host = await hosting(t, document(off("homepage")));
  const { telemetry: first, storage } = await startFor(t, host);
  await report(first, "a");
  await first.close();
  const { telemetry: second } = await startFor(t, host, { storage, switch: undefined });
  await report(second, "a");
  assertStatus(second, { delivered: 1 });
  assert.equal(host.requests.length, 1);
});

test("a client is in the samples above its number and outside of the others", async (t) => {
  const host = await hosting(t, document());
  const { telemetry, storage } = await startFor(t, host);
  await report(telemetry, "a");
  const number = sampleNumber("homepage", APPLICATION, fromHex(storedState(storage).secret));
  for (const [rate, reason] of [
    [number, NOT_SAMPLED],
    [number + 2 ** -53, null],
  ]) {
    host.body = document([{ metric: "homepage", rate }]);
    await letADayPass(t);
    await send(telemetry, "theme");
    assert.equal((await telemetry.preview("homepage", "a")).refusal, reason);
  }
});

test("a client that gets no switch that it may obey goes on as before", async (t) => {
  const stranger = generateKeyPairSync("ed25519").privateKey;
  const body = document(off("homepage"));
  const wrong = {
    "it can't be fetched": [{ status: "404 Not Found" }, { status: "302 Found", fields: "Location: /x\r\n" }],
    "switch: must be JSON, in UTF-8": [{ body: body.slice(1) }],
    "switch: must be at most 65536 bytes": [{ body: body.padEnd(70_000) }],
    "switch: isn't signed; must be, as this app has a key": [{ body }],
    "switch: its signature isn't this key's, or it was changed": [
      { body: signed(body, stranger) },
      { body: `${signed(body)} ` },
    ],
  };
  for (const [why, answers] of Object.entries(wrong)) {
    for (const answer of answers) {
      const host = Object.assign(await hosting(t, signed(body)), answer);
      const { telemetry, logged } = await startFor(t, host, { switchKey: PUBLIC });
      await send(telemetry, "homepage", "homepage");
      assertStatus(telemetry, { delivered: 2 });
      assert.deepEqual(logged, [`hubbub: the switch stays as it was: ${why}`]);
      assert.equal(host.requests.length, 1); // once a day, also after a failure
    }
  }
});

test("an older signed file replaces no later one", async (t) => {
  const host = await hosting(t, signed(document(off("homepage"))));
  const { telemetry, logged } = await startFor(t, host, { switchKey: PUBLIC });
  for (const refused of [0, 1]) {
    await send(telemetry, "theme", "homepage");
    host.body = signed(document([], "2026-11-27T09:29:59Z"));
    await letADayPass(t);
    assert.deepEqual(logged.length, refused);
  }
  assertStatus(telemetry, { dropped: { [SWITCHED_OFF]: 2 } });
  host.body = signed(document([], "2026-11-27T09:30:01Z"));
  await send(telemetry, "theme", "homepage");
  assertStatus(telemetry, { dropped: { [SWITCHED_OFF]: 2 } });
});

test("what another key signed, or none, isn't obeyed, and takes nothing from the app's own", async (t) => {
  const other = generateKeyPairSync("ed25519");
  const otherKey = `hub_verify_${other.publicKey.export({ format: "jwk" }).x}`;
  const storage = memoryStorage();
  const visit = async (body, switchKey, status = "200 OK") => {
    const host = Object.assign(await hosting(t, body), { status });
    const { telemetry } = await startFor(t, host, { storage, switchKey });
    await send(telemetry, "theme", "homepage");
    await telemetry.close();
    return telemetry.status().dropped;
  };
  const isOff = { [SWITCHED_OFF]: 1 };
  const nothing = "404 Not Found";
  assert.deepEqual(await visit(document(off("homepage")), undefined), isOff);
  assert.deepEqual(await visit("", PUBLIC, nothing), {}, "an unsigned file, and now a key");
  await letADayPass(t);
  assert.deepEqual(await visit(signed(document(off("homepage"))), PUBLIC), isOff);
  await letADayPass(t, 2 * DAY);
  assert.deepEqual(await visit(document(), undefined), {}, "a process without a key");
  assert.deepEqual(await visit("", PUBLIC, nothing), isOff);
  await letADayPass(t, 3 * DAY);
  assert.deepEqual(await visit(signed(document([], "2026-11-26T00:00:00Z")), PUBLIC), isOff, "an old file");
  assert.deepEqual(await visit("", otherKey, nothing), {}, "another key");
});

test("a file from the future, or with a rate that singles clients out, is ignored", async (t) => {
  const tooSmall = document([{ metric: "homepage", rate: 1e-12 }]);
  for (const [body, why] of [
    [document(off("homepage"), "9999-12-31T00:00:00Z"), /issued = "9999.*Z": must be at most 20.*Z, a day/],
    [tooSmall, /rates\[0\]\.rate = 1e-12: must be 0, or a number from 0\.001 to below 1/],
  ]) {
    const { telemetry, logged } = await startFor(t, await hosting(t, body));
    await send(telemetry, "homepage", "homepage");
    assertStatus(telemetry, { delivered: 2 });
    assert.match(logged.join(), why);
  }
});

test("samples are drawn anew in each period, and a client that is new waits in no sample either", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 20_000 * DAY });
  const once = { mode: "once", f: 0, period_days: 1 };
  const weekly = { homepage: { ...once, period_days: 7 }, theme: once };
  const host = await hosting(t, document([{ metric: "homepage", rate: 0.5 }], "2024-01-01T00:00:00Z"));
  const { telemetry, storage } = await startFor(t, host, { metrics: weekly });
  await send(telemetry, "theme");
  const secret = fromHex(storedState(storage).secret);
  const metric = makeRegistry(buildRegistry(weekly)).metrics.get("homepage");
  const expected = [];
  const reported = [];
  for (let day = 20_000; day < 20_000 + 30 * 7; day++) {
    t.mock.timers.setTime(day * DAY);
    const before = telemetry.status().delivered;
    await report(telemetry, "a");
    if (telemetry.status().delivered > before) reported.push(day);
    const { number, firstDay } = periodAt(metric, secret, day * 86_400);
    const isSampled = sampleNumber("homepage", APPLICATION, secret, number) < 0.5;
    if (isSampled && day === firstDay) expected.push(day);
  }
  assert.deepEqual(reported, expected);
  assert.ok(reported.length > 3 && reported.length < 27); // P(not) < 1e-5 of another secret
});

test("a client that sends nothing asks nothing", async (t) => {
  const host = await hosting(t, document());
  const { telemetry } = startTelemetry(t, { switch: host.url });
  await telemetry.flush();
  telemetry.record("homepage", "a");
  assert.equal(await telemetry.flush(50), false); // nobody is there
  assert.deepEqual(host.requests, []);
});

test("requests of all clients are the same, and carry neither key nor mark", async (t) => {
  const host = await hosting(t, document());
  host.fields = `Set-Cookie: id=1\r\nETag: "1"\r\nLast-Modified: Fri, 27 Nov 2026 00:00:00 GMT\r\n`;
  for (let client = 0; client < 2; client++) {
    const { telemetry } = await startFor(t, host, { ingestKey: "hub_ingest_x" });
    for (const value of "ab") {
      await report(telemetry, value);
      await letADayPass(t);
    }
  }
  assert.equal(host.requests.length, 4);
  const [request, ...others] = new Set(host.requests);
  assert.deepEqual(others, []);
  assert.ok(request.startsWith("GET /files/switch HTTP/1.1\r\n"));
  assert.doesNotMatch(request, /cookie|if-none-match|if-modified|authorization|hub_/i);
});

test("an address or a key that can't work is refused", (t) => {
  const options = { endpoint: "https://a.example" };
  for (const wrong of [
    { switch: "http://c.example" },
    { switch: "https://c.example/?client=1" },
    { switch: "https://user@c.example" },
    { switch: 7 },
    { switch: true, switchKey: "hub_verify_x" },
    { switch: true, switchKey: PUBLIC.replace("verify", "sign") },
    { switch: true, switchKey: `${PUBLIC.slice(0, -1)}_` },
  ]) {
    assert.throws(() => startTelemetry(t, { ...options, ...wrong }), OptionError);
  }
});

test("a report of today that may have arrived is remembered when it is dropped", () => {
  const outbox = emptyOutbox();
  const report = { metric: "homepage", version: 1, cohort: 0, bits: "" };
  const reports = [report, { ...report, metric: "theme" }];
  outbox.batches = [
    { id: "1", origin: "", day: 0, reports, lease: null },
    { id: null, origin: "", day: 0, reports: [report], lease: null },
  ];
  assert.equal(
    dropOff(outbox, (metric) => metric === "homepage", DAY),
    2,
  );
  assert.deepEqual([outbox.batches.length, outbox.batches[0].reports], [1, [reports[1]]]);
  assert.ok(isSent(outbox, "homepage", DAY));
});
