/**
 * What an application asks, as plain objects with the keys of metrics.toml, into checked metrics.
 *
 * Client, collector and decoder work from the same registry; an entry that one of them would read
 * differently must be refused by all, so everything is checked and nothing is converted.
 */

import {
  day,
  integer,
  isName,
  oneOf,
  positive,
  refuseForeign,
  refuseUnknown,
  sentence,
  table,
} from "./checks.js";
import { MetricError } from "./errors.js";
import { METRIC_TYPES } from "./metric-types.js";
import { makeParams } from "./params.js";

const LARGEST_VERSION = 2 ** 31 - 1;
const LONGEST_PERIOD = 3650;
const USUAL_CAP = 100;
const SECONDS_A_DAY = 86_400;
const COMMON = ["version", "type", "description", "owner", "expires", "mode", "memory", "f", "p", "q"];
const MODES = /** @type {const} */ (["longitudinal", "one-time"]);
const MEMORIES = /** @type {const} */ (["value", "period"]);
/** Keys of an entry that only some memories have. */
const OF_MEMORY = { value: ["max_values"], period: ["period_days", "max_periods"] };

/**
 * @typedef {object} Metric
 * @property {string} application
 * @property {string} name
 * @property {number} version
 * @property {import("./metric-type.js").MetricType} type
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
  refuseUnknown(others, [], "");
  const name = sentence(application, "application");
  const entries = Object.entries(table(metrics, "metrics"));
  if (!entries.length) throw new MetricError("metrics: must have at least one metric");
  const made = entries.map(
    ([key, entry]) => /** @type {const} */ ([key, makeMetric(name, key, entry)]),
  );
  return Object.freeze({
    application: name,
    metrics: new Map(made),
    lifetimeEpsilon: budget === undefined ? null : positive(budget, "lifetime_epsilon"),
  });
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
  if (!isName(name)) {
    throw new MetricError(`${path}: a name must be 1 to 64 of a-z 0-9 _ -, a letter first`);
  }
  const entry = table(given, path);
  const typeName = oneOf(entry.type, `${path}.type`, [...METRIC_TYPES.keys()]);
  const memory = oneOf(entry.memory ?? "value", `${path}.memory`, MEMORIES);
  const keys = Object.fromEntries([...METRIC_TYPES].map(([key, type]) => [key, type.keys]));
  refuseForeign(entry, keys, typeName, `a metric of type ${typeName}`, path);
  refuseForeign(entry, OF_MEMORY, memory, `a metric with memory "${memory}"`, path);
  refuseUnknown(entry, [...COMMON, ...keys[typeName], ...OF_MEMORY[memory]], `${path}.`);
  const typeClass = /** @type {import("./metric-types.js").TypeClass} */ (METRIC_TYPES.get(typeName));
  const type = typeClass.fromEntry(entry, path);
  const mode = oneOf(entry.mode ?? "longitudinal", `${path}.mode`, MODES);
  if (memory === "period" && mode === "one-time") {
    throw new MetricError(`${path}.memory = "period": must be left out, or mode = "longitudinal"`);
  }
  const noise = mode === "one-time" ? { p: 0, q: 1, ...entry } : entry;
  const params = makeParams({ ...noise, ...type.filterSize(entry) }, path);
  checkMode(mode, params, path);
  const epsilonPermanent = type.epsilonPermanent(params);
  const epsilonReport = type.epsilonReport(params);
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
    epsilonPermanent,
    epsilonReport,
    price: mode === "one-time" ? epsilonReport : epsilonPermanent,
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
export function definitionOf({ type, params, memory, periodDays }) {
  const { k, h, m, f, p, q } = params;
  const periods = memory === "period" ? { memory, period_days: periodDays } : {};
  return { type: type.name, ...type.definition(), k, h, m, f, p, q, ...periods };
}

/** @param {number} periodDays @returns {number} the length of such a period */
export function periodSeconds(periodDays) {
  return periodDays * SECONDS_A_DAY;
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
