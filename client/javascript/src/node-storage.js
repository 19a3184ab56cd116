/**
 * Texts kept in one directory, for Node, its workers, and any number of processes.
 *
 * Each version of a text is a numbered directory with one file. It is filled under another name and then renamed, in
 * which only the first of several processes succeeds: no system moves a directory onto one that isn't empty. So an
 * update is a compare-and-swap, and no process holds a lock that kill -9 could leave behind. An old number can be taken
 * again once its directory is gone, by a process that slept through all later updates; hence each file also names the
 * versions that it came from, and a version that the newest doesn't come from was never stored.
 */

import { chmod, mkdir, open, readdir, readFile, rename, rmdir, stat, unlink } from "node:fs/promises";
import { join } from "node:path";

import { toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";
import { StorageError } from "./errors.js";
import { Shake256 } from "./shake256.js";

const READABLE_BY_OTHERS = 0o077;
const WRITABLE_BY_OTHERS = 0o022;
const FORMAT = "hubbub-file-1";
const FILE = "text";
const GONE = ".gone";
/** That many updates of others may come between a renaming and a look at it; beyond, it would be made again. */
const ANCESTORS = 256;
/** Others that are always faster, so often in a row, don't exist. */
const MOST_ATTEMPTS = 1_000;
const LONGEST_NAME = 100;
const PAUSE_MILLIS = 5;
const IS_WINDOWS = process.platform === "win32";
/** Errors of renaming onto a number that is taken, or what another process took for left over. */
const TAKEN = new Set(["EEXIST", "ENOTEMPTY", "ENOENT", ...(IS_WINDOWS ? ["EPERM", "EACCES"] : [])]);

/**
 * One version of a text.
 *
 * @typedef {object} Version
 * @property {number} number
 * @property {string | null} text null if there is none, or none any more
 * @property {string[]} tokens its own, and those of the versions that it came from
 * @property {boolean} copied whether its file is a copy of the one that was written
 */

/** Directories of this program that aren't renamed to their numbers yet. @type {Set<string>} */
const underWay = new Set();

/** @typedef {(from: string, to: string) => Promise<void>} Move */
/** Where the versions of one text are. @typedef {{directory: string, name: string, move: Move}} Folder */

/**
 * Keep texts in a directory, which is made when first needed.
 * @param {string} directory of the client's own; it must survive updates of the app
 * @returns {import("./storage.js").KeptTexts}
 */
export function fileStorage(directory) {
  return makeFileStorage(directory, rename);
}

/**
 * As `fileStorage`, with what renames.
 * @param {string} directory @param {Move} move @returns {import("./storage.js").KeptTexts}
 */
export function makeFileStorage(directory, move) {
  return {
    async update(key, change) {
      const folder = { directory, name: fileName(key), move };
      for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        await checkDirectory(directory);
        const current = await readNewest(folder);
        const text = change(current.text, { copied: current.copied });
        if (text === undefined) return;
        await mkdir(directory, { recursive: true, mode: 0o700 });
        if (await store(folder, current, text)) return;
      }
      throw new Error(`${directory}: other processes were first, ${MOST_ATTEMPTS} times`);
    },
  };
}

/** @param {string} directory */
async function checkDirectory(directory) {
  const found = await unlessMissing(stat(directory));
  if (!found || IS_WINDOWS) return;
  const mode = found.mode & 0o777;
  if (mode & WRITABLE_BY_OTHERS) {
    throw new StorageError(`${directory}: mode is ${mode.toString(8)}, others may write to it: must be 700`);
  }
  if (mode & READABLE_BY_OTHERS) await chmod(directory, 0o700);
}

/** Return the newest version, and remove what else there is. @param {Folder} folder @returns {Promise<Version>} */
async function readNewest({ directory, name }) {
  for (let look = 0; look < MOST_ATTEMPTS; look++) {
    const found = (await unlessMissing(readdir(directory))) ?? [];
    const own = found.filter((each) => each.startsWith(`${name}.`)).map((each) => each.slice(name.length + 1));
    await Promise.all(own.filter(isLeftOver).map((rest) => discard(join(directory, `${name}.${rest}`))));
    const numbers = own.filter((rest) => /^\d{1,15}$/.test(rest)).map(Number);
    const [newest, ...older] = numbers.sort((one, other) => other - one);
    if (newest === undefined) return { number: 0, text: null, tokens: [], copied: false };
    const version = await readVersion(join(directory, `${name}.${newest}`, FILE), newest);
    if (version) {
      await Promise.all(older.map((number) => remove(join(directory, `${name}.${number}`))));
      return version;
    }
    // A newer version has replaced it meanwhile.
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MILLIS));
  }
  throw new Error(`${directory}: no version could be read in ${MOST_ATTEMPTS} looks`);
}

/** @param {string} path @param {number} number @returns {Promise<Version | null>} null if it is gone */
async function readVersion(path, number) {
  const file = await unlessMissing(open(path, "r"));
  if (!file) return null;
  try {
    const found = await file.stat({ bigint: true });
    const mode = Number(found.mode) & 0o777;
    if (!IS_WINDOWS && mode & READABLE_BY_OTHERS) {
      throw new StorageError(`${path}: mode is ${mode.toString(8)}, others may have read it: must be 600`);
    }
    const whole = decode(await file.readFile("utf8"));
    if (!whole) throw new StorageError(`${path}: is damaged; nothing is sent until someone deletes it`);
    const { text, tokens, place } = whole;
    return { number, text, tokens, copied: place !== (await placeOf(found)) };
  } finally {
    await file.close();
  }
}

/**
 * Store the next version, unless another process does so first.
 * @param {Folder} folder @param {Version} current @param {string | null} text
 * @returns {Promise<boolean>} whether it is done
 */
async function store(folder, current, text) {
  const { directory, name, move } = folder;
  const token = toHex(randomBytes(8));
  const path = join(directory, `${name}.${current.number + 1}`);
  const rest = `new.${process.pid}.${toHex(randomBytes(8))}`;
  const temporary = join(directory, `${name}.${rest}`);
  underWay.add(rest);
  try {
    await mkdir(temporary, { mode: 0o700 });
    await writeDurably(join(temporary, FILE), text, [token, ...current.tokens.slice(0, ANCESTORS)]);
    await syncDirectory(temporary);
    await move(temporary, path);
  } catch (error) {
    await remove(temporary);
    if (TAKEN.has(codeOf(error) ?? "")) return false;
    throw error;
  } finally {
    underWay.delete(rest);
  }
  await syncDirectory(directory);
  // It is stored now: a failure to read it back must not make anyone store it twice.
  const newest = await readNewest(folder).catch(() => null);
  if (!newest || newest.tokens.includes(token)) return true;
  await remove(path);
  return false;
}

/**
 * Make a file that contains its own place, so that a copy of it can be recognized.
 * @param {string} path @param {string | null} text @param {string[]} tokens
 */
async function writeDurably(path, text, tokens) {
  const file = await open(path, "wx", 0o600);
  try {
    const place = await placeOf(await file.stat({ bigint: true }));
    const head = { format: FORMAT, length: text?.length ?? null, tokens, place };
    await file.writeFile(`${JSON.stringify(head)}\n${text ?? ""}\n`, "utf8");
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Remove what was left, but so that nobody can give it a number meanwhile, empty. @param {string} path */
async function discard(path) {
  if (path.endsWith(GONE)) return remove(path);
  await rename(path, path + GONE)
    .then(() => remove(path + GONE))
    .catch(() => {});
}

/** @param {string} path of a version */
async function remove(path) {
  await unlink(join(path, FILE)).catch(() => {});
  await rmdir(path).catch(() => {});
}

/**
 * Whether a process that has ended didn't rename it: it holds reports that may be settled by now. A process that only
 * seems to have ended, as it is in another container, makes its version once more.
 * @param {string} rest of its name
 */
function isLeftOver(rest) {
  const [, pid, gone] = /^new\.(\d+)\.[0-9a-f]+(\.gone)?$/.exec(rest) ?? [];
  if (gone) return true;
  if (pid === undefined || underWay.has(rest)) return false;
  try {
    return Number(pid) === process.pid || !process.kill(Number(pid), 0);
  } catch (error) {
    return codeOf(error) === "ESRCH";
  }
}

/** @param {string} content @returns {{text: string | null, tokens: string[], place: string} | null} null: not whole */
function decode(content) {
  const end = content.indexOf("\n");
  if (end < 0 || !content.endsWith("\n")) return null;
  try {
    const { format, length, tokens, place } = JSON.parse(content.slice(0, end));
    const text = content.slice(end + 1, -1);
    if (format !== FORMAT || !Array.isArray(tokens) || text.length !== (length ?? 0)) return null;
    return { text: length === null ? null : text, tokens, place };
  } catch {
    return null;
  }
}

/** @template T @param {Promise<T>} found @returns {Promise<T | null>} null if there is no such file */
async function unlessMissing(found) {
  try {
    return await found;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return null;
    throw error;
  }
}

/** @param {string} key @returns {string} a file's name in which letters' case makes no difference */
function fileName(key) {
  if (/^[a-z0-9._-]+$/.test(key) && key.length <= LONGEST_NAME) return key;
  return `hubbub.${digest(key, 16)}`;
}

/** @param {string} text @param {number} length in bytes */
function digest(text, length) {
  return toHex(new Shake256(new TextEncoder().encode(text)).fill(new Uint8Array(length)));
}

/** @type {Promise<string> | undefined} differs between a machine and its clone; empty if it isn't known */
let machine;

/** Return a digest of a file's place: a copy of it has another one. @param {import("node:fs").BigIntStats} found */
async function placeOf({ ino, birthtimeNs }) {
  machine ??= readFile("/etc/machine-id", "utf8").catch(() => "");
  // Inodes are used again soon; a time of birth isn't. (Windows lends it to files of the same name.)
  return digest(`hubbub/1/place ${await machine} ${ino} ${IS_WINDOWS ? "" : birthtimeNs}`, 8);
}

/** Make new names durable, where a system can. @param {string} directory */
async function syncDirectory(directory) {
  try {
    const handle = await open(directory, "r");
    await handle.sync().finally(() => handle.close());
  } catch {
    // Windows and some file systems can't; then a power failure may undo the last update.
  }
}

/** @param {unknown} error @returns {string | undefined} */
function codeOf(error) {
  return /** @type {NodeJS.ErrnoException} */ (error).code;
}
