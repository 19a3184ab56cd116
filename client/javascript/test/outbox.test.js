/** Unsent reports: bounded, batched, leased, and never under two ids. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { bodyOf, storedReport } from "../src/batch.js";
import { batchSpooled, clear, countsOf, emptyOutbox, leaseOldest, putOff } from "../src/outbox.js";
import { release, spool, trim } from "../src/outbox.js";
import { assertStatus, created, memoryStorage, report, SILENCE, start, startTelemetry } from "../testing/collecting.js";
import { until, untilTurned } from "../testing/waiting.js";

const NOW = Date.parse("2026-03-01T12:00:00Z");
const DAY = 86_400_000;
const _NO_BOUNDS = { maxWaiting: Infinity, maxOutboxBytes: Infinity };
const ORIGIN = "https://telemetry.example.com";

function outboxOf(count, { metric = "homepage", lasting = true, bits = new Uint8Array(16), origin = ORIGIN } = {}) {
  const outbox = emptyOutbox();
  for (let cohort = 0; cohort < count; cohort++) {
    spool(outbox, storedReport({ metric, version: 1, cohort, bits }), { origin, lasting, now: NOW });
  }
  return outbox;
}

/** As `outboxOf`, with so many reports of other kinds behind it. */
function withOthers(outbox, count, options) {
  outbox.spool.push(...outboxOf(count, options).spool);
  return outbox;
}

/** An outbox with this many batches of one report each. */
function batched(count) {
  const outbox = outboxOf(count);
  for (let i = 0; i < count; i++) batchSpooled(outbox, 1, ORIGIN);
  return outbox;
}

const cohortOf = ({ record }) => Buffer.from(record, "base64").readUInt16LE(0);
const spooled = ({ spool }) => spool.map(({ report }) => cohortOf(report));
const lease = (holder, since = NOW) => ({ holder, since, millis: 15_000 });

test("a batch takes the oldest reports and leaves the others in their order", () => {
  const outbox = outboxOf(10);
  batchSpooled(outbox, 4, ORIGIN);
  assert.deepEqual(spooled(outbox), [4, 5, 6, 7, 8, 9]);
  const [{ id, reports, lease: leased }] = outbox.batches;
  assert.deepEqual(reports.map(cohortOf).sort(), [0, 1, 2, 3]);
  assert.deepEqual([id, leased], [null, null]);
  assert.match(leaseOldest(outbox, lease("one"), ORIGIN).id, /^[0-9a-f]{32}$/);
});

test("the order of reports in a batch tells nothing of when they were recorded: they ascend", () => {
  const outbox = outboxOf(300);
  outbox.spool.reverse();
  batchSpooled(outbox, 300, ORIGIN);
  const [{ reports }] = outbox.batches;
  const bytes = reports.map(({ record }) => atob(record).slice(0, 2));
  assert.deepEqual(bytes, [...bytes].sort());
  assert.equal(new Set(bytes).size, 300);
});

test("cohorts for life of two metrics never meet in a batch; others may be beside", () => {
  const outbox = withOthers(outboxOf(3), 3, { metric: "search" });
  withOthers(outbox, 3, { metric: "theme", lasting: false });
  for (let i = 0; i < 3; i++) batchSpooled(outbox, 100, ORIGIN);
  const metrics = outbox.batches.map(({ reports }) => [...new Set(reports.map((r) => r.metric))].sort());
  assert.deepEqual(metrics, [["homepage", "theme"], ["search"]]);
  assert.equal(countsOf(outbox).waiting, 9);
});

test("a batch's body has at most 1,000,000 bytes, and nearly as many where there is more", () => {
  const outbox = outboxOf(10_000, { bits: new Uint8Array(129) });
  while (outbox.spool.length) batchSpooled(outbox, 1_000_000, ORIGIN);
  const sizes = outbox.batches.map(({ reports }) => bodyOf("0".repeat(32), reports).length);
  assert.equal(sizes.length, 3);
  assert.ok(sizes.every((size) => size <= 1_000_000));
  assert.ok(sizes[0] > 999_000 && sizes[1] > 999_000);
});

test("a leased batch is left to its holder until the lease ends", () => {
  const outbox = batched(2);
  const first = leaseOldest(outbox, lease("one"), ORIGIN).id;
  assert.notEqual(leaseOldest(outbox, lease("other"), ORIGIN).id, first);
  assert.equal(leaseOldest(outbox, lease("third"), ORIGIN), null);
  assert.equal(leaseOldest(outbox, lease("one"), ORIGIN).id, first, "its own it may have again");
  assert.equal(leaseOldest(outbox, lease("third", NOW + 15_000), ORIGIN).id, first);
});

test("a clock that was set back doesn't make leases last", () => {
  const outbox = batched(1);
  leaseOldest(outbox, lease("one"), ORIGIN);
  assert.notEqual(leaseOldest(outbox, lease("other", NOW - DAY), ORIGIN), null);
});

test("what is settled is forgotten, the rest keeps its id", () => {
  const outbox = outboxOf(3);
  batchSpooled(outbox, 3, ORIGIN);
  const { id, reports } = leaseOldest(outbox, lease("one"), ORIGIN);
  const expected = [reports[0], reports[2]];
  assert.equal(release(outbox, id, new Set([1])), true);
  assert.deepEqual(outbox.batches, [{ ...outbox.batches[0], id, reports: expected, lease: null }]);
  assert.equal(release(outbox, id, new Set([0, 1])), true);
  assert.deepEqual(outbox.batches, []);
  assert.equal(release(outbox, id, new Set()), false);
});

test("an id is shown again only if a collector may have stored what came under it", () => {
  const outbox = batched(1);
  const ids = [false, false, true, false, false].map((mayBeStored) => {
    const { id, isNew } = leaseOldest(outbox, lease("one"), ORIGIN);
    release(outbox, id, new Set(), isNew && !mayBeStored ? "one" : null);
    return id;
  });
  assert.equal(new Set(ids).size, 3);
  assert.equal(new Set(ids.slice(2)).size, 1);
});

test("an id stays if another has sent the batch meanwhile", () => {
  const outbox = batched(1);
  const { id } = leaseOldest(outbox, lease("one"), ORIGIN);
  leaseOldest(outbox, lease("other", NOW + 15_000), ORIGIN);
  release(outbox, id, new Set(), "one");
  assert.equal(leaseOldest(outbox, lease("third", NOW + 30_000), ORIGIN).id, id);
});

test("reports wait for the collector that they were recorded for", () => {
  const other = "https://another.example.com";
  const outbox = withOthers(outboxOf(2), 3, { origin: other });
  assert.deepEqual(countsOf(outbox, other), { spooled: 3, waiting: 3 });
  batchSpooled(outbox, 100, ORIGIN);
  assert.equal(leaseOldest(outbox, lease("one"), other), null);
  assert.equal(leaseOldest(outbox, lease("one"), ORIGIN).reports.length, 2);
  batchSpooled(outbox, 100, other);
  assert.equal(leaseOldest(outbox, lease("one"), other).reports.length, 3);
  assert.equal(clear(outbox), 5, "consent is the application's, wherever it reports");
});

test("only a report's day is kept of its time", () => {
  const outbox = outboxOf(1);
  assert.deepEqual(Object.keys(outbox.spool[0]).sort(), ["day", "lasting", "origin", "report"]);
  batchSpooled(outbox, 1, ORIGIN);
  const [batch] = outbox.batches;
  assert.deepEqual(Object.keys(batch).sort(), ["day", "id", "lease", "origin", "reports"]);
  assert.equal(batch.day, Date.parse("2026-03-01") / DAY);
});

test("beyond the bounds the oldest make room, but none that is being sent", () => {
  const outbox = outboxOf(10);
  batchSpooled(outbox, 2, ORIGIN);
  batchSpooled(outbox, 2, ORIGIN);
  const { id: sent } = leaseOldest(outbox, lease("one"), ORIGIN);
  assert.equal(trim(outbox, { maxWaiting: 5, maxOutboxBytes: Infinity }, NOW)["queue full"], 5);
  assert.deepEqual([outbox.batches.length, outbox.batches[0].id], [1, sent]);
  assert.deepEqual(spooled(outbox), [7, 8, 9]);
  const full = outboxOf(100);
  const dropped = trim(full, { maxWaiting: Infinity, maxOutboxBytes: 1_000 }, NOW)["queue full"];
  assert.ok(dropped > 50 && JSON.stringify(full.spool.map(({ report }) => report)).length <= 1_000);
});

test("reports survive their page, and go out under the id that they had", async (t) => {
  const script = (n, { reports }) => (n ? created(reports.length) : { status: 503 });
  const { telemetry: page, storage, received, url } = await start(t, { batchSize: 3 }, script);
  for (const value of "abcd") page.record("homepage", value);
  await until(() => received.length > 0);
  await page.close(1);
  const next = startTelemetry(t, { endpoint: url, storage }).telemetry;
  assert.equal(await next.flush(), true);
  assertStatus(next, { delivered: 4 });
  assert.deepEqual(received[1].batch, received[0].batch);
  assert.equal(received.slice(1).flatMap(({ batch }) => batch.reports).length, 4);
});

test("a page that closes while it leases a batch leaves it to the next one", async (t) => {
  const storage = memoryStorage();
  const { set } = storage;
  let [begin, end] = [];
  const leasing = new Promise((resolve) => (begin = resolve));
  const leased = new Promise((resolve) => (end = resolve));
  storage.set = async (key, text) => {
    if (!text.includes('"holder"')) return set(key, text);
    begin();
    await new Promise((resolve) => setTimeout(resolve, 50));
    await set(key, text);
    end();
  };
  const { telemetry: page, url } = await start(t, { storage, batchSize: 1 });
  page.record("homepage", "a");
  await leasing;
  await Promise.all([page.close(1), leased]);
  const next = startTelemetry(t, { endpoint: url, storage: memoryStorage(storage.texts) }).telemetry;
  assert.equal(await next.flush(5_000), true);
  assertStatus(next, { delivered: 1 });
});

test("what is recorded is stored before any time passes, and all of one turn at once", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { storage });
  await untilTurned(() => storage.texts.size);
  const { set } = storage;
  let writes = 0;
  storage.set = (key, text) => (writes++, set(key, text));
  for (const value of "abc") telemetry.record("homepage", value);
  await untilTurned(() => telemetry.status().recorded === 3);
  t.mock.timers.reset();
  assert.equal(writes, 1);
});

test("what a page was sending when it vanished is sent again under its id, once its lease ends", async (t) => {
  const script = (n, { reports }) => (n ? created(reports.length) : SILENCE);
  const options = { batchSize: 1, timeoutMillis: 600_000 };
  const { telemetry: vanished, storage, received, url } = await start(t, options, script);
  vanished.record("homepage", "a");
  await until(() => received.length === 1);
  const next = startTelemetry(t, { endpoint: url, storage }).telemetry;
  assert.equal(await next.flush(50), false, "it may still be under way");
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + 3_600_000 });
  assert.equal(await next.flush(), true);
  assert.deepEqual(received[1].batch, received[0].batch);
});

test("tabs that share a storage send each report once, under one id", async (t) => {
  const { telemetry, storage, url, received, reports } = await start(t, { batchSize: 7 });
  const others = [1, 2, 3].map(() => startTelemetry(t, { endpoint: url, storage, batchSize: 7 }).telemetry);
  const tabs = [telemetry, ...others];
  for (let i = 0; i < 20; i++) for (const tab of tabs) tab.record("homepage", `page ${i}`);
  assert.deepEqual(await Promise.all(tabs.map((tab) => tab.flush(60_000))), Array(4).fill(true));
  assert.equal(new Set(received.map(({ batch }) => batch.batch_id)).size, received.length);
  const delivered = tabs.reduce((sum, tab) => sum + tab.status().delivered, 0);
  assert.deepEqual([reports().length, delivered], [80, 80]);
});

test("reports that wait for 13 days are dropped and counted", async (t) => {
  let open = false;
  const script = (_, { reports }) => (open ? created(reports.length) : { status: 503 });
  const { telemetry } = await start(t, { batchSize: 1 }, script);
  telemetry.record("homepage", "a");
  await until(() => telemetry.status().lastError !== null);
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + 13 * DAY });
  await until(() => telemetry.status().waiting === 0);
  open = true;
  await report(telemetry, "a");
  assertStatus(telemetry, { delivered: 1, dropped: { "too old": 1 } });
});

const THEME = { metric: "theme", lasting: false };
const UNKNOWN = { unknown: [{ metric: "theme", version: 1 }], refused: new Set() };

test("what the collector doesn't know yet rests in a batch of its own, and the rest goes at once", () => {
  const outbox = withOthers(outboxOf(2), 2, THEME);
  batchSpooled(outbox, 100, ORIGIN, NOW);
  const { id, reports } = leaseOldest(outbox, lease("one"), ORIGIN);
  assert.equal(reports[0].metric, "homepage");
  assert.equal(putOff(outbox, id, { ...UNKNOWN, refused: new Set([0]) }, "one", NOW), true);
  const next = leaseOldest(outbox, lease("one"), ORIGIN);
  assert.notEqual(next.id, id);
  assert.deepEqual([next.reports.length, next.reports[0].metric], [1, "homepage"]);
  release(outbox, next.id, new Set([0]));
  assert.equal(leaseOldest(outbox, lease("one"), ORIGIN), null);
  const { rest, ...counts } = countsOf(outbox, ORIGIN, NOW);
  assert.deepEqual([counts, rest.reports], [{ spooled: 0, waiting: 2 }, 2]);
  assert.ok(rest.until > NOW && rest.until <= NOW + 1_000);
  // What is recorded meanwhile waits for the answer to these.
  withOthers(outbox, 1, THEME);
  batchSpooled(outbox, 100, ORIGIN, NOW);
  assert.equal(outbox.spool.length, 1);
  assert.equal(leaseOldest(outbox, lease("one", NOW + 1_000), ORIGIN).reports.length, 2);
});

test("a batch that may have been stored rests whole, under its id", () => {
  const outbox = withOthers(outboxOf(1), 1, THEME);
  batchSpooled(outbox, 100, ORIGIN, NOW);
  const { id } = leaseOldest(outbox, lease("one"), ORIGIN);
  release(outbox, id, new Set());
  leaseOldest(outbox, lease("one"), ORIGIN);
  putOff(outbox, id, UNKNOWN, null, NOW);
  assert.equal(leaseOldest(outbox, lease("one"), ORIGIN), null);
  const again = leaseOldest(outbox, lease("one", NOW + 1_000), ORIGIN);
  assert.deepEqual([again.id, again.reports.length], [id, 2]);
});

test("a rest doubles to an hour", () => {
  const outbox = outboxOf(3, THEME);
  batchSpooled(outbox, 3, ORIGIN, NOW);
  let now = NOW;
  for (let times = 1; times < 20; times++) {
    const { id } = leaseOldest(outbox, lease("one", now), ORIGIN);
    putOff(outbox, id, UNKNOWN, "one", now);
    const until = countsOf(outbox, ORIGIN, now).rest.until;
    const longest = Math.min(1_000 * 2 ** (times - 1), 3_600_000);
    assert.ok(until >= now + longest / 2 && until <= now + longest);
    now = until;
  }
});
