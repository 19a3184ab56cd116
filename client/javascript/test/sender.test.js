import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";

import { newBatchId, storedReport } from "../src/batch.js";
import { MEDIA_TYPE } from "../src/compact.js";
import { classifyResponse, postBatch } from "../src/sender.js";
import { created, scriptedCollector, SILENCE } from "../testing/collecting.js";

const REPORT = { metric: "homepage", version: 1, cohort: 17, bits: new Uint8Array(16) };
const ID = newBatchId();

function post(url, options = {}) {
  const { timeoutMillis = 5_000, fetch, ingestKey, outliveThePage = false, count = 3 } = options;
  const { reports = Array(count).fill(storedReport(REPORT)) } = options;
  const route = { endpoint: new URL(url), timeoutMillis, fetch, ingestKey };
  return postBatch(route, { id: ID, reports }, { signal: new AbortController().signal, outliveThePage });
}

test("what an answer means depends on its status, and on what only a collector says", () => {
  const named = (report) => `{"errors": [${report}]}`;
  const cases = [
    ["delivered", [201], ['{"accepted": 3}']],
    ["delivered", [200], ['{"accepted": 3, "duplicate": true}']],
    ["retry", [200, 201], ["", "<html>Welcome</html>", "{}", "[]", "null", '{"accepted": "3"}', '{"accepted": 2.5}']],
    ["retry", [202, 204, 206, 500], ['{"accepted": 3}']],
    ["retry", [302, 304, 407, 408, 429, 500, 502, 503, 599], [""]],
    ["refused", [400, 401, 403, 404, 410, 413, 415, 422, 451], [""]],
    ["refused", [422], ['{"errors": {}}', '{"errors": null}', ...["", '{"report": 3}', '{"report": -1}'].map(named)]],
    ["refused", [422], ['{"report": "0"}', "null"].map(named)],
    ["refused", [400], ['{"report": 0}'].map(named)],
  ];
  for (const [kind, statuses, bodies] of cases) {
    for (const status of statuses) {
      for (const body of bodies) assert.equal(classifyResponse(status, body, 3).kind, kind, `${status} ${body}`);
    }
  }
  const { kind, refused, reason, error } = classifyResponse(
    422,
    named('{"report": 2, "detail": "bits: x"}, {"report": 0}'),
    3,
  );
  assert.deepEqual([kind, refused, error.detail], ["partly", new Set([2, 0]), "bits: x"]);
  assert.equal(reason, "refused by the collector");
  assert.equal(classifyResponse(503, '{"stored": false}', 3).mayBeStored, false);
  for (const body of ["", "{}", '{"stored": true}', '{"stored": "false"}', "null"]) {
    assert.equal(classifyResponse(503, body, 3).mayBeStored, true);
  }
  const reasons = {
    401: ": ingest key",
    403: ": ingest key",
    404: ": no such address",
    405: ": no such address",
    400: "",
  };
  for (const [status, about] of Object.entries(reasons)) {
    assert.equal(classifyResponse(Number(status), "", 3).reason, `refused by the collector${about}`);
  }
});

test("a batch is posted in compact form to /v1/reports below the address", async (t) => {
  const { url, received } = await scriptedCollector(t);
  assert.deepEqual(await post(`${url}/telemetry/`), { kind: "delivered" });
  const [{ path, headers, batch }] = received;
  assert.equal(path, "/telemetry/v1/reports");
  assert.equal(headers["content-type"], MEDIA_TYPE);
  assert.equal(batch.batch_id, ID);
  assert.equal(batch.reports.length, 3);
});

test("a request carries no cookies and no referrer, and follows no redirect", async () => {
  let asked;
  const fetch = async (_, init) => {
    asked = init;
    return new Response('{"accepted": 3}', { status: 201 });
  };
  await post("https://telemetry.example.com", { fetch });
  const { redirect, credentials, referrerPolicy, keepalive } = asked;
  assert.deepEqual(
    { redirect, credentials, referrerPolicy, keepalive },
    { redirect: "manual", credentials: "omit", referrerPolicy: "no-referrer", keepalive: false },
  );
  await post("https://telemetry.example.com", { fetch, outliveThePage: true });
  assert.equal(asked.keepalive, true);
  // Browsers refuse to keep so much alive.
  await post("https://telemetry.example.com", { fetch, count: 4_000, outliveThePage: true });
  assert.equal(asked.keepalive, false);
});

const typesOf = (received) => received.map(({ headers }) => headers["content-type"]);

test("what doesn't understand the compact form gets the batch at once as JSON, and the next one compact", async (t) => {
  for (const status of [400, 403, 406, 415]) {
    const { url, received } = await scriptedCollector(t, (n, batch) => {
      return n ? created(batch.reports.length) : { status };
    });
    for (let i = 0; i < 2; i++) assert.deepEqual(await post(url), { kind: "delivered" });
    assert.deepEqual(typesOf(received), [MEDIA_TYPE, "application/json", MEDIA_TYPE]);
    assert.deepEqual(received[0].batch, received[1].batch);
  }
});

test("a batch that JSON doesn't help is refused for what JSON was answered", async (t) => {
  const { url, received } = await scriptedCollector(t, (n) => ({ status: n ? 403 : 415 }));
  const { kind, error } = await post(url);
  assert.deepEqual([kind, error.status], ["refused", 403]);
  assert.equal(received.length, 2);
});

test("other refusals, and what may pass, don't concern the form", async (t) => {
  for (const status of [401, 404, 413, 422, 408, 429, 500, 503]) {
    const { url, received } = await scriptedCollector(t, () => ({ status }));
    for (let i = 0; i < 2; i++) await post(url);
    assert.deepEqual(typesOf(received), [MEDIA_TYPE, MEDIA_TYPE]);
  }
});

test("refused reports are named by their places in the ascending batch", async (t) => {
  const cohorts = [1, 3, 5, 7, 9];
  const reports = cohorts.map((cohort) => storedReport({ ...REPORT, cohort }));
  const { url, received } = await scriptedCollector(t, () => {
    return { status: 422, body: { errors: [{ report: 0 }, { report: 4 }] } };
  });
  const { kind, refused } = await post(url, { reports });
  assert.equal(kind, "partly");
  assert.deepEqual(refused, new Set([0, 4]));
  const sent = received[0].batch.reports.map(({ cohort }) => cohort);
  assert.deepEqual(sent, cohorts);
});

test("a connection that is closed, and none at all, are tried again", async (t) => {
  const { url } = await scriptedCollector(t, () => ({ status: 0 }));
  const gone = createServer().listen(0, "127.0.0.1");
  await once(gone, "listening");
  const { port } = gone.address();
  gone.close();
  const expected = { [url]: true, [`http://127.0.0.1:${port}`]: false, "http://hubbub.invalid": false };
  for (const [address, stored] of Object.entries(expected)) {
    const { kind, mayBeStored } = await post(address);
    assert.deepEqual([kind, mayBeStored], ["retry", stored]);
  }
});

test("a collector that doesn't answer in time is tried again", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { url, received, counts } = await scriptedCollector(t, () => SILENCE);
  const outcome = post(url, { timeoutMillis: 5_000 });
  while (!received.length) await new Promise(setImmediate);
  t.mock.timers.tick(5_000);
  const { kind, error } = await outcome;
  assert.deepEqual([kind, error.kind, error.detail], ["retry", "timeout", "no complete answer in 5 s"]);
  while (!counts.hungUp) await new Promise(setImmediate);
});

test("a broken answer and one longer than any real answer are tried again", async (t) => {
  const short = await scriptedCollector(t, () => {
    return { status: 201, body: '{"accepted": 3}', headers: { "Content-Length": "1000" } };
  });
  assert.equal((await post(short.url, { timeoutMillis: 200 })).kind, "retry");
  const long = await scriptedCollector(t, () => {
    return { status: 201, body: `{"accepted": 3, "more": "${"x".repeat(2_000_000)}"}` };
  });
  assert.equal((await post(long.url)).kind, "retry");
});

test("why an attempt failed is told by kind, status and detail, without the address", async (t) => {
  const closed = await scriptedCollector(t, () => ({ status: 0 }));
  const portal = await scriptedCollector(t, () => ({ status: 200, body: "<html>Sign in</html>" }));
  const busy = await scriptedCollector(t, () => ({ status: 503, body: { detail: "store: full" } }));
  const errorOf = async (url) => (await post(url)).error;
  const expected = [
    ["http://127.0.0.1:9", "connection", null, /^(ECONNREFUSED|TypeError)$/],
    [closed.url, "connection", null, /./],
    ["http://name.invalid", "DNS", null, /^(ENOTFOUND|EAI_AGAIN)$/],
    [portal.url.replace("http:", "https:"), "TLS", null, /^ERR_SSL/],
    [portal.url, "answer", 200, /^not an answer of a hubbub collector$/],
    [busy.url, "status", 503, /^store: full$/],
  ];
  for (const [url, kind, status, detail] of expected) {
    const error = await errorOf(url);
    assert.deepEqual([url, error.kind, error.status], [url, kind, status]);
    assert.match(error.detail, detail);
    assert.doesNotMatch(JSON.stringify(error), /127\.0|invalid/);
    assert.ok(Math.abs(error.time - Date.now()) < 3_600_000);
  }
});
