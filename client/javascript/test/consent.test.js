import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

import { refusal } from "../src/consent.js";
import {
  created,
  memoryStorage,
  replaceGlobal,
  scriptedCollector,
  SILENCE,
  startTelemetry,
  STATE_KEY,
  storedState,
} from "../testing/collecting.js";
import { buildRegistry } from "../testing/making.js";
import { until } from "../testing/waiting.js";

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
  const { disabled, waiting } = telemetry.status();
  assert.deepEqual(
    { disabled, waiting },
    { disabled: "Global Privacy Control is set", waiting: 0 },
  );
});

test("consent withdrawn stops at once and deletes what is unsent; secret and account stay", async (t) => {
  const { url, received, counts } = await scriptedCollector(t, () => SILENCE);
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, {
    endpoint: url,
    storage,
    batchSize: 2,
    timeoutMillis: 600_000,
  });
  for (const value of ["a", "b"]) telemetry.record("homepage", value);
  await until(() => received.length === 1);
  telemetry.record("homepage", "c");
  const before = storedState(storage);
  const withdrawn = telemetry.setConsent(false);
  telemetry.record("homepage", "d");
  await withdrawn;
  await until(() => counts.hungUp === 1);
  const { waiting, dropped, disabled } = telemetry.status();
  assert.deepEqual({ waiting, disabled }, { waiting: 0, disabled: "no consent" });
  assert.deepEqual(dropped, { "consent withdrawn": 3 });
  const { secret, account, outbox } = storedState(storage);
  assert.deepEqual([secret, account], [before.secret, before.account]);
  assert.deepEqual(outbox, { spool: [], batches: [] });
  assert.equal(await telemetry.flush(), true);
  assert.equal(received.length, 1);
});

test("consent given again goes on with the same account, and given late begins one", async (t) => {
  const { url, received } = await scriptedCollector(t);
  const storage = memoryStorage();
  const { telemetry } = startTelemetry(t, { endpoint: url, storage, consent: false });
  telemetry.record("homepage", "never");
  assert.equal(storage.texts.size, 0);
  await telemetry.setConsent(true);
  telemetry.record("homepage", "a");
  await telemetry.flush();
  await telemetry.setConsent(false);
  telemetry.record("homepage", "never");
  await telemetry.setConsent(true);
  telemetry.record("homepage", "a");
  await telemetry.flush();
  const { recorded, delivered, dropped, disabled } = telemetry.status();
  assert.deepEqual(
    { recorded, delivered, dropped, disabled },
    { recorded: 2, delivered: 2, dropped: {}, disabled: null },
  );
  assert.equal(storedState(storage).account.entries[0].answers, 1);
  assert.equal(
    new Set(received.flatMap(({ batch }) => batch.reports.map((r) => r.cohort))).size,
    1,
  );
});

test("consent that changes its mind often ends as it was said last", async (t) => {
  const { url } = await scriptedCollector(t);
  for (const last of [true, false]) {
    const { telemetry } = startTelemetry(t, { endpoint: url });
    for (const consent of [false, true, false, true, !last]) telemetry.setConsent(consent);
    await telemetry.setConsent(last);
    telemetry.record("homepage", "a");
    await telemetry.flush();
    assert.equal(telemetry.status().recorded, Number(last));
    assert.equal(telemetry.status().disabled, last ? null : "no consent");
  }
});

test("what was recorded before a no is never sent after a yes, even if it can't be deleted at once", async (t) => {
  const { url, received } = await scriptedCollector(t, (_, { reports }) => {
    return open ? created(reports.length) : { status: 503 };
  });
  let open = false;
  const storage = memoryStorage();
  const registry = buildRegistry({ before: {}, after: {} });
  const { telemetry } = startTelemetry(t, { endpoint: url, storage, registry });
  telemetry.record("before", "a");
  await until(() => telemetry.status().recorded === 1);
  const { set } = storage;
  storage.set = () => Promise.reject(new Error("the disk is full"));
  await telemetry.setConsent(false);
  received.length = 0;
  open = true;
  telemetry.setConsent(true);
  await until(() => telemetry.status().disabled !== null);
  storage.set = set;
  await until(() => telemetry.status().disabled === null);
  telemetry.record("after", "a");
  assert.equal(await telemetry.flush(), true);
  const sent = received.flatMap(({ batch }) => batch.reports.map(({ metric }) => metric));
  assert.deepEqual(sent, ["after"]);
  assert.deepEqual(telemetry.status().dropped, { "consent withdrawn": 1 });
});

/** A storage with the unsent reports of an earlier run: one in a batch, two in the spool. */
async function storageWithUnsent(t) {
  const storage = memoryStorage();
  const { url, received } = await scriptedCollector(t, () => ({ status: 503 }));
  const run = startTelemetry(t, { endpoint: url, storage, batchMillis: 600_000 }).telemetry;
  run.record("homepage", "a");
  assert.equal(await run.flush(30), false);
  await until(() => received.length);
  for (const value of ["b", "c"]) run.record("homepage", value);
  await until(() => run.status().recorded === 3);
  await run.close(1);
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
  assert.deepEqual(telemetry.status().dropped, { "consent withdrawn": 3 });
  assert.deepEqual(storedState(storage), { ...before, outbox: { spool: [], batches: [] } });
});

test("a no that can't delete goes on trying, though nobody agrees", async (t) => {
  const storage = await storageWithUnsent(t);
  const { set } = storage;
  let failures = 0;
  storage.set = () => Promise.reject(new Error(`the disk is full ${failures++}`));
  const { telemetry, logged } = startTelemetry(t, { storage, consent: false });
  telemetry.setConsent(false);
  await until(() => failures >= 3);
  storage.set = set;
  await until(() => !storedState(storage).outbox.spool.length);
  assert.deepEqual(storedState(storage).outbox.batches, []);
  assert.deepEqual(telemetry.status().dropped, { "consent withdrawn": 3 });
  assert.match(logged.join(), /the storage failed and is tried again/);
});

test("what a no couldn't delete isn't sent after a yes", async (t) => {
  const storage = await storageWithUnsent(t);
  const { set } = storage;
  storage.set = () => Promise.reject(new Error("the disk is full"));
  const { url, received } = await scriptedCollector(t);
  const registry = buildRegistry({ homepage: {}, after: {} });
  const { telemetry } = startTelemetry(t, { endpoint: url, storage, registry, consent: false });
  telemetry.setConsent(false);
  await telemetry.setConsent(true);
  assert.match(String(telemetry.status().disabled), /the disk is full/);
  storage.set = set;
  await until(() => telemetry.status().disabled === null);
  telemetry.record("after", "a");
  assert.equal(await telemetry.flush(), true);
  const sent = received.flatMap(({ batch }) => batch.reports.map(({ metric }) => metric));
  assert.deepEqual(sent, ["after"]);
  assert.equal(telemetry.status().dropped["consent withdrawn"], 3);
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
  const { dropped, disabled, waiting } = telemetry.status();
  assert.deepEqual(
    { dropped, disabled, waiting },
    { dropped: { "consent withdrawn": 1 }, disabled: "no consent", waiting: 0 },
  );
  assert.ok(!JSON.stringify([...storage.texts]).includes('spool":[{'));
});

test("a telemetry that was closed stays closed, whatever the user agrees to", async (t) => {
  const { url } = await scriptedCollector(t, (_, { reports }) => created(reports.length));
  const { telemetry } = startTelemetry(t, { endpoint: url });
  await telemetry.close();
  await telemetry.setConsent(false);
  await telemetry.setConsent(true);
  telemetry.record("homepage", "a");
  assert.deepEqual(telemetry.status().dropped, { closed: 1 });
});
