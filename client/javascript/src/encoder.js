/**
 * A value into a report: true bits, permanent response, instantaneous response.
 *
 * Nothing from before the last step (value, true bits, permanent bits) may be stored, logged or
 * sent. The permanent response is drawn from the secret, so that it is the same for life without
 * being remembered; the instantaneous one from the system's generator, so that it never repeats.
 */

import { bernoulli, exactChance } from "./bernoulli.js";
import { littleEndian, toHex } from "./bytes.js";
import { systemCoins } from "./coins.js";
import { message, uniformBelow } from "./keyed.js";
import { Shake256 } from "./shake256.js";
import { trueBits } from "./values.js";

const COHORT = "hubbub/1/cohort";
const PERMANENT = "hubbub/1/permanent";
const VALUE = "hubbub/1/value";

export const SECRET_BYTES = 32;

/**
 * @typedef {object} Report
 * @property {string} metric
 * @property {number} version
 * @property {number} cohort
 * @property {Uint8Array} bits
 */

/** One client's answers to one metric. */
export class Encoder {
  #secret;
  #trueBits;
  #flip;
  #chances;
  #coins;

  /**
   * @param {Readonly<import("./registry.js").Metric>} metric
   * @param {Uint8Array} secret the client's, 32 bytes
   * @param {{repeatableCoinsForTestsOnly?: import("./bernoulli.js").ByteStream}} [tests]
   */
  constructor(metric, secret, { repeatableCoinsForTestsOnly } = {}) {
    if (secret.length !== SECRET_BYTES)
      throw new RangeError(`a secret must have ${SECRET_BYTES} bytes`);
    const { f, p, q, m } = metric.params;
    this.metric = metric;
    /** The client's cohort in this metric. */
    this.cohort = m === 1 ? 0 : uniformBelow(m, new Shake256(message(COHORT, secret, metric)));
    this.#secret = secret.slice();
    this.#trueBits = trueBits(metric);
    this.#flip = exactChance(f / 2);
    this.#chances = [exactChance(p), exactChance(q)];
    this.#coins = repeatableCoinsForTestsOnly ?? systemCoins;
  }

  /**
   * Return a new report of the value.
   *
   * @param {unknown} value
   * @returns {Report} throws ValueError, RandomnessError
   */
  encode(value) {
    const bits = this.instantaneousResponse(this.permanentResponse(this.filter(value)));
    return { metric: this.metric.name, version: this.metric.version, cohort: this.cohort, bits };
  }

  /** @param {unknown} value @returns {Uint8Array} the value's true bits in the client's cohort */
  filter(value) {
    return this.#trueBits(value, this.cohort);
  }

  /**
   * Return the answer that this client gives to these true bits for life.
   *
   * @param {Uint8Array} filter
   * @returns {Uint8Array}
   */
  permanentResponse(filter) {
    const cohort = littleEndian(this.cohort, 2);
    const stream = new Shake256(message(PERMANENT, this.#secret, this.metric, cohort, filter));
    const flips = bernoulli(this.#flip, this.#flip, filter, stream);
    return flips.map((byte, i) => byte ^ filter[i]);
  }

  /**
   * Return what stands for a value in the ledger; it tells nothing to anyone without the secret.
   *
   * @param {unknown} value
   * @returns {string} 32 hex digits; throws ValueError
   */
  valueDigest(value) {
    const cohort = littleEndian(this.cohort, 2);
    const digest = new Uint8Array(16);
    new Shake256(message(VALUE, this.#secret, this.metric, cohort, this.filter(value))).fill(digest);
    return toHex(digest);
  }

  /**
   * Return new noise over a permanent response.
   *
   * @param {Uint8Array} permanent
   * @returns {Uint8Array}
   */
  instantaneousResponse(permanent) {
    return bernoulli(this.#chances[0], this.#chances[1], permanent, this.#coins);
  }
}
