import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmod, cp, mkdir, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { fileStorage, makeFileStorage } from "../src/node-storage.js";
import { temporaryFolder } from "../testing/folders.js";
import { until } from "../testing/waiting.js";

const COUNTING = fileURLToPath(new URL("../testing/counting.js", import.meta.url));

const increment = (text) => String(Number(text ?? 0) + 1);

async function read(storage, key) {
  let found;
  await storage.update(key, (text, about) => void (found = { text, ...about }));
  return found;
}

test("an update stores, leaves and deletes", async (t) => {
  const folder = await temporaryFolder(t);
  const storage = fileStorage(folder);
  const absent = { text: null, copied: false };
  assert.deepEqual(await read(storage, "key"), absent);
  assert.deepEqual(await readdir(folder), [], "to read makes nothing");
  for (let i = 1; i <= 5; i++) {
    await storage.update("key", increment);
    assert.deepEqual(await read(storage, "key"), { text: String(i), copied: false });
    assert.equal((await readdir(folder)).length, 1, "old versions are removed");
  }
  await storage.update("key", () => null);
  assert.deepEqual(await read(storage, "key"), absent);
  await storage.update("key", () => "Zürich 日本\n");
  assert.equal((await read(fileStorage(folder), "key")).text, "Zürich 日本\n");
});

test("of updates at the same time none is lost", async (t) => {
  const folder = await temporaryFolder(t);
  const storages = Array.from({ length: 20 }, () => fileStorage(folder));
  await Promise.all(storages.map((one) => one.update("n", increment)));
  assert.equal((await read(storages[0], "n")).text, "20");
  assert.equal((await readdir(folder)).length, 1);
});

test("a copy is told from what was stored, also in place", async (t) => {
  const folder = await temporaryFolder(t);
  const [state, backup] = [join(folder, "state"), join(folder, "backup")];
  const storage = fileStorage(state);
  const isCopied = async (directory) => (await read(fileStorage(directory), "n")).copied;
  for (let i = 0; i < 3; i++) await storage.update("n", increment);
  await cp(state, backup, { recursive: true, preserveTimestamps: true });
  await chmod(backup, 0o700);
  assert.deepEqual(await read(fileStorage(backup), "n"), { text: "3", copied: true });
  for (let i = 0; i < 3; i++) await storage.update("n", increment);
  assert.equal(await isCopied(state), false);
  await rm(state, { recursive: true });
  await cp(backup, state, { recursive: true, preserveTimestamps: true });
  assert.equal(await isCopied(state), true);
  await storage.update("n", increment);
  assert.equal(await isCopied(state), false);
});

test("of many processes' updates none is lost", async (t) => {
  const folder = await temporaryFolder(t);
  const counting = () => promisify(execFile)(process.execPath, [COUNTING, folder, "15"]);
  await Promise.all(Array.from({ length: 4 }, counting));
  assert.equal((await read(fileStorage(folder), "n")).text, "60");
});

test("a process that is killed at any moment leaves a whole text and no lock", async (t) => {
  const folder = await temporaryFolder(t);
  const storage = fileStorage(folder);
  let before = 0;
  for (let kill = 0; kill < 6; kill++) {
    const child = spawn(process.execPath, [COUNTING, folder, "1000000"]);
    const enough = before + 1 + 3 * kill;
    await until(async () => Number((await read(storage, "n")).text) >= enough);
    child.kill("SIGKILL");
    await once(child, "exit");
    const { text } = await read(storage, "n");
    assert.match(text, /^\d+$/);
    assert.ok(Number(text) >= enough);
    await storage.update("n", increment);
    before = Number(text) + 1;
    assert.equal((await read(storage, "n")).text, String(before));
  }
});

test("a process that slept through others' updates undoes none of them", async (t) => {
  const folder = await temporaryFolder(t);
  const others = fileStorage(folder);
  await others.update("n", increment);
  // It renames when the number that it chose is long free again.
  let asleep = true;
  const sleeper = makeFileStorage(folder, async (from, to) => {
    if (asleep) {
      asleep = false;
      for (let i = 0; i < 5; i++) await others.update("n", increment);
    }
    await rename(from, to);
  });
  await sleeper.update("n", increment);
  assert.equal((await read(others, "n")).text, "7");
});

test("files and directory are the owner's alone; a readable directory is mended", async (t) => {
  const path = join(await temporaryFolder(t), "new", "state");
  const storage = fileStorage(path);
  await storage.update("key", () => "text");
  const modeOf = async (found) => (await stat(found)).mode & 0o777;
  const [name] = await readdir(path);
  assert.deepEqual([await modeOf(path), await modeOf(join(path, name, "text"))], [0o700, 0o600]);
  await chmod(path, 0o755);
  assert.equal((await read(storage, "key")).text, "text");
  assert.equal(await modeOf(path), 0o700);
});

test("a directory that others may write to is refused, and a file that they may read", async (t) => {
  const path = await temporaryFolder(t);
  const storage = fileStorage(path);
  await storage.update("key", () => "text");
  for (const mode of [0o777, 0o770, 0o702]) {
    await chmod(path, mode);
    await assert.rejects(read(storage, "key"), {
      name: "StorageError",
      message: /mode is 7\d\d, others may write to it: must be 700/,
    });
  }
  await chmod(path, 0o700);
  const [name] = await readdir(path);
  for (const mode of [0o644, 0o604, 0o666]) {
    await chmod(join(path, name, "text"), mode);
    await assert.rejects(read(storage, "key"), /mode is 6\d\d, others may have read it: must be 600/);
  }
});

test("a directory that can't be used is an error, but no damage", async (t) => {
  const path = join(await temporaryFolder(t), "file");
  await writeFile(path, "");
  const failed = fileStorage(join(path, "state")).update("key", increment);
  await assert.rejects(failed, { code: "ENOTDIR" });
});

test("any key is a file in the directory, whatever its letters, case and length", async (t) => {
  const folder = await temporaryFolder(t);
  const storage = fileStorage(folder);
  const keys = ["hubbub.../../x", "hubbub.Zürich 日本", "hubbub.a", "hubbub.A", `hubbub.${"日".repeat(300)}`];
  for (const key of keys) await storage.update(key, () => key);
  for (const key of keys) assert.equal((await read(storage, key)).text, key);
  const names = await readdir(folder);
  assert.equal(new Set(names.map((name) => name.toLowerCase())).size, keys.length);
});

test("what processes that have ended left is removed by the next look", async (t) => {
  const folder = await temporaryFolder(t);
  const storage = fileStorage(folder);
  await storage.update("key", increment);
  const ended = spawnSync(process.execPath, ["-e", ""]).pid;
  for (const pid of [ended, process.pid, process.ppid]) {
    await mkdir(join(folder, `key.new.${pid}.0123`));
    await writeFile(join(folder, `key.new.${pid}.0123`, "text"), "half", { mode: 0o600 });
  }
  await storage.update("key", () => undefined);
  const left = ["key.1", `key.new.${process.ppid}.0123`];
  assert.deepEqual((await readdir(folder)).sort(), left, "that of a living one may be linked yet");
});

test("a version that another process took for left over is made once more", async (t) => {
  const folder = await temporaryFolder(t);
  let taken = 0;
  const storage = makeFileStorage(folder, async (from, to) => {
    if (taken++ < 2) await rm(from, { recursive: true });
    await rename(from, to);
  });
  await storage.update("key", increment);
  assert.deepEqual([taken, await readdir(folder)], [3, ["key.1"]]);
});
