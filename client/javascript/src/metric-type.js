/**
 * What every metric type is: a class that turns values into bits, and states what that promises.
 *
 * Invariants: the same value gives the same bits everywhere and for ever (docs/protocol, section 3),
 * and no message shows a value, because messages may be logged.
 */

import { permanentLogRatios, repeatedLogRatios, reportLogRatios } from "./params.js";

/** @typedef {Readonly<import("./params.js").RapporParams>} RapporParams */

/** One type of variable; the methods that throw are the subclasses' to define. */
export class MetricType {
  /** As `type` in the registry. */
  static typeName = "";
  /** Keys that entries of this type have besides what all have. @type {readonly string[]} */
  static keys = [];

  /**
   * Read the type from a metric's entry.
   * @param {Record<string, unknown>} _entry @param {string} _path what to call the entry in an error
   * @returns {MetricType} throws MetricError
   */
  static fromEntry(_entry, _path) {
    return new this();
  }

  /** @returns {string} as in the registry */
  get name() {
    return /** @type {typeof MetricType} */ (this.constructor).typeName;
  }

  /** @returns {number} how many bits values can set, one a category */
  get width() {
    throw new TypeError(`${this.name}: has no categories`);
  }

  /**
   * Return k, h and m of a metric with this entry: by default one bit per category.
   * @param {Record<string, unknown>} _entry @returns {{k: unknown, h: unknown, m: unknown}}
   */
  filterSize(_entry) {
    return { k: 8 * Math.ceil(this.width / 8), h: 1, m: 1 };
  }

  /** @returns {Record<string, unknown>} what, besides the parameters, reports depend on */
  definition() {
    return {};
  }

  /**
   * Return the true bits of a value.
   * @param {unknown} _value @param {number} _cohort @param {RapporParams} _params
   * @returns {Uint8Array} of k / 8 bytes; throws ValueError
   */
  bits(_value, _cohort, _params) {
    throw new TypeError(`${this.name}: defines no bits`);
  }

  /**
   * Return `bits`, of types whose bits are up to chance with coins from a stream of bytes.
   * @param {unknown} value @param {number} cohort @param {RapporParams} params
   * @param {import("./bernoulli.js").ByteStream} _coins @returns {Uint8Array} throws ValueError
   */
  drawnBits(value, cohort, params, _coins) {
    return this.bits(value, cohort, params);
  }

  /** @returns {number | null} how many values there are, if the registry lists them */
  get valueCount() {
    return null;
  }

  /**
   * Return the only response that fits this type, where metrics have no choice.
   * @param {number} _chance @returns {import("./responses.js").Window | null}
   */
  ownResponse(_chance) {
    return null;
  }

  /** @returns {string[]} which parts of a value its reports may be about; empty: always all of it */
  parts() {
    return [];
  }

  /** @param {number} _cohort @returns {string} the part that reports in this cohort are about, or "" */
  part(_cohort) {
    return "";
  }

  /** @returns {string[]} the fields that travel together as one value; empty: a value has no fields */
  fieldNames() {
    return [];
  }

  /** @param {RapporParams} params @returns {number} what all reports of one value reveal */
  epsilonPermanent(params) {
    const { ones, zeros } = permanentLogRatios(params);
    return params.h * (ones + zeros);
  }

  /** @param {RapporParams} params @returns {number} what one report reveals */
  epsilonReport(params) {
    const { ones, zeros } = reportLogRatios(params);
    return params.h * Math.abs(ones + zeros);
  }

  /**
   * Return what so many reports of one value reveal: at most `epsilonPermanent`, and for f0 = f1 at most as
   * many times `epsilonReport`.
   * @param {RapporParams} params @param {number} reports @returns {number}
   */
  epsilonAfter(params, reports) {
    const { ones, zeros } = repeatedLogRatios(params, reports);
    return params.h * Math.abs(ones + zeros);
  }
}
