/**
 * The types that a metric can have, by the name that the registry gives them.
 *
 * A new type is a subclass of `MetricType` that is listed here; nothing else asks which type a metric
 * has.
 */

import { bloomPositions, filterOf, normalText, utf8 } from "./bloom.js";
import {
  boolean,
  finite,
  integer,
  isName,
  list,
  oneOf,
  refuseUnknown,
  sentence,
  table,
  unicode,
} from "./checks.js";
import { MetricError, shown, typeOf, ValueError } from "./errors.js";
import { MetricType } from "./metric-type.js";
import {
  MOST_BITS,
  MOST_COHORTS,
  permanentLogRatios,
  repeatedLogRatios,
  reportLogRatios,
} from "./params.js";
import { Window } from "./responses.js";

/** @typedef {import("./metric-type.js").RapporParams} RapporParams */

const MOST_STRING_COHORTS = 1024;
const MOST_STEPS = 8;
const LONGEST_STEP = 64;
/** Follows a value where it is cut; no UTF-8 has this byte. */
const TERMINATOR = 0xff;
/** The category of all texts that aren't listed, where an enum has it. */
const OTHER = "other";
const [FEWEST_FIELDS, MOST_FIELDS] = [2, 3];
/** Of a double, of the 64 that are drawn. */
const COIN_DIGITS = 53;
const UNUSED_DIGITS = 11n;
/** Between the parts of a tuple that is hashed; no UTF-8 has this byte. */
const SEPARATOR = 0xff;
/** Names that no field can have, because results have columns of these names. */
const RESULT_COLUMNS = [
  ...["count", "std_error", "count_low", "count_high", "proportion", "prop_std_error", "prop_low"],
  ...["prop_high", "refit", "p_value", "q_value", "detected", "group", "given"],
  ...["expected", "residual", "residual_std_error", "residual_q_value"],
];

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
 * Any text, of which a client reports the beginning up to one step: so many bytes, or all of it at the last
 * step. The cohort says which: cohort c is cohort c % cohorts of step floor(c / cohorts).
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
   * Return what is hashed of a value at a step, from 0 to the number of lengths. A value that ends before the
   * step is followed by the terminator, so that it differs from all that go on.
   * @param {Uint8Array} bytes of the value's normal form @param {number} step @returns {Uint8Array}
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

/** One of a few known texts, one bit each; perhaps with a last category for all other texts. */
export class EnumType extends MetricType {
  static typeName = "enum";
  static keys = ["categories", "other"];

  /** @param {readonly string[]} categories of different normal forms @param {boolean} [other] */
  constructor(categories, other = false) {
    super();
    this.categories = Object.freeze([...categories]);
    this.other = other;
    this.numbers = new Map(categories.map((category, i) => [normalText(category), i]));
  }

  /** @override @param {Record<string, unknown>} entry @param {string} path */
  static fromEntry(entry, path) {
    const at = `${path}.categories`;
    const other = entry.other === undefined ? false : boolean(entry.other, `${path}.other`);
    const [fewest, most] = other ? [1, MOST_BITS - 1] : [2, MOST_BITS];
    const texts = list(entry.categories, at, fewest, most, "different texts");
    const seen = new Set();
    texts.forEach((text, i) => {
      const normal = unicode(text, `${at}[${i}]`);
      if (seen.has(normal)) throw new MetricError(`${at}[${i}] = ${shown(text)}: must not occur twice`);
      seen.add(normal);
    });
    if (other && seen.has(OTHER)) {
      throw new MetricError(`${at}: must not hold "${OTHER}", which other = true adds as the last`);
    }
    return new EnumType(/** @type {string[]} */ (texts), other);
  }

  /** @override */
  get width() {
    return this.categories.length + Number(this.other);
  }

  /** @override */
  get valueCount() {
    return this.width;
  }

  /** @override */
  definition() {
    const others = this.other ? { other: true } : {};
    return { categories: [...this.numbers.keys()], ...others };
  }

  /** @override @param {unknown} value @param {number} _cohort @param {RapporParams} params */
  bits(value, _cohort, params) {
    return filterOf([this.number(value)], params.k);
  }

  /** @param {unknown} value @returns {number} the category's place; throws ValueError */
  number(value) {
    // The last category takes every text, even one that no string metric does.
    const text = this.other && typeof value === "string" ? value.normalize("NFC") : normalText(value);
    const number = this.numbers.get(text) ?? (this.other ? this.categories.length : undefined);
    if (number === undefined) throw new ValueError("must be one of the metric's categories");
    return number;
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
  get valueCount() {
    return this.width;
  }

  /** @override */
  definition() {
    return { edges: this.edges };
  }

  /** @override @param {unknown} value @param {number} _cohort @param {RapporParams} params */
  bits(value, _cohort, params) {
    return filterOf([this.number(value)], params.k);
  }

  /** @param {unknown} value @returns {number} the bucket's number; throws ValueError */
  number(value) {
    const number = plainNumber(value);
    let [low, high] = [0, this.edges.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.edges[middle] <= number) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/** Yes or no, in a single bit: two values differ in one bit, where others differ in two. */
export class BooleanType extends MetricType {
  static typeName = "boolean";

  /** @override */
  get width() {
    return 1;
  }

  /** @override */
  get valueCount() {
    return 2;
  }

  /** @override @param {unknown} value @param {number} _cohort @param {RapporParams} params */
  bits(value, _cohort, params) {
    return filterOf(this.number(value) ? [0] : [], params.k);
  }

  /** @param {unknown} value @returns {number} 1 for true, 0 for false; throws ValueError */
  number(value) {
    if (typeof value !== "boolean") throw new ValueError(`must be a boolean, not ${typeOf(value)}`);
    return Number(value);
  }

  /** @override @param {RapporParams} params */
  epsilonPermanent(params) {
    const { ones, zeros } = permanentLogRatios(params);
    return Math.max(ones, zeros);
  }

  /** @override @param {RapporParams} params */
  epsilonReport(params) {
    const { ones, zeros } = reportLogRatios(params);
    return Math.max(Math.abs(ones), Math.abs(zeros));
  }

  /** @override @param {RapporParams} params @param {number} reports */
  epsilonAfter(params, reports) {
    const { ones, zeros } = repeatedLogRatios(params, reports);
    return Math.max(Math.abs(ones), Math.abs(zeros));
  }
}

/** A number between two bounds whose mean is asked; what is beyond them counts as the bound. */
export class NumberType extends MetricType {
  static typeName = "number";
  static keys = ["low", "high", "cells", "window", "variance"];

  /**
   * @param {{low: number, high: number}} bounds
   * @param {{cells: number, window: number}} size outputs of the response, and how many of them are around a
   *   position
   * @param {boolean} variance whether clients of cohort 1 report the square of where their value is between the
   *   bounds
   */
  constructor({ low, high }, { cells, window }, variance) {
    super();
    this.low = low;
    this.high = high;
    this.cells = cells;
    this.window = window;
    this.variance = variance;
  }

  /** @override @param {Record<string, unknown>} entry @param {string} path */
  static fromEntry(entry, path) {
    const [low, high] = [finite(entry.low, `${path}.low`), finite(entry.high, `${path}.high`)];
    if (!(low < high) || high - low === Infinity) {
      throw new MetricError(`${path}.high = ${high}: must be more than low, and not infinitely so`);
    }
    const cells = integer(entry.cells, `${path}.cells`, 2, MOST_BITS);
    const window = integer(entry.window, `${path}.window`, 1, cells - 1);
    const variance = boolean(entry.variance ?? false, `${path}.variance`);
    return new NumberType({ low, high }, { cells, window }, variance);
  }

  /** @override */
  get width() {
    return this.cells;
  }

  /** @override @param {Record<string, unknown>} entry */
  filterSize(entry) {
    return { ...super.filterSize(entry), m: this.variance ? 2 : 1 };
  }

  /** @override */
  definition() {
    const { low, high, cells, window, variance } = this;
    return { low, high, cells, window, variance };
  }

  /** @override @param {number} chance */
  ownResponse(chance) {
    return new Window(this.cells, this.window, chance);
  }

  /** @param {unknown} value @returns {number} where it is between the bounds, from 0 to 1; throws ValueError */
  unit(value) {
    const number = plainNumber(value);
    if (number <= this.low) return 0;
    if (number >= this.high) return 1;
    return Math.min(Math.max((number - this.low) / (this.high - this.low), 0), 1);
  }

  /**
   * Return the bit of the position at or below a value.
   *
   * @override @param {unknown} value @param {number} cohort @param {RapporParams} params
   */
  bits(value, cohort, params) {
    return filterOf([this.#place(value, cohort).below], params.k);
  }

  /**
   * Return the bit of one of the value's two neighbours on the grid: the upper one with the probability of
   * how far the value is from the lower one, to 53 binary digits.
   *
   * @override @param {unknown} value @param {number} cohort @param {RapporParams} params
   * @param {import("./bernoulli.js").ByteStream} coins
   */
  drawnBits(value, cohort, params, coins) {
    const { below, rest } = this.#place(value, cohort);
    const drawn = new DataView(new ArrayBuffer(8));
    coins.fill(new Uint8Array(drawn.buffer));
    const coin = Number(drawn.getBigUint64(0, true) >> UNUSED_DIGITS);
    return filterOf([below + Number(coin < rest * 2 ** COIN_DIGITS)], params.k);
  }

  /** @param {unknown} value @param {number} cohort */
  #place(value, cohort) {
    const positions = this.cells - this.window;
    const unit = this.unit(value);
    const place = (cohort === 1 ? unit * unit : unit) * positions;
    const below = Math.min(Math.floor(place), positions - 1);
    return { below, rest: place - below };
  }
}

/** @param {unknown} value @returns {number} throws ValueError */
function plainNumber(value) {
  if (typeof value !== "number") throw new ValueError(`must be a number, not ${typeOf(value)}`);
  if (Number.isNaN(value)) throw new ValueError("must be a number, not NaN");
  return value;
}

/** What a field can be. */
const FIELD_TYPES = new Map(
  [EnumType, BooleanType, OrdinalType, StringType].map((type) => [type.typeName, type]),
);

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {EnumType | BooleanType | OrdinalType | StringType} type
 */

/**
 * Two or three fields as one value: every combination of theirs is a value of its own, under one epsilon
 * whichever field changes. Where all are known and few each has a bit, otherwise they are hashed as strings
 * are.
 */
export class JointType extends MetricType {
  static typeName = "joint";
  static keys = ["fields", "k", "h", "m"];

  /** @param {readonly Field[]} fields @param {boolean} hashed true if there is a string field */
  constructor(fields, hashed) {
    super();
    this.fields = Object.freeze([...fields]);
    this.hashed = hashed;
  }

  /** @override @param {Record<string, unknown>} entry @param {string} path */
  static fromEntry(entry, path) {
    const fields = fieldsOf(entry.fields, `${path}.fields`);
    const cells = fields.reduce((product, { type }) => product * valuesOf(type), 1);
    const { k } = entry;
    if (cells === Infinity || (k !== undefined && integer(k, `${path}.k`, 8, MOST_BITS, 8) < cells)) {
      integer(entry.m, `${path}.m`, 1, MOST_STRING_COHORTS);
      return new JointType(fields, true);
    }
    if (k === undefined && cells > MOST_BITS) {
      throw new MetricError(
        `${path}.fields: have ${cells} cells, more than ${MOST_BITS} bits; give k and m, with ` +
          "which cells are hashed",
      );
    }
    for (const key of ["h", "m"]) {
      if (entry[key] !== undefined && entry[key] !== 1) {
        throw new MetricError(
          `${path}.${key} = ${shown(entry[key])}: must be 1, or left out, where each of the ` +
            `${cells} cells has a bit of its own; a k below ${cells} hashes them`,
        );
      }
    }
    return new JointType(fields, false);
  }

  /** @override */
  get width() {
    if (this.hashed) return super.width;
    return this.fields.reduce((product, { type }) => product * valuesOf(type), 1);
  }

  /** @override */
  get valueCount() {
    return this.hashed ? null : this.width;
  }

  /** @override @param {Record<string, unknown>} entry */
  filterSize({ k, h = 1, m }) {
    if (this.hashed) return { k, h, m };
    const size = super.filterSize({});
    return { ...size, k: k ?? size.k };
  }

  /** @override */
  definition() {
    const fields = this.fields.map(({ name, type }) => {
      return { name, type: type.name, ...type.definition() };
    });
    return { fields, hashed: this.hashed };
  }

  /** @override */
  fieldNames() {
    return this.fields.map(({ name }) => name);
  }

  /** @override @param {unknown} value @param {number} cohort @param {RapporParams} params */
  bits(value, cohort, params) {
    const parts = this.digits(value);
    const positions = this.hashed
      ? bloomPositions(this.tupleBytes(parts), cohort, params)
      : [this.cell(parts)];
    return filterOf(positions, params.k);
  }

  /** @param {readonly (number | string)[]} parts @returns {number} the tuple's place among all */
  cell(parts) {
    let cell = 0;
    parts.forEach((part, i) => (cell = cell * valuesOf(this.fields[i].type) + Number(part)));
    return cell;
  }

  /**
   * Return the number of each field's value, in order; of a string field, its normal form.
   * @param {unknown} value @returns {(number | string)[]} throws ValueError
   */
  digits(value) {
    const names = this.fieldNames();
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      const found = Array.isArray(value) ? "a list" : typeOf(value);
      throw new ValueError(`must be an object with the fields ${names.join(", ")}, not ${found}`);
    }
    const given = Object.keys(value);
    const missing = names.filter((name) => !given.includes(name));
    if (missing.length || given.length > names.length) {
      const what = missing.length ? `${missing.join(", ")} missing` : "there are others";
      throw new ValueError(`must have exactly the fields ${names.join(", ")}; ${what}`);
    }
    const values = /** @type {Record<string, unknown>} */ (value);
    return this.fields.map(({ name, type }) => {
      try {
        return type instanceof StringType ? normalText(values[name]) : type.number(values[name]);
      } catch (error) {
        if (!(error instanceof ValueError)) throw error;
        throw new ValueError(`field ${name}: ${error.message}`);
      }
    });
  }

  /**
   * Return what is hashed of a tuple: the texts, and the numbers in decimal digits, with a byte between them
   * that neither has.
   * @param {readonly (number | string)[]} parts one a field, as `digits` returns them @returns {Uint8Array}
   */
  tupleBytes(parts) {
    const joined = parts.flatMap((part, i) => {
      return i ? [Uint8Array.of(SEPARATOR), utf8(String(part))] : [utf8(String(part))];
    });
    const bytes = new Uint8Array(joined.reduce((length, { length: more }) => length + more, 0));
    let offset = 0;
    for (const part of joined) {
      bytes.set(part, offset);
      offset += part.length;
    }
    return bytes;
  }
}

/** @param {Field["type"]} type @returns {number} how many values a field has; infinite for any text */
function valuesOf(type) {
  return type.valueCount ?? Infinity;
}

/** @param {unknown} given @param {string} path @returns {Field[]} */
function fieldsOf(given, path) {
  const tables = list(given, path, FEWEST_FIELDS, MOST_FIELDS, "tables, one a field");
  const fields = tables.map((entry, i) => fieldOf(table(entry, `${path}[${i}]`), `${path}[${i}]`));
  fields.forEach(({ name }, i) => {
    if (fields.findIndex((field) => field.name === name) < i) {
      throw new MetricError(`${path}[${i}].name = ${shown(name)}: must differ from other fields'`);
    }
  });
  return fields;
}

/** @param {Record<string, unknown>} entry @param {string} path @returns {Field} */
function fieldOf(entry, path) {
  const name = sentence(entry.name, `${path}.name`);
  const named = `${path}.name = ${shown(name)}`;
  if (!isName(name)) {
    throw new MetricError(`${named}: must be 1 to 64 of a-z 0-9 _ -, beginning with a letter`);
  }
  if (RESULT_COLUMNS.includes(name)) {
    throw new MetricError(`${named}: must not be the name of a column of results`);
  }
  const typeName = oneOf(entry.type, `${path}.type`, [...FIELD_TYPES.keys()]);
  const type = FIELD_TYPES.get(typeName);
  if (type === undefined || type === StringType) {
    refuseUnknown(entry, ["name", "type"], `${path}.`);
    return { name, type: new StringType() };
  }
  refuseUnknown(entry, ["name", "type", ...type.keys], `${path}.`);
  return { name, type: /** @type {Field["type"]} */ (type.fromEntry(entry, path)) };
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
  [StringType, EnumType, OrdinalType, BooleanType, OpenStringType, JointType, NumberType].map(
    (type) => [type.typeName, type],
  ),
);
