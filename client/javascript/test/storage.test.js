import assert from "node:assert/strict";
import { test } from "node:test";

import { browserStorage, indexedDbStorage, isStorage, updaterOf } from "../src/storage.js";
import { memoryStorage, replaceGlobal } from "../testing/collecting.js";

/** A localStorage of its own. */
function area(texts = new Map()) {
  return {
    texts,
    getItem: (key) => texts.get(key) ?? null,
    setItem: (key, value) => void texts.set(key, value),
    removeItem: (key) => void texts.delete(key),
  };
}

const increment = (text) => String(Number(text ?? 0) + 1);

async function read(update, key) {
  let found;
  await update(key, (text) => void (found = text));
  return found;
}

test("an update is told the text, and stores, leaves or deletes it, in every storage", async () => {
  const { update } = memoryStorage();
  assert.equal(update, undefined);
  for (const storage of [memoryStorage(), browserStorage(area())]) {
    const update = updaterOf(storage);
    assert.equal(await read(update, "key"), null);
    await update("key", () => "text");
    await update("key", (text) => (assert.equal(text, "text"), undefined));
    assert.equal(await read(update, "key"), "text");
    assert.equal(await read(update, "other"), null);
    await update("key", () => null);
    assert.equal(await read(update, "key"), null);
  }
});

test("a storage that can't delete remembers that a text was deleted", async () => {
  const { delete: _, ...storage } = memoryStorage();
  const update = updaterOf(storage);
  await update("key", () => "text");
  await update("key", () => null);
  assert.equal(await read(update, "key"), null);
  assert.doesNotMatch(storage.texts.get("key"), /text/);
});

test("updates of one storage in one process don't overtake each other", async () => {
  const storage = memoryStorage();
  const updaters = Array.from({ length: 4 }, () => updaterOf(storage));
  await Promise.all(
    updaters.flatMap((update) =>
      Array(25)
        .fill(0)
        .map(() => update("n", increment)),
    ),
  );
  assert.equal(storage.texts.get("n"), "100");
});

test("an update that fails stores nothing, rejects, and isn't in the next one's way", async () => {
  for (const storage of [memoryStorage(), browserStorage(area())]) {
    const update = updaterOf(storage);
    const failing = update("key", () => {
      throw new Error("no");
    });
    await assert.rejects(failing, /no/);
    await update("key", increment);
    assert.equal(await read(update, "key"), "1");
  }
});

test("tabs wait for each other by Web Locks, and do without where there are none", async (t) => {
  const shared = area();
  for (const [i, navigator] of [globalThis.navigator, undefined].entries()) {
    replaceGlobal(t, "navigator", navigator);
    const tabs = Array.from({ length: 10 }, () => updaterOf(browserStorage(shared)));
    await Promise.all(tabs.map((update) => update("n", increment)));
    assert.equal(shared.texts.get("n"), String(10 * (i + 1)));
  }
});

test("where there is no localStorage or IndexedDB, the error says so", async (t) => {
  replaceGlobal(t, "localStorage", undefined);
  replaceGlobal(t, "indexedDB", undefined);
  const opened = (storage) => read(updaterOf(storage), "key");
  await assert.rejects(opened(browserStorage()), /no IndexedDB or localStorage here/);
  await assert.rejects(opened(indexedDbStorage()), /no IndexedDB here/);
});

test("a storage has update, or get and set", () => {
  const f = () => {};
  assert.ok([{ update: f }, { get: f, set: f }].every(isStorage));
  assert.ok(![null, undefined, {}, { get: f }, { set: f }, { update: 5 }, "text"].some(isStorage));
});
