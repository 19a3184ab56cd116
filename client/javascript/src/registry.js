/**
 * What an application asks, as plain objects with the keys of metrics.toml, into checked metrics.
 *
 * Client, collector and decoder work from the same registry; an entry that one of them would read
 * differently must be refused by all, so everything is checked and nothing is converted.
 */

import { MetricError, ValueError, shown } from "./errors.js";
import { epsilons, integer, makeParams } from "./params.js";
import { normalText } from "./values.js";

const LARGEST_VERSION = 2 ** 31 - 1;
const MOST_CATEGORIES = 1024;
const LONGEST_PERIOD = 3650;
const COMMON = [
  "version",
  "type",
  "description",
  "owner",
  "expires",
  "mode",
  "memory",
  "f",
  "p",
  "q",
];
const USUAL_CAP = 100;
const SECONDS_A_DAY = 86_400;

/** Keys of an entry that only some types have. @type {Readonly<Record<string, string[]>>} */
const OWN = Object.freeze({
  string: ["k", "h", "m"],
  enum: ["categories"],
  ordinal: ["edges"],
  boolean: [],
});

/** Keys of an entry that only some memories have. @type {Readonly<Record<string, string[]>>} */
const OF_MEMORY = Object.freeze({ value: ["max_values"], period: ["period_days", "max_periods"] });

/**
 * @typedef {object} Metric
 * @property {string} application
 * @property {string} name
 * @property {number} version
 * @property {"string" | "enum" | "ordinal" | "boolean"} type
 * @property {"longitudinal" | "one-time"} mode
 * @property {"value" | "period"} memory what has a permanent response: each distinct value, for
 *   life, or each period
 * @property {number} periodDays length of a period; 0 with memory "value"
 * @property {number} maxAnswers how many answers a client gives in its life: distinct values,
 *   periods, or one report
 * @property {string} description
 * @property {string} owner
 * @property {string} expires the last day on which it is reported, YYYY-MM-DD (UTC)
 * @property {Readonly<import("./params.js").RapporParams>} params
 * @property {readonly string[]} categories of an enum, else empty
 * @property {readonly number[]} edges of an ordinal, else empty
 * @property {number} epsilonPermanent what all reports of one value reveal
 * @property {number} epsilonReport what one report reveals
 * @property {number} price what an admitted answer costs, however often it is reported
 */

/**
 * @typedef {object} Registry
 * @property {string} application
 * @property {ReadonlyMap<string, Readonly<Metric>>} metrics
 * @property {number | null} lifetimeEpsilon bound on the prices of all answers ever, if there is one
 */

/**
 * Check a registry.
 *
 * @param {unknown} given what parsing a metrics.toml gives: {application, metrics: {name: {...}}}
 * @returns {Readonly<Registry>} throws MetricError
 */
export function makeRegistry(given) {
  const { application, metrics, lifetime_epsilon: budget, ...others } = table(given, "registry");
  refuseUnknown(others, "");
  const name = sentence(application, "application");
  const entries = Object.entries(table(metrics, "metrics"));
  if (!entries.length) throw new MetricError("metrics: must have at least one metric");
  const made = entries.map(
    ([key, entry]) => /** @type {const} */ ([key, makeMetric(name, key, entry)]),
  );
  return Object.freeze({
    application: name,
    metrics: new Map(made),
    lifetimeEpsilon: budget === undefined ? null : checkBudget(budget),
  });
}

/** @param {unknown} budget @returns {number} */
function checkBudget(budget) {
  if (typeof budget === "number" && budget > 0 && budget < Infinity) return budget;
  throw new MetricError(`lifetime_epsilon = ${shown(budget)}: must be a finite number above 0`);
}

/**
 * Check one metric's entry.
 *
 * @param {string} application
 * @param {string} name
 * @param {unknown} given
 * @returns {Readonly<Metric>} throws MetricError
 */
export function makeMetric(application, name, given) {
  const path = `metrics.${name}`;
  if (!/^[a-z][a-z0-9_-]{0,63}$/.test(name)) {
    throw new MetricError(`${path}: a name must be 1 to 64 of a-z 0-9 _ -, a letter first`);
  }
  const entry = table(given, path);
  const type = /** @type {Metric["type"]} */ (oneOf(entry.type, `${path}.type`, Object.keys(OWN)));
  const memory = /** @type {Metric["memory"]} */ (
    oneOf(entry.memory ?? "value", `${path}.memory`, Object.keys(OF_MEMORY))
  );
  refuseKeys(entry, { type, memory }, path);
  const categories = type === "enum" ? checkCategories(entry.categories, `${path}.categories`) : [];
  const edges = type === "ordinal" ? checkEdges(entry.edges, `${path}.edges`) : [];
  const size = type === "string" ? entry : sizeOf(type, categories, edges);
  const mode = /** @type {Metric["mode"]} */ (
    oneOf(entry.mode ?? "longitudinal", `${path}.mode`, ["longitudinal", "one-time"])
  );
  if (memory === "period" && mode === "one-time") {
    throw new MetricError(`${path}.memory = "period": must be left out, or mode = "longitudinal"`);
  }
  const noise = mode === "one-time" ? { p: 0, q: 1, ...entry } : entry;
  const params = makeParams({ ...noise, k: size.k, h: size.h, m: size.m }, path);
  checkMode(mode, params, path);
  const epsilon = epsilons(params, type);
  return Object.freeze({
    application,
    name,
    version: integer(entry.version, `${path}.version`, 1, LARGEST_VERSION),
    type,
    mode,
    memory,
    ...checkCaps(entry, memory, mode, path),
    description: sentence(entry.description, `${path}.description`),
    owner: sentence(entry.owner, `${path}.owner`),
    expires: day(entry.expires, `${path}.expires`),
    params,
    categories: Object.freeze(categories),
    edges: Object.freeze(edges),
    epsilonPermanent: epsilon.permanent,
    epsilonReport: epsilon.report,
    price: mode === "one-time" ? epsilon.report : epsilon.permanent,
  });
}

/**
 * Return how many answers a client gives, and for how long one lasts.
 *
 * @param {Record<string, unknown>} entry @param {Metric["memory"]} memory
 * @param {Metric["mode"]} mode @param {string} path
 */
function checkCaps(entry, memory, mode, path) {
  const cap = (/** @type {string} */ key) => {
    return integer(entry[key] ?? USUAL_CAP, `${path}.${key}`, 1, LARGEST_VERSION);
  };
  if (memory === "period") {
    const periodDays = integer(entry.period_days, `${path}.period_days`, 1, LONGEST_PERIOD);
    return { periodDays, maxAnswers: cap("max_periods") };
  }
  const maxValues = cap("max_values");
  return { periodDays: 0, maxAnswers: mode === "one-time" ? 1 : maxValues };
}

/**
 * Return all that reports depend on; it is fixed for a version.
 *
 * @param {Readonly<Metric>} metric
 * @returns {Record<string, unknown>} as JSON can hold it, its keys always in the same order
 */
export function definitionOf({ type, categories, edges, params, memory, periodDays }) {
  const { k, h, m, f, p, q } = params;
  const periods = memory === "period" ? { memory, period_days: periodDays } : {};
  return { type, categories: categories.map(normalText), edges, k, h, m, f, p, q, ...periods };
}

/** @param {number} periodDays @returns {number} the length of such a period */
export function periodSeconds(periodDays) {
  return periodDays * SECONDS_A_DAY;
}

/**
 * Return k, h and m where they follow from the type.
 *
 * @param {string} type @param {string[]} categories @param {number[]} edges
 */
function sizeOf(type, categories, edges) {
  const bits = { enum: categories.length, ordinal: edges.length + 1, boolean: 1 }[type] ?? 0;
  return { k: 8 * Math.ceil(bits / 8), h: 1, m: 1 };
}

/**
 * Refuse a mode that has a response too many or too few.
 *
 * @param {string} mode @param {import("./params.js").RapporParams} params @param {string} path
 */
function checkMode(mode, { f, p, q }, path) {
  const values = `f = ${f}, p = ${p}, q = ${q}`;
  const noPermanent = f === 0;
  if (mode === "one-time" && !noPermanent && !(p === 0 && q === 1)) {
    throw new MetricError(
      `${path}: ${values}: a one-time metric leaves out one response: f = 0, or p = 0 and q = 1`,
    );
  }
  const noInstantaneous = (p === 0 && q === 1) || (p === 1 && q === 0);
  if (mode === "longitudinal" && (noPermanent || noInstantaneous)) {
    throw new MetricError(
      `${path}: ${values}: needs both responses: f above 0, and p or q strictly between 0 and 1; ` +
        'or mode = "one-time"',
    );
  }
}

/** @param {unknown} value @param {string} path @returns {string[]} */
function checkCategories(value, path) {
  const texts = list(value, path, 2, MOST_CATEGORIES, "different texts");
  const seen = new Set();
  texts.forEach((text, i) => {
    const normal = rethrown(`${path}[${i}] = ${shown(text)}`, () => normalText(text));
    if (seen.has(normal))
      throw new MetricError(`${path}[${i}] = ${shown(text)}: must not occur twice`);
    seen.add(normal);
  });
  return /** @type {string[]} */ (texts);
}

/** @param {unknown} value @param {string} path @returns {number[]} */
function checkEdges(value, path) {
  const edges = /** @type {number[]} */ (
    list(value, path, 1, MOST_CATEGORIES - 1, "ascending numbers")
  );
  edges.forEach((edge, i) => {
    const at = `${path}[${i}] = ${shown(edge)}`;
    if (!Number.isFinite(edge)) throw new MetricError(`${at}: must be a finite number`);
    if (i && edge <= edges[i - 1]) throw new MetricError(`${at}: must be above the edge before it`);
  });
  return edges;
}

/** @param {unknown} value @param {string} path @param {number} least @param {number} most @param {string} what */
function list(value, path, least, most, what) {
  if (Array.isArray(value) && value.length >= least && value.length <= most) return [...value];
  throw new MetricError(`${path} = ${shown(value)}: must be a list of ${least} to ${most} ${what}`);
}

/** @param {unknown} value @param {string} path @param {string[]} choices @returns {string} */
function oneOf(value, path, choices) {
  if (typeof value === "string" && choices.includes(value)) return value;
  const named = choices.map((choice) => `"${choice}"`).join(", ");
  throw new MetricError(`${path} = ${shown(value)}: must be one of ${named}`);
}

/** @param {unknown} value @param {string} path @returns {string} */
function sentence(value, path) {
  if (typeof value !== "string" || !value.trim()) {
    throw new MetricError(`${path} = ${shown(value)}: must be a text that isn't blank`);
  }
  rethrown(`${path} = ${shown(value)}`, () => normalText(value));
  return value;
}

/**
 * @param {unknown} value text YYYY-MM-DD, or a Date (some TOML parsers make them), read in UTC
 * @param {string} path
 * @returns {string}
 */
function day(value, path) {
  const valid = value instanceof Date && !Number.isNaN(value.getTime());
  const text = valid ? value.toISOString().slice(0, 10) : value;
  if (typeof text === "string" && /^\d{4}-\d{2}-\d{2}$/.test(text)) {
    const date = new Date(`${text}T00:00:00Z`);
    if (!Number.isNaN(date.getTime()) && date.toISOString().startsWith(text)) return text;
  }
  throw new MetricError(`${path} = ${shown(value)}: must be a day as YYYY-MM-DD`);
}

/** @param {unknown} value @param {string} path @returns {Record<string, unknown>} */
function table(value, path) {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return /** @type {Record<string, unknown>} */ (value);
  }
  throw new MetricError(`${path} = ${shown(value)}: must be an object`);
}

/**
 * @param {Record<string, unknown>} entry
 * @param {{type: string, memory: string}} choices
 * @param {string} path
 */
function refuseKeys(entry, { type, memory }, path) {
  const ofType = refuseForeign(entry, OWN, type, `a metric of type ${type}`, path);
  const ofMemory = refuseForeign(
    entry,
    OF_MEMORY,
    memory,
    `a metric with memory "${memory}"`,
    path,
  );
  const known = new Set([...COMMON, ...ofType, ...ofMemory]);
  refuseUnknown(
    Object.fromEntries(Object.entries(entry).filter(([key]) => !known.has(key))),
    `${path}.`,
  );
}

/**
 * Refuse keys that only other choices have.
 *
 * @param {Record<string, unknown>} entry
 * @param {Readonly<Record<string, string[]>>} keys of each choice
 * @param {string} choice
 * @param {string} what
 * @param {string} path
 * @returns {string[]} the choice's own keys
 */
function refuseForeign(entry, keys, choice, what, path) {
  const own = keys[choice];
  const wrong = Object.values(keys)
    .flat()
    .find((key) => !own.includes(key) && entry[key] !== undefined);
  if (wrong === undefined) return own;
  throw new MetricError(`${path}.${wrong} = ${shown(entry[wrong])}: ${what} has no ${wrong}`);
}

/** @param {Record<string, unknown>} others @param {string} prefix */
function refuseUnknown(others, prefix) {
  for (const key of Object.keys(others)) throw new MetricError(`${prefix}${key}: unknown key`);
}

/**
 * Return what the function returns, naming the field where it finds fault with a value.
 *
 * @template T
 * @param {string} path @param {() => T} check @returns {T}
 */
function rethrown(path, check) {
  try {
    return check();
  } catch (error) {
    if (error instanceof ValueError) throw new MetricError(`${path}: ${error.message}`);
    throw error;
  }
}
