/** What an app sees of the account: periods, caps, ledger, preview, explain, reset and forget. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHex } from "../src/bytes.js";
import { parse } from "../src/state.js";
import {
  memoryStorage,
  readCompact,
  scriptedCollector,
  startTelemetry,
  STATE_KEY,
  storedState,
} from "../testing/collecting.js";
import { buildMetric, buildRegistry } from "../testing/making.js";
import { until } from "../testing/waiting.js";

const DAY = 86_400_000;
// p = 0: a reported 1 tells that the permanent bit is 1.
const PERIOD = { memory: "period", period_days: 1, p: 0, q: 0.5 };
const ONCE = { mode: "one-time", type: "boolean", p: 0, q: 1 };

const bitsOf = ({ bits }) => new Uint8Array(Buffer.from(bits, "base64"));

/** Whether a report is noise over this answer (if p = 0; of another one's reports, 2^-32 or so pass). */
function isOf(report, { cohort, permanent }) {
  const expected = fromHex(permanent);
  return report.cohort === cohort && bitsOf(report).every((byte, i) => !(byte & ~expected[i]));
}

function close(a, b) {
  assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);
}

test("in a period all reports are noise over one answer, whatever is recorded, in all tabs", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  const registry = buildRegistry({ page: PERIOD });
  const tabs = Array.from({ length: 4 }, () => {
    return startTelemetry(t, { endpoint: url, storage, registry }).telemetry;
  });
  tabs.forEach((tab, i) => {
    for (let n = 0; n < 5; n++) tab.record("page", `page ${i}`);
  });
  await Promise.all(tabs.map((tab) => tab.flush()));
  const reports = received.flatMap(({ batch }) => batch.reports);
  assert.equal(reports.length, 20);
  const [{ answers, last }] = storedState(storage).account.entries;
  assert.equal(answers, 1);
  assert.ok(reports.every((report) => isOf(report, last)));
  assert.equal(new Set(reports.map(({ bits }) => bits)).size, 20, "each in noise of its own");
});

test("the next period's answer is another, and nothing is left of the last one", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  const registry = buildRegistry({ page: PERIOD });
  const { telemetry } = startTelemetry(t, { endpoint: url, storage, registry });
  await telemetry.flush();
  t.mock.timers.enable({ apis: ["Date"], now: 20_000 * DAY });
  const answers = [];
  for (let day = 0; day < 3; day++) {
    telemetry.record("page", "a");
    await telemetry.flush();
    const { last } = storedState(storage).account.entries[0];
    const text = storage.texts.get(STATE_KEY);
    assert.ok(answers.every(({ permanent }) => !text.includes(permanent)));
    assert.ok(isOf(received.at(-1).batch.reports[0], last));
    answers.push(last);
    t.mock.timers.tick(DAY);
  }
  assert.equal(new Set(answers.map(({ permanent }) => permanent)).size, 3);
});

test("a period's answer that is over is deleted at the next start, though nothing is recorded", async (t) => {
  const storage = memoryStorage();
  const { url } = await scriptedCollector(t);
  const options = { endpoint: url, storage, registry: buildRegistry({ page: PERIOD }) };
  const { telemetry } = startTelemetry(t, options);
  telemetry.record("page", "a");
  await telemetry.close();
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + DAY });
  await startTelemetry(t, options).telemetry.flush();
  assert.equal(storedState(storage).account.entries[0].last, null);
});

test("a period's answer that is over is deleted while nothing is recorded", async (t) => {
  const storage = memoryStorage();
  const { url } = await scriptedCollector(t);
  t.mock.timers.enable({ apis: ["Date", "setInterval"], now: 20_000 * DAY });
  const registry = buildRegistry({ page: PERIOD });
  const { telemetry } = startTelemetry(t, { endpoint: url, storage, registry });
  telemetry.record("page", "a");
  await telemetry.flush();
  assert.notEqual(storedState(storage).account.entries[0].last, null);
  t.mock.timers.tick(DAY);
  await until(() => storedState(storage).account.entries[0].last === null);
});

test("what tabs hold of a period's last second isn't answered again after a third has ended the period", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const registry = buildRegistry({ page: PERIOD, other: {} });
  const shared = memoryStorage();
  let open = () => {};
  let gate = Promise.resolve();
  const start = (storage) => startTelemetry(t, { endpoint: url, storage, registry }).telemetry;
  const held = memoryStorage(shared.texts);
  const { get } = held;
  held.get = (key) => gate.then(() => get(key));
  t.mock.timers.enable({ apis: ["Date"], now: 20_000 * DAY - 100_000 });
  const tabs = [start(held), start(held)];
  tabs[0].record("page", "a");
  await Promise.all(tabs.map((tab) => tab.flush()));
  assert.equal(received.length, 1);
  t.mock.timers.setTime(20_000 * DAY - 500);
  gate = new Promise((resolve) => (open = resolve));
  for (const tab of tabs) tab.record("page", "b");
  t.mock.timers.setTime(20_000 * DAY + 100);
  const third = start(shared);
  third.record("other", "x");
  assert.equal(await third.flush(), true);
  const { entries, periods } = storedState(shared).account;
  assert.deepEqual([entries[0].last, periods[entries[0].metric].firstDay], [null, 19_999]);
  open();
  for (const tab of tabs) {
    assert.equal(await tab.flush(), true);
    assert.deepEqual(tab.status().dropped, { "recorded in a period that is over": 1 });
  }
  assert.equal(storedState(shared).account.entries[0].answers, 1);
  const reports = received.flatMap(({ batch }) => batch.reports);
  assert.deepEqual(
    reports.map(({ metric }) => metric),
    ["page", "other"],
  );
});

test("beyond max_values the answer that was admitted last goes on, counted as stale", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  const registry = buildRegistry({ homepage: { max_values: 2, p: 0, q: 0.5 } });
  for (let run = 0; run < 2; run++) {
    const { telemetry, logged } = startTelemetry(t, { endpoint: url, storage, registry });
    for (const value of ["a", "b", "c", "d"]) telemetry.record("homepage", value);
    assert.equal(await telemetry.flush(), true);
    const { recorded, stale, dropped } = telemetry.status();
    assert.deepEqual({ recorded, stale, dropped }, { recorded: 4, stale: 2, dropped: {} });
    assert.deepEqual(logged, []);
  }
  const { last, answers } = storedState(storage).account.entries[0];
  assert.equal(answers, 2);
  const reports = received.flatMap(({ batch }) => batch.reports);
  assert.equal(reports.filter((report) => isOf(report, last)).length, 6);
});

test("of many clients that share a storage, none goes beyond a cap", async (t) => {
  const { url } = await scriptedCollector(t);
  const storage = memoryStorage();
  const registry = buildRegistry({ homepage: { max_values: 3, k: 1024 } });
  const clients = Array.from({ length: 5 }, () => {
    return startTelemetry(t, { endpoint: url, storage, registry }).telemetry;
  });
  clients.forEach((telemetry, i) => telemetry.record("homepage", `client ${i}`));
  await Promise.all(clients.map((telemetry) => telemetry.flush()));
  assert.equal(storedState(storage).account.entries[0].answers, 3);
  const stale = clients.reduce((sum, telemetry) => sum + telemetry.status().stale, 0);
  assert.equal(stale, 2);
});

test("the ledger tells what was spent, of both kinds of histories, and what is paid for", async (t) => {
  const { url } = await scriptedCollector(t);
  const entries = { homepage: {}, page: PERIOD, theme: ONCE, first: { max_values: 1 } };
  const registry = { ...buildRegistry(entries), lifetime_epsilon: 1_000 };
  const { telemetry } = startTelemetry(t, { endpoint: url, registry });
  for (const name of ["homepage", "page", "first"]) telemetry.record(name, "a");
  telemetry.record("theme", true);
  await telemetry.flush();
  const metricOf = (name) => buildMetric({ name, ...entries[name] });
  const ledger = await telemetry.ledger();
  for (const spending of ledger.metrics) {
    const { epsilonReport, price } = metricOf(spending.metric);
    assert.deepEqual([spending.answers, spending.reports], [1, 1]);
    close(spending.spent, epsilonReport);
    close(spending.committed, price);
    if (spending.metric === "homepage") assert.equal(spending.anyHistory, Infinity);
    else close(spending.anyHistory, epsilonReport);
  }
  const sum = (key) => ledger.metrics.reduce((total, one) => total + one[key], 0);
  close(ledger.spent, sum("spent"));
  close(ledger.committed, sum("committed"));
  assert.equal(ledger.anyHistory, Infinity);
  const { lifetimeEpsilon, resets, restores } = ledger;
  assert.deepEqual([lifetimeEpsilon, resets, restores], [1_000, 0, 0]);
});

test("what was spent can be asked without consent, too, and makes no state", async (t) => {
  const { url } = await scriptedCollector(t);
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { endpoint: url, storage });
  telemetry.record("homepage", "a");
  await telemetry.close();
  const { telemetry: off } = startTelemetry(t, { storage, consent: false });
  assert.deepEqual(await off.ledger(), await telemetry.ledger());
  const empty = memoryStorage();
  const { telemetry: fresh } = startTelemetry(t, { storage: empty, consent: false });
  assert.equal((await fresh.ledger()).spent, 0);
  assert.equal(empty.texts.size, 0);
});

test("a preview is what would be sent, by the same code, and spends nothing", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  const registry = buildRegistry({ page: PERIOD, theme: ONCE, homepage: {} });
  const { telemetry } = startTelemetry(t, { endpoint: url, storage, registry });
  assert.match((await telemetry.preview("page", "a")).words, /This is what would be sent:/);
  telemetry.record("page", "a");
  telemetry.record("theme", true);
  await telemetry.flush();
  const before = storage.texts.get(STATE_KEY);
  const preview = await telemetry.preview("page", "b");
  assert.equal(preview.mediaType, "application/vnd.hubbub.batch");
  const { batch_id: id, reports } = readCompact(Buffer.from(preview.body));
  assert.match(id, /^[0-9a-f]{32}$/);
  assert.ok(isOf(reports[0], storedState(storage).account.entries[0].last));
  assert.deepEqual(bitsOf(reports[0]), preview.report.bits);
  assert.equal(preview.refusal, null);
  const fixed = /would be sent \(drawn from this period's answer, which is already fixed\):/;
  assert.match(preview.words, fixed);
  assert.equal(preview.stale, false, "it is what any other value would have, too");
  const next = await telemetry.preview("homepage", "a");
  assert.match(next.words, /This is what would be sent:/);
  const refused = await telemetry.preview("theme", true);
  assert.equal(refused.refusal, "already reported (one-time metric)");
  assert.match(refused.words, /This would not be sent: already reported/);
  assert.equal(storage.texts.get(STATE_KEY), before);
  assert.equal(received.flatMap(({ batch }) => batch.reports).length, 2);
});

test("a preview says that a stale answer would be sent in place of the value's", async (t) => {
  const { url } = await scriptedCollector(t);
  const registry = buildRegistry({ homepage: { max_values: 1 } });
  const { telemetry } = startTelemetry(t, { endpoint: url, registry });
  telemetry.record("homepage", "a");
  await telemetry.flush();
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

test("after a reset the client is another one, and what was spent stays in the ledger", async (t) => {
  const { url } = await scriptedCollector(t);
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { endpoint: url, storage });
  telemetry.record("homepage", "a");
  await telemetry.flush();
  const [before, { secret }] = [await telemetry.ledger(), storedState(storage)];
  await telemetry.reset();
  assert.notEqual(storedState(storage).secret, secret);
  telemetry.record("homepage", "a");
  assert.equal(await telemetry.flush(), true);
  const after = await telemetry.ledger();
  close(after.spent, 2 * before.spent);
  close(after.committed, 2 * before.committed);
  assert.equal(after.resets, 1);
  assert.match(await telemetry.explain(), /The secret was replaced once: all answers cost again/);
});

test("a reset deletes and counts what was drawn with the old secret", async (t) => {
  const { url } = await scriptedCollector(t, () => ({ status: 503 }));
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { endpoint: url, storage });
  for (let i = 0; i < 3; i++) telemetry.record("homepage", "a");
  await until(() => telemetry.status().recorded === 3 && storedState(storage));
  await telemetry.flush(20);
  await telemetry.reset();
  assert.deepEqual(storedState(storage).outbox, { spool: [], batches: [] });
  assert.deepEqual(telemetry.status().dropped, { "secret replaced": 3 });
});

test("forget deletes everything, says what that means, and turns the client off", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { endpoint: url, storage });
  telemetry.record("homepage", "a");
  await telemetry.flush();
  const words = await telemetry.forget();
  assert.match(
    words,
    /^Deleted the secret, the account and all unsent reports.*7\.72-fold \(epsilon 2\.04\)/s,
  );
  assert.equal(storage.texts.size, 0);
  telemetry.record("homepage", "a");
  await telemetry.flush();
  const { disabled, dropped, waiting } = telemetry.status();
  assert.deepEqual(
    { disabled, dropped, waiting },
    { disabled: "forgotten", dropped: { disabled: 1 }, waiting: 0 },
  );
  assert.equal(received.length, 1);
  assert.equal(storage.texts.size, 0);
  await assert.rejects(telemetry.reset(), /no state to reset/);
  assert.equal(storage.texts.size, 0);
});

test("what one tab forgets no other tab delivers or brings back", async (t) => {
  const storage = memoryStorage();
  const { url, received } = await scriptedCollector(t, () => ({ status: 503 }));
  const tabs = [0, 1].map(
    () => startTelemetry(t, { endpoint: url, storage, batchSize: 1 }).telemetry,
  );
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
  assert.deepEqual(tabs[1].status().dropped, { disabled: 2 });
});

test("a damaged state can be forgotten, and a new one begun", async (t) => {
  const { url } = await scriptedCollector(t);
  const storage = memoryStorage(new Map([[STATE_KEY, "damaged"]]));
  const { telemetry } = startTelemetry(t, { endpoint: url, storage });
  await telemetry.flush();
  await assert.rejects(telemetry.ledger(), /is damaged/);
  await assert.rejects(telemetry.reset(), /is damaged/);
  assert.match(await telemetry.forget(), /is no longer known/);
  const { telemetry: next } = startTelemetry(t, { endpoint: url, storage });
  next.record("homepage", "a");
  await next.flush();
  assert.equal(next.status().delivered, 1);
});

test("every damage to a state is found, and the damaged text stays", async () => {
  const storage = memoryStorage();
  const { StateStore } = await import("../src/state.js");
  const { makeRegistry } = await import("../src/registry.js");
  const registry = makeRegistry(buildRegistry());
  await new StateStore(storage, registry.application).open(registry, 0);
  const whole = storage.texts.get(STATE_KEY);
  const damages = ["", "x", `${whole} `, ...Array.from(whole, (_, i) => whole.slice(0, i))];
  for (let i = 0; i < whole.length; i++) {
    const other = whole[i] === "0" ? "1" : "0";
    damages.push(whole.slice(0, i) + other + whole.slice(i + 1));
  }
  for (const damaged of damages) {
    assert.throws(() => parse(damaged, "state"), { name: "StorageError" });
  }
  storage.texts.set(STATE_KEY, damages[5]);
  await assert.rejects(new StateStore(storage, registry.application).open(registry, 0));
  assert.equal(storage.texts.get(STATE_KEY), damages[5]);
});

test("a state of another format is refused as such, and stays", async (t) => {
  const text = "hubbub-javascript-state-9 0123 {}";
  const storage = memoryStorage(new Map([[STATE_KEY, text]]));
  const { telemetry } = startTelemetry(t, { storage });
  await telemetry.flush();
  assert.match(telemetry.status().disabled, /state-9 is the format of another version/);
  assert.equal(storage.texts.get(STATE_KEY), text);
});

test("a storage that forgets is found out at once", async (t) => {
  const { telemetry } = startTelemetry(t, { storage: { get: () => null, set: () => {} } });
  await telemetry.flush();
  assert.match(telemetry.status().disabled, /didn't keep/);
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
  const { url } = await scriptedCollector(t);
  const { telemetry } = startTelemetry(t, { endpoint: url });
  const { record, flush, status, close, ledger, explain, preview, setConsent, forget, reset } =
    telemetry;
  record("homepage", "a");
  assert.equal(await flush(), true);
  assert.equal(status().delivered, 1);
  assert.equal((await ledger()).metrics.length, 1);
  assert.equal((await preview("homepage", "a")).refusal, null);
  assert.match(await explain(), /homepage/);
  await reset();
  await setConsent(true);
  assert.match(await forget(), /Deleted/);
  await close();
});

test("the last failure is told by status and to onError, whose own failure hurts nobody", async (t) => {
  const { url } = await scriptedCollector(t, (n, { reports }) => {
    return n ? { status: 201, body: { accepted: reports.length } } : { status: 503 };
  });
  const errors = [];
  const onError = (error) => {
    errors.push(error);
    throw new Error("the app's own");
  };
  const { telemetry } = startTelemetry(t, { endpoint: url, onError });
  telemetry.record("homepage", "a");
  assert.equal(await telemetry.flush(), true);
  const { lastError, delivered } = telemetry.status();
  assert.equal(delivered, 1);
  assert.deepEqual(errors, [lastError]);
  assert.deepEqual([lastError.kind, lastError.status], ["status", 503]);
});
