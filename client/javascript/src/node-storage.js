/**
 * Texts kept in files of one directory, for Node, its workers, and any number of processes.
 *
 * Each version of a text is a file of its own, numbered, and made by a hard link, which only the first
 * of several processes gets; so an update is a compare-and-swap, and no process holds a lock that kill -9
 * could leave behind. An old number can be taken again once its file is gone, by a process that slept
 * through all later updates; hence each file also names the versions that it came from, and a version
 * that the newest doesn't come from was never stored.
 */

import { chmod, link, mkdir, open, readdir, readFile, stat, unlink } from "node:fs/promises";
import { join } from "node:path";

import { toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";
import { StorageError } from "./errors.js";
import { Shake256 } from "./shake256.js";

const OWNER_ONLY = 0o600;
const READABLE_BY_OTHERS = 0o077;
const WRITABLE_BY_OTHERS = 0o022;
const FORMAT = "hubbub-file-1";
/** That many updates of others may come between a link and a look at it; beyond, it would be made again. */
const ANCESTORS = 256;
const MOST_ATTEMPTS = 1_000;
const LONGEST_NAME = 100;
const UNFINISHED_MILLIS = 5_000;
const PAUSE_MILLIS = 5;
/** More than it takes until a file is too old to be unfinished, if its time and the clock can be trusted. */
const MOST_LOOKS = 2_500;
const NO_LINKS = new Set(["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EACCES", "EINVAL"]);

/**
 * One version of a text.
 *
 * @typedef {object} Version
 * @property {number} number
 * @property {string | null} text null if there is none, or none any more
 * @property {string[]} tokens its own, and those of the versions that it came from
 * @property {boolean} copied whether its file is a copy of the one that was written
 */

/** Files of this program that aren't linked to their numbers yet. @type {Set<string>} */
const underWay = new Set();

/**
 * Where the versions of one text are, and how a link is made there.
 *
 * @typedef {{directory: string, name: string, makeLink: (from: string, to: string) => Promise<void>}} Folder
 */

/**
 * Keep texts in a directory, which is made when first needed.
 *
 * @param {string} directory of the client's own; it must survive updates of the app
 * @returns {import("./storage.js").KeptTexts}
 */
export function fileStorage(directory) {
  return makeFileStorage(directory, link);
}

/**
 * As `fileStorage`, on a file system whose links are made by the given function.
 *
 * @param {string} directory
 * @param {(from: string, to: string) => Promise<void>} makeLink
 * @returns {import("./storage.js").KeptTexts}
 */
export function makeFileStorage(directory, makeLink) {
  return {
    async update(key, change) {
      const folder = { directory, name: fileName(key), makeLink };
      for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        await checkDirectory(directory);
        await removeLeftOver(folder);
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
  if (!found || process.platform === "win32") return;
  const mode = found.mode & 0o777;
  if (mode & WRITABLE_BY_OTHERS) {
    throw new StorageError(
      `${directory}: mode is ${mode.toString(8)}, others may write to it: must be 700`,
    );
  }
  if (mode & READABLE_BY_OTHERS) await chmod(directory, 0o700);
}

/**
 * Return the newest version that is whole.
 *
 * @param {Folder} folder
 * @returns {Promise<Version>} under the number of the newest of all
 */
async function readNewest(folder) {
  for (let look = 0; look < MOST_LOOKS; look++) {
    const files = await listVersions(folder);
    const version = await readFirst(files);
    if (version) {
      if (files.length > 1) await removeOlder(folder, version.number);
      return { ...version, number: files[0]?.number ?? 0 };
    }
    // A newer version has replaced these meanwhile, or is being written right now.
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MILLIS));
  }
  throw new Error(`${folder.directory}: no version was whole in ${MOST_LOOKS} looks`);
}

/**
 * @typedef {{path: string, number: number, inPlace: boolean}} VersionFile
 */

/** @param {Folder} folder @returns {Promise<VersionFile[]>} the newest first */
async function listVersions({ directory, name }) {
  const names = (await unlessMissing(readdir(directory))) ?? [];
  return names
    .flatMap((found) => {
      const [, number, inPlace] = /\.(\d{1,15})(\.direct)?$/.exec(found) ?? [];
      if (number === undefined || found !== `${name}.${number}${inPlace ?? ""}`) return [];
      return [{ path: join(directory, found), number: Number(number), inPlace: Boolean(inPlace) }];
    })
    .sort((one, other) => other.number - one.number);
}

/** @param {VersionFile[]} files @returns {Promise<Version | null>} null if they must be listed again */
async function readFirst(files) {
  for (const file of files) {
    const version = await readVersion(file);
    if (version !== "unfinished") return version;
  }
  return { number: 0, text: null, tokens: [], copied: false };
}

/**
 * @param {VersionFile} file
 * @returns {Promise<Version | "unfinished" | null>} null if it is gone, or may still be written
 */
async function readVersion({ path, number, inPlace }) {
  const file = await unlessMissing(open(path, "r"));
  if (!file) return null;
  try {
    const found = await file.stat({ bigint: true });
    const mode = Number(found.mode) & 0o777;
    if (process.platform !== "win32" && mode & READABLE_BY_OTHERS) {
      throw new StorageError(
        `${path}: mode is ${mode.toString(8)}, others may have read it: must be 600`,
      );
    }
    const whole = decode(await file.readFile("utf8"));
    if (whole) {
      const { text, tokens, place } = whole;
      return { number, text, tokens, copied: place !== (await placeOf(found)) };
    }
    if (!inPlace) {
      throw new StorageError(`${path}: is damaged; nothing is sent until someone deletes it`);
    }
    // A time far in the future comes from a wrong clock, and doesn't show when the writing ended.
    const age = Math.abs(Date.now() - Number(found.mtimeMs));
    return age < UNFINISHED_MILLIS ? null : "unfinished";
  } finally {
    await file.close();
  }
}

/**
 * Store the next version, unless another process does so first.
 *
 * @param {Folder} folder
 * @param {Version} current
 * @param {string | null} text
 * @returns {Promise<boolean>} whether it is done
 */
async function store(folder, current, text) {
  const token = toHex(randomBytes(8));
  const tokens = [token, ...current.tokens.slice(0, ANCESTORS)];
  const number = current.number + 1;
  const path = await makeVersion(folder, number, { text, tokens });
  if (!path) return false;
  await syncDirectory(folder.directory);
  // It is stored now: a failure to read it back must not make anyone store it twice.
  const newest = await readNewest(folder).catch(() => null);
  if (!newest || newest.tokens.includes(token)) return true;
  await unlink(path).catch(() => {});
  return false;
}

/**
 * Write a version under its number, if no other process has.
 *
 * @param {Folder} folder
 * @param {number} number
 * @param {{text: string | null, tokens: string[]}} version
 * @returns {Promise<string | null>} its path, or null if the number is taken
 */
async function makeVersion({ directory, name, makeLink }, number, version) {
  const temporaryName = `${name}.new.${process.pid}.${toHex(randomBytes(8))}`;
  const temporary = join(directory, temporaryName);
  const path = join(directory, `${name}.${number}`);
  underWay.add(temporaryName);
  try {
    await writeDurably(temporary, version);
    await makeLink(temporary, path);
    return path;
  } catch (error) {
    // It doesn't exist if another process took it for one that was left.
    if (codeOf(error) === "EEXIST" || codeOf(error) === "ENOENT") return null;
    if (!NO_LINKS.has(codeOf(error) ?? "")) throw error;
  } finally {
    await unlink(temporary).catch(() => {});
    underWay.delete(temporaryName);
  }
  // Without links a file is made first and then written: readers must wait until it is complete.
  try {
    await writeDurably(`${path}.direct`, version);
    return `${path}.direct`;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return null;
    throw error;
  }
}

/**
 * Make a file that contains its own place, so that a copy of it can be recognized.
 *
 * @param {string} path
 * @param {{text: string | null, tokens: string[]}} version
 */
async function writeDurably(path, { text, tokens }) {
  const file = await open(path, "wx", OWNER_ONLY);
  try {
    const place = await placeOf(await file.stat({ bigint: true }));
    const head = { format: FORMAT, length: text?.length ?? null, tokens, place };
    await file.writeFile(`${JSON.stringify(head)}\n${text ?? ""}\n`, "utf8");
    await file.sync();
  } finally {
    await file.close();
  }
}

/** @param {Folder} folder @param {number} number what is older than it */
async function removeOlder(folder, number) {
  const versions = await listVersions(folder);
  const older = versions.filter((file) => file.number < number).map(({ path }) => path);
  await Promise.all(older.map((path) => unlink(path).catch(() => {})));
}

/**
 * Remove what processes that have ended didn't link: it holds reports that may be settled by now. A
 * process that only seems to have ended, as it is in another container, makes its version once more.
 *
 * @param {Folder} folder
 */
async function removeLeftOver({ directory, name }) {
  for (const found of (await unlessMissing(readdir(directory))) ?? []) {
    const [, pid] = /\.new\.(\d+)\.[0-9a-f]+$/.exec(found) ?? [];
    if (pid === undefined || !found.startsWith(`${name}.new.`) || underWay.has(found)) continue;
    if (Number(pid) === process.pid || !isRunning(Number(pid))) {
      await unlink(join(directory, found)).catch(() => {});
    }
  }
}

/** @param {number} pid @returns {boolean} whether there is such a process, as far as is known */
function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== "ESRCH";
  }
}

/**
 * @param {string} content
 * @returns {{text: string | null, tokens: string[], place: string} | null} null if it isn't whole
 */
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

/**
 * @template T
 * @param {Promise<T>} found
 * @returns {Promise<T | null>} null if there is no such file
 */
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
  const digest = new Shake256(new TextEncoder().encode(key)).fill(new Uint8Array(16));
  return `hubbub.${toHex(digest)}`;
}

/** @type {Promise<string> | undefined} */
let machine;

/** @returns {Promise<string>} an id that differs between a machine and its clone, or an empty text */
function machineId() {
  machine ??= readFile("/etc/machine-id", "utf8").catch(() => "");
  return machine;
}

/**
 * Return a digest of a file's place: a copy of it has another one, a link to it doesn't.
 *
 * @param {import("node:fs").BigIntStats} found
 */
async function placeOf({ ino, birthtimeNs }) {
  // Inodes are used again soon; a time of birth isn't. (Windows lends it to files of the same name.)
  const birth = process.platform === "win32" ? "" : birthtimeNs;
  const text = `hubbub/1/place ${await machineId()} ${ino} ${birth}`;
  return toHex(new Shake256(new TextEncoder().encode(text)).fill(new Uint8Array(8)));
}

/**
 * Make new names durable, where a system can.
 *
 * @param {string} directory
 */
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
