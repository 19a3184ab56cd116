import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

import { fromHex } from "../src/bytes.js";
import { Encoder } from "../src/encoder.js";
import { MetricError, OptionError } from "../src/errors.js";
import { SECRET_KEY } from "../src/secret.js";
import { Telemetry } from "../src/telemetry.js";
import {
  created,
  memoryStorage,
  replaceGlobal,
  scriptedCollector,
  SILENCE,
  startTelemetry,
} from "../testing/collecting.js";
import { buildMetric, buildRegistry } from "../testing/making.js";

const ONCE = { theme: { mode: "one-time", type: "boolean", p: 0, q: 1 } };

function recordMany(telemetry, count) {
  for (let i = 0; i < count; i++) telemetry.record("homepage", `page ${i % 50}`);
}

async function until(condition) {
  for (let left = 5_000; !condition(); left--) {
    assert.ok(left, "waited in vain");
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

function idsOf(received) {
  return received.map(({ batch }) => batch.batch_id);
}

test("every recorded value becomes one delivered report", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const { telemetry, logged } = startTelemetry(t, { endpoint: url, batchSize: 20 });
  recordMany(telemetry, 105);
  assert.equal(telemetry.status().waiting, 105);
  assert.equal(await telemetry.flush(), true);
  const expected = { recorded: 105, delivered: 105, waiting: 0, dropped: {}, disabled: null };
  assert.deepEqual(telemetry.status(), expected);
  assert.deepEqual(
    received.map(({ batch }) => batch.reports.length),
    [20, 20, 20, 20, 20, 5],
  );
  assert.equal(new Set(idsOf(received)).size, 6);
  assert.deepEqual(logged, []);
});

test("reports bear the cohort of the secret in the storage", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { endpoint: url, storage });
  recordMany(telemetry, 3);
  await telemetry.flush();
  const secret = fromHex(storage.texts.get(SECRET_KEY).split(" ")[1]);
  const { cohort } = new Encoder(buildMetric(), secret);
  assert.deepEqual(
    received[0].batch.reports.map((report) => report.cohort),
    [cohort, cohort, cohort],
  );
  const values = [...storage.texts.keys()].filter((key) => key !== SECRET_KEY);
  assert.ok(values.every((key) => key.startsWith("hubbub.value.com.example.browser.homepage.1.")));
  assert.ok([...storage.texts.values()].every((text) => !text.includes("page")));
});

test("a full batch is sent at once, a started one after its time", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const { telemetry } = startTelemetry(t, { endpoint: url, batchSize: 5, batchMillis: 30 });
  recordMany(telemetry, 7);
  await until(() => telemetry.status().delivered === 7);
  assert.deepEqual(
    received.map(({ batch }) => batch.reports.length),
    [5, 2],
  );
});

test("a report that comes while another batch is under way isn't forgotten", async (t) => {
  const { url } = await scriptedCollector(t);
  const { telemetry } = startTelemetry(t, { endpoint: url, batchSize: 1 });
  for (let i = 0; i < 30; i++) {
    telemetry.record("homepage", "a");
    await until(() => telemetry.status().waiting === 0);
  }
  assert.equal(telemetry.status().delivered, 30);
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
  const { url, received } = await scriptedCollector(t, (n) => answers[n] ?? created(3));
  const { telemetry, logged } = startTelemetry(t, { endpoint: url });
  recordMany(telemetry, 3);
  assert.equal(await telemetry.flush(), true);
  assert.ok(received.length > answers.length);
  assert.equal(new Set(received.map(({ batch }) => JSON.stringify(batch))).size, 1);
  assert.equal(telemetry.status().delivered, 3);
  assert.equal(logged.length, 1, "trouble is logged once");
});

test("Retry-After is waited for, even by a flush", async (t) => {
  const times = [];
  const { url } = await scriptedCollector(t, (n, batch) => {
    times.push(performance.now());
    return n ? created(batch.reports.length) : { status: 503, headers: { "Retry-After": "1" } };
  });
  const { telemetry } = startTelemetry(t, { endpoint: url });
  recordMany(telemetry, 1);
  assert.equal(await telemetry.flush(100), false);
  assert.equal(await telemetry.flush(), true);
  assert.ok(times[1] - times[0] >= 990);
});

test("reports that a 422 names are dropped, and the others sent under the same id", async (t) => {
  const { url, received } = await scriptedCollector(t, (n, batch) => {
    const errors = [
      { report: 1, detail: "cohort" },
      { report: 3, detail: "bits" },
    ];
    return n ? created(batch.reports.length) : { status: 422, body: { errors } };
  });
  const { telemetry } = startTelemetry(t, { endpoint: url });
  recordMany(telemetry, 5);
  assert.equal(await telemetry.flush(), true);
  const [first, second] = received.map(({ batch }) => batch);
  assert.equal(second.batch_id, first.batch_id);
  assert.deepEqual(
    second.reports,
    [0, 2, 4].map((i) => first.reports[i]),
  );
  const { delivered, dropped, waiting } = telemetry.status();
  assert.deepEqual(
    { delivered, dropped, waiting },
    {
      delivered: 3,
      dropped: { "refused by the collector": 2 },
      waiting: 0,
    },
  );
});

test("a batch of which every report is refused is done with", async (t) => {
  const { url, received } = await scriptedCollector(t, (_, batch) => {
    return { status: 422, body: { errors: batch.reports.map((_, report) => ({ report })) } };
  });
  const { telemetry } = startTelemetry(t, { endpoint: url });
  recordMany(telemetry, 4);
  assert.equal(await telemetry.flush(), true);
  assert.equal(received.length, 1);
  assert.deepEqual(telemetry.status().dropped, { "refused by the collector": 4 });
});

test("a batch that can never be accepted is dropped and counted, and the next one sent", async (t) => {
  const { url, received } = await scriptedCollector(t, (n) => (n ? created(2) : { status: 413 }));
  const { telemetry } = startTelemetry(t, { endpoint: url, batchSize: 2 });
  recordMany(telemetry, 4);
  assert.equal(await telemetry.flush(), true);
  assert.equal(new Set(idsOf(received)).size, 2);
  const { delivered, dropped } = telemetry.status();
  assert.deepEqual(
    { delivered, dropped },
    { delivered: 2, dropped: { "refused by the collector": 2 } },
  );
});

test("beyond the limit the oldest reports make room, but not those under way", async (t) => {
  let open = false;
  const { url, received } = await scriptedCollector(t, (_, { reports }) => {
    return open ? created(reports.length) : { status: 503 };
  });
  const registry = buildRegistry({ homepage: {}, search: {} });
  const options = { endpoint: url, registry, batchSize: 4, maxWaiting: 10 };
  const { telemetry, logged } = startTelemetry(t, options);
  recordMany(telemetry, 4);
  await until(() => received.length > 0);
  recordMany(telemetry, 14);
  for (let i = 0; i < 6; i++) telemetry.record("search", `words ${i}`);
  await until(() => telemetry.status().waiting === 10);
  assert.deepEqual(telemetry.status().dropped, { "queue full": 14 });
  open = true;
  assert.equal(await telemetry.flush(), true);
  const batches = new Map(received.map(({ batch }) => [batch.batch_id, batch.reports]));
  const delivered = [...batches.values()].flat().map(({ metric }) => metric);
  assert.deepEqual(delivered, [...Array(4).fill("homepage"), ...Array(6).fill("search")]);
  assert.equal(logged.filter((line) => line.includes("queue full")).length, 1);
});

test("calls before the secret is loaded are kept up to the limit", async (t) => {
  const { url } = await scriptedCollector(t);
  const options = { endpoint: url, batchSize: 5, maxWaiting: 5 };
  const { telemetry } = startTelemetry(t, options);
  recordMany(telemetry, 8);
  assert.equal(telemetry.status().waiting, 5);
  assert.equal(await telemetry.flush(), true);
  const { delivered, dropped } = telemetry.status();
  assert.deepEqual({ delivered, dropped }, { delivered: 5, dropped: { "queue full": 3 } });
});

test("wrong calls are counted and logged once, without the value, and never throw", async (t) => {
  const { telemetry, logged } = startTelemetry(t, {});
  const hostile = { toString: () => assert.fail("called"), toJSON: () => assert.fail("called") };
  await telemetry.flush();
  for (let i = 0; i < 2; i++) {
    telemetry.record("homepage", 5);
    telemetry.record("homepage", hostile);
    telemetry.record("homepage", "hunter2\ud800");
    telemetry.record("hunter2", "homepage");
    telemetry.record(Symbol("metric"), "hunter2");
    telemetry.record(hostile, "hunter2");
    telemetry.record();
  }
  assert.deepEqual(telemetry.status().dropped, { "bad value": 6, "unknown metric": 8 });
  assert.equal(telemetry.status().recorded, 0);
  assert.equal(logged.length, 2);
  assert.ok(!logged.join().includes("hunter2"));
});

test("a log that throws doesn't hurt the app", async (t) => {
  const log = () => {
    throw new Error("full disk");
  };
  const { telemetry } = startTelemetry(t, { log });
  await telemetry.flush();
  telemetry.record("nothing", "a");
  assert.deepEqual(telemetry.status().dropped, { "unknown metric": 1 });
});

test("a damaged secret turns the client off: nothing is sent, and it stays damaged", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage(new Map([[SECRET_KEY, "damaged"]]));
  const { telemetry, logged } = startTelemetry(t, { endpoint: url, storage, batchSize: 1 });
  recordMany(telemetry, 3);
  assert.equal(await telemetry.flush(), true);
  recordMany(telemetry, 2);
  const { disabled, dropped, waiting } = telemetry.status();
  assert.match(disabled, /is damaged/);
  assert.deepEqual({ dropped, waiting }, { dropped: { disabled: 5 }, waiting: 0 });
  assert.equal(received.length, 0);
  assert.equal(storage.texts.get(SECRET_KEY), "damaged");
  assert.match(logged[0], /off: .* is damaged/);
});

test("a storage that fails turns the client off", async (t) => {
  const get = () => {
    throw new Error("denied");
  };
  const { telemetry } = startTelemetry(t, { storage: { get, set() {} } });
  recordMany(telemetry, 1);
  await telemetry.flush();
  assert.equal(telemetry.status().disabled, "denied");
});

test("without a system generator the client is off, and says why", async (t) => {
  const storage = memoryStorage();
  await startTelemetry(t, { storage }).telemetry.close();
  replaceGlobal(t, "crypto", undefined);
  for (const kept of [storage, memoryStorage()]) {
    const { telemetry } = startTelemetry(t, { storage: kept });
    recordMany(telemetry, 1);
    assert.equal(await telemetry.flush(), true);
    assert.match(telemetry.status().disabled, /getRandomValues is missing/);
  }
});

test("without consent nothing is read, stored, recorded or sent", async (t) => {
  const touched = () => assert.fail("touched");
  const storage = { get: touched, set: touched };
  const { telemetry, logged } = startTelemetry(t, {
    consent: false,
    storage,
    fetch: touched,
    log: touched,
  });
  recordMany(telemetry, 5);
  telemetry.record("nothing", 5);
  assert.equal(await telemetry.flush(), true);
  await telemetry.close();
  const expected = { recorded: 0, delivered: 0, waiting: 0, dropped: {}, disabled: "no consent" };
  assert.deepEqual(telemetry.status(), expected);
  assert.deepEqual(logged, []);
});

test("an expired metric isn't reported, and its last day counts", async (t) => {
  const { url } = await scriptedCollector(t);
  const registry = buildRegistry({ old: { expires: "2026-03-31" } });
  const { telemetry } = startTelemetry(t, { endpoint: url, registry });
  await telemetry.flush();
  t.mock.timers.enable({ apis: ["Date"], now: Date.parse("2026-03-31T23:59:59Z") });
  telemetry.record("old", "a");
  await until(() => telemetry.status().recorded === 1);
  t.mock.timers.tick(1_000);
  telemetry.record("old", "a");
  const { recorded, dropped } = telemetry.status();
  assert.deepEqual({ recorded, dropped }, { recorded: 1, dropped: { "expired metric": 1 } });
});

test("distinct values are capped in the life of the storage, and known ones go on", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  const registry = buildRegistry({ homepage: { max_values: 3, k: 1024 } });
  for (let run = 0; run < 2; run++) {
    const { telemetry } = startTelemetry(t, { endpoint: url, storage, registry });
    recordMany(telemetry, 5);
    recordMany(telemetry, 1);
    assert.equal(await telemetry.flush(), true);
    assert.deepEqual(telemetry.status().dropped, { "more distinct values than max_values": 2 });
  }
  assert.equal(received.flatMap(({ batch }) => batch.reports).length, 8);
});

test("of many clients that share a storage, none goes beyond the cap", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const texts = new Map();
  const create = async (key, value) => !texts.has(key) && Boolean(texts.set(key, value));
  const storage = { ...memoryStorage(texts), create };
  const registry = buildRegistry({ homepage: { max_values: 3, k: 1024 } });
  const clients = Array.from({ length: 5 }, () =>
    startTelemetry(t, { endpoint: url, storage, registry }),
  );
  clients.forEach(({ telemetry }, i) => telemetry.record("homepage", `client ${i}`));
  await Promise.all(clients.map(({ telemetry }) => telemetry.flush()));
  assert.equal(received.flatMap(({ batch }) => batch.reports).length, 3);
});

test("a one-time metric is reported once in the life of the storage", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  for (let run = 0; run < 3; run++) {
    const { telemetry } = startTelemetry(t, {
      endpoint: url,
      storage,
      registry: buildRegistry(ONCE),
    });
    for (let i = 0; i < 3; i++) telemetry.record("theme", true);
    assert.equal(await telemetry.flush(), true);
    assert.deepEqual(telemetry.status().dropped, { "already reported": run ? 3 : 2 });
  }
  assert.equal(received.flatMap(({ batch }) => batch.reports).length, 1);
  assert.equal(storage.texts.size, 2);
});

test("of many processes that share a storage, one reports a one-time metric", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const texts = new Map();
  const storage = {
    get: (key) => texts.get(key),
    create: (key, value) => !texts.has(key) && Boolean(texts.set(key, value)),
  };
  const started = Array.from({ length: 8 }, () => {
    return startTelemetry(t, { endpoint: url, storage, registry: buildRegistry(ONCE) }).telemetry;
  });
  for (const telemetry of started) telemetry.record("theme", false);
  await Promise.all(started.map((telemetry) => telemetry.flush()));
  assert.equal(received.flatMap(({ batch }) => batch.reports).length, 1);
});

test("a bad value doesn't use up a one-time metric, and neither does a failing storage", async (t) => {
  const { url } = await scriptedCollector(t);
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, {
    endpoint: url,
    storage,
    registry: buildRegistry(ONCE),
  });
  await telemetry.flush();
  telemetry.record("theme", "yes");
  const { set } = storage;
  storage.set = () => Promise.reject(new Error("full disk"));
  telemetry.record("theme", true);
  await telemetry.flush();
  storage.set = set;
  telemetry.record("theme", true);
  await telemetry.flush();
  const { delivered, dropped } = telemetry.status();
  assert.deepEqual(
    { delivered, dropped },
    { delivered: 1, dropped: { "bad value": 1, "storage failed": 1 } },
  );
});

test("a new version of a one-time metric is a new question", async (t) => {
  const { url } = await scriptedCollector(t);
  const storage = memoryStorage();
  for (const version of [1, 2]) {
    const registry = buildRegistry({ theme: { ...ONCE.theme, version } });
    const { telemetry } = startTelemetry(t, { endpoint: url, storage, registry });
    telemetry.record("theme", true);
    await telemetry.flush();
    assert.equal(telemetry.status().delivered, 1);
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
  recordMany(telemetry, 1);
  await telemetry.flush();
  assert.deepEqual(asked, [true, false]);
});

test("close sends what waits; later calls are dropped and counted", async (t) => {
  const { url } = await scriptedCollector(t);
  const { telemetry } = startTelemetry(t, { endpoint: url });
  recordMany(telemetry, 3);
  await telemetry.close();
  recordMany(telemetry, 2);
  const { recorded, delivered, dropped } = telemetry.status();
  assert.deepEqual({ recorded, delivered }, { recorded: 3, delivered: 3 });
  assert.deepEqual(dropped, { closed: 2 });
});

test("close gives up in time, counts what it gave up, and sends nothing afterwards", async (t) => {
  const { url, received } = await scriptedCollector(t, () => ({ status: 503 }));
  const { telemetry } = startTelemetry(t, { endpoint: url, batchSize: 2 });
  recordMany(telemetry, 5);
  const start = performance.now();
  await telemetry.close(50);
  assert.ok(performance.now() - start < 5_000);
  const { waiting, dropped } = telemetry.status();
  assert.deepEqual(
    { waiting, dropped },
    { waiting: 0, dropped: { "not delivered before close": 5 } },
  );
  const before = received.length;
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(received.length, before);
});

test("close hangs up on a collector that doesn't answer", async (t) => {
  const { url, counts } = await scriptedCollector(t, () => SILENCE);
  const { telemetry } = startTelemetry(t, { endpoint: url, timeoutMillis: 600_000 });
  recordMany(telemetry, 1);
  await telemetry.close(50);
  await until(() => counts.hungUp === 1);
});

test("a program that has ended its work isn't kept alive", async (t) => {
  const { url } = await scriptedCollector(t, () => ({
    status: 503,
    headers: { "Retry-After": "60" },
  }));
  const program = `
    import { Telemetry } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const kept = new Map();
    const storage = { get: (key) => kept.get(key), set: (key, text) => kept.set(key, text) };
    const registry = ${JSON.stringify(buildRegistry())};
    const telemetry = new Telemetry({ registry, endpoint: "${url}", storage, log() {} });
    telemetry.record("homepage", "a");
    console.log(await telemetry.flush(200));
    telemetry.record("homepage", "b");`;
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], {
    timeout: 30_000,
  });
  assert.equal((await run).stdout, "false\n");
});

test("an ingest key is sent with each batch, and told nobody else", async (t) => {
  const { url, received } = await scriptedCollector(t, () => ({ status: 401 }));
  const options = { endpoint: url, batchSize: 2, ingestKey: "hub_ingest_zaphod" };
  const { telemetry, logged } = startTelemetry(t, options);
  recordMany(telemetry, 4);
  assert.equal(await telemetry.flush(), true);
  assert.equal(received.length, 2);
  for (const { headers } of received) {
    assert.equal(headers.authorization, "Bearer hub_ingest_zaphod");
  }
  const status = telemetry.status();
  const dropped = Object.values(status.dropped);
  assert.deepEqual(dropped, [4]);
  assert.equal(logged.length, 1);
  assert.doesNotMatch(JSON.stringify([status, logged]), /zaphod/);
});

test("an ingest key that can't be in a header is refused and not quoted", () => {
  const usable = {
    registry: buildRegistry(),
    endpoint: "https://a.example",
    storage: memoryStorage(),
  };
  const message = "ingestKey: must be letters, digits and -._~+/ alone, and = at the end";
  const texts = ["", " ", "a b", "a\r\nX: y", "a\n", "\0", "grün", "=", "a=b", '"a"'];
  for (const ingestKey of [...texts, 7, null]) {
    assert.throws(() => new Telemetry({ ...usable, ingestKey }), { name: "OptionError", message });
  }
});

test("construction refuses what can't work, and says what was expected", () => {
  const usable = {
    registry: buildRegistry(),
    endpoint: "https://a.example",
    storage: memoryStorage(),
  };
  const wrong = {
    "storage: must be an object with the functions get, and set or create": { storage: undefined },
    "batchSize = 0: must be an integer between 1 and 2147483647": { batchSize: 0 },
    "batchMillis = 0.5: must be an integer between 1 and 2147483647": { batchMillis: 0.5 },
    "batchSize = 100: must be at most maxWaiting": { maxWaiting: 99 },
    'consent = "no": must be true or false': { consent: "no" },
  };
  for (const [message, options] of Object.entries(wrong)) {
    assert.throws(() => new Telemetry({ ...usable, ...options }), { name: "OptionError", message });
  }
  for (const endpoint of [
    undefined,
    "",
    "telemetry",
    "ftp://a.example",
    "https://a.example/?a=b",
    "https://u:p@a.example",
  ]) {
    assert.throws(() => new Telemetry({ ...usable, endpoint }), OptionError);
  }
  assert.throws(() => new Telemetry({ ...usable, registry: {} }), MetricError);
});

test("a telemetry that is logged shows no secret and no value", async (t) => {
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { storage });
  telemetry.record("homepage", "hunter2");
  assert.equal(JSON.stringify(telemetry), "{}");
  await telemetry.flush(20);
  assert.equal(JSON.stringify(telemetry), "{}");
});
