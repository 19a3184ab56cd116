/**
 * The types that a metric can have, by the name that the registry gives them.
 *
 * A new type is a function that is listed at the end; nothing else asks which type a metric has. Invariants: the same
 * value gives the same bits everywhere and for ever (docs/protocol, section 3), and no message shows a value, because
 * messages may be logged.
 */

import { bloomPositions, filterOf, normalText, utf8 } from "./bloom.js";
import { ascending, boolean, finite, integer, isName, list, oneOf, refuseUnknown, sentence } from "./checks.js";
import { table, unicode } from "./checks.js";
import { MetricError, shown, typeOf, ValueError } from "./errors.js";
import { MOST_BITS, MOST_COHORTS } from "./params.js";
import { windowOf } from "./responses.js";

/** @typedef {Readonly<import("./params.js").RapporParams>} RapporParams */

/**
 * What turns values into bits, and states what that promises.
 *
 * @typedef {object} MetricType
 * @property {string} name as in the registry
 * @property {{k: unknown, h: unknown, m: unknown}} size of its filters
 * @property {number | null} values how many there are, if the registry lists them
 * @property {Record<string, unknown>} definition what, besides the parameters, reports depend on
 * @property {(value: unknown, cohort: number, params: RapporParams) => Uint8Array} bits the true bits of a value;
 *   throws ValueError
 * @property {(value: unknown, cohort: number, params: RapporParams, coins: import("./bernoulli.js").ByteStream) =>
 *   Uint8Array} drawnBits the same, of types whose bits are up to chance with coins
 * @property {(value: unknown) => number} number of a value, where they are listed; throws ValueError
 * @property {boolean} isOneBit whether two values differ in one bit, where others differ in 2h
 * @property {((chance: number) => import("./responses.js").CellsResponse) | null} ownResponse the only one that fits,
 *   where metrics have no choice
 * @property {readonly string[]} parts of a value that its reports may be about; empty: always all of it
 * @property {(cohort: number) => string} part that reports in this cohort are about, or ""
 * @property {readonly string[]} fieldNames of what travels together as one value; empty: a value has no fields
 */

const MOST_STRING_COHORTS = 1024;
const MOST_STEPS = 8;
const LONGEST_STEP = 64;
/** Follows a value where it is cut, and stands between the parts of a tuple; no UTF-8 has this byte. */
const TERMINATOR = 0xff;
/** The category of all texts that aren't listed, where an enum has it. */
const OTHER = "other";
const [FEWEST_FIELDS, MOST_FIELDS] = [2, 3];
/** Of a double, of the 64 that are drawn. */
const COIN_DIGITS = 53;
const UNUSED_DIGITS = 11n;
/** Names that no field can have, because results have columns of these names. */
const RESULT_COLUMNS = [
  ...["count", "std_error", "count_low", "count_high", "proportion", "prop_std_error", "prop_low"],
  ...["prop_high", "refit", "p_value", "q_value", "detected", "group", "given"],
  ...["expected", "residual", "residual_std_error", "residual_q_value"],
];

/** @param {Pick<MetricType, "name" | "size" | "bits"> & Partial<MetricType>} own @returns {Readonly<MetricType>} */
function makeType(own) {
  return Object.freeze({
    values: null,
    definition: {},
    drawnBits: own.bits,
    number: () => NaN,
    isOneBit: false,
    ownResponse: null,
    parts: [],
    part: () => "",
    fieldNames: [],
    ...own,
  });
}

/** @param {number} width bits, one a category @returns {MetricType["size"]} */
function sizeFor(width) {
  return { k: 8 * Math.ceil(width / 8), h: 1, m: 1 };
}

/** @typedef {(entry: Record<string, unknown>, path: string) => Readonly<MetricType>} TypeMaker throws MetricError */

/** Any text, in a Bloom filter of its cohort. @type {TypeMaker} */
function stringType({ k, h, m }, path) {
  integer(m, `${path}.m`, 1, MOST_STRING_COHORTS);
  return STRING({ k, h, m });
}

const STRING = (/** @type {MetricType["size"]} */ size) =>
  makeType({
    name: "string",
    size,
    bits: (value, cohort, params) => filterOf(bloomPositions(utf8(normalText(value)), cohort, params), params.k),
  });

/**
 * Any text, of which a client reports the beginning up to one step: so many bytes, or all of it at the last step. The
 * cohort says which: cohort c is cohort c % cohorts of step floor(c / cohorts).
 * @type {TypeMaker}
 */
function openStringType({ steps: given, k, h, m }, path) {
  const steps = ascending(given, `${path}.steps`, MOST_STEPS, "step", (step, at) => integer(step, at, 1, LONGEST_STEP));
  if (h !== undefined && h !== 1) throw new MetricError(`${path}.h = ${shown(h)}: must be 1, or left out`);
  const cohorts = integer(m, `${path}.m`, 1, Math.floor(MOST_COHORTS / (steps.length + 1)));
  const all = (steps.length + 1) * cohorts;
  const parts = steps.map((length) => {
    const ofBytes = length === 1 ? "byte (a letter," : `${length} bytes (letters,`;
    return `only the first ${ofBytes} for plain English text)`;
  });
  parts.push("the whole");
  return makeType({
    name: "open-string",
    size: { k, h: 1, m: all },
    definition: { steps, cohorts },
    parts,
    part: (cohort) => parts[Math.floor(cohort / cohorts)],
    bits(value, cohort, params) {
      const bytes = utf8(normalText(value));
      const length = steps[Math.floor(cohort / cohorts)] ?? Infinity;
      // A value that ends before the step is followed by the terminator, so that it differs from all that go on.
      const isCut = length === Infinity || bytes.length >= length;
      const hashed = isCut ? bytes.subarray(0, length) : Uint8Array.of(...bytes, TERMINATOR);
      // The last step's cohorts are hashed as numbers from 0 on, as a string's; the others' follow.
      return filterOf(bloomPositions(hashed, (cohort + cohorts) % all, params), params.k);
    },
  });
}

/** One of a few known texts, one bit each; perhaps with a last category for all other texts. @type {TypeMaker} */
function enumType({ categories, other: hasOther = false }, path) {
  const at = `${path}.categories`;
  const other = boolean(hasOther, `${path}.other`);
  const [fewest, most] = other ? [1, MOST_BITS - 1] : [2, MOST_BITS];
  /** @type {Map<string, number>} by normal form */
  const numbers = new Map();
  for (const [i, text] of list(categories, at, fewest, most, "different texts").entries()) {
    const normal = unicode(text, `${at}[${i}]`);
    if (numbers.has(normal)) throw new MetricError(`${at}[${i}] = ${shown(text)}: must not occur twice`);
    numbers.set(normal, i);
  }
  if (other && numbers.has(OTHER)) {
    throw new MetricError(`${at}: must not hold "${OTHER}", which other = true adds as the last`);
  }
  return listed("enum", numbers.size + Number(other), {
    definition: { categories: [...numbers.keys()], ...(other && { other }) },
    number(value) {
      // The last category takes every text, even one that no string metric does.
      const text = other && typeof value === "string" ? value.normalize("NFC") : normalText(value);
      const number = numbers.get(text) ?? (other ? numbers.size : undefined);
      if (number === undefined) throw new ValueError("must be one of the metric's categories");
      return number;
    },
  });
}

/**
 * A type whose values have a bit each.
 * @param {string} name @param {number} width @param {Pick<MetricType, "number"> & Partial<MetricType>} own
 */
function listed(name, width, own) {
  const bits = (/** @type {unknown} */ value, /** @type {number} */ _, /** @type {RapporParams} */ { k }) =>
    filterOf([own.number(value)], k);
  return makeType({ name, size: sizeFor(width), values: width, bits, ...own });
}

/** A number, in the bucket where it falls. @type {TypeMaker} */
function ordinalType({ edges: given }, path) {
  const edges = ascending(given, `${path}.edges`, MOST_BITS - 1, "edge", finite);
  return listed("ordinal", edges.length + 1, {
    definition: { edges },
    number(value) {
      const number = plainNumber(value);
      let [low, high] = [0, edges.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (edges[middle] <= number) low = middle + 1;
        else high = middle;
      }
      return low;
    },
  });
}

/** Yes or no, in a single bit. @type {TypeMaker} */
function booleanType() {
  const number = (/** @type {unknown} */ value) => {
    if (typeof value !== "boolean") throw new ValueError(`must be a boolean, not ${typeOf(value)}`);
    return Number(value);
  };
  return makeType({
    name: "boolean",
    size: sizeFor(1),
    values: 2,
    number,
    bits: (value, _, { k }) => filterOf(number(value) ? [0] : [], k),
    isOneBit: true,
  });
}

/**
 * A number between two bounds whose mean is asked; what is beyond them counts as the bound. With `variance` clients of
 * cohort 1 report the square of where their value is between the bounds.
 * @type {TypeMaker}
 */
function numberType(entry, path) {
  const [low, high] = [finite(entry.low, `${path}.low`), finite(entry.high, `${path}.high`)];
  if (!(low < high) || high - low === Infinity) {
    throw new MetricError(`${path}.high = ${high}: must be more than low, and not infinitely so`);
  }
  const cells = integer(entry.cells, `${path}.cells`, 2, MOST_BITS);
  const window = integer(entry.window, `${path}.window`, 1, cells - 1);
  const variance = boolean(entry.variance ?? false, `${path}.variance`);
  const positions = cells - window;
  const placeOf = (/** @type {unknown} */ value, /** @type {number} */ cohort) => {
    const number = plainNumber(value);
    const between = Math.min(Math.max((number - low) / (high - low), 0), 1);
    const unit = number <= low ? 0 : number >= high ? 1 : between;
    const place = (cohort === 1 ? unit * unit : unit) * positions;
    const below = Math.min(Math.floor(place), positions - 1);
    return { below, rest: place - below };
  };
  return makeType({
    name: "number",
    size: { ...sizeFor(cells), m: variance ? 2 : 1 },
    definition: { low, high, cells, window, variance },
    ownResponse: (chance) => windowOf(cells, window, chance),
    // The position at or below the value.
    bits: (value, cohort, { k }) => filterOf([placeOf(value, cohort).below], k),
    // Or its upper neighbour, with the probability of how far the value is from the lower one, to 53 binary digits.
    drawnBits(value, cohort, { k }, coins) {
      const { below, rest } = placeOf(value, cohort);
      const drawn = new DataView(new ArrayBuffer(8));
      coins.fill(new Uint8Array(drawn.buffer));
      const coin = Number(drawn.getBigUint64(0, true) >> UNUSED_DIGITS);
      return filterOf([below + Number(coin < rest * 2 ** COIN_DIGITS)], k);
    },
  });
}

/** @param {unknown} value @returns {number} throws ValueError */
function plainNumber(value) {
  if (typeof value !== "number") throw new ValueError(`must be a number, not ${typeOf(value)}`);
  if (Number.isNaN(value)) throw new ValueError("must be a number, not NaN");
  return value;
}

/** @typedef {{name: string, type: Readonly<MetricType>}} Field */

/**
 * Two or three fields as one value: every combination of theirs is a value of its own, under one epsilon whichever
 * field changes. Where all are known and few each has a bit, otherwise they are hashed as strings are.
 * @type {TypeMaker}
 */
function jointType(entry, path) {
  const fields = fieldsOf(entry.fields, `${path}.fields`);
  const cells = fields.reduce((product, { type }) => product * (type.values ?? Infinity), 1);
  const { k, h, m } = entry;
  const hashed = cells === Infinity || (k !== undefined && integer(k, `${path}.k`, 8, MOST_BITS, 8) < cells);
  if (hashed) integer(m, `${path}.m`, 1, MOST_STRING_COHORTS);
  else if (k === undefined && cells > MOST_BITS) {
    throw new MetricError(
      `${path}.fields: have ${cells} cells, more than ${MOST_BITS} bits; give k and m, with which cells are hashed`,
    );
  }
  for (const key of hashed ? [] : ["h", "m"]) {
    if (entry[key] === undefined || entry[key] === 1) continue;
    throw new MetricError(
      `${path}.${key} = ${shown(entry[key])}: must be 1, or left out, where each of the ${cells} cells has a bit ` +
        `of its own; a k below ${cells} hashes them`,
    );
  }
  const definition = {
    fields: fields.map(({ name, type }) => ({ name, type: type.name, ...type.definition })),
    hashed,
  };
  const cellOf = (/** @type {unknown} */ value) =>
    digitsOf(fields, value).reduce((/** @type {number} */ cell, digit, i) => {
      return cell * (fields[i].type.values ?? 0) + Number(digit);
    }, 0);
  return makeType({
    name: "joint",
    size: hashed ? { k, h: h ?? 1, m } : { ...sizeFor(cells), ...(k !== undefined && { k }) },
    values: hashed ? null : cells,
    definition,
    fieldNames: fields.map(({ name }) => name),
    bits(value, cohort, params) {
      const positions = hashed ? bloomPositions(tupleBytes(fields, value), cohort, params) : [cellOf(value)];
      return filterOf(positions, params.k);
    },
  });
}

/**
 * Return the number of each field's value, in order; of a string field, its normal form.
 * @param {readonly Field[]} fields @param {unknown} value @returns {(number | string)[]} throws ValueError
 */
function digitsOf(fields, value) {
  const names = fields.map(({ name }) => name);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    const found = Array.isArray(value) ? "a list" : typeOf(value);
    throw new ValueError(`must be an object with the fields ${names.join(", ")}, not ${found}`);
  }
  const given = Object.keys(value);
  const missing = names.filter((name) => !given.includes(name));
  if (missing.length || given.length > names.length) {
    const found = missing.length ? `${missing.join(", ")} missing` : "there are others";
    throw new ValueError(`must have exactly the fields ${names.join(", ")}; ${found}`);
  }
  const values = /** @type {Record<string, unknown>} */ (value);
  return fields.map(({ name, type }) => {
    try {
      return type.values === null ? normalText(values[name]) : type.number(values[name]);
    } catch (error) {
      if (!(error instanceof ValueError)) throw error;
      throw new ValueError(`field ${name}: ${error.message}`);
    }
  });
}

/**
 * Return what is hashed of a tuple: the texts, and the numbers in decimal digits, with a byte between them that neither
 * has.
 * @param {readonly Field[]} fields @param {unknown} value @returns {Uint8Array} throws ValueError
 */
function tupleBytes(fields, value) {
  const parts = digitsOf(fields, value).map((part) => [...utf8(String(part))]);
  return Uint8Array.from(parts.flatMap((part, i) => (i ? [TERMINATOR, ...part] : part)));
}

/** @param {unknown} given @param {string} path @returns {readonly Field[]} */
function fieldsOf(given, path) {
  const fields = list(given, path, FEWEST_FIELDS, MOST_FIELDS, "tables, one a field").map((each, i) => {
    return fieldOf(table(each, `${path}[${i}]`), `${path}[${i}]`);
  });
  const names = fields.map(({ name }) => name);
  const twice = names.findIndex((name, i) => names.indexOf(name) < i);
  if (twice < 0) return fields;
  throw new MetricError(`${path}[${twice}].name = ${shown(names[twice])}: must differ from other fields'`);
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
  const typeName = oneOf(entry.type, `${path}.type`, ["enum", "boolean", "ordinal", "string"]);
  // A text in a field is hashed with the others, in the filter of all.
  const { keys, make } = typeName === "string" ? { keys: [], make: () => STRING(sizeFor(8)) } : METRIC_TYPES[typeName];
  refuseUnknown(entry, ["name", "type", ...keys], `${path}.`);
  return { name, type: make(entry, path) };
}

/**
 * By name, in the order in which messages list them: the keys that only entries of this type have, and what reads them.
 * @type {Readonly<Record<string, {keys: readonly string[], make: TypeMaker}>>}
 */
export const METRIC_TYPES = {
  string: { keys: ["k", "h", "m"], make: stringType },
  enum: { keys: ["categories", "other"], make: enumType },
  ordinal: { keys: ["edges"], make: ordinalType },
  boolean: { keys: [], make: booleanType },
  "open-string": { keys: ["steps", "k", "h", "m"], make: openStringType },
  joint: { keys: ["fields", "k", "h", "m"], make: jointType },
  number: { keys: ["low", "high", "cells", "window", "variance"], make: numberType },
};
