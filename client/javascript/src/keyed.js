/**
 * A client's secret and a purpose into a stream of bytes that is the same for life.
 *
 * The parts of a message stand behind their lengths, so that no two purposes can have one message; what must never
 * share noise (metrics, versions, applications, cohort and permanent response) is kept apart by that alone.
 */

import { littleEndian } from "./bytes.js";

const encoder = new TextEncoder();
const WORDS = 2 ** 32;

/**
 * What keeps the streams of one client apart.
 * @typedef {{application: string, name: string, version: number}} Purpose
 */

/**
 * Return the message whose SHAKE-256 output is the stream.
 * @param {string} tag @param {Uint8Array} secret @param {Purpose} purpose @param {...Uint8Array} details
 * @returns {Uint8Array}
 */
export function message(tag, secret, { application, name, version }, ...details) {
  return prefixed(
    encoder.encode(tag),
    secret,
    encoder.encode(application),
    encoder.encode(name),
    littleEndian(version, 4),
    ...details,
  );
}

/** @param {...Uint8Array} parts @returns {Uint8Array} which no other list of parts gives */
export function prefixed(...parts) {
  const joined = new Uint8Array(parts.reduce((total, part) => total + 4 + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(littleEndian(part.length, 4), at);
    joined.set(part, at + 4);
    at += 4 + part.length;
  }
  return joined;
}

/**
 * Return a uniform integer from 0 to m - 1: words that would favour the small ones are skipped.
 * @param {number} m @param {import("./bernoulli.js").ByteStream} stream @returns {number}
 */
export function uniformBelow(m, stream) {
  const fair = WORDS - (WORDS % m);
  const word = new DataView(new ArrayBuffer(4));
  let drawn;
  do {
    stream.fill(new Uint8Array(word.buffer));
    drawn = word.getUint32(0, true);
  } while (drawn >= fair);
  return drawn % m;
}
