/**
 * Dimensions: facts about the app that travel in the clear with a report, such as its platform.
 *
 * A report's *slice* holds them as one text, "platform=mac,release=1.2". Invariants: a slice has one text, in which the
 * dimensions stand in the metric's order and what is unknown, or "other", is left out, so that the any client may have
 * the empty text; and a pattern is such that both clients read it alike.
 */

import { table } from "./checks.js";
import { MetricError, shown } from "./errors.js";

/** The value of a dimension that isn't known, isn't listed, or is rare. */
export const OTHER = "other";
const LONGEST_VALUE = 32;
/** Characters: with a metric's name of 64 and a separator it fits the compact form's one byte. */
const LONGEST_SLICE = 190;
/** Combinations of listed values that a metric may have. */
const MOST_SLICES = 64;
/** Characters of a pattern. */
const LONGEST_PATTERN = 64;
/** Parts of a pattern of varying length. */
const MOST_VARYING = 4;
/** Between a metric's name and its slice, where a report has one. */
const SEPARATOR = ";";

const NAME = /^[a-z][a-z0-9_]{0,31}$/;
const VALUE = /^[A-Za-z0-9._-]{1,32}$/;
const PATTERN =
  /^(?:(?:[A-Za-z0-9_-]|\\[.d]|\[(?:[A-Za-z0-9](?:-[A-Za-z0-9])?|[._])+\])(?:[?+*]|\{\d{1,2}(?:,\d{1,2})?\})?)+$/;
const VARIES = /[?+*]|,\d/g;

/**
 * A fact about the app, and the values that are listed.
 *
 * @typedef {object} Dimension
 * @property {string} name
 * @property {readonly string[]} values those that are listed; empty: those that match the pattern
 * @property {string} pattern a regular expression without groups and alternatives
 */

/** @param {Readonly<Dimension>} dimension @param {string} value @returns {boolean} whether the dimension lists it */
export function isTold({ values, pattern }, value) {
  if (values.length) return values.includes(value);
  return value !== OTHER && VALUE.test(value) && new RegExp(`^${pattern}$`).test(value);
}

/** @param {Readonly<Dimension>} dimension @returns {string} its values, as people read them */
export function inWords({ values, pattern }) {
  return values.length ? `${values.join(", ")} or ${OTHER}` : `what ${pattern} matches, or ${OTHER}`;
}

/**
 * Return the slice with these values, as far as the dimensions list them.
 * @param {readonly Readonly<Dimension>[]} dimensions @param {ReadonlyMap<string, string>} values @returns {string}
 */
export function sliceOf(dimensions, values) {
  const parts = dimensions.flatMap((dimension) => {
    const value = values.get(dimension.name);
    return value !== undefined && isTold(dimension, value) ? [`${dimension.name}=${value}`] : [];
  });
  return parts.join(",");
}

/** @param {readonly Readonly<Dimension>[]} dimensions @returns {number} the most characters of a slice */
export function longestSlice(dimensions) {
  const sizes = dimensions.map(({ name, values }) => {
    const lengths = values.map((value) => value.length);
    return `${name}=,`.length + (lengths.length ? Math.max(...lengths) : LONGEST_VALUE);
  });
  return Math.max(0, sizes.reduce((total, size) => total + size, 0) - 1);
}

/**
 * Return what a section of the compact form calls a metric and a slice.
 * @param {string} metric @param {string} [slice]
 */
export function sectionName(metric, slice = "") {
  return slice ? metric + SEPARATOR + slice : metric;
}

/**
 * Check a registry's table of dimensions.
 * @param {unknown} given @returns {ReadonlyMap<string, Readonly<Dimension>>} by name; throws MetricError
 */
export function makeDimensions(given) {
  const entries = Object.entries(table(given, "dimensions"));
  return new Map(entries.map(([name, entry]) => [name, makeDimension(name, entry)]));
}

/** @param {string} name @param {unknown} entry @returns {Readonly<Dimension>} */
function makeDimension(name, entry) {
  const path = `dimensions.${name}`;
  if (!NAME.test(name)) {
    throw new MetricError(`${path}: the name must be 1 to 32 of a-z, 0-9 and _, beginning with a letter`);
  }
  if (typeof entry === "object" && entry && Object.keys(entry).join() === "pattern") {
    const { pattern } = /** @type {{pattern: unknown}} */ (entry);
    return Object.freeze({
      name,
      values: Object.freeze([]),
      pattern: checkPattern(pattern, `${path}.pattern`),
    });
  }
  const isList = Array.isArray(entry) && entry.length >= 1 && entry.length < MOST_SLICES;
  const areValues = isList && entry.every((value) => typeof value === "string" && VALUE.test(value));
  if (!areValues || new Set([...entry, OTHER]).size <= entry.length) {
    throw new MetricError(
      `${path} = ${shown(entry)}: must be a list of 1 to ${MOST_SLICES - 1} different values of 1 to ` +
        `${LONGEST_VALUE} letters, digits, ., _ and -, without "${OTHER}", which all others are; or ` +
        '{ pattern = "..." }',
    );
  }
  return Object.freeze({ name, values: Object.freeze([...entry]), pattern: "" });
}

/** @param {unknown} pattern @param {string} path @returns {string} */
function checkPattern(pattern, path) {
  const isShort = typeof pattern === "string" && pattern.length <= LONGEST_PATTERN;
  if (isShort && PATTERN.test(pattern)) {
    try {
      new RegExp(pattern);
    } catch (error) {
      throw new MetricError(`${path} = ${shown(pattern)}: ${error}`, { cause: error });
    }
    if ((pattern.match(VARIES) ?? []).length <= MOST_VARYING) return pattern;
  }
  throw new MetricError(
    `${path} = ${shown(pattern)}: must be a regular expression of at most ${LONGEST_PATTERN} characters: ` +
      "letters, digits, -, _, \\d, \\. and [...], each with ?, +, * or {m,n} behind it at most " +
      `${MOST_VARYING} times`,
  );
}

/**
 * Refuse dimensions of a metric that have too many combinations, or too long a slice, together.
 * @param {readonly Readonly<Dimension>[]} dimensions @param {string} path throws MetricError
 */
export function checkCombinations(dimensions, path) {
  const combinations = dimensions.reduce((product, { values }) => product * (values.length + 1), 1);
  const named = shown(dimensions.map(({ name }) => name));
  if (combinations > MOST_SLICES) {
    throw new MetricError(
      `${path} = ${named}: must be dimensions with at most ${MOST_SLICES} combinations, and not ` + `${combinations}`,
    );
  }
  if (longestSlice(dimensions) > LONGEST_SLICE) {
    throw new MetricError(`${path} = ${named}: must be dimensions whose slice has at most ${LONGEST_SLICE} characters`);
  }
}
