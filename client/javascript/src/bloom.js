/** A value's bytes and a cohort into Bloom filter positions: the one hash that everyone shares. */

import { fmix32, murmur3x86 } from "./murmur3.js";

/**
 * Return the positions of all hash functions, in their order; two of them may be the same.
 *
 * @param {Uint8Array} bytes
 * @param {number} cohort
 * @param {{k: number, h: number}} params
 * @returns {number[]}
 */
export function bloomPositions(bytes, cohort, { k, h }) {
  const [start, step] = murmur3x86(bytes);
  return Array.from({ length: h }, (_, i) => {
    return fmix32(start + Math.imul(cohort * h + i, step | 1)) % k;
  });
}

/**
 * Return a filter of k bits with the given ones set: bit j is bit j mod 8 of byte j div 8.
 *
 * @param {Iterable<number>} positions
 * @param {number} k
 * @returns {Uint8Array} of length k / 8
 */
export function filterOf(positions, k) {
  const filter = new Uint8Array(k / 8);
  for (const position of positions) filter[position >> 3] |= 1 << (position & 7);
  return filter;
}
