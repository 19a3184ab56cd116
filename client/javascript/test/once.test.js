/** Mode "once" and groups, as an app sees them: one report per period, of one metric of a group. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHex } from "../src/bytes.js";
import { countRestore, emptyAccount, enter, spent } from "../src/ledger.js";
import { makeRegistry } from "../src/registry.js";
import { chosen, firstDay } from "../src/schedule.js";
import { assertStatus, start, startTelemetry, STATE_KEY, storedState } from "../testing/collecting.js";
import { buildRegistry } from "../testing/making.js";

const DAY = 86_400_000;
const WEEK = 7;
const START = 20_000;
const COLOURS = { type: "enum", categories: ["red", "green", "blue", "white"] };
const SET = { ...COLOURS, mode: "once", period_days: WEEK, response: "subset", size: 2, q: 0.75 };
const DAILY = { ...SET, period_days: 1 };
const RANGE = { type: "number", low: 0, high: 10, cells: 8, window: 4, q: 0.7 };
const MEAN = { ...RANGE, mode: "once", period_days: 1 };
const GROUP = { mood: { metrics: ["crash", "wait"] } };
const REPORTED = "already reported in this period";
const WAITING = "waiting for its first period";
const NOT_CHOSEN = "another metric of its group is answered";

const onceRegistry = (entries, groups = {}) => ({ ...buildRegistry(entries), groups });

const onesOf = ({ bits }) => {
  const digits = Array.from(Buffer.from(bits, "base64"), (byte) => byte.toString(2)).join("");
  return digits.replaceAll("0", "").length;
};

/** A client whose clock is the tests', and its registry's metric "crash". */
async function startOn(t, registry) {
  t.mock.timers.enable({ apis: ["Date"], now: START * DAY });
  const started = await start(t, { registry });
  await started.telemetry.flush();
  const secret = fromHex(storedState(started.storage).secret);
  const metric = makeRegistry(registry).metrics.get("crash");
  const record = async (values) => {
    for (const [name, value] of Object.entries(values)) started.telemetry.record(name, value);
    await started.telemetry.flush();
  };
  return { ...started, secret, metric, record };
}

test("a client reports once per period, from the first day on that is its own", async (t) => {
  const registry = onceRegistry({ crash: SET });
  const { telemetry, secret, metric, record, reports, logged } = await startOn(t, registry);
  const days = [];
  for (let day = START; day < START + 4 * WEEK; day++) {
    t.mock.timers.setTime(day * DAY + 1_000);
    const before = reports().length;
    await record({ crash: "red" });
    if (reports().length > before) days.push(day);
  }
  const periods = [...Array(6).keys()].map((i) => Math.floor(START / WEEK) - 1 + i);
  const expected = periods
    .map((period) => firstDay(metric, secret, period))
    .filter((day) => day >= START && day < START + 4 * WEEK);
  assert.deepEqual(days, expected);
  const { [REPORTED]: reported = 0, [WAITING]: waited = 0 } = telemetry.status().dropped;
  assert.equal(reported + waited + days.length, 4 * WEEK);
  assert.equal(waited, days[0] - START);
  assert.deepEqual(logged, [], "all of this is normal use");
});

test("nothing of a value stays but the unsent report, in which a set has its size", async (t) => {
  const registry = onceRegistry({ crash: DAILY, wait: MEAN });
  const { telemetry, storage, record, reports } = await startOn(t, registry);
  await record({ crash: "blue", wait: 2.5 });
  for (const { last, open, answers } of storedState(storage).account.entries) {
    assert.deepEqual({ last, open, answers }, { last: null, open: [], answers: 1 });
  }
  assert.doesNotMatch(storage.texts.get(STATE_KEY), /digest|permanent/);
  const ones = Object.fromEntries(reports().map((report) => [report.metric, onesOf(report)]));
  assert.deepEqual(ones, { crash: 2, wait: 1 });
  const ledger = await telemetry.ledger();
  for (const one of ledger.metrics) {
    assert.deepEqual([one.answers, one.reports], [1, 1]);
    assert.equal(one.spent, one.committed);
    assert.equal(one.anyHistory, one.committed);
  }
});

test("a recording that the account refuses takes no coins, and is refused at once", async (t) => {
  const registry = onceRegistry({ crash: DAILY, wait: MEAN }, { mood: GROUP.mood });
  const { telemetry, storage, record, reports } = await startOn(t, registry);
  await record({ crash: "red", wait: 5 });
  const stored = storage.texts.get(STATE_KEY);
  const coins = t.mock.method(crypto, "getRandomValues");
  const recording = record({ crash: "blue", wait: 6 });
  const { [REPORTED]: reported, [NOT_CHOSEN]: others } = telemetry.status().dropped;
  assert.deepEqual({ reported, others }, { reported: 1, others: 2 });
  await recording;
  await record({ crash: "no colour", wait: "no number" });
  assert.equal(telemetry.status().dropped["bad value"], 2);
  assert.equal(coins.mock.callCount(), 0);
  assert.equal(storage.texts.get(STATE_KEY), stored);
  assert.equal(reports().length, 1);
  t.mock.timers.setTime((START + 1) * DAY);
  await record({ crash: "blue", wait: 6 });
  assert.equal(reports().length, 2);
});

test("of several tabs one reports a period", async (t) => {
  const registry = onceRegistry({ crash: DAILY });
  const { telemetry, storage, url, reports } = await startOn(t, registry);
  const other = startTelemetry(t, { endpoint: url, storage, registry }).telemetry;
  for (const tab of [telemetry, other]) tab.record("crash", "red");
  await Promise.all([telemetry.flush(), other.flush()]);
  assert.equal(reports().length, 1);
});

test("a client that waits has spent nothing, and its preview says why nothing is sent", async (t) => {
  const registry = onceRegistry({ crash: { ...SET, period_days: 3650 } });
  const { telemetry, secret, metric, record } = await startOn(t, registry);
  const period = Math.floor(START / 3650) + 1;
  t.mock.timers.setTime((firstDay(metric, secret, period) + 1) * DAY);
  const { refusal, report } = await telemetry.preview("crash", "red");
  assert.equal(refusal, WAITING);
  assert.equal(onesOf({ bits: Buffer.from(report.bits).toString("base64") }), 2);
  await record({ crash: "red" });
  assertStatus(telemetry, { dropped: { [WAITING]: 1 } });
  assert.deepEqual((await telemetry.ledger()).metrics, []);
  assert.match(await telemetry.explain(), /Privacy budget used so far: nothing\./);
});

test("a preview without a client is that of one that is asked everything, at once", async (t) => {
  const registry = onceRegistry({ crash: SET, wait: MEAN }, GROUP);
  const { telemetry } = startTelemetry(t, { registry, consent: false });
  for (const [name, value] of Object.entries({ crash: "red", wait: 5 })) {
    const { words, refusal } = await telemetry.preview(name, value);
    assert.equal(refusal, telemetry.status().disabled);
    assert.match(words, /a client answers only one question of this group/);
  }
});

test("a client answers one metric of a group", async (t) => {
  const registry = onceRegistry({ crash: DAILY, wait: MEAN }, GROUP);
  const { telemetry, secret, metric, record, names } = await startOn(t, registry);
  for (let day = START; day < START + 3; day++) {
    t.mock.timers.setTime(day * DAY);
    await record({ crash: "red", wait: 5 });
  }
  const own = chosen(metric.group, metric.application, secret, 0);
  assert.deepEqual(names(), [own, own, own]);
  assertStatus(telemetry, { dropped: { [NOT_CHOSEN]: 3 } });
});

test("in a copied state the current period is taken as reported", () => {
  const registry = makeRegistry(onceRegistry({ crash: DAILY }));
  const metric = registry.metrics.get("crash");
  const account = emptyAccount();
  const answer = { digest: null, cohort: 0, permanent: "01" };
  const day = (number) => ({ number, firstDay: number, endDay: number + 1 });
  const on = (number) => ({ metric, seconds: number * 86_400, answer, period: day(number) });
  countRestore(account, registry, () => day(START));
  assert.equal(enter(account, registry, on(START)).reason, WAITING);
  assert.equal(enter(account, registry, on(START + 1)).kind, "admitted");
  countRestore(account, registry, () => day(START + 1));
  assert.equal(enter(account, registry, on(START + 1)).reason, WAITING);
  assert.equal(spent(account.entries[0], registry), metric.price);
});

test("in development nobody waits, and mistakes are thrown", async (t) => {
  const registry = onceRegistry({ crash: { ...SET, period_days: 3650 } });
  const { telemetry, received } = await start(t, { registry, development: true });
  telemetry.record("crash", "red");
  assert.throws(() => telemetry.record("Crash", "red"), /^MetricError: unknown metric; known: crash/);
  assert.throws(() => telemetry.record("crash", "mauve"), /^ValueError/);
  await telemetry.flush();
  telemetry.record("crash", "red");
  await telemetry.flush();
  assert.equal(received.length, 1);
  assert.deepEqual(telemetry.status().dropped, { [REPORTED]: 1 });
  assert.equal((await telemetry.preview("crash", "red")).refusal, REPORTED);
  assert.throws(() => startTelemetry(t, { registry, development: 1 }), /development = 1: must be/);
});
