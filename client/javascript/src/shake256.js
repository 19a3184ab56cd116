/**
 * SHAKE-256 (FIPS 202): a message into an endless stream of bytes, squeezed out as it is asked for.
 *
 * A lane of Keccak-f[1600] has 64 bits; here it is two 32-bit words, low one first, so that the state is 50 words and a
 * message's bytes keep their little-endian order.
 */

const RATE = 136;

/** By how much each lane turns (rho), and where it goes (pi): lane x + 5 y. */
const ROTATIONS = [0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14];
const PERMUTED = [0, 10, 20, 5, 15, 16, 1, 11, 21, 6, 7, 17, 2, 12, 22, 23, 8, 18, 3, 13, 14, 24, 9, 19, 4];
/** Of each round (iota): the low word, and as a bit, whether the high word's first bit is set; its others aren't. */
const LOW_CONSTANTS = [
  0x1, 0x8082, 0x808a, 0x80008000, 0x808b, 0x80000001, 0x80008081, 0x8009, 0x8a, 0x88, 0x80008009, 0x8000000a,
  0x8000808b, 0x8b, 0x8089, 0x8003, 0x8002, 0x80, 0x800a, 0x8000000a, 0x80008081, 0x8080, 0x80000001, 0x80008008,
];
const HIGH_CONSTANTS = 0xbbe0cc;

/** The endless output of one message. */
export class Shake256 {
  #state = new Int32Array(50);
  #used = 0;

  /** @param {Uint8Array} message */
  constructor(message) {
    let position = 0;
    for (const byte of message) {
      this.#xor(position, byte);
      if (++position === RATE) {
        keccakF(this.#state);
        position = 0;
      }
    }
    this.#xor(position, 0x1f);
    this.#xor(RATE - 1, 0x80);
    keccakF(this.#state);
  }

  /** Overwrite the array with the stream's next bytes. @param {Uint8Array} target @returns {Uint8Array} the target */
  fill(target) {
    for (let i = 0; i < target.length; i++) {
      if (this.#used === RATE) {
        keccakF(this.#state);
        this.#used = 0;
      }
      target[i] = this.#state[this.#used >> 2] >>> (8 * (this.#used & 3));
      this.#used++;
    }
    return target;
  }

  /** @param {number} position @param {number} byte */
  #xor(position, byte) {
    this.#state[position >> 2] ^= byte << (8 * (position & 3));
  }
}

const columns = new Int32Array(10);
const moved = new Int32Array(50);

/**
 * Permute the state in place (FIPS 202, section 3.3).
 * @param {Int32Array} state lane (x, y) is words 2 (x + 5 y) and one more
 */
function keccakF(state) {
  for (let round = 0; round < LOW_CONSTANTS.length; round++) {
    theta(state);
    for (let lane = 0; lane < 25; lane++) {
      const [low, high] = [state[2 * lane], state[2 * lane + 1]];
      const by = ROTATIONS[lane] & 31;
      const swap = ROTATIONS[lane] >> 5;
      const to = 2 * PERMUTED[lane];
      // A shift by 32 is a shift by 0 in JavaScript, so the word's other end is shifted in two steps.
      moved[to + swap] = (low << by) | ((high >>> 1) >>> (31 - by));
      moved[to + 1 - swap] = (high << by) | ((low >>> 1) >>> (31 - by));
    }
    for (let row = 0; row < 50; row += 10) {
      for (let i = row; i < row + 6; i++) state[i] = moved[i] ^ (~moved[i + 2] & moved[i + 4]);
      for (let i = row + 6; i < row + 8; i++) state[i] = moved[i] ^ (~moved[i + 2] & moved[i - 6]);
      for (let i = row + 8; i < row + 10; i++) state[i] = moved[i] ^ (~moved[i - 8] & moved[i - 6]);
    }
    state[0] ^= LOW_CONSTANTS[round];
    state[1] ^= (HIGH_CONSTANTS >> round) << 31;
  }
}

/** @param {Int32Array} state */
function theta(state) {
  for (let i = 0; i < 10; i++) {
    columns[i] = state[i] ^ state[i + 10] ^ state[i + 20] ^ state[i + 30] ^ state[i + 40];
  }
  for (let x = 0; x < 5; x++) {
    const left = 2 * ((x + 4) % 5);
    const right = 2 * ((x + 1) % 5);
    const low = columns[left] ^ ((columns[right] << 1) | (columns[right + 1] >>> 31));
    const high = columns[left + 1] ^ ((columns[right + 1] << 1) | (columns[right] >>> 31));
    for (let at = 2 * x; at < 50; at += 10) {
      state[at] ^= low;
      state[at + 1] ^= high;
    }
  }
}
