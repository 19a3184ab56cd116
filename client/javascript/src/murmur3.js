/**
 * MurmurHash3_x86_128: bytes into four 32-bit words. Not a cryptographic hash, and needn't be one: it only spreads
 * values over Bloom positions. Every client, in every language, must agree on it; it is the x86 variant, not the x64
 * one.
 */

const C = [0x239b961b, 0xab0e9789, 0x38b34ae5, 0xa1e38b93];
const ROTATE_KEY = [15, 16, 17, 18];
const ROTATE_STATE = [19, 17, 15, 13];
const ADD = [0x561ccd1b, 0x0bcaa747, 0x96cd1c35, 0x32ac3b17];
const BLOCK = 16;

/** @param {number} x @param {number} by */
const rotateLeft = (x, by) => (x << by) | (x >>> (32 - by));

/**
 * Return the finalizer of MurmurHash3, a bijection of the 32-bit words.
 * @param {number} x @returns {number} from 0 to 2^32 - 1
 */
export function fmix32(x) {
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/**
 * Return the hash as its four words; the usual 16 bytes are these, little-endian, one by one.
 * @param {Uint8Array} bytes @param {number} [seed] @returns {Uint32Array} of length 4
 */
export function murmur3x86(bytes, seed = 0) {
  const state = new Int32Array(4).fill(seed);
  const whole = bytes.length - (bytes.length % BLOCK);
  for (let at = 0; at < whole; at += BLOCK) {
    for (let i = 0; i < 4; i++) {
      state[i] ^= mixKey(littleEndian(bytes, at + 4 * i, 4), i);
      state[i] = Math.imul(rotateLeft(state[i], ROTATE_STATE[i]) + state[(i + 1) % 4], 5) + ADD[i];
    }
  }
  for (let i = 0; i < 4; i++) {
    const at = whole + 4 * i;
    state[i] ^= mixKey(littleEndian(bytes, at, Math.min(4, bytes.length - at)), i);
  }
  for (let i = 0; i < 4; i++) state[i] ^= bytes.length;
  spread(state);
  for (let i = 0; i < 4; i++) state[i] = fmix32(state[i]);
  spread(state);
  return new Uint32Array(state.buffer);
}

/** @param {number} word @param {number} i */
function mixKey(word, i) {
  return Math.imul(rotateLeft(Math.imul(word, C[i]), ROTATE_KEY[i]), C[(i + 1) % 4]);
}

/** @param {Int32Array} state */
function spread(state) {
  state[0] += state[1] + state[2] + state[3];
  for (let i = 1; i < 4; i++) state[i] += state[0];
}

/** @param {Uint8Array} bytes @param {number} at @param {number} count negative counts as none */
function littleEndian(bytes, at, count) {
  let word = 0;
  for (let i = 0; i < count; i++) word |= bytes[at + i] << (8 * i);
  return word;
}
