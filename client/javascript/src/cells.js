/**
 * Exact reports of a set of cells, or of one cell: one coin decides whether the report holds the
 * value, and unbiased integers choose among what is left.
 *
 * Invariant: a probability is exactly that of the double, and choices are exactly uniform.
 */

import { uniformBelow } from "./keyed.js";

/** @typedef {import("./bernoulli.js").ByteStream} ByteStream */

/**
 * Draw a set of w categories, which holds one's own with this chance (Ye, Barg 2018).
 * @param {{cells: number, width: number, chance: number}} response d, w and q @param {number} own 0 to d - 1
 * @param {ByteStream} stream @returns {number[]}
 */
export function drawSubset({ cells, width, chance }, own, stream) {
  const others = Array.from({ length: cells }, (_, cell) => cell).filter((cell) => cell !== own);
  const drawn = happens(chance, stream) ? [own] : [];
  // The beginning of a Fisher-Yates shuffle.
  for (let i = 0; drawn.length < width; i++) {
    const j = i + uniformBelow(others.length - i, stream);
    [others[i], others[j]] = [others[j], others[i]];
    drawn.push(others[i]);
  }
  return drawn;
}

/**
 * Draw a cell, in the window of a position with this chance (Wang et al. 2019, section III).
 * @param {{cells: number, width: number, chance: number}} response d, w and q
 * @param {number} position 0 to d - w; its window begins there @param {ByteStream} stream @returns {number[]}
 */
export function drawInWindow({ cells, width, chance }, position, stream) {
  if (happens(chance, stream)) return [position + uniformBelow(width, stream)];
  const cell = uniformBelow(cells - width, stream);
  return [cell < position ? cell : cell + width];
}

/**
 * Toss one exact coin: compare a uniform number with a chance below 1, byte by byte. All steps are exact: a
 * double times 256 has the same digits, and its fraction fewer.
 * @param {number} chance @param {ByteStream} stream
 */
function happens(chance, stream) {
  const drawn = new Uint8Array(1);
  for (let rest = chance; rest > 0; ) {
    rest *= 256;
    const digit = Math.floor(rest);
    stream.fill(drawn);
    if (drawn[0] !== digit) return drawn[0] < digit;
    rest -= digit;
  }
  return false;
}
