/**
 * What a value of each type is, and which true bits it sets.
 *
 * Errors say what was expected and never show the value: they may be logged, and a value must not be.
 */

import { bloomPositions, filterOf } from "./bloom.js";
import { ValueError } from "./errors.js";

export const LARGEST_TEXT = 65_536;

const encoder = new TextEncoder();

/**
 * Return a text in the form in which texts are compared and hashed.
 *
 * @param {unknown} value
 * @returns {string} its Unicode normal form NFC
 */
export function normalText(value) {
  if (typeof value !== "string") throw new ValueError(`must be a string, not ${kind(value)}`);
  if (/\p{Surrogate}/u.test(value)) throw new ValueError("must have no lone surrogate");
  const normal = value.normalize("NFC");
  if (encoder.encode(normal).length > LARGEST_TEXT) {
    throw new ValueError(`must have at most ${LARGEST_TEXT} bytes`);
  }
  return normal;
}

/**
 * Return what turns the metric's values, in a given cohort, into their true bits.
 *
 * @param {import("./registry.js").Metric} metric
 * @returns {(value: unknown, cohort: number) => Uint8Array} throws ValueError
 */
export function trueBits(metric) {
  const { params } = metric;
  if (metric.type === "string") {
    return (value, cohort) => {
      return filterOf(bloomPositions(encoder.encode(normalText(value)), cohort, params), params.k);
    };
  }
  const position = positionFinder(metric);
  return (value) => filterOf(position(value), params.k);
}

/**
 * Return what finds the one bit, or none, that a value sets.
 *
 * @param {import("./registry.js").Metric} metric of any type but string
 * @returns {(value: unknown) => number[]}
 */
function positionFinder({ type, categories, edges }) {
  switch (type) {
    case "boolean":
      return booleanPosition;
    case "enum":
      return categoryPosition(categories);
    case "ordinal":
      return (value) => [bucket(value, edges)];
    default:
      throw new TypeError(`unknown type ${type}`);
  }
}

/** @param {unknown} value */
function booleanPosition(value) {
  if (typeof value !== "boolean") throw new ValueError(`must be a boolean, not ${kind(value)}`);
  return value ? [0] : [];
}

/** @param {readonly string[]} categories */
function categoryPosition(categories) {
  const numbers = new Map(categories.map((category, i) => [normalText(category), i]));
  return (/** @type {unknown} */ value) => {
    const number = numbers.get(normalText(value));
    if (number === undefined) throw new ValueError("must be one of the metric's categories");
    return [number];
  };
}

/** @param {unknown} value @param {readonly number[]} edges @returns {number} edges at most the value */
function bucket(value, edges) {
  if (typeof value !== "number") throw new ValueError(`must be a number, not ${kind(value)}`);
  if (Number.isNaN(value)) throw new ValueError("must be a number, not NaN");
  let [low, high] = [0, edges.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (edges[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {unknown} value */
function kind(value) {
  return value === null ? "null" : typeof value;
}
