import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

import { refusal } from "../src/consent.js";
import { assertStatus, created, memoryStorage, replaceGlobal, report, SILENCE } from "../testing/collecting.js";
import { start, startTelemetry, STATE_KEY, storedState } from "../testing/collecting.js";
import { buildRegistry } from "../testing/making.js";
import { until } from "../testing/waiting.js";

const WITHDRAWN = "consent withdrawn";
const EMPTY = { spool: [], batches: [] };
const UNREACHABLE = () => ({ status: 503 });

/** Let a storage fail until the returned function is called. */
function breakdown(storage) {
  const { set } = storage;
  storage.set = () => Promise.reject(new Error("the disk is full"));
  return () => void (storage.set = set);
}

test("a user can refuse by the environment, and a browser by Global Privacy Control", () => {
  assert.equal(refusal(false, {}), "no consent");
  assert.equal(refusal(true, {}), null);
  for (const off of ["", "0", "false", "No", " FALSE "]) {
    assert.equal(refusal(true, { environment: { DO_NOT_TRACK: off, HUBBUB_DISABLED: off } }), null);
  }
  for (const on of ["1", "true", "yes", "please"]) {
    assert.equal(refusal(true, { environment: { DO_NOT_TRACK: on } }), "DO_NOT_TRACK is set");
    assert.equal(refusal(true, { environment: { HUBBUB_DISABLED: on } }), "HUBBUB_DISABLED is set");
  }
  const signal = "Global Privacy Control is set";
  assert.equal(refusal(true, { globalPrivacyControl: true }), signal);
  for (const other of [false, undefined, "1"]) {
    assert.equal(refusal(true, { globalPrivacyControl: other }), null);
  }
});

test("Node's environment is honoured: nothing is stored, recorded or sent", async () => {
  const program = `
    import { Telemetry } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const touched = [];
    const fetch = () => touched.push("fetch");
    const update = (key, change) => change(null) !== undefined && touched.push("storage");
    const registry = ${JSON.stringify(buildRegistry())};
    const telemetry = new Telemetry({ registry, endpoint: "http://127.0.0.1:9", fetch,
      storage: { update } });
    telemetry.record("homepage", "a");
    await telemetry.flush();
    await telemetry.setConsent(true);
    telemetry.record("homepage", "a");
    const { disabled, recorded, dropped, waiting } = telemetry.status();
    console.log(JSON.stringify([disabled, recorded, dropped, waiting, touched]));`;
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program], {
    env: { ...process.env, DO_NOT_TRACK: "1" },
  });
  assert.deepEqual(JSON.parse((await run).stdout), ["DO_NOT_TRACK is set", 0, {}, 0, []]);
});

test("a browser's Global Privacy Control is honoured", (t) => {
  replaceGlobal(t, "navigator", { globalPrivacyControl: true });
  const { telemetry } = startTelemetry(t, {});
  telemetry.record("homepage", "a");
  assertStatus(telemetry, { disabled: "Global Privacy Control is set", waiting: 0 });
});

test("consent withdrawn stops at once and deletes what is unsent; secret and account stay", async (t) => {
  const options = { batchSize: 2, timeoutMillis: 600_000 };
  const { telemetry, storage, received, counts } = await start(t, options, () => SILENCE);
  for (const value of "ab") telemetry.record("homepage", value);
  await until(() => received.length === 1);
  telemetry.record("homepage", "c");
  const before = storedState(storage);
  const withdrawn = telemetry.setConsent(false);
  telemetry.record("homepage", "d");
  await withdrawn;
  await until(() => counts.hungUp === 1);
  assertStatus(telemetry, { waiting: 0, disabled: "no consent", dropped: { [WITHDRAWN]: 3 } });
  assert.deepEqual(storedState(storage), { ...before, outbox: EMPTY });
  assert.equal(await telemetry.flush(), true);
  assert.equal(received.length, 1);
});

test("consent given again goes on with the same account, and given late begins one", async (t) => {
  const { telemetry, storage, reports } = await start(t, { consent: false });
  telemetry.record("homepage", "never");
  assert.equal(storage.texts.size, 0);
  await telemetry.setConsent(true);
  await report(telemetry, "a");
  await telemetry.setConsent(false);
  telemetry.record("homepage", "never");
  await telemetry.setConsent(true);
  await report(telemetry, "a");
  assertStatus(telemetry, { recorded: 2, delivered: 2, dropped: {}, disabled: null });
  assert.equal(storedState(storage).account.entries[0].answers, 1);
  assert.equal(new Set(reports().map(({ cohort }) => cohort)).size, 1);
});

test("what was recorded before a no is never sent after a yes, even if it can't be deleted at once", async (t) => {
  let open = false;
  const script = (_, { reports }) => (open ? created(reports.length) : { status: 503 });
  const started = await start(t, { metrics: { before: {}, after: {} } }, script);
  const { telemetry, storage, received, names } = started;
  telemetry.record("before", "a");
  await until(() => telemetry.status().recorded === 1);
  const mend = breakdown(storage);
  await telemetry.setConsent(false);
  received.length = 0;
  open = true;
  telemetry.setConsent(true);
  await until(() => telemetry.status().disabled !== null);
  mend();
  await until(() => telemetry.status().disabled === null);
  telemetry.record("after", "a");
  assert.equal(await telemetry.flush(), true);
  assert.deepEqual(names(), ["after"]);
  assertStatus(telemetry, { dropped: { [WITHDRAWN]: 1 } });
});

/** A storage with the unsent reports of an earlier run: one in a batch, two in the spool. */
async function storageWithUnsent(t) {
  const { telemetry, storage, received } = await start(t, { batchMillis: 600_000 }, UNREACHABLE);
  telemetry.record("homepage", "a");
  assert.equal(await telemetry.flush(30), false);
  await until(() => received.length);
  for (const value of "bc") telemetry.record("homepage", value);
  await until(() => telemetry.status().recorded === 3);
  await telemetry.close(1);
  const { outbox } = storedState(storage);
  assert.deepEqual([outbox.batches.length, outbox.spool.length], [1, 2]);
  return storage;
}

test("a no deletes what earlier runs didn't send, and a start without an answer doesn't", async (t) => {
  const storage = await storageWithUnsent(t);
  const before = storedState(storage);
  const { telemetry } = startTelemetry(t, { storage, consent: false });
  await telemetry.flush();
  assert.deepEqual(storedState(storage), before);
  await telemetry.setConsent(false);
  await telemetry.close();
  assertStatus(telemetry, { dropped: { [WITHDRAWN]: 3 } });
  assert.deepEqual(storedState(storage), { ...before, outbox: EMPTY });
});

test("a no that can't delete goes on trying, though nobody agrees", async (t) => {
  const storage = await storageWithUnsent(t);
  const mend = breakdown(storage);
  const { telemetry, logged } = startTelemetry(t, { storage, consent: false });
  const failing = t.mock.method(storage, "set");
  telemetry.setConsent(false);
  await until(() => failing.mock.callCount() >= 3);
  mend();
  await until(() => !storedState(storage).outbox.spool.length);
  assert.deepEqual(storedState(storage).outbox, EMPTY);
  assertStatus(telemetry, { dropped: { [WITHDRAWN]: 3 } });
  assert.match(logged.join(), /the storage failed and is tried again/);
});

test("what a no couldn't delete isn't sent after a yes", async (t) => {
  const storage = await storageWithUnsent(t);
  const mend = breakdown(storage);
  const { telemetry, names } = await start(t, { storage, metrics: { homepage: {}, after: {} }, consent: false });
  telemetry.setConsent(false);
  await telemetry.setConsent(true);
  assertStatus(telemetry, { disabled: "the disk is full" });
  mend();
  await until(() => telemetry.status().disabled === null);
  telemetry.record("after", "a");
  assert.equal(await telemetry.flush(), true);
  assert.deepEqual(names(), ["after"]);
  assertStatus(telemetry, { dropped: { [WITHDRAWN]: 3 } });
});

test("a no leaves a damaged state as it is", async (t) => {
  const storage = memoryStorage(new Map([[STATE_KEY, "damaged"]]));
  const { telemetry, logged } = startTelemetry(t, { storage, consent: false });
  await telemetry.setConsent(false);
  await telemetry.close();
  assert.deepEqual([storage.texts.get(STATE_KEY), logged], ["damaged", []]);
});

test("what was withdrawn before the state is open isn't recorded, and no state is made", async (t) => {
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { storage });
  telemetry.record("homepage", "a");
  await telemetry.setConsent("maybe");
  assertStatus(telemetry, { dropped: { [WITHDRAWN]: 1 }, disabled: "no consent", waiting: 0 });
  assert.ok(!JSON.stringify([...storage.texts]).includes('spool":[{'));
});

test("a telemetry that was closed stays closed, whatever the user agrees to", async (t) => {
  const { telemetry } = await start(t);
  await telemetry.close();
  await telemetry.setConsent(false);
  await telemetry.setConsent(true);
  telemetry.record("homepage", "a");
  assertStatus(telemetry, { dropped: { closed: 1 } });
});
