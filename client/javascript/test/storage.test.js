import assert from "node:assert/strict";
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { fileStorage } from "../src/node-storage.js";
import { loadOrCreateSecret, SECRET_KEY } from "../src/secret.js";
import { browserStorage } from "../src/storage.js";
import { memoryStorage, replaceGlobal } from "../testing/collecting.js";

async function folder(t) {
  const path = await mkdtemp(join(tmpdir(), "hubbub-"));
  t.after(() => rm(path, { recursive: true }));
  return path;
}

/** A localStorage of its own. */
function area(texts = new Map()) {
  return {
    texts,
    getItem: (key) => texts.get(key) ?? null,
    setItem: (key, value) => void texts.set(key, value),
  };
}

test("a secret is drawn once and kept, in every storage", async (t) => {
  const storages = [memoryStorage(), browserStorage(area()), fileStorage(await folder(t))];
  for (const storage of storages) {
    const secret = await loadOrCreateSecret(storage);
    assert.equal(secret.length, 32);
    assert.deepEqual(await loadOrCreateSecret(storage), secret);
  }
});

test("two storages have two secrets", async () => {
  const one = await loadOrCreateSecret(memoryStorage());
  assert.notDeepEqual(await loadOrCreateSecret(memoryStorage()), one);
});

test("a damaged secret is an error and stays as it is", async () => {
  const storage = memoryStorage();
  await loadOrCreateSecret(storage);
  const whole = storage.texts.get(SECRET_KEY);
  const at = whole.length - 40;
  const turned = whole[at] === "0" ? "1" : "0";
  const damages = [
    "",
    "x",
    whole.slice(0, -1),
    `${whole} `,
    whole.slice(0, at) + turned + whole.slice(at + 1),
  ];
  for (const damaged of damages) {
    storage.texts.set(SECRET_KEY, damaged);
    await assert.rejects(loadOrCreateSecret(storage), /is damaged/);
    assert.equal(storage.texts.get(SECRET_KEY), damaged);
  }
});

test("a storage that forgets is found out at once", async () => {
  const forgetful = { get: () => null, set: () => {} };
  await assert.rejects(loadOrCreateSecret(forgetful), /didn't keep/);
});

test("many that start at once in one directory end up with one secret", async (t) => {
  const path = await folder(t);
  const secrets = await Promise.all(
    Array.from({ length: 20 }, () => loadOrCreateSecret(fileStorage(path))),
  );
  assert.equal(new Set(secrets.map(String)).size, 1);
  assert.deepEqual(await readdir(path), [SECRET_KEY]);
});

test("files and directory are the owner's alone", async (t) => {
  const path = join(await folder(t), "new", "state");
  await loadOrCreateSecret(fileStorage(path));
  assert.equal((await stat(join(path, SECRET_KEY))).mode & 0o777, 0o600);
  assert.equal((await stat(path)).mode & 0o777, 0o700);
});

test("a secret that others could have read is an error", async (t) => {
  const path = await folder(t);
  await loadOrCreateSecret(fileStorage(path));
  await chmod(join(path, SECRET_KEY), 0o644);
  await assert.rejects(loadOrCreateSecret(fileStorage(path)), /mode is 644, .* must be 600/);
});

test("a directory that can't be used is an error", async (t) => {
  const path = join(await folder(t), "file");
  await writeFile(path, "");
  await assert.rejects(loadOrCreateSecret(fileStorage(path)));
});

test("a key with odd characters is a file in the directory", async (t) => {
  const path = await folder(t);
  const storage = fileStorage(path);
  const key = "hubbub.reported.../../Zürich app.x.1";
  assert.equal(await storage.create(key, "today"), true);
  assert.equal(await storage.create(key, "tomorrow"), false);
  assert.equal(await storage.get(key), "today");
  const [file] = await readdir(path);
  assert.equal(await readFile(join(path, file), "utf8"), "today");
});

test("tabs that start at once end up with one secret", async () => {
  const shared = area();
  const tabs = Array.from({ length: 10 }, () => loadOrCreateSecret(browserStorage(shared)));
  assert.equal(new Set((await Promise.all(tabs)).map(String)).size, 1);
});

test("what a tab has stored first stays, with and without Web Locks", async (t) => {
  for (const navigator of [globalThis.navigator, undefined]) {
    replaceGlobal(t, "navigator", navigator);
    const storage = browserStorage(area());
    assert.equal(await storage.create("key", "first"), true);
    assert.equal(await storage.create("key", "second"), false);
    assert.equal(await storage.get("key"), "first");
  }
});

test("where there is no localStorage, the error says so", async (t) => {
  replaceGlobal(t, "localStorage", undefined);
  await assert.rejects(loadOrCreateSecret(browserStorage()), /no localStorage here/);
});
