/**
 * The fair coins of reports: bytes of the operating system's generator, as far as a script can have them. Never
 * Math.random, and never a generator that this module seeds: its state could be copied by a fork or a snapshot, and
 * then two reports would share their noise.
 */

import { RandomnessError } from "./errors.js";

const LARGEST_CALL = 65_536;

/** Each call asks the system; nothing is drawn in advance. @type {import("./bernoulli.js").ByteStream} */
export const systemCoins = Object.freeze({
  /** @param {Uint8Array} target */
  fill(target) {
    const generator = globalThis.crypto;
    if (typeof generator?.getRandomValues !== "function") {
      throw new RandomnessError("globalThis.crypto.getRandomValues is missing: reports need the system's generator");
    }
    for (let at = 0; at < target.length; at += LARGEST_CALL) {
      const part = /** @type {Uint8Array<ArrayBuffer>} */ (target.subarray(at, at + LARGEST_CALL));
      generator.getRandomValues(part);
    }
  },
});

/** Return new bytes of the system's generator. @param {number} length @returns {Uint8Array} */
export function randomBytes(length) {
  const bytes = new Uint8Array(length);
  systemCoins.fill(bytes);
  return bytes;
}
