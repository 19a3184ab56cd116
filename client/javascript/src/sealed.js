/**
 * A batch into a body that only the holder of a private key can read.
 *
 * docs/protocol, section 9, describes it byte by byte. The cryptography is that of the package @hpke/core,
 * which the app hands over, so that this one needs no other. Invariants: all records of a batch have one
 * length; a report has one number in all attempts; what can't be sealed isn't sent.
 */

import { newBatchId } from "./batch.js";
import { fromHex, littleEndian } from "./bytes.js";
import { longestSlice, sectionName } from "./dimensions.js";
import { HubbubError, OptionError } from "./errors.js";
import { message, prefixed } from "./keyed.js";
import { Shake256 } from "./shake256.js";

export const MEDIA_TYPE = "application/vnd.hubbub.sealed";

const TAG = "hubbub/1/sealed";
const KEY_TAG = "hubbub/1/sealing key";
const FORMAT = 1;
const SIZES = [64, 128, 256, 512, 1024];
const NUMBER_BYTES = 16;
const ID_BYTES = 8;
const OVERHEAD = ID_BYTES + 32 + 16;
const LARGEST_BODY = 1_000_000;
const KEY = /^hub_seal_((\d{4})(\d\d)(\d\d))_([A-Za-z0-9_-]{43})$/;

const encoder = new TextEncoder();

/**
 * The parts of @hpke/core that are used: `import * as hpke from "@hpke/core"` has them.
 *
 * @typedef {object} Hpke
 * @property {new (parts: any) => any} CipherSuite
 * @property {new () => any} DhkemX25519HkdfSha256
 * @property {new () => any} HkdfSha256
 * @property {new () => any} Aes128Gcm
 */

/** @typedef {{day: string, lastDay: string, bytes: Uint8Array}} SealingKey a day is YYYYMMDD or YYYY-MM-DD */
/** @typedef {{id: string, reports: readonly import("./batch.js").StoredReport[]}} StoredBatch */

/**
 * Whose reports are sealed.
 *
 * @typedef {object} Client
 * @property {string} application
 * @property {Iterable<Readonly<import("./registry.js").Metric>>} metrics
 * @property {Uint8Array} secret
 */

/**
 * Return what the option `sealed` of `Telemetry` takes: reports are sealed to the one of these keys that
 * ends first of those still in force.
 *
 * @param {string | readonly string[]} keys as `hubbub-collector keygen` prints them
 * @param {Hpke} hpke all of @hpke/core
 * @returns {Sealer} throws OptionError
 */
export function sealedTo(keys, hpke) {
  return new Sealer(keys, hpke);
}

/** Seals batches; `sealedTo` makes one. */
export class Sealer {
  #keys;
  #suite;

  /** @param {string | readonly string[]} keys @param {Hpke} hpke throws OptionError */
  constructor(keys, hpke) {
    this.#keys = [keys].flat().map(parseKey);
    if (!this.#keys.length) throw new OptionError("sealedTo: no key; must be at least one");
    try {
      this.#suite = new hpke.CipherSuite({
        kem: new hpke.DhkemX25519HkdfSha256(),
        kdf: new hpke.HkdfSha256(),
        aead: new hpke.Aes128Gcm(),
      });
    } catch (error) {
      throw new OptionError("sealedTo: hpke: must be all of the package @hpke/core", { cause: error });
    }
  }

  /** @param {Client["metrics"]} metrics @returns {number} the most reports that a body has room for */
  mostReports(metrics) {
    return Math.floor(LARGEST_BODY / (leastPayload(metrics) + OVERHEAD));
  }

  /**
   * Return a batch's body, under an id of its own: two attempts have nothing in common.
   *
   * @param {StoredBatch} batch its id is a part of the reports' numbers, and doesn't travel
   * @param {Client} client
   * @param {string} [today] YYYY-MM-DD (UTC)
   * @returns {Promise<ArrayBuffer>} rejects if no key is in force, or the cryptography fails
   */
  async seal(batch, client, today = new Date().toISOString().slice(0, 10)) {
    const inForce = this.#keys.filter((key) => key.lastDay >= today);
    const [key] = inForce.sort((a, b) => (a.day < b.day ? -1 : Number(a.day > b.day)));
    if (!key) {
      const last = this.#keys.map(({ lastDay }) => lastDay).sort().at(-1);
      throw new HubbubError(`no key to seal to: the last one ended on ${last}`);
    }
    const id = await keyId(key);
    const info = prefixed(encoder.encode(TAG), id, encoder.encode(client.application));
    const recipientPublicKey = await this.#suite.kem.deserializePublicKey(key.bytes);
    const records = [];
    for (const payload of payloadsOf(batch, client)) {
      const { enc, ct } = await this.#suite.seal({ recipientPublicKey, info }, payload);
      records.push(concat(id, new Uint8Array(enc), new Uint8Array(ct)));
    }
    return sealedBody(newBatchId(), records);
  }
}

/** @param {unknown} text @returns {SealingKey} throws OptionError, without what might be a private key */
function parseKey(text) {
  const wanted = "must be hub_seal_YYYYMMDD_ and 43 letters, digits, - and _";
  const found = typeof text === "string" && KEY.exec(text.trim());
  if (!found) throw new OptionError(`sealedTo: key: ${wanted}`);
  const [, day, year, month, date, encoded] = found;
  const lastDay = `${year}-${month}-${date}`;
  const plain = atob(`${encoded.replaceAll("-", "+").replaceAll("_", "/")}=`);
  const again = btoa(plain).replaceAll("+", "-").replaceAll("/", "_");
  const isDay = new Date(lastDay).toJSON()?.startsWith(lastDay);
  if (!isDay || again !== `${encoded}=`) {
    throw new OptionError(`sealedTo: key hub_seal_${day}_...: ${wanted}`);
  }
  return { day, lastDay, bytes: Uint8Array.from(plain, (character) => character.charCodeAt(0)) };
}

/** @param {SealingKey} key @returns {Promise<Uint8Array>} by which its holder finds it among others */
export async function keyId({ day, bytes }) {
  const named = prefixed(encoder.encode(KEY_TAG), encoder.encode(day), bytes);
  const digest = await crypto.subtle.digest("SHA-256", /** @type {BufferSource} */ (named));
  return new Uint8Array(digest).slice(0, ID_BYTES);
}

/**
 * Return what is sealed of each report of a batch: all of one length.
 *
 * @param {StoredBatch} batch
 * @param {Client} client
 * @returns {Uint8Array[]}
 */
export function payloadsOf({ id, reports }, { application, metrics, secret }) {
  const batchId = fromHex(id);
  /** @type {Map<string, number>} */
  const seen = new Map();
  const payloads = reports.map((report) => {
    const { metric, slice, version } = report;
    const name = sectionName(metric, slice);
    const record = Uint8Array.from(atob(report.record), (character) => character.charCodeAt(0));
    const same = `${name} ${version} ${report.record}`;
    const before = seen.get(same) ?? 0;
    seen.set(same, before + 1);
    const details = [batchId, record, littleEndian(before, 4)];
    const stream = new Shake256(message(TAG, secret, { application, name, version }, ...details));
    const number = stream.fill(new Uint8Array(NUMBER_BYTES));
    const head = concat(littleEndian(name.length, 1), encoder.encode(name));
    const numbers = concat(littleEndian(version, 4), littleEndian(record.length - 2, 2));
    return concat(number, head, numbers, record);
  });
  const size = roomFor(Math.max(leastPayload(metrics), ...payloads.map(({ length }) => length)));
  return payloads.map((payload) => concat(payload, new Uint8Array(size - payload.length)));
}

/**
 * Return the bytes in which all reports of these metrics have room, whatever the app tells of itself, so that
 * its length tells nothing.
 *
 * @param {Client["metrics"]} metrics @returns {number}
 */
function leastPayload(metrics) {
  const needed = [...metrics].map(({ name: metric, dimensions, params }) => {
    const name = sectionName(metric, "x".repeat(longestSlice(dimensions)));
    return NUMBER_BYTES + 1 + name.length + 6 + 2 + params.k / 8;
  });
  return roomFor(Math.max(...needed));
}

/** @param {number} needed bytes @returns {number} the smallest size of payloads that has them */
function roomFor(needed) {
  const size = SIZES.find((some) => some >= needed);
  if (size === undefined) throw new HubbubError(`report of ${needed} bytes: too large to be sealed`);
  return size;
}

/**
 * Return the body of sealed records. They ascend, so that their order tells nothing.
 *
 * @param {string} id
 * @param {Uint8Array[]} records
 * @returns {ArrayBuffer}
 */
export function sealedBody(id, records) {
  const payload = littleEndian(records[0].length - OVERHEAD, 2);
  const head = concat(Uint8Array.of(FORMAT), fromHex(id), payload, littleEndian(records.length, 2));
  return concat(head, ...records.sort(compare)).buffer;
}

/** @param {Uint8Array} one @param {Uint8Array} other of the same length */
function compare(one, other) {
  const at = one.findIndex((byte, i) => byte !== other[i]);
  return at < 0 ? 0 : one[at] - other[at];
}

/** @param {...Uint8Array} parts @returns {Uint8Array<ArrayBuffer>} */
function concat(...parts) {
  const joined = new Uint8Array(parts.reduce((total, part) => total + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}
