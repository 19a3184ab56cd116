/**
 * The client's secret: drawn once, kept for life, checked on every start.
 *
 * A client that lost its secret and quietly drew another would answer the same question twice with
 * fresh permanent noise, and so spend its privacy twice. Hence a secret that can't be trusted is an
 * error, never a reason to make a new one.
 */

import { fromHex, toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";
import { SECRET_BYTES } from "./encoder.js";
import { StorageError } from "./errors.js";
import { Shake256 } from "./shake256.js";
import { storeIfAbsent } from "./storage.js";

export const SECRET_KEY = "hubbub.secret";

const FORMAT = /^hubbub-javascript-secret-1 ([0-9a-f]{64}) ([0-9a-f]{16})$/;
const CHECKSUM_BYTES = 8;
const checksumTag = new TextEncoder().encode("hubbub-javascript-secret-1");

/**
 * Return the client's secret, drawing it if the storage has none yet.
 *
 * @param {import("./storage.js").KeptTexts} storage
 * @returns {Promise<Uint8Array>} throws StorageError, RandomnessError, and what the storage throws
 */
export async function loadOrCreateSecret(storage) {
  const kept = await storage.get(SECRET_KEY);
  if (kept != null) return parse(kept);
  await storeIfAbsent(storage, SECRET_KEY, written(randomBytes(SECRET_BYTES)));
  // Whoever stored it first, all go by what the storage now holds.
  const stored = await storage.get(SECRET_KEY);
  if (stored == null) throw new StorageError(`the storage didn't keep ${SECRET_KEY}`);
  return parse(stored);
}

/** @param {Uint8Array} secret */
function written(secret) {
  return `hubbub-javascript-secret-1 ${toHex(secret)} ${checksum(secret)}`;
}

/** @param {unknown} kept @returns {Uint8Array} */
function parse(kept) {
  const [, digits = "", sum] = FORMAT.exec(String(kept)) ?? [];
  const secret = fromHex(digits);
  if (secret.length !== SECRET_BYTES || checksum(secret) !== sum) {
    throw new StorageError(
      `${SECRET_KEY} is damaged (its checksum doesn't match); nothing is sent until someone decides ` +
        "to delete it, which starts this client's privacy account anew",
    );
  }
  return secret;
}

/** @param {Uint8Array} secret */
function checksum(secret) {
  const message = new Uint8Array([...checksumTag, ...secret]);
  return toHex(new Shake256(message).fill(new Uint8Array(CHECKSUM_BYTES)));
}
