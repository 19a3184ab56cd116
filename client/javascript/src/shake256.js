/**
 * SHAKE-256 (FIPS 202): a message into an endless stream of bytes, squeezed out as it is asked for.
 *
 * A lane of Keccak-f[1600] has 64 bits; here it is two 32-bit words, low one first, so that the
 * state is 50 words and a message's bytes keep their little-endian order.
 */

const RATE = 136;
const ROUNDS = 24;

const { rotations, permuted } = rhoAndPi();
const roundConstants = iotaConstants();

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

  /**
   * Overwrite the array with the stream's next bytes.
   * @param {Uint8Array} target @returns {Uint8Array} the target
   */
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
  for (let round = 0; round < ROUNDS; round++) {
    theta(state);
    for (let lane = 0; lane < 25; lane++) {
      const low = state[2 * lane];
      const high = state[2 * lane + 1];
      const by = rotations[lane] & 31;
      const swap = rotations[lane] >> 5;
      const to = 2 * permuted[lane];
      // A shift by 32 is a shift by 0 in JavaScript, so the word's other end is shifted in two steps.
      moved[to + swap] = (low << by) | ((high >>> 1) >>> (31 - by));
      moved[to + 1 - swap] = (high << by) | ((low >>> 1) >>> (31 - by));
    }
    for (let row = 0; row < 50; row += 10) {
      for (let i = row; i < row + 6; i++) state[i] = moved[i] ^ (~moved[i + 2] & moved[i + 4]);
      for (let i = row + 6; i < row + 8; i++) state[i] = moved[i] ^ (~moved[i + 2] & moved[i - 6]);
      for (let i = row + 8; i < row + 10; i++) state[i] = moved[i] ^ (~moved[i - 8] & moved[i - 6]);
    }
    state[0] ^= roundConstants[2 * round];
    state[1] ^= roundConstants[2 * round + 1];
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

/** Return by how much each lane turns (rho), and where it goes (pi). */
function rhoAndPi() {
  const rotations = new Uint8Array(25);
  const permuted = new Uint8Array(25);
  let [x, y] = [1, 0];
  for (let t = 0; t < 24; t++) {
    rotations[x + 5 * y] = (((t + 1) * (t + 2)) / 2) % 64;
    [x, y] = [y, (2 * x + 3 * y) % 5];
  }
  for (let lane = 0; lane < 25; lane++) {
    const [column, row] = [lane % 5, Math.floor(lane / 5)];
    permuted[lane] = row + 5 * ((2 * column + 3 * row) % 5);
  }
  return { rotations, permuted };
}

/** Return the round constants, low and high word by turns, from their shift register. */
function iotaConstants() {
  const constants = new Int32Array(2 * ROUNDS);
  let register = 1;
  for (let round = 0; round < ROUNDS; round++) {
    for (let j = 0; j < 7; j++) {
      const bit = (1 << j) - 1;
      if (register & 1) constants[2 * round + (bit >> 5)] ^= 1 << (bit & 31);
      register = (register << 1) ^ (register & 0x80 ? 0x171 : 0);
    }
  }
  return constants;
}
