/** `reports_per_day = 1`: of a client's reports of a metric no two are stored on one day. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { created, start as startClient, storedState } from "../testing/collecting.js";
import { stream } from "../testing/making.js";
import { until } from "../testing/waiting.js";

const DAY = 86_400_000;
const NOON = 20_000.5 * DAY;
const COLOURS = ["red", "green", "blue"];
/** A report is its value's bits; P(one of a few dozen isn't) < 1e-6. */
const HARDLY_NOISY = { type: "enum", categories: COLOURS, f: 1e-9, p: 1e-9, q: 1 - 1e-9 };
const metrics = { theme: { ...HARDLY_NOISY, reports_per_day: 1 }, page: HARDLY_NOISY };
const TODAY = "already reported today";
const REPLACED = "replaced by a newer report";
const NOT_STORED = { status: 503, body: { stored: false } };
const PERHAPS_STORED = { status: 503 };

/** A client whose clock is the test's, and a collector that answers as `weather` says. */
async function start(t) {
  const weather = { answer: /** @type {object | null} */ (null), arrives: false };
  const stored = new Map();
  t.mock.timers.enable({ apis: ["Date"], now: NOON });
  const script = (_, { batch_id: id, reports }) => {
    if ((!weather.answer || weather.arrives) && !stored.has(id)) {
      stored.set(id, { day: Math.floor(Date.now() / DAY), reports });
    }
    return weather.answer ?? created(reports.length);
  };
  const { telemetry, storage } = await startClient(t, { metrics, timeoutMillis: 500 }, script);
  await telemetry.flush();
  const record = async (...values) => {
    for (const value of values) telemetry.record("theme", value);
    await telemetry.flush(weather.answer ? 15 : 5_000);
  };
  const colours = () => {
    const reports = [...stored.values()].flatMap((batch) => batch.reports);
    return reports.map(({ bits }) => COLOURS[Math.log2(Buffer.from(bits, "base64")[0])]);
  };
  const dropped = () => telemetry.status().dropped;
  return { telemetry, storage, weather, stored, record, colours, dropped };
}

/** @param {import("node:test").TestContext} t @param {number} days */
const setDay = (t, days) => t.mock.timers.setTime(NOON + days * DAY);

test("of several unsent reports the newest is sent", async (t) => {
  const { telemetry, storage, colours, dropped } = await start(t);
  telemetry.record("theme", "red");
  await until(() => storedState(storage).outbox.spool.length);
  setDay(t, 1);
  telemetry.record("theme", "red");
  telemetry.record("theme", "green");
  await until(() => dropped()[REPLACED] === 2);
  setDay(t, 2);
  telemetry.record("theme", "blue");
  await telemetry.flush();
  assert.equal(dropped()[REPLACED], 3);
  assert.deepEqual(colours(), ["blue"]);
  assert.equal(telemetry.status().waiting, 0);
});

test("a day has one report and the next another; other metrics report each recording", async (t) => {
  const { telemetry, record, colours, dropped } = await start(t);
  await record("red");
  await record("green");
  await record("green", "blue");
  assert.equal(dropped()[TODAY], 3);
  setDay(t, 0.5);
  await record("blue");
  assert.deepEqual(colours(), ["red", "blue"]);
  const [{ reports }] = (await telemetry.ledger()).metrics;
  assert.equal(reports, 2, "what isn't sent costs nothing");
  for (const colour of COLOURS) telemetry.record("page", colour);
  await telemetry.flush();
  assert.equal(colours().length, 5);
});

test("a preview says whether there may be another report today", async (t) => {
  const { telemetry, record } = await start(t);
  const refusal = async (metric) => (await telemetry.preview(metric, "red")).refusal;
  assert.equal(await refusal("theme"), null);
  await record("red");
  telemetry.record("page", "red");
  await telemetry.flush();
  assert.deepEqual([await refusal("theme"), await refusal("page")], [TODAY, null]);
  setDay(t, 1);
  assert.equal(await refusal("theme"), null);
});

test("what may have arrived isn't replaced, and a copy doesn't repeat it", async (t) => {
  const { telemetry, storage, weather, record, colours, dropped } = await start(t);
  Object.assign(weather, { answer: PERHAPS_STORED, arrives: true });
  await record("red");
  setDay(t, 1);
  await record("green");
  await until(() => dropped()[TODAY] === 1);
  weather.answer = null;
  await telemetry.flush();
  await record("blue");
  assert.deepEqual(colours(), ["red"]);
  assert.deepEqual(storedState(storage).outbox.sentDays, { theme: 20_001 });
});

test("whatever happens, no day has two reports", async (t) => {
  const { stored, weather, record } = await start(t);
  const random = stream("once a day");
  const draw = (below) => random.fill(new Uint8Array(1))[0] % below;
  let now = NOON;
  for (let step = 0; step < 120; step++) {
    now += (draw(256) / 256) * (DAY / 3);
    t.mock.timers.setTime(now);
    weather.answer = [null, NOT_STORED, PERHAPS_STORED][draw(3)];
    weather.arrives = weather.answer === PERHAPS_STORED && draw(2) === 1;
    await record(...COLOURS.slice(draw(3)));
  }
  const days = [...stored.values()].flatMap(({ day, reports }) => reports.map(() => day));
  assert(days.length > 5);
  assert.equal(new Set(days).size, days.length);
});
