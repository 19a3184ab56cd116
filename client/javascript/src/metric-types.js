/**
 * The types that a metric can have, by the name that the registry gives them.
 *
 * A new type is a subclass of `MetricType` that is listed here; nothing else asks which type a metric
 * has.
 */

import { bloomPositions, filterOf, normalText, utf8 } from "./bloom.js";
import { integer, list, unicode } from "./checks.js";
import { MetricError, shown, typeOf, ValueError } from "./errors.js";
import { MetricType } from "./metric-type.js";
import { MOST_COHORTS, permanentLogOdds, reportLogRatios } from "./params.js";

/** @typedef {import("./metric-type.js").RapporParams} RapporParams */

const MOST_BITS = 1024;
const MOST_STRING_COHORTS = 1024;
const MOST_STEPS = 8;
const LONGEST_STEP = 64;
/** Follows a value where it is cut; no UTF-8 has this byte. */
const TERMINATOR = 0xff;

/** Any text, in a Bloom filter of its cohort. */
export class StringType extends MetricType {
  static typeName = "string";
  static keys = ["k", "h", "m"];

  /** @override @param {Record<string, unknown>} entry @param {string} path */
  static fromEntry(entry, path) {
    integer(entry.m, `${path}.m`, 1, MOST_STRING_COHORTS);
    return new StringType();
  }

  /** @override @param {Record<string, unknown>} entry */
  filterSize({ k, h, m }) {
    return { k, h, m };
  }

  /** @override @param {unknown} value @param {number} cohort @param {RapporParams} params */
  bits(value, cohort, params) {
    return filterOf(bloomPositions(utf8(normalText(value)), cohort, params), params.k);
  }
}

/**
 * Any text, of which a client reports the beginning up to one step: so many bytes, or all of it at the
 * last step. The cohort says which: cohort c is cohort c % cohorts of step floor(c / cohorts).
 */
export class OpenStringType extends MetricType {
  static typeName = "open-string";
  static keys = ["steps", "k", "h", "m"];

  /** @param {readonly number[]} steps ascending lengths in bytes @param {number} cohorts of each step */
  constructor(steps, cohorts) {
    super();
    this.steps = Object.freeze([...steps]);
    this.cohorts = cohorts;
  }

  /** @override @param {Record<string, unknown>} entry @param {string} path */
  static fromEntry(entry, path) {
    const at = `${path}.steps`;
    const steps = list(entry.steps, at, 1, MOST_STEPS, "ascending integers").map((step, i, all) => {
      const length = integer(step, `${at}[${i}]`, 1, LONGEST_STEP);
      if (i && length <= Number(all[i - 1])) {
        throw new MetricError(`${at}[${i}] = ${length}: must be above the step before it`);
      }
      return length;
    });
    if (entry.h !== undefined && entry.h !== 1) {
      throw new MetricError(`${path}.h = ${shown(entry.h)}: must be 1, or left out`);
    }
    const most = Math.floor(MOST_COHORTS / (steps.length + 1));
    return new OpenStringType(steps, integer(entry.m, `${path}.m`, 1, most));
  }

  /** @override @param {Record<string, unknown>} entry */
  filterSize({ k }) {
    return { k, h: 1, m: (this.steps.length + 1) * this.cohorts };
  }

  /** @override */
  definition() {
    return { steps: this.steps, cohorts: this.cohorts };
  }

  /** @override @param {unknown} value @param {number} cohort @param {RapporParams} params */
  bits(value, cohort, params) {
    const hashed = this.prefix(utf8(normalText(value)), Math.floor(cohort / this.cohorts));
    // The last step's cohorts are hashed as numbers from 0 on, as a string's; the others' follow.
    const number = (cohort + this.cohorts) % ((this.steps.length + 1) * this.cohorts);
    return filterOf(bloomPositions(hashed, number, params), params.k);
  }

  /**
   * Return what is hashed of a value at a step, from 0 to the number of lengths. A value that ends
   * before the step is followed by the terminator, so that it differs from all that go on.
   *
   * @param {Uint8Array} bytes of the value's normal form @param {number} step
   * @returns {Uint8Array}
   */
  prefix(bytes, step) {
    if (step === this.steps.length) return bytes;
    const length = this.steps[step];
    return bytes.length < length ? Uint8Array.of(...bytes, TERMINATOR) : bytes.subarray(0, length);
  }

  /** @override */
  parts() {
    const beginnings = this.steps.map((length) => {
      const ofBytes = length === 1 ? "byte (a letter," : `${length} bytes (letters,`;
      return `only the first ${ofBytes} for plain English text)`;
    });
    return [...beginnings, "the whole"];
  }

  /** @override @param {number} cohort */
  part(cohort) {
    return this.parts()[Math.floor(cohort / this.cohorts)];
  }
}

/** One of a few known texts, one bit each. */
export class EnumType extends MetricType {
  static typeName = "enum";
  static keys = ["categories"];

  /** @param {readonly string[]} categories of different normal forms */
  constructor(categories) {
    super();
    this.categories = Object.freeze([...categories]);
    this.numbers = new Map(categories.map((category, i) => [normalText(category), i]));
  }

  /** @override @param {Record<string, unknown>} entry @param {string} path */
  static fromEntry(entry, path) {
    const at = `${path}.categories`;
    const texts = list(entry.categories, at, 2, MOST_BITS, "different texts");
    const seen = new Set();
    texts.forEach((text, i) => {
      const normal = unicode(text, `${at}[${i}]`);
      if (seen.has(normal)) throw new MetricError(`${at}[${i}] = ${shown(text)}: must not occur twice`);
      seen.add(normal);
    });
    return new EnumType(/** @type {string[]} */ (texts));
  }

  /** @override */
  get width() {
    return this.categories.length;
  }

  /** @override */
  definition() {
    return { categories: [...this.numbers.keys()] };
  }

  /** @override @param {unknown} value @param {number} _cohort @param {RapporParams} params */
  bits(value, _cohort, params) {
    const number = this.numbers.get(normalText(value));
    if (number === undefined) throw new ValueError("must be one of the metric's categories");
    return filterOf([number], params.k);
  }
}

/** A number, in the bucket where it falls. */
export class OrdinalType extends MetricType {
  static typeName = "ordinal";
  static keys = ["edges"];

  /** @param {readonly number[]} edges ascending; each opens the bucket above it */
  constructor(edges) {
    super();
    this.edges = Object.freeze([...edges]);
  }

  /** @override @param {Record<string, unknown>} entry @param {string} path */
  static fromEntry(entry, path) {
    const at = `${path}.edges`;
    const given = list(entry.edges, at, 1, MOST_BITS - 1, "ascending numbers");
    const edges = /** @type {number[]} */ (given);
    edges.forEach((edge, i) => {
      const found = `${at}[${i}] = ${shown(edge)}`;
      if (!Number.isFinite(edge)) throw new MetricError(`${found}: must be a finite number`);
      if (i && edge <= edges[i - 1]) {
        throw new MetricError(`${found}: must be above the edge before it`);
      }
    });
    return new OrdinalType(edges);
  }

  /** @override */
  get width() {
    return this.edges.length + 1;
  }

  /** @override */
  definition() {
    return { edges: this.edges };
  }

  /** @override @param {unknown} value @param {number} _cohort @param {RapporParams} params */
  bits(value, _cohort, params) {
    if (typeof value !== "number") throw new ValueError(`must be a number, not ${typeOf(value)}`);
    if (Number.isNaN(value)) throw new ValueError("must be a number, not NaN");
    let [low, high] = [0, this.edges.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.edges[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return filterOf([low], params.k);
  }
}

/** Yes or no, in a single bit: two values differ in one bit, where others differ in two. */
export class BooleanType extends MetricType {
  static typeName = "boolean";

  /** @override */
  get width() {
    return 1;
  }

  /** @override @param {unknown} value @param {number} _cohort @param {RapporParams} params */
  bits(value, _cohort, params) {
    if (typeof value !== "boolean") throw new ValueError(`must be a boolean, not ${typeOf(value)}`);
    return filterOf(value ? [0] : [], params.k);
  }

  /** @override @param {RapporParams} params */
  epsilonPermanent(params) {
    return permanentLogOdds(params);
  }

  /** @override @param {RapporParams} params */
  epsilonReport(params) {
    const { ones, zeros } = reportLogRatios(params);
    return Math.max(Math.abs(ones), Math.abs(zeros));
  }
}

/**
 * What the registry needs of a type's class.
 *
 * @typedef {object} TypeClass
 * @property {string} typeName
 * @property {readonly string[]} keys
 * @property {(entry: Record<string, unknown>, path: string) => MetricType} fromEntry
 */

/** In the order in which messages list them. @type {ReadonlyMap<string, TypeClass>} */
export const METRIC_TYPES = new Map(
  [StringType, EnumType, OrdinalType, BooleanType, OpenStringType].map((type) => [
    type.typeName,
    type,
  ]),
);
