/**
 * A place of the app's choice for the client's state. Whatever the place, the client needs one thing of it: an atomic
 * update of one text.
 */

import { StorageError } from "./errors.js";

/**
 * What an update does to a text: it is given the text, or null if there is none, and returns the new one, null to
 * delete it, or undefined to leave it. It may be called more than once before its last result is stored; if it throws,
 * nothing is stored.
 *
 * A storage that knows says whether the text is a copy (a restored backup, a cloned machine) of the one that was
 * stored.
 * @typedef {(text: string | null, about?: {copied: boolean}) => string | null | undefined} Change
 */

/**
 * A place for a few texts. `update` must be atomic where several processes or tabs may run at once; one that has none,
 * but `get` and `set` (and `delete`), serves a single process. All may be asynchronous; they throw or reject if they
 * fail, and then have stored nothing.
 * @typedef {{update: (key: string, change: Change) => unknown} & Partial<TextFunctions> | {update?: undefined} &
 *   TextFunctions} KeptTexts
 */

/**
 * @typedef {object} TextFunctions
 * @property {(key: string) => string | null | undefined | Promise<string | null | undefined>} get
 * @property {(key: string, text: string) => unknown} set
 * @property {(key: string) => unknown} [delete]
 */

/**
 * As much of a localStorage as is used. The name of the whole, Storage, isn't known to programs for Node that are
 * compiled without the DOM's types.
 *
 * @typedef {object} Area
 * @property {(key: string) => string | null} getItem
 * @property {(key: string, text: string) => void} setItem
 * @property {(key: string) => void} removeItem
 */

/** What stands for no text in a storage that can't delete. */
const DELETED = "hubbub: deleted";

/** The last update of each storage that needs them one after the other. @type {WeakMap<object, Promise<unknown>>} */
const lastUpdates = new WeakMap();

/**
 * Return the storage's update, or one made of `get` and `set`.
 * @param {KeptTexts} storage @returns {(key: string, change: Change) => Promise<void>}
 */
export function updaterOf(storage) {
  if (storage.update) return async (key, change) => void (await storage.update?.(key, change));
  return (key, change) => {
    const before = lastUpdates.get(storage) ?? Promise.resolve();
    const update = before.then(() => getAndSet(storage, key, change));
    const ended = update.catch(() => {});
    lastUpdates.set(storage, ended);
    return update;
  };
}

/** @param {unknown} storage @returns {storage is KeptTexts} */
export function isStorage(storage) {
  const { update, get, set } = /** @type {KeptTexts} */ (storage ?? {});
  const functions = (/** @type {unknown[]} */ ...all) => all.every((f) => typeof f === "function");
  return functions(update) || functions(get, set);
}

/** @param {KeptTexts} storage @param {string} key @param {Change} change */
async function getAndSet(storage, key, change) {
  const text = (await storage.get?.(key)) ?? null;
  const changed = change(text === DELETED ? null : text);
  if (changed === undefined) return;
  if (changed === null && storage.delete) await storage.delete(key);
  else await storage.set?.(key, changed ?? DELETED);
}

/**
 * Keep texts in a browser, for one origin: in IndexedDB, or where there is none in localStorage.
 * @param {Area} [area] a localStorage, to use that @returns {KeptTexts}
 */
export function browserStorage(area) {
  return !area && globalThis.indexedDB ? indexedDbStorage() : localStorageOf(area);
}

/**
 * Web Locks keep tabs apart, where a page has them. But a tab may see what another has stored only a moment later: in
 * Chromium three busy tabs sent some reports twice. So this serves one tab at a time.
 * @param {Area} [area] by default localStorage, looked up when it is first needed @returns {KeptTexts}
 */
function localStorageOf(area) {
  const open = () => area ?? globalThis.localStorage ?? missing("IndexedDB or localStorage");
  return {
    update(key, change) {
      const store = () => {
        const changed = change(open().getItem(key));
        if (changed === null) open().removeItem(key);
        else if (changed !== undefined) open().setItem(key, changed);
      };
      const locks = globalThis.navigator?.locks;
      // A promise, since not every platform lets the lock go if the function itself throws.
      return locks ? locks.request(key, async () => store()) : store();
    },
  };
}

/**
 * Keep texts in IndexedDB, which pages and workers of one origin share; its transactions make updates atomic.
 * @param {string} [name] of the database @returns {KeptTexts}
 */
export function indexedDbStorage(name = "hubbub") {
  // It stays open: a page that is being left has no time to open it.
  /** @type {Promise<IDBDatabase> | null} */
  let opened = null;
  const close = () => {
    opened?.then((database) => database.close()).catch(() => {});
    opened = null;
  };
  return {
    async update(key, change) {
      // To open it is to make it, which a reader who hasn't the user's consent must not.
      if (!opened && !(await mayExist(name)) && change(null) === undefined) return;
      opened ??= openDatabase(name, close);
      try {
        await updateInDatabase(await opened, key, change);
      } catch (error) {
        if (!(error instanceof StorageError)) close();
        throw error;
      }
    },
  };
}

const STORE = "texts";

/** @param {string} name @returns {Promise<boolean>} true also where the browser doesn't know */
async function mayExist(name) {
  try {
    const found = await /** @type {IDBFactory} */ (globalThis.indexedDB).databases();
    return found.some((database) => database.name === name);
  } catch {
    return true;
  }
}

/** @param {string} name @param {() => void} onClosed it can't be used any more @returns {Promise<IDBDatabase>} */
function openDatabase(name, onClosed) {
  const request = (globalThis.indexedDB ?? missing("IndexedDB")).open(name, 1);
  return new Promise((resolve, reject) => {
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const database = request.result;
      // Or somebody wants to delete it.
      database.onclose = database.onversionchange = onClosed;
      resolve(database);
    };
  });
}

/** @param {IDBDatabase} database @param {string} key @param {Change} change @returns {Promise<void>} */
function updateInDatabase(database, key, change) {
  const transaction = database.transaction(STORE, "readwrite", { durability: "strict" });
  const store = transaction.objectStore(STORE);
  return new Promise((resolve, reject) => {
    /** @type {unknown} */
    let thrown = null;
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(thrown ?? transaction.error);
    const read = store.get(key);
    read.onsuccess = () => {
      try {
        const changed = change(read.result ?? null);
        if (changed === null) store.delete(key);
        else if (changed !== undefined) store.put(changed, key);
        transaction.commit();
      } catch (error) {
        thrown = error;
        transaction.abort();
      }
    };
  });
}

/** @param {string} what @returns {never} */
function missing(what) {
  throw new StorageError(`there is no ${what} here; give another storage`);
}
