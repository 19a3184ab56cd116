/** A text and a cohort into Bloom filter positions: the one hash that everyone shares. */

import { typeOf, ValueError } from "./errors.js";
import { fmix32, murmur3x86 } from "./murmur3.js";

export const LARGEST_TEXT = 65_536;

const encoder = new TextEncoder();

/** @param {string} text @returns {Uint8Array} */
export function utf8(text) {
  return encoder.encode(text);
}

/**
 * Return a text in the form in which texts are compared and hashed.
 * @param {unknown} value @returns {string} its Unicode normal form NFC; throws ValueError, which never shows the value
 */
export function normalText(value) {
  if (typeof value !== "string") throw new ValueError(`must be a string, not ${typeOf(value)}`);
  if (/\p{Surrogate}/u.test(value)) throw new ValueError("must have no lone surrogate");
  const normal = value.normalize("NFC");
  if (utf8(normal).length > LARGEST_TEXT) {
    throw new ValueError(`must have at most ${LARGEST_TEXT} bytes`);
  }
  return normal;
}

/**
 * Return the positions of all hash functions, in their order; two of them may be the same.
 * @param {Uint8Array} bytes @param {number} cohort @param {{k: number, h: number}} params @returns {number[]}
 */
export function bloomPositions(bytes, cohort, { k, h }) {
  const [start, step] = murmur3x86(bytes);
  return Array.from({ length: h }, (_, i) => fmix32(start + Math.imul(cohort * h + i, step | 1)) % k);
}

/**
 * Return a filter of k bits with the given ones set: bit j is bit j mod 8 of byte j div 8.
 * @param {Iterable<number>} positions @param {number} k @returns {Uint8Array} of length k / 8
 */
export function filterOf(positions, k) {
  const filter = new Uint8Array(k / 8);
  for (const position of positions) filter[position >> 3] |= 1 << (position & 7);
  return filter;
}
