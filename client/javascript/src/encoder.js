/**
 * A value into an answer, and an answer into reports: true bits, permanent response, instantaneous response.
 *
 * Invariant: nothing from before the last step is logged or sent, and neither value nor true bits are stored. With
 * memory "value" the permanent response is drawn from the secret, so it is the same for life; with memory "period" from
 * the system's generator, so only the stored answer reveals it. The instantaneous response always is the system's, so
 * it never repeats; where an answer is reported once, it may be the only one, and nothing of the answer is stored.
 */

import { bernoulli, exactChance } from "./bernoulli.js";
import { littleEndian, toHex } from "./bytes.js";
import { systemCoins } from "./coins.js";
import { message, uniformBelow } from "./keyed.js";
import { chosen, periodAt } from "./schedule.js";
import { Shake256 } from "./shake256.js";

const COHORT = "hubbub/1/cohort";
const PERMANENT = "hubbub/1/permanent";
const VALUE = "hubbub/1/value";

export const SECRET_BYTES = 32;

/**
 * @typedef {object} Report
 * @property {string} metric
 * @property {string} [slice] facts about the app, in the clear; empty: none
 * @property {number} version
 * @property {number} cohort
 * @property {Uint8Array} bits
 */

/**
 * A permanent response, and the cohort that it was drawn in.
 *
 * @typedef {object} Answer
 * @property {string | null} digest what stands for the value in the account; null for a period
 * @property {number} cohort
 * @property {Uint8Array} permanent
 */

/** One client's answers to one metric. */
export class Encoder {
  #secret;
  #flips;
  #draw;

  /** @param {Readonly<import("./registry.js").Metric>} metric @param {Uint8Array} secret the client's, 32 bytes */
  constructor(metric, secret) {
    if (secret.length !== SECRET_BYTES) throw new RangeError(`a secret must have ${SECRET_BYTES} bytes`);
    const { f0, f1 } = metric.params;
    this.metric = metric;
    this.#secret = secret.slice();
    this.#flips = [exactChance(f0), exactChance(f1)];
    this.#draw = metric.response.drawer(metric.params);
    /** The client's cohort in this metric; null where each answer has its own. @type {number | null} */
    this.cohort = metric.memory === "value" ? this.#drawCohort(() => this.#keyed(COHORT)) : null;
  }

  /**
   * Return the client's period at a moment, where answers have periods.
   * @param {number} seconds since 1970 @returns {import("./schedule.js").Period | undefined}
   */
  period(seconds) {
    const { metric } = this;
    return metric.memory === "period" ? periodAt(metric, this.#secret, seconds) : undefined;
  }

  /**
   * Whether this client answers the metric, as one of its group.
   * @param {number} [period] its number, where the choice is made for each
   */
  isChosen(period = 0) {
    const { group, application, name } = this.metric;
    return !group || chosen(group, application, this.#secret, period) === name;
  }

  /** @param {unknown} value throws ValueError if it isn't one of the metric's type; takes no coins */
  check(value) {
    this.metric.type.bits(value, 0, this.metric.params);
  }

  /**
   * Return a new report of a new answer: with memory "value" that of the value, for life. With memory "period" each
   * call pays again; use `answer` once a period, and `report` of that.
   * @param {unknown} value @returns {Report} throws ValueError, RandomnessError
   */
  encode(value) {
    return this.report(this.#respond(value));
  }

  /**
   * Return the answer to a value: with memory "value" the same one always, else a new one.
   * @param {unknown} value @returns {Answer} throws ValueError, RandomnessError
   */
  answer(value) {
    const { filter, cohort, permanent } = this.#respond(value);
    return { digest: this.#digest(filter), cohort, permanent };
  }

  /** @param {{cohort: number, permanent: Uint8Array}} answer @returns {Report} in new noise */
  report({ cohort, permanent }) {
    const { name, slice, version } = this.metric;
    return { metric: name, slice, version, cohort, bits: this.instantaneousResponse(permanent) };
  }

  /**
   * Return the value's true bits.
   * @param {unknown} value @param {number} [cohort] by default the client's @returns {Uint8Array}
   */
  filter(value, cohort = this.cohort ?? 0) {
    return this.metric.type.drawnBits(value, cohort, this.metric.params, systemCoins);
  }

  /**
   * Return a permanent response to these true bits: with memory "value" the one for life.
   * @param {Uint8Array} filter @param {number} [cohort] in which they were set; by default the client's
   * @returns {Uint8Array}
   */
  permanentResponse(filter, cohort = this.cohort ?? 0) {
    const period = this.metric.memory === "period";
    const stream = period ? systemCoins : this.#keyed(PERMANENT, littleEndian(cohort, 2), filter);
    const flips = bernoulli(this.#flips[0], this.#flips[1], filter, stream);
    return flips.map((byte, i) => byte ^ filter[i]);
  }

  /**
   * Return new noise over a permanent response, or a report that is drawn from it as a whole.
   * @param {Uint8Array} permanent @returns {Uint8Array}
   */
  instantaneousResponse(permanent) {
    return this.#draw(permanent, systemCoins);
  }

  /** @param {unknown} value */
  #respond(value) {
    const cohort = this.cohort ?? this.#drawCohort(() => systemCoins);
    const filter = this.filter(value, cohort);
    return { filter, cohort, permanent: this.permanentResponse(filter, cohort) };
  }

  /** @param {Uint8Array} filter @returns {string | null} 32 hex digits, keyed with the secret; null for a period */
  #digest(filter) {
    if (this.cohort === null) return null;
    const stream = this.#keyed(VALUE, littleEndian(this.cohort, 2), filter);
    return toHex(stream.fill(new Uint8Array(16)));
  }

  /** @param {string} tag @param {...Uint8Array} details */
  #keyed(tag, ...details) {
    return new Shake256(message(tag, this.#secret, this.metric, ...details));
  }

  /** @param {() => import("./bernoulli.js").ByteStream} source looked at only if there is a choice */
  #drawCohort(source) {
    const { m } = this.metric.params;
    return m === 1 ? 0 : uniformBelow(m, source());
  }
}
