/**
 * What the client keeps between runs, in a place that the app chooses: its secret, which
 * one-time metrics it has reported, and keyed digests of the values that it has reported. Nothing else,
 * and no value or report ever.
 */

import { StorageError } from "./errors.js";

/**
 * A place for a few short texts. All functions may be asynchronous; they throw if they fail. `create`
 * stores a text unless the key has one and returns whether it did; where several processes or tabs
 * may start at once it must be atomic. Without it, `get` and `set` are used one after the other.
 *
 * @typedef {object} KeptTexts
 * @property {(key: string) => string | null | undefined | Promise<string | null | undefined>} get
 * @property {(key: string, value: string) => unknown} [set]
 * @property {(key: string, value: string) => boolean | Promise<boolean>} [create]
 */

/**
 * Store a text unless the key has one.
 *
 * @param {KeptTexts} storage
 * @param {string} key
 * @param {string} value
 * @returns {Promise<boolean>} whether it was stored
 */
export async function storeIfAbsent(storage, key, value) {
  if (storage.create) return storage.create(key, value);
  if ((await storage.get(key)) != null) return false;
  await storage.set?.(key, value);
  return true;
}

/** @param {unknown} storage @returns {storage is KeptTexts} */
export function isStorage(storage) {
  const { get, set, create } = /** @type {Partial<KeptTexts>} */ (storage ?? {});
  return typeof get === "function" && [set, create].some((store) => typeof store === "function");
}

/**
 * Keep texts in a browser's localStorage, for one origin.
 *
 * @param {globalThis.Storage} [area] by default localStorage, looked up when it is first needed
 * @returns {KeptTexts}
 */
export function browserStorage(area) {
  const open = () => area ?? globalThis.localStorage ?? missing();
  return {
    get: (key) => open().getItem(key),
    create(key, value) {
      const store = () => {
        if (open().getItem(key) !== null) return false;
        open().setItem(key, value);
        return true;
      };
      const locks = globalThis.navigator?.locks;
      return locks ? locks.request(key, store) : store();
    },
  };
}

/** @returns {never} */
function missing() {
  throw new StorageError("there is no localStorage here; give another storage");
}
