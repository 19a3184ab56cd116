/** Checks of single entries of a registry; a message has the place, the value and the rule. */

import { MetricError, shown, ValueError } from "./errors.js";
import { normalText } from "./bloom.js";

/** @param {unknown} value @param {string} path @returns {Record<string, unknown>} */
export function table(value, path) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return /** @type {Record<string, unknown>} */ (value);
  }
  throw new MetricError(`${path} = ${shown(value)}: must be an object`);
}

/** @param {unknown} value @param {string} path @returns {string} a text that isn't blank */
export function sentence(value, path) {
  if (typeof value !== "string" || !value.trim()) {
    throw new MetricError(`${path} = ${shown(value)}: must be a text that isn't blank`);
  }
  unicode(value, path);
  return value;
}

/** Return the normal form of a text. @param {unknown} value @param {string} path @returns {string} */
export function unicode(value, path) {
  try {
    return normalText(value);
  } catch (error) {
    if (!(error instanceof ValueError)) throw error;
    throw new MetricError(`${path} = ${shown(value)}: ${error.message}`);
  }
}

/** @param {string} name @returns {boolean} whether a metric, or a field of one, may be called so */
export function isName(name) {
  return /^[a-z][a-z0-9_-]{0,63}$/.test(name);
}

/**
 * Return the value if it is an integer in range.
 * @param {unknown} value @param {string} path @param {number} least @param {number} most @param {number} [step]
 * @returns {number}
 */
export function integer(value, path, least, most, step = 1) {
  const number = typeof value === "number" ? value : NaN;
  if (Number.isInteger(number) && number >= least && number <= most && number % step === 0)
    return number;
  const what = step === 1 ? "an integer" : `a multiple of ${step}`;
  throw new MetricError(`${path} = ${shown(value)}: must be ${what} between ${least} and ${most}`);
}

/** @param {unknown} value @param {string} path @returns {boolean} */
export function boolean(value, path) {
  if (typeof value === "boolean") return value;
  throw new MetricError(`${path} = ${shown(value)}: must be true or false`);
}

/** @param {unknown} value @param {string} path @returns {number} */
export function probability(value, path) {
  if (typeof value === "number" && value >= 0 && value <= 1) return value;
  throw new MetricError(`${path} = ${shown(value)}: must be a number between 0 and 1`);
}

/** @param {unknown} value @param {string} path @returns {number} */
export function finite(value, path) {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new MetricError(`${path} = ${shown(value)}: must be a finite number`);
}

/** @param {unknown} value @param {string} path @returns {number} */
export function positive(value, path) {
  if (typeof value === "number" && value > 0 && value < Infinity) return value;
  throw new MetricError(`${path} = ${shown(value)}: must be a finite number above 0`);
}

/**
 * @template {string} T @param {unknown} value @param {string} path @param {readonly T[]} choices @returns {T}
 */
export function oneOf(value, path, choices) {
  const choice = choices.find((candidate) => candidate === value);
  if (choice !== undefined) return choice;
  const named = choices.map((candidate) => `"${candidate}"`).join(", ");
  throw new MetricError(`${path} = ${shown(value)}: must be one of ${named}`);
}

/**
 * @param {unknown} value @param {string} path @param {number} least @param {number} most @param {string} what
 * @returns {unknown[]} a copy
 */
export function list(value, path, least, most, what) {
  if (Array.isArray(value) && value.length >= least && value.length <= most) return [...value];
  throw new MetricError(`${path} = ${shown(value)}: must be a list of ${least} to ${most} ${what}`);
}

/**
 * @param {unknown} value text YYYY-MM-DD, or a Date (some TOML parsers make them), read in UTC
 * @param {string} path @returns {string} YYYY-MM-DD
 */
export function day(value, path) {
  const valid = value instanceof Date && !Number.isNaN(value.getTime());
  const text = valid ? value.toISOString().slice(0, 10) : value;
  if (typeof text === "string" && /^\d{4}-\d{2}-\d{2}$/.test(text)) {
    const date = new Date(`${text}T00:00:00Z`);
    if (!Number.isNaN(date.getTime()) && date.toISOString().startsWith(text)) return text;
  }
  throw new MetricError(`${path} = ${shown(value)}: must be a day as YYYY-MM-DD`);
}

/**
 * Refuse unknown keys.
 * @param {Record<string, unknown>} entry @param {readonly string[]} known @param {string} prefix
 */
export function refuseUnknown(entry, known, prefix) {
  const unknown = Object.keys(entry).find((key) => !known.includes(key));
  if (unknown !== undefined) throw new MetricError(`${prefix}${unknown}: unknown key`);
}

/**
 * Refuse keys that only other choices have.
 * @param {Record<string, unknown>} entry
 * @param {Readonly<Record<string, readonly string[]>>} keys of each choice @param {string} choice
 * @param {string} what @param {string} path
 */
export function refuseForeign(entry, keys, choice, what, path) {
  const wrong = Object.values(keys)
    .flat()
    .find((key) => !keys[choice].includes(key) && entry[key] !== undefined);
  if (wrong === undefined) return;
  throw new MetricError(`${path}.${wrong} = ${shown(entry[wrong])}: ${what} has no ${wrong}`);
}
