/** What an app sees of recording and delivery. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

import { fromHex, toHex } from "../src/bytes.js";
import { Encoder } from "../src/encoder.js";
import { MetricError, OptionError } from "../src/errors.js";
import { Telemetry } from "../src/telemetry.js";
import { assertStatus, created, memoryStorage, replaceGlobal, report, SILENCE } from "../testing/collecting.js";
import { start, startTelemetry, STATE_KEY, storedState } from "../testing/collecting.js";
import { buildMetric, buildRegistry } from "../testing/making.js";
import { turns, until, untilTurned } from "../testing/waiting.js";

const ONCE = { theme: { mode: "one-time", type: "boolean", p: 0, q: 1 } };
const REFUSED = "refused by the collector";
const fail = () => {
  throw new Error("the app's own");
};

function recordMany(telemetry, count) {
  for (let i = 0; i < count; i++) telemetry.record("homepage", `page ${i % 50}`);
}

const sizesOf = (received) => received.map(({ batch }) => batch.reports.length);
const idsOf = (received) => new Set(received.map(({ batch }) => batch.batch_id));

test("every recorded value becomes one delivered report", async (t) => {
  const { telemetry, received, logged } = await start(t, { batchSize: 20 });
  recordMany(telemetry, 105);
  assertStatus(telemetry, { waiting: 105 });
  assert.equal(await telemetry.flush(), true);
  const nothing = { stale: 0, waiting: 0, dropped: {}, disabled: null, lastError: null };
  assert.deepEqual(telemetry.status(), { recorded: 105, delivered: 105, ...nothing });
  assert.deepEqual(sizesOf(received), [20, 20, 20, 20, 20, 5]);
  assert.equal(idsOf(received).size, 6);
  assert.deepEqual(logged, []);
});

test("plain http to another machine is warned of, once", (t) => {
  for (const [endpoint, expected] of [
    ["http://telemetry.example.com", 1],
    ["http://127.0.0.1.example.com", 1],
    ["http://127.8.0.1:8100", 0],
    ["http://[::1]:8100", 0],
    ["http://LocalHost", 0],
    ["https://telemetry.example.com", 0],
  ]) {
    const { logged } = startTelemetry(t, { endpoint, ingestKey: "a-key", consent: false });
    const warning = "reports and the ingest key travel in the clear: use https";
    assert.equal(logged.filter((line) => line.includes(warning)).length, expected, endpoint);
  }
});

test("reports tell of the app what the registry lets them", async (t) => {
  const { metrics } = buildRegistry({ homepage: { dimensions: ["platform"] }, search: {} });
  const declared = { platform: ["mac"], release: { pattern: "\\d\\.\\d" } };
  const registry = { ...buildRegistry(), dimensions: declared, metrics };
  const dimensions = { platform: "mac", release: "beta" };
  const { telemetry, reports } = await start(t, { registry, dimensions });
  telemetry.record("search", "a");
  await report(telemetry, "a");
  const slices = Object.fromEntries(reports().map(({ metric, slice }) => [metric, slice]));
  assert.deepEqual(slices, { homepage: "platform=mac", search: undefined });
  const preview = await telemetry.preview("homepage", "a");
  assert.equal(preview.report.slice, "platform=mac");
  assert.match(preview.words, /^ {2}in the clear: platform=mac;$/m);
  const wrong = {
    'dimensions = "os": must be one of: platform, release': { registry, dimensions: { os: "mac" } },
    "dimensions.release = 5: must be what \\d\\.\\d matches, or other": { registry, dimensions: { release: 5 } },
    "dimensions = 5: must be an object": { registry, dimensions: 5 },
    'dimensions.release = "beta": must be what \\d\\.\\d matches, or other': {
      registry,
      dimensions,
      development: true,
    },
    'dimensions = "platform": must be one of: left out, as the registry has none': { dimensions },
  };
  for (const [message, options] of Object.entries(wrong)) {
    assert.throws(() => startTelemetry(t, /** @type {any} */ (options)), { name: "MetricError", message });
  }
});

test("no value is ever in the storage, and no Bloom filter", async (t) => {
  const storage = memoryStorage();
  const written = [];
  const { set } = storage;
  storage.set = (key, text) => (written.push(text), set(key, text));
  const PAGE = { memory: "period", period_days: 1 };
  const { telemetry } = startTelemetry(t, { storage, registry: buildRegistry({ homepage: {}, page: PAGE }) });
  for (const name of ["homepage", "page"]) telemetry.record(name, "hunter2");
  await telemetry.flush(20);
  assert.ok(written.length >= 2);
  const { secret, account } = storedState(storage);
  for (const [i, fields] of [{}, { name: "page", ...PAGE }].entries()) {
    const encoder = new Encoder(buildMetric(fields), fromHex(secret));
    const filter = toHex(encoder.filter("hunter2", account.entries[i].last.cohort));
    assert.ok(written.every((text) => !text.includes(filter) && !text.includes("hunter2")));
  }
});

test("a full batch is sent at once, a started one after its time", async (t) => {
  const { telemetry, received } = await start(t, { batchSize: 5, batchMillis: 30 });
  recordMany(telemetry, 7);
  await until(() => telemetry.status().delivered === 7);
  assert.deepEqual(sizesOf(received), [5, 2]);
});

test("a report that comes while another batch is under way isn't forgotten", async (t) => {
  const { telemetry } = await start(t, { batchSize: 1 });
  for (let i = 0; i < 30; i++) {
    telemetry.record("homepage", "a");
    await until(() => telemetry.status().waiting === 0);
  }
  assertStatus(telemetry, { delivered: 30 });
});

test("a batch keeps its id and its reports through every retry", async (t) => {
  const answers = [
    { status: 503 },
    { status: 0 },
    { status: 200, body: "<html>Sign in to the hotel's network</html>" },
    { status: 302, headers: { Location: "/" } },
    { status: 429 },
    { status: 408 },
  ];
  const { telemetry, received, logged } = await start(t, {}, (n) => answers[n] ?? created(3));
  await report(telemetry, "a", "b", "c");
  assert.ok(received.length > answers.length);
  assert.equal(new Set(received.map(({ batch }) => JSON.stringify(batch))).size, 1);
  assertStatus(telemetry, { delivered: 3 });
  assert.equal(logged.length, 1, "trouble is logged once");
});

test("Retry-After is waited for, even by a flush", async (t) => {
  const times = [];
  const { telemetry } = await start(t, {}, (n, batch) => {
    times.push(performance.now());
    return n ? created(batch.reports.length) : { status: 503, headers: { "Retry-After": "1" } };
  });
  recordMany(telemetry, 1);
  assert.equal(await telemetry.flush(100), false);
  assert.equal(await telemetry.flush(), true);
  assert.ok(times[1] - times[0] >= 990);
});

test("reports that a 422 names are dropped, and the others sent under the same id", async (t) => {
  const { telemetry, received, logged } = await start(t, {}, (n, batch) => {
    const errors = [
      { report: 1, detail: `cohort ${batch.reports[1].cohort}` },
      { report: 3, detail: "bits" },
    ];
    return n ? created(batch.reports.length) : { status: 422, body: { errors } };
  });
  await report(telemetry, ..."abcde");
  const [first, second] = received.map(({ batch }) => batch);
  assert.deepEqual(second, { ...first, reports: [0, 2, 4].map((i) => first.reports[i]) });
  assertStatus(telemetry, { delivered: 3, dropped: { [REFUSED]: 2 }, waiting: 0 });
  assert.deepEqual(logged, [
    "hubbub: a batch wasn't delivered (status: status 422)",
    "hubbub: dropped a report: refused by the collector (status 422)",
  ]);
  assert.match(telemetry.status().lastError.detail, /^cohort \d+$/, "the app may look at it");
});

test("a batch that can never be accepted is dropped and counted, and the next one sent", async (t) => {
  const all = (batch) => ({ errors: batch.reports.map((_, report) => ({ report })) });
  for (const answer of [() => ({ status: 413 }), (batch) => ({ status: 422, body: all(batch) })]) {
    const { telemetry, received } = await start(t, { batchSize: 2 }, (n, batch) => {
      return n ? created(2) : answer(batch);
    });
    await report(telemetry, ..."abcd");
    assert.equal(idsOf(received).size, 2);
    assertStatus(telemetry, { delivered: 2, dropped: { [REFUSED]: 2 } });
  }
});

test("beyond the limit the oldest reports make room", async (t) => {
  let open = false;
  const accepted = [];
  const options = { metrics: { homepage: {}, search: {} }, batchSize: 4, maxWaiting: 10 };
  const { telemetry, received, logged } = await start(t, options, (_, { reports }) => {
    if (!open) return { status: 503 };
    accepted.push(...reports);
    return created(reports.length);
  });
  recordMany(telemetry, 4);
  await until(() => received.length > 0);
  recordMany(telemetry, 14);
  for (let i = 0; i < 6; i++) telemetry.record("search", `words ${i}`);
  await until(() => telemetry.status().waiting === 10);
  assertStatus(telemetry, { dropped: { "queue full": 14 } });
  open = true;
  assert.equal(await telemetry.flush(), true);
  const names = accepted.map(({ metric }) => metric).sort();
  assert.deepEqual(names, [...Array(4).fill("homepage"), ...Array(6).fill("search")]);
  assert.equal(logged.filter((line) => line.includes("queue full")).length, 1);
});

test("calls before the secret is loaded are kept up to the limit", async (t) => {
  const { telemetry } = await start(t, { batchSize: 5, maxWaiting: 5 });
  recordMany(telemetry, 8);
  assertStatus(telemetry, { waiting: 5 });
  assert.equal(await telemetry.flush(), true);
  assertStatus(telemetry, { delivered: 5, dropped: { "queue full": 3 } });
});

const CRASH = { name: "crash", type: "enum", categories: ["none", "oom"] };
const FIELDS = [CRASH, { name: "slow", type: "boolean" }];
const PAIR = { type: "joint", fields: FIELDS, mode: "one-time", f: 1e-300, p: 0, q: 1 };

test("a joint call before the secret is loaded is about what its object held then", async (t) => {
  const { telemetry, reports } = await start(t, { metrics: { pair: PAIR } });
  const value = { crash: "oom", slow: false };
  telemetry.record("pair", value);
  const preview = telemetry.preview("pair", value);
  value.crash = "none";
  assert.equal(await telemetry.flush(), true);
  assert.equal((await preview).report.bits[0], 4);
  assert.deepEqual([reports().length, reports()[0].bits], [1, "BA=="]);
});

test("wrong calls are counted and logged once, without the value, and never throw", async (t) => {
  const { telemetry, logged } = await start(t, { metrics: { homepage: {}, pair: PAIR } });
  const hostile = { toString: () => assert.fail("called"), toJSON: () => assert.fail("called") };
  const broken = Object.defineProperty({}, "crash", { enumerable: true, get: () => assert.fail("hunter2") });
  for (let i = 0; i < 2; i++) {
    for (const wrong of [5, hostile, "hunter2\ud800"]) telemetry.record("homepage", wrong);
    for (const name of ["hunter2", Symbol("metric"), hostile]) telemetry.record(name, "hunter2");
    telemetry.record();
    const pairs = [{ crash: "hunter2", slow: true }, { crash: "oom", slow: true, hunter2: 1 }, null, broken];
    for (const wrong of pairs) telemetry.record("pair", wrong);
    await telemetry.flush();
  }
  // An object is copied before the state is open, and only checked afterwards.
  const dropped = { "bad value": 13, "unknown metric": 8, "internal error": 1 };
  assertStatus(telemetry, { dropped, recorded: 0 });
  assert.equal(logged.length, 3);
  assert.ok(!logged.join().includes("hunter2"));
});

test("the status has the last failure, and a log that throws hurts nobody", async (t) => {
  const { telemetry } = await start(t, { log: fail }, (n) => (n ? created(1) : { status: 503 }));
  await report(telemetry, "a");
  telemetry.record("nothing", "a");
  const { lastError } = telemetry.status();
  assertStatus(telemetry, { delivered: 1, dropped: { "unknown metric": 1 } });
  assert.deepEqual([lastError.kind, lastError.status], ["status", 503]);
});

test("a damaged state turns the client off: nothing is sent, and it stays damaged", async (t) => {
  const storage = memoryStorage(new Map([[STATE_KEY, "damaged"]]));
  const { telemetry, received, logged } = await start(t, { storage, batchSize: 1 });
  await report(telemetry, ..."abc");
  recordMany(telemetry, 2);
  assert.match(telemetry.status().disabled, /is damaged/);
  assertStatus(telemetry, { dropped: { disabled: 5 }, waiting: 0 });
  assert.equal(received.length, 0);
  assert.equal(storage.texts.get(STATE_KEY), "damaged");
  assert.match(logged[0], /off: .* is damaged/);
});

test("a storage that can't be opened is tried again, and what was recorded meanwhile counted", async (t) => {
  const storage = memoryStorage();
  const { get } = storage;
  storage.get = fail;
  const { telemetry } = await start(t, { storage });
  recordMany(telemetry, 1);
  await until(() => telemetry.status().disabled === "the app's own");
  assertStatus(telemetry, { dropped: { disabled: 1 } });
  storage.get = get;
  await until(() => telemetry.status().disabled === null);
  await report(telemetry, "a");
  assertStatus(telemetry, { delivered: 1 });
});

test("a storage that fails later is tried again without a hot loop, and loses nothing", async (t) => {
  const slow = { firstRetryMillis: 60_000, longestRetryMillis: 60_000 };
  const { telemetry, storage, logged } = await start(t, slow);
  await telemetry.flush();
  const { set } = storage;
  let attempts = 0;
  storage.set = async () => (attempts++, fail());
  t.mock.timers.enable({ apis: ["setTimeout"] });
  recordMany(telemetry, 100);
  await untilTurned(() => attempts === 1);
  recordMany(telemetry, 100);
  await turns(50);
  assert.equal(attempts, 1);
  assertStatus(telemetry, { waiting: 200 });
  storage.set = set;
  t.mock.timers.reset();
  await telemetry.setConsent(true);
  assertStatus(telemetry, { dropped: {} });
  assert.deepEqual(logged, ["hubbub: the storage failed and is tried again (Error)"]);
});

test("without a system generator the client is off, and says why", async (t) => {
  const storage = memoryStorage();
  await startTelemetry(t, { storage }).telemetry.close();
  replaceGlobal(t, "crypto", undefined);
  for (const kept of [storage, memoryStorage()]) {
    const { telemetry } = startTelemetry(t, { storage: kept });
    await report(telemetry, "a");
    assert.match(telemetry.status().disabled, /getRandomValues is missing/);
  }
});

test("without consent nothing is read, stored, recorded or sent", async (t) => {
  const touched = () => assert.fail("touched");
  const storage = { get: touched, set: touched };
  const { telemetry } = startTelemetry(t, { consent: false, storage, fetch: touched, log: touched });
  telemetry.record("nothing", 5);
  await report(telemetry, "a", "b");
  await telemetry.close();
  assertStatus(telemetry, { recorded: 0, delivered: 0, waiting: 0, dropped: {}, disabled: "no consent" });
});

test("a one-time metric is reported once in the life of the storage, and that is no trouble", async (t) => {
  const storage = memoryStorage();
  for (let run = 0; run < 3; run++) {
    const { telemetry, reports, logged } = await start(t, { storage, metrics: ONCE });
    for (let i = 0; i < 3; i++) telemetry.record("theme", true);
    assert.equal(await telemetry.flush(), true);
    assertStatus(telemetry, { dropped: { "already reported (one-time metric)": run ? 3 : 2 } });
    assert.deepEqual(logged, []);
    assert.equal(reports().length, run ? 0 : 1);
  }
});

test("a hidden page sends what waits by requests that outlive it", async (t) => {
  const page = Object.assign(new EventTarget(), { visibilityState: "visible" });
  replaceGlobal(t, "document", page);
  const asked = [];
  const fetch = async (_, init) => {
    asked.push(init.keepalive);
    return new Response('{"accepted": 1}', { status: 201 });
  };
  const turn = (state) => {
    page.visibilityState = state;
    page.dispatchEvent(new Event("visibilitychange"));
  };
  const { telemetry } = startTelemetry(t, { fetch });
  await telemetry.flush();
  recordMany(telemetry, 1);
  turn("hidden");
  await until(() => telemetry.status().delivered === 1);
  turn("visible");
  await report(telemetry, "a");
  assert.deepEqual(asked, [true, false]);
});

test("close sends what waits; later calls are dropped and counted", async (t) => {
  const { telemetry } = await start(t);
  recordMany(telemetry, 3);
  await telemetry.close();
  recordMany(telemetry, 2);
  assertStatus(telemetry, { recorded: 3, delivered: 3, dropped: { closed: 2 } });
});

test("close waits for an answer as long as it may", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let attempts = 0;
  const { telemetry } = startTelemetry(t, { fetch: () => (attempts++, new Promise(() => {})) });
  recordMany(telemetry, 5);
  let closed = false;
  const closing = telemetry.close(50).then(() => (closed = true));
  await untilTurned(() => attempts > 0);
  t.mock.timers.tick(49);
  await turns(20);
  assert.equal(closed, false);
  t.mock.timers.tick(1);
  await closing;
});

test("close doesn't wait once an attempt has failed, and the next start sends the rest", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let attempts = 0;
  const fetch = async () => (attempts++, new Response("", { status: 503 }));
  const { telemetry, storage, url } = await start(t, { fetch, batchSize: 2 });
  recordMany(telemetry, 5);
  await telemetry.close(60_000); // of a clock that stands still
  assertStatus(telemetry, { waiting: 5, dropped: {} });
  const before = attempts;
  for (let hour = 0; hour < 24; hour++) {
    t.mock.timers.tick(3_600_000);
    await turns(20);
  }
  assert.equal(attempts, before);
  t.mock.timers.reset();
  const next = startTelemetry(t, { endpoint: url, storage }).telemetry;
  assert.equal(await next.flush(), true);
  assertStatus(next, { delivered: 5 });
});

test("close counts what a storage that hangs was never given", async (t) => {
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { storage, batchSize: 1 });
  await telemetry.flush();
  let asked = false;
  storage.set = () => ((asked = true), new Promise(() => {}));
  recordMany(telemetry, 1);
  await until(() => asked);
  recordMany(telemetry, 2);
  await telemetry.close(1);
  assertStatus(telemetry, { waiting: 1, dropped: { "not stored before close": 2 } });
});

test("close hangs up on a collector that doesn't answer", async (t) => {
  const options = { batchSize: 1, timeoutMillis: 600_000 };
  const { telemetry, received, counts } = await start(t, options, () => SILENCE);
  recordMany(telemetry, 1);
  await until(() => received.length === 1);
  await telemetry.close(1);
  await until(() => counts.hungUp === 1);
});

test("a program that has ended its work isn't kept alive", async (t) => {
  const { url } = await start(t, {}, () => ({ status: 503, headers: { "Retry-After": "60" } }));
  const program = `
    import { Telemetry } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const kept = new Map();
    const storage = { get: (key) => kept.get(key), set: (key, text) => kept.set(key, text) };
    const registry = ${JSON.stringify(buildRegistry())};
    const telemetry = new Telemetry({ registry, endpoint: "${url}", storage, log() {} });
    telemetry.record("homepage", "a");
    console.log(await telemetry.flush(200));
    telemetry.record("homepage", "b");`;
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], { timeout: 30_000 });
  assert.equal((await run).stdout, "false\n");
});

test("an ingest key is sent with each batch, and told nobody else", async (t) => {
  const options = { batchSize: 2, ingestKey: "hub_ingest_zaphod" };
  const { telemetry, received, logged } = await start(t, options, () => ({ status: 401 }));
  await report(telemetry, ..."abcd");
  const keys = received.map(({ headers }) => headers.authorization);
  assert.deepEqual(keys, Array(2).fill("Bearer hub_ingest_zaphod"));
  assertStatus(telemetry, { dropped: { "refused by the collector: ingest key": 4 } });
  assert.equal(logged.length, 2, "each kind of trouble is logged once");
  assert.doesNotMatch(JSON.stringify([telemetry.status(), logged]), /zaphod/);
});

test("construction refuses what can't work, and says what was expected", () => {
  const usable = { registry: buildRegistry(), endpoint: "https://a.example", storage: memoryStorage() };
  const integers = "must be an integer between 1 and 2147483647";
  const wrong = [
    ["storage: must be an object with the function update, or with get and set", { storage: undefined }],
    [`batchSize = 0: ${integers}`, { batchSize: 0 }],
    [`batchMillis = 0.5: ${integers}`, { batchMillis: 0.5 }],
    ["batchSize = 100: must be at most maxWaiting", { maxWaiting: 99 }],
    ['consent = "no": must be true or false', { consent: "no" }],
    ...["", " ", "a b", "a\r\nX: y", "a\n", "\0", "grün", "=", "a=b", '"a"', 7, null].map((ingestKey) => {
      return ["ingestKey: must be letters, digits and -._~+/ alone, and = at the end", { ingestKey }];
    }),
  ];
  for (const [message, options] of wrong) {
    assert.throws(() => new Telemetry({ ...usable, ...options }), { name: "OptionError", message });
  }
  const extra = ["https://a.example/?a=b", "https://u:p@a.example"];
  for (const endpoint of [undefined, "", "telemetry", "ftp://a.example", ...extra]) {
    assert.throws(() => new Telemetry({ ...usable, endpoint }), OptionError);
  }
  assert.throws(() => new Telemetry({ ...usable, registry: {} }), MetricError);
});

test("a telemetry that is logged shows no secret and no value", async (t) => {
  const { telemetry } = startTelemetry(t, {});
  telemetry.record("homepage", "hunter2");
  assert.equal(JSON.stringify(telemetry), "{}");
  await telemetry.flush(20);
  assert.equal(JSON.stringify(telemetry), "{}");
});
