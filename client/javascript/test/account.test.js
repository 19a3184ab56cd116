/** What an app sees of the account: periods, caps, ledger, preview, explain, reset and forget. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHex } from "../src/bytes.js";
import { makeRegistry } from "../src/registry.js";
import { parse, StateStore } from "../src/state.js";
import { assertStatus, memoryStorage, readCompact, report, start, startTelemetry } from "../testing/collecting.js";
import { STATE_KEY, storedState } from "../testing/collecting.js";
import { buildMetric, buildRegistry } from "../testing/making.js";
import { until } from "../testing/waiting.js";

const DAY = 86_400_000;
// p = 0: a reported 1 tells that the permanent bit is 1.
const PERIOD = { memory: "period", period_days: 1, p: 0, q: 0.5 };
const ONCE = { mode: "one-time", type: "boolean", p: 0, q: 1 };
const UNREACHABLE = () => ({ status: 503 });

const bitsOf = ({ bits }) => new Uint8Array(Buffer.from(bits, "base64"));
const lastOf = (storage) => storedState(storage).account.entries[0].last;

/** Whether a report is noise over this answer (if p = 0; of another one's reports, 2^-32 or so pass). */
function isOf(report, { cohort, permanent }) {
  const expected = fromHex(permanent);
  return report.cohort === cohort && bitsOf(report).every((byte, i) => !(byte & ~expected[i]));
}

function close(a, b) {
  assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);
}

/** Several clients of one storage. */
async function startTabs(t, count, options, script) {
  const first = await start(t, options, script);
  const others = Array.from({ length: count - 1 }, () => {
    const registry = buildRegistry(options.metrics);
    return startTelemetry(t, { ...options, endpoint: first.url, storage: first.storage, registry }).telemetry;
  });
  return { ...first, tabs: [first.telemetry, ...others] };
}

test("in a period all reports are noise over one answer, whatever is recorded, in all tabs", async (t) => {
  const { tabs, storage, reports } = await startTabs(t, 4, { metrics: { page: PERIOD } });
  tabs.forEach((tab, i) => {
    for (let n = 0; n < 5; n++) tab.record("page", `page ${i}`);
  });
  await Promise.all(tabs.map((tab) => tab.flush()));
  assert.equal(reports().length, 20);
  assert.equal(storedState(storage).account.entries[0].answers, 1);
  assert.ok(reports().every((report) => isOf(report, lastOf(storage))));
  assert.equal(new Set(reports().map(({ bits }) => bits)).size, 20, "each in noise of its own");
});

test("the next period's answer is another, and nothing is left of the last one", async (t) => {
  const { telemetry, storage, reports } = await start(t, { metrics: { page: PERIOD } });
  await telemetry.flush();
  t.mock.timers.enable({ apis: ["Date"], now: 20_000 * DAY });
  const answers = [];
  for (let day = 0; day < 3; day++) {
    telemetry.record("page", "a");
    await telemetry.flush();
    const text = storage.texts.get(STATE_KEY);
    assert.ok(answers.every(({ permanent }) => !text.includes(permanent)));
    answers.push(lastOf(storage));
    assert.ok(isOf(reports().at(-1), answers.at(-1)));
    t.mock.timers.tick(DAY);
  }
  assert.equal(new Set(answers.map(({ permanent }) => permanent)).size, 3);
});

test("a period's answer that is over is deleted at the next start, or while nothing is recorded", async (t) => {
  t.mock.timers.enable({ apis: ["Date", "setInterval"], now: 20_000 * DAY });
  const { telemetry, storage } = await start(t, { metrics: { page: PERIOD } });
  for (let day = 0; day < 2; day++) {
    telemetry.record("page", "a");
    await telemetry.flush();
    assert.notEqual(lastOf(storage), null);
    if (day) await telemetry.close();
    t.mock.timers.tick(DAY);
    if (day) startTelemetry(t, { storage, registry: buildRegistry({ page: PERIOD }) });
    await until(() => lastOf(storage) === null);
  }
});

test("what tabs hold of a period's last second isn't answered again after a third has ended the period", async (t) => {
  const metrics = { page: PERIOD, other: {} };
  const shared = memoryStorage();
  let open = () => {};
  let gate = Promise.resolve();
  const held = memoryStorage(shared.texts);
  const { get } = held;
  held.get = (key) => gate.then(() => get(key));
  t.mock.timers.enable({ apis: ["Date"], now: 20_000 * DAY - 100_000 });
  const { tabs, reports, names, url } = await startTabs(t, 2, { metrics, storage: held });
  tabs[0].record("page", "a");
  await Promise.all(tabs.map((tab) => tab.flush()));
  assert.equal(reports().length, 1);
  t.mock.timers.setTime(20_000 * DAY - 500);
  gate = new Promise((resolve) => (open = resolve));
  for (const tab of tabs) tab.record("page", "b");
  t.mock.timers.setTime(20_000 * DAY + 100);
  const third = startTelemetry(t, { endpoint: url, storage: shared, registry: buildRegistry(metrics) }).telemetry;
  third.record("other", "x");
  assert.equal(await third.flush(), true);
  const { periods } = storedState(shared).account;
  assert.deepEqual([lastOf(shared), periods.page.firstDay], [null, 19_999]);
  open();
  for (const tab of tabs) {
    assert.equal(await tab.flush(), true);
    assertStatus(tab, { dropped: { "recorded in a period that is over": 1 } });
  }
  assert.equal(storedState(shared).account.entries[0].answers, 1);
  assert.deepEqual(names(), ["page", "other"]);
});

test("beyond max_values the answer that was admitted last goes on, counted as stale", async (t) => {
  const storage = memoryStorage();
  const sent = [];
  for (let run = 0; run < 2; run++) {
    const metrics = { homepage: { max_values: 2, p: 0, q: 0.5 } };
    const { telemetry, reports, logged } = await start(t, { storage, metrics });
    await report(telemetry, ..."abcd");
    assertStatus(telemetry, { recorded: 4, stale: 2, dropped: {} });
    assert.deepEqual(logged, []);
    sent.push(...reports());
  }
  assert.equal(storedState(storage).account.entries[0].answers, 2);
  assert.equal(sent.filter((report) => isOf(report, lastOf(storage))).length, 6);
});

test("the ledger tells what was spent, of both kinds of histories, and what is paid for", async (t) => {
  const entries = { homepage: {}, page: PERIOD, theme: ONCE, first: { max_values: 1 } };
  const registry = { ...buildRegistry(entries), lifetime_epsilon: 1_000 };
  const { telemetry } = await start(t, { registry });
  for (const name of ["homepage", "page", "first"]) telemetry.record(name, "a");
  telemetry.record("theme", true);
  await telemetry.flush();
  const ledger = await telemetry.ledger();
  for (const { metric, answers, reports, spent, anyHistory, committed } of ledger.metrics) {
    const { epsilonReport, price } = buildMetric({ name: metric, ...entries[metric] });
    assert.deepEqual([answers, reports], [1, 1]);
    close(spent, epsilonReport);
    close(committed, price);
    if (metric === "homepage") assert.equal(anyHistory, Infinity);
    else close(anyHistory, epsilonReport);
  }
  for (const key of ["spent", "committed"])
    close(
      ledger[key],
      ledger.metrics.reduce((sum, one) => sum + one[key], 0),
    );
  const { anyHistory, lifetimeEpsilon, restores } = ledger;
  assert.deepEqual([anyHistory, lifetimeEpsilon, restores], [Infinity, 1_000, 0]);
});

test("what was spent can be asked without consent, too, and makes no state", async (t) => {
  const { telemetry, storage } = await start(t);
  await report(telemetry, "a");
  await telemetry.close();
  const { telemetry: off } = startTelemetry(t, { storage, consent: false });
  assert.deepEqual(await off.ledger(), await telemetry.ledger());
  const empty = memoryStorage();
  const { telemetry: fresh } = startTelemetry(t, { storage: empty, consent: false });
  assert.equal((await fresh.ledger()).spent, 0);
  assert.equal(empty.texts.size, 0);
});

test("a preview is what would be sent, by the same code, and spends nothing", async (t) => {
  const { telemetry, storage, reports } = await start(t, { metrics: { page: PERIOD, theme: ONCE, homepage: {} } });
  assert.match((await telemetry.preview("page", "a")).words, /This is what would be sent:/);
  telemetry.record("page", "a");
  telemetry.record("theme", true);
  await telemetry.flush();
  const before = storage.texts.get(STATE_KEY);
  const preview = await telemetry.preview("page", "b");
  assert.equal(preview.mediaType, "application/vnd.hubbub.batch");
  const { batch_id: id, reports: sent } = readCompact(Buffer.from(preview.body));
  assert.match(id, /^[0-9a-f]{32}$/);
  assert.ok(isOf(sent[0], lastOf(storage)));
  assert.deepEqual(bitsOf(sent[0]), preview.report.bits);
  assert.equal(preview.refusal, null);
  assert.match(preview.words, /would be sent \(drawn from this period's answer, which is already fixed\):/);
  assert.equal(preview.stale, false, "it is what any other value would have, too");
  assert.match((await telemetry.preview("homepage", "a")).words, /This is what would be sent:/);
  const refused = await telemetry.preview("theme", true);
  assert.equal(refused.refusal, "already reported (one-time metric)");
  assert.match(refused.words, /This would not be sent: already reported/);
  assert.equal(storage.texts.get(STATE_KEY), before);
  assert.equal(reports().length, 2);
});

test("a preview says that a stale answer would be sent in place of the value's", async (t) => {
  const { telemetry } = await start(t, { metrics: { homepage: { max_values: 1 } } });
  await report(telemetry, "a");
  assert.equal((await telemetry.preview("homepage", "a")).stale, false);
  const { words, stale } = await telemetry.preview("homepage", "b");
  assert.match(words, /would be sent \(drawn from an earlier answer/);
  assert.equal(stale, true);
});

test("a preview without consent takes a secret that is thrown away, and stores nothing", async (t) => {
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { storage, consent: false });
  const { report, refusal, epsilonReport } = await telemetry.preview("homepage", "a");
  assert.deepEqual([report.metric, report.bits.length, refusal], ["homepage", 16, "no consent"]);
  close(epsilonReport, buildMetric().epsilonReport);
  await assert.rejects(telemetry.preview("homepage", 5), { name: "ValueError" });
  const unknown = { name: "MetricError", message: "unknown metric; known: homepage" };
  await assert.rejects(telemetry.preview("hunter2", "a"), unknown);
  assert.equal(storage.texts.size, 0);
});

test("forget deletes everything, says what that means, and turns the client off", async (t) => {
  const { telemetry, storage, received } = await start(t);
  await report(telemetry, "a");
  const words = await telemetry.forget();
  assert.match(words, /^Deleted the secret, the account and all unsent reports.*7\.72-fold \(epsilon 2\.04\)/s);
  assert.equal(storage.texts.size, 0);
  await report(telemetry, "a");
  assertStatus(telemetry, { disabled: "forgotten", dropped: { disabled: 1 }, waiting: 0 });
  assert.equal(received.length, 1);
  assert.equal(storage.texts.size, 0);
});

test("what one tab forgets no other tab delivers or brings back", async (t) => {
  const { tabs, storage, received } = await startTabs(t, 2, { batchSize: 1 }, UNREACHABLE);
  for (const tab of tabs) tab.record("homepage", "a");
  await until(() => tabs.every((tab) => tab.status().recorded === 1) && received.length);
  await tabs[0].forget();
  tabs[1].record("homepage", "b");
  await until(() => tabs[1].status().disabled !== null);
  assert.match(tabs[1].status().disabled, /deleted or replaced by another tab/);
  const before = received.length;
  await tabs[1].flush();
  tabs[1].record("homepage", "c");
  await tabs[1].close();
  assert.equal(received.length, before);
  assert.equal(storage.texts.size, 0);
  assertStatus(tabs[1], { dropped: { disabled: 2 } });
});

test("a damaged state can be forgotten, and a new one begun", async (t) => {
  const storage = memoryStorage(new Map([[STATE_KEY, "damaged"]]));
  const { telemetry } = startTelemetry(t, { storage });
  await telemetry.flush();
  await assert.rejects(telemetry.ledger(), /is damaged/);
  assert.match(await telemetry.forget(), /is no longer known/);
  const { telemetry: next } = await start(t, { storage });
  await report(next, "a");
  assertStatus(next, { delivered: 1 });
});

test("every damage to a state is found, and the damaged text stays", async () => {
  const storage = memoryStorage();
  const registry = makeRegistry(buildRegistry());
  await new StateStore(storage, registry.application).open(registry, "", 0);
  const whole = storage.texts.get(STATE_KEY);
  const damages = ["", "x", `${whole} `, ...Array.from(whole, (_, i) => whole.slice(0, i))];
  for (let i = 0; i < whole.length; i++) {
    const other = whole[i] === "0" ? "1" : "0";
    damages.push(whole.slice(0, i) + other + whole.slice(i + 1));
  }
  for (const damaged of damages) assert.throws(() => parse(damaged, "state"), { name: "StorageError" });
  storage.texts.set(STATE_KEY, damages[5]);
  await assert.rejects(new StateStore(storage, registry.application).open(registry, "", 0));
  assert.equal(storage.texts.get(STATE_KEY), damages[5]);
});

test("a state of another format is refused as such, and stays; a storage that forgets is found out", async (t) => {
  const text = "hubbub-javascript-state-9 0123 {}";
  const storage = memoryStorage(new Map([[STATE_KEY, text]]));
  for (const [given, disabled] of [
    [storage, /state-9 is the format of another version/],
    [{ get: () => null, set: () => {} }, /didn't keep/],
  ]) {
    const { telemetry } = startTelemetry(t, { storage: given });
    await telemetry.flush();
    assert.match(telemetry.status().disabled, disabled);
  }
  assert.equal(storage.texts.get(STATE_KEY), text);
});

test("applications that share a storage are clients of their own", async (t) => {
  const storage = memoryStorage();
  const names = ["com.example.one", "Zürich 日本", "Zu\u0308rich 日本"];
  for (const application of names) {
    const registry = { ...buildRegistry(), application };
    await startTelemetry(t, { storage, registry }).telemetry.flush();
  }
  const secrets = names.map((name) => parse(storage.texts.get(`hubbub.${name}`), name).secret);
  assert.equal(new Set(secrets).size, 3);
});

test("methods work detached", async (t) => {
  const { telemetry } = await start(t);
  const { record, flush, status, close, ledger, explain, preview, setConsent, forget } = telemetry;
  record("homepage", "a");
  assert.equal(await flush(), true);
  assert.equal(status().delivered, 1);
  assert.equal((await ledger()).metrics.length, 1);
  assert.equal((await preview("homepage", "a")).refusal, null);
  assert.match(await explain(), /homepage/);
  await setConsent(true);
  assert.match(await forget(), /Deleted/);
  await close();
});
