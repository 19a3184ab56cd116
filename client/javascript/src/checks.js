/** Checks of single entries of a registry; a message has the place, the value and the rule. */

import { normalText } from "./bloom.js";
import { MetricError, shown, ValueError } from "./errors.js";

/** @template T @typedef {(value: unknown, path: string) => T} Check returns the value, or throws MetricError */

/** @template T @param {string} rule @param {(value: any) => boolean} holds @returns {Check<T>} */
export function must(rule, holds) {
  return (value, path) => {
    if (!holds(value)) throw new MetricError(`${path} = ${shown(value)}: must be ${rule}`);
    return /** @type {T} */ (value);
  };
}

/** @type {Check<Record<string, unknown>>} */
export const table = must("an object", (value) => typeof value === "object" && value !== null && !Array.isArray(value));
/** @type {Check<boolean>} */
export const boolean = must("true or false", (value) => typeof value === "boolean");
/** @type {Check<number>} */
export const probability = must("a number between 0 and 1", (value) => isNumber(value) && value >= 0 && value <= 1);
/** @type {Check<number>} */
export const finite = must("a finite number", isNumber);
/** @type {Check<number>} */
export const positive = must("a finite number above 0", (value) => isNumber(value) && value > 0);
/** @type {Check<string>} */
const written = must("a text that isn't blank", (value) => typeof value === "string" && value.trim() !== "");

/** @param {unknown} value @returns {value is number} */
function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** @type {Check<string>} */
export function sentence(value, path) {
  unicode(written(value, path), path);
  return String(value);
}

/** Return the normal form of a text. @type {Check<string>} */
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

/** @param {string} name @param {string} place */
export function checkName(name, place) {
  if (isName(name)) return;
  throw new MetricError(`${place}: a name must be 1 to 64 of a-z 0-9 _ -, beginning with a letter`);
}

/**
 * @param {unknown} value @param {string} path @param {number} least @param {number} most
 * @param {number} [step] of which it must be a multiple @returns {number}
 */
export function integer(value, path, least, most, step = 1) {
  const rule = `${step === 1 ? "an integer" : `a multiple of ${step}`} between ${least} and ${most}`;
  const holds = (/** @type {any} */ it) => Number.isInteger(it) && it >= least && it <= most && it % step === 0;
  return must(rule, holds)(value, path);
}

/**
 * @template {string} T @param {unknown} value @param {string} path @param {readonly T[]} choices @returns {T}
 */
export function oneOf(value, path, choices) {
  const named = choices.map((candidate) => `"${candidate}"`).join(", ");
  return must(`one of ${named}`, (it) => choices.includes(it))(value, path);
}

/**
 * @param {unknown} value @param {string} path @param {number} least @param {number} most @param {string} items
 * @returns {unknown[]} a copy
 */
export function list(value, path, least, most, items) {
  const holds = (/** @type {any} */ it) => Array.isArray(it) && it.length >= least && it.length <= most;
  return [...must(`a list of ${least} to ${most} ${items}`, holds)(value, path)];
}

/**
 * @param {unknown} value @param {string} path @param {number} most @param {string} item
 * @param {Check<number>} check of each item @returns {readonly number[]}
 */
export function ascending(value, path, most, item, check) {
  const numbers = list(value, path, 1, most, `ascending ${item === "edge" ? "numbers" : "integers"}`);
  const checked = numbers.map((number, i) => check(number, `${path}[${i}]`));
  const wrong = checked.findIndex((number, i) => i && number <= checked[i - 1]);
  if (wrong < 0) return Object.freeze(checked);
  throw new MetricError(`${path}[${wrong}] = ${shown(checked[wrong])}: must be above the ${item} before it`);
}

/** @param {unknown} value YYYY-MM-DD, or a Date (some TOML parsers make them), read in UTC @param {string} path */
export function day(value, path) {
  const valid = value instanceof Date && !Number.isNaN(value.getTime());
  const text = valid ? value.toISOString().slice(0, 10) : value;
  if (typeof text === "string" && /^\d{4}-\d{2}-\d{2}$/.test(text)) {
    const date = new Date(`${text}T00:00:00Z`);
    if (!Number.isNaN(date.getTime()) && date.toISOString().startsWith(text)) return text;
  }
  throw new MetricError(`${path} = ${shown(value)}: must be a day as YYYY-MM-DD`);
}

/** @param {Record<string, unknown>} entry @param {readonly string[]} known @param {string} prefix */
export function refuseUnknown(entry, known, prefix) {
  const unknown = Object.keys(entry).find((key) => !known.includes(key));
  if (unknown !== undefined) throw new MetricError(`${prefix}${unknown}: unknown key`);
}

/**
 * Refuse keys that only other choices have.
 * @param {Record<string, unknown>} entry @param {Readonly<Record<string, readonly string[]>>} keys of each choice
 * @param {string} choice @param {string} whose @param {string} path
 */
export function refuseForeign(entry, keys, choice, whose, path) {
  const others = Object.values(keys).flat();
  const wrong = others.find((key) => !keys[choice].includes(key) && entry[key] !== undefined);
  if (wrong === undefined) return;
  throw new MetricError(`${path}.${wrong} = ${shown(entry[wrong])}: ${whose} has no ${wrong}`);
}
