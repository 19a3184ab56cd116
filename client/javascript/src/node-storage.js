/**
 * Texts kept in files of one directory, for Node: owner-only, each created whole or not at all.
 *
 * A file is written under another name and then linked, so that of several processes that start at
 * once one is first, and a crash leaves no half of a secret behind.
 */

import { link, mkdir, open, unlink } from "node:fs/promises";
import { join } from "node:path";

import { toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";
import { StorageError } from "./errors.js";

const OWNER_ONLY = 0o600;
const OTHERS = 0o077;

/**
 * Keep texts in a directory, which is made when first needed.
 *
 * @param {string} directory it must survive updates of the app
 * @returns {import("./storage.js").KeptTexts}
 */
export function fileStorage(directory) {
  const pathOf = (/** @type {string} */ key) => join(directory, encodeURIComponent(key));
  return {
    get: (key) => read(pathOf(key)),
    async create(key, value) {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      return createWhole(directory, pathOf(key), value);
    },
  };
}

/** @param {string} path @returns {Promise<string | null>} null if there is no such file */
async function read(path) {
  let file;
  try {
    file = await open(path, "r");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw error;
  }
  try {
    const mode = (await file.stat()).mode & 0o777;
    if (process.platform !== "win32" && mode & OTHERS) {
      throw new StorageError(
        `${path}: mode is ${mode.toString(8)}, others may have read it: must be 600`,
      );
    }
    return await file.readFile("utf8");
  } finally {
    await file.close();
  }
}

/** @param {string} directory @param {string} path @param {string} value */
async function createWhole(directory, path, value) {
  const temporary = `${path}.${toHex(randomBytes(8))}`;
  try {
    await writeDurably(temporary, value);
    await link(temporary, path);
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  } finally {
    await unlink(temporary).catch(() => {});
  }
  await syncDirectory(directory);
  return true;
}

/** @param {string} path @param {string} value */
async function writeDurably(path, value) {
  const file = await open(path, "wx", OWNER_ONLY);
  try {
    await file.writeFile(value, "utf8");
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Make the new name durable, where a system can. @param {string} directory */
async function syncDirectory(directory) {
  if (process.platform === "win32") return;
  const handle = await open(directory, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** @param {unknown} error */
function codeOf(error) {
  return /** @type {NodeJS.ErrnoException} */ (error).code;
}
