/** Several processes and workers, kills, backups: one directory, one client. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, cp, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";

import { fileStorage } from "../src/node-storage.js";
import { scriptedCollector, startTelemetry } from "../testing/collecting.js";
import { temporaryFolder } from "../testing/folders.js";
import { buildRegistry } from "../testing/making.js";
import { until } from "../testing/waiting.js";

const RECORDING = fileURLToPath(new URL("../testing/recording.js", import.meta.url));
const METRICS = {
  homepage: { max_values: 3 },
  page: { memory: "period", period_days: 3650 },
  theme: { type: "boolean", mode: "one-time", p: 0, q: 1 },
};
const REGISTRY = { ...buildRegistry(METRICS), application: "Zürich 日本" };

function jobOf(directory, endpoint, times, pauseMillis = 1) {
  return JSON.stringify({ directory, endpoint, registry: REGISTRY, times, pauseMillis });
}

function startIn(t, directory, endpoint) {
  const options = { endpoint, storage: fileStorage(directory), registry: REGISTRY };
  return startTelemetry(t, options).telemetry;
}

const reportsOf = (received) => {
  const batches = new Map(received.map(({ batch }) => [batch.batch_id, batch.reports]));
  return [...batches.values()].flat();
};

test("processes and workers of one directory are one client", async (t) => {
  const folder = await temporaryFolder(t);
  const { url, received } = await scriptedCollector(t);
  const job = jobOf(folder, url, 10);
  const processes = [0, 1].map(() => spawn(process.execPath, [RECORDING, job]));
  const workers = [0, 1].map(() => new Worker(RECORDING, { argv: [job] }));
  const ends = await Promise.all([...processes, ...workers].map((one) => once(one, "exit")));
  assert.ok(ends.every(([code]) => code === 0));
  const telemetry = startIn(t, folder, url);
  assert.equal(await telemetry.flush(60_000), true);
  const reports = reportsOf(received);
  const count = (name) => reports.filter(({ metric }) => metric === name).length;
  assert.deepEqual([count("homepage"), count("page"), count("theme")], [40, 40, 1]);
  const cohorts = (name) => {
    return new Set(reports.filter((r) => r.metric === name).map((r) => r.cohort)).size;
  };
  assert.deepEqual([cohorts("homepage"), cohorts("page")], [1, 1]);
  const { metrics } = await telemetry.ledger();
  const answers = Object.fromEntries(metrics.map(({ metric, answers: n }) => [metric, n]));
  assert.deepEqual(answers, { homepage: 3, page: 1, theme: 1 });
  const spent = metrics.reduce((sum, { reports: n }) => sum + n, 0);
  assert.equal(spent, reports.length);
});

test("processes that are killed send no report under two ids, and lose none that was stored", async (t) => {
  const folder = await temporaryFolder(t);
  const { url, received } = await scriptedCollector(t);
  for (let kill = 0; kill < 3; kill++) {
    const before = received.length;
    const child = spawn(process.execPath, [RECORDING, jobOf(folder, url, 1_000_000, 50)]);
    await until(() => received.length > before + kill);
    child.kill("SIGKILL");
    await once(child, "exit");
  }
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + 3_600_000 });
  const telemetry = startIn(t, folder, url);
  assert.equal(await telemetry.flush(60_000), true);
  const bodies = new Map();
  for (const { batch } of received) {
    const reports = JSON.stringify(batch.reports);
    assert.equal(bodies.get(batch.batch_id) ?? reports, reports, "a batch is the same at each attempt");
    bodies.set(batch.batch_id, reports);
  }
  const { metrics } = await telemetry.ledger();
  const stored = metrics.reduce((sum, { reports }) => sum + reports, 0);
  assert.equal(reportsOf(received).length, stored);
});

test("in a restored backup one-time metrics are taken as reported, and that is counted", async (t) => {
  const folder = await temporaryFolder(t);
  const [state, backup] = [join(folder, "state"), join(folder, "backup")];
  const { url, received } = await scriptedCollector(t);
  const run = async (name) => {
    const telemetry = startIn(t, state, url);
    telemetry.record(name, name === "theme" ? true : "a");
    await telemetry.close(60_000);
    return telemetry;
  };
  await run("homepage");
  await cp(state, backup, { recursive: true, preserveTimestamps: true });
  await run("theme");
  for (let restore = 1; restore <= 3; restore++) {
    await rm(state, { recursive: true });
    await cp(backup, state, { recursive: true, preserveTimestamps: true });
    await chmod(state, 0o700);
    const telemetry = await run("theme");
    assert.deepEqual(telemetry.status().dropped, { "already reported (one-time metric)": 1 });
    assert.equal((await telemetry.ledger()).restores, 1);
  }
  assert.equal(reportsOf(received).filter(({ metric }) => metric === "theme").length, 1);
  assert.equal((await run("homepage")).status().delivered, 1);
});

test("no value and no Bloom filter is in any file, and forget leaves none of the secret", async (t) => {
  const folder = await temporaryFolder(t);
  const { url } = await scriptedCollector(t, () => ({ status: 503 }));
  const telemetry = startIn(t, folder, url);
  for (const value of ["hunter2", "hunter3"]) telemetry.record("homepage", value);
  await until(() => telemetry.status().recorded === 2);
  await telemetry.close(1);
  const contents = async () => {
    const files = (await readdir(folder, { recursive: true, withFileTypes: true })).filter((each) => each.isFile());
    const texts = files.map(({ parentPath, name }) => readFile(join(parentPath, name), "utf8"));
    return (await Promise.all(texts)).join();
  };
  const before = await contents();
  assert.doesNotMatch(before, /hunter/);
  const [, secret] = /"secret":"([0-9a-f]{64})"/.exec(before);
  await startIn(t, folder, url).forget();
  const after = await contents();
  assert.ok(!after.includes(secret) && !after.includes("homepage"));
});

test("a directory that others may write to turns the client off, and says what to do", async (t) => {
  const folder = await temporaryFolder(t);
  await chmod(folder, 0o777);
  const { telemetry } = startTelemetry(t, { storage: fileStorage(folder) });
  telemetry.record("homepage", "a");
  await telemetry.flush();
  assert.match(telemetry.status().disabled, /mode is 777, others may write to it: must be 700/);
});
