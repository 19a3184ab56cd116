/**
 * What an application asks, as plain objects with the keys of metrics.toml, into checked metrics.
 *
 * Client, collector and decoder work from the same registry; an entry that one of them would read differently must be
 * refused by all, so everything is checked and nothing is converted.
 */

import { checkName, day, integer, list, oneOf, positive, probability } from "./checks.js";
import { refuseForeign, refuseUnknown, sentence, table } from "./checks.js";
import { checkCombinations, inWords, isTold, makeDimensions, OTHER, sliceOf } from "./dimensions.js";
import { MetricError, shown } from "./errors.js";
import { METRIC_TYPES } from "./metric-types.js";
import { makeParams, noiseOf, shownNoise } from "./params.js";
import { subsetOf, UNARY } from "./responses.js";

const LARGEST_VERSION = 2 ** 31 - 1;
const LONGEST_PERIOD = 3650;
const USUAL_CAP = 100;
/** Enough for 2^6 combinations, of which one is left for others. */
const MOST_DIMENSIONS = 5;
const USUAL_MIN_REPORTS = 100;
/** Smaller slices hide no client. */
const LEAST_MIN_REPORTS = 10;
const COMMON = [
  ...["version", "type", "description", "owner", "expires", "mode", "memory", "response"],
  ...["dimensions", "min_reports", "f", "f0", "f1", "p", "q"],
];
const MODES = /** @type {const} */ (["longitudinal", "one-time", "once"]);
const RESPONSES = /** @type {const} */ (["unary", "subset"]);
const CHOICES = /** @type {const} */ (["life", "period"]);
const MEMORIES = /** @type {const} */ (["value", "period"]);
/** Keys of an entry that only some responses, modes and memories have. */
const OF_RESPONSE = { unary: [], subset: ["size"] };
const OF_MODE = { longitudinal: ["reports_per_day"], "one-time": [], once: [] };
const OF_MEMORY = { value: ["max_values"], period: ["period_days", "max_periods"] };

/**
 * @typedef {object} Metric
 * @property {string} application
 * @property {string} name
 * @property {number} version
 * @property {Readonly<import("./metric-types.js").MetricType>} type
 * @property {"longitudinal" | "one-time" | "once"} mode how often a client reports an answer: again and again, with a
 *   permanent response; once for each version; or once per period
 * @property {"value" | "period"} memory what has a permanent response: each distinct value, for life, or each period
 * @property {number} periodDays length of a period; 0 with memory "value"
 * @property {number} maxAnswers how many answers a client gives: distinct values, periods, or one report
 * @property {number} reportsPerDay 1: no second report is sent on a day (UTC); 0: no limit
 * @property {string} description
 * @property {string} owner
 * @property {string} expires the last day on which it is reported, YYYY-MM-DD (UTC)
 * @property {Readonly<import("./params.js").RapporParams>} params
 * @property {import("./responses.js").Response} response
 * @property {Readonly<Group> | null} group of metrics of which a client answers one
 * @property {readonly Readonly<import("./dimensions.js").Dimension>[]} dimensions what its reports state about the app,
 *   in the clear
 * @property {number} minReports combinations of dimensions with fewer reports on a day are counted as others
 * @property {string} slice what its reports state about this app
 * @property {number} epsilonPermanent what all reports of one value reveal
 * @property {number} epsilonReport what one report reveals
 * @property {number} price what an admitted answer costs, however often it is reported
 */

/**
 * Metrics of which each client answers one, so that a client spends what that one costs.
 *
 * @typedef {object} Group
 * @property {string} name
 * @property {readonly string[]} metrics at least two
 * @property {"life" | "period"} choice whether a client's metric stays the same, or is chosen for each period
 */

/**
 * @typedef {object} Registry
 * @property {string} application
 * @property {ReadonlyMap<string, Readonly<Metric>>} metrics
 * @property {ReadonlyMap<string, Readonly<import("./dimensions.js").Dimension>>} dimensions what an app may state of
 *   itself; those of its metrics, and others
 * @property {number | null} lifetimeEpsilon bound on the prices of all answers ever, if there is one
 */

/**
 * Check a registry.
 * @param {unknown} given what parsing a metrics.toml gives: {application, metrics: {name: {...}}}
 * @returns {Readonly<Registry>} throws MetricError
 */
export function makeRegistry(given) {
  const document = table(given, "registry");
  const { application, metrics, lifetime_epsilon: budget, groups, dimensions, ...others } = document;
  refuseUnknown(others, [], "");
  const name = sentence(application, "application");
  const entries = Object.entries(table(metrics, "metrics"));
  if (!entries.length) throw new MetricError("metrics: must have at least one metric");
  const declared = makeDimensions(dimensions ?? {});
  const made = entries.map(([key, entry]) => /** @type {const} */ ([key, makeMetric(name, key, entry, declared)]));
  return Object.freeze({
    application: name,
    metrics: inGroups(new Map(made), groups ?? {}),
    dimensions: declared,
    lifetimeEpsilon: budget === undefined ? null : positive(budget, "lifetime_epsilon"),
  });
}

/**
 * Return the registry of an app whose reports state this about it.
 * @param {Readonly<Registry>} registry
 * @param {unknown} given texts by dimension; one that is left out, or a value that isn't listed, is "other"
 * @param {boolean} strict refuse a value that isn't listed: an app's author may have mistyped it
 * @returns {Readonly<Registry>} throws MetricError
 */
export function telling(registry, given, strict) {
  const values = new Map();
  for (const [name, value] of Object.entries(table(given, "dimensions"))) {
    const dimension = registry.dimensions.get(name);
    if (!dimension) {
      const named = [...registry.dimensions.keys()].join(", ") || "left out, as the registry has none";
      throw new MetricError(`dimensions = ${shown(name)}: must be one of: ${named}`);
    }
    if (typeof value !== "string" || (strict && value !== OTHER && !isTold(dimension, value))) {
      throw new MetricError(`dimensions.${name} = ${shown(value)}: must be ${inWords(dimension)}`);
    }
    values.set(name, value);
  }
  const metrics = [...registry.metrics].map(([name, metric]) => {
    const slice = sliceOf(metric.dimensions, values);
    return /** @type {const} */ ([name, Object.freeze({ ...metric, slice })]);
  });
  return Object.freeze({ ...registry, metrics: new Map(metrics) });
}

/**
 * Check one metric's entry.
 * @param {string} application @param {string} name @param {unknown} given
 * @param {Registry["dimensions"]} [dimensions] of the registry @returns {Readonly<Metric>} throws MetricError
 */
export function makeMetric(application, name, given, dimensions = new Map()) {
  const path = `metrics.${name}`;
  checkName(name, path);
  const entry = table(given, path);
  const typeName = oneOf(entry.type, `${path}.type`, Object.keys(METRIC_TYPES));
  const mode = oneOf(entry.mode ?? "longitudinal", `${path}.mode`, MODES);
  const memory = memoryOf(entry, mode, path);
  const named = oneOf(entry.response ?? "unary", `${path}.response`, RESPONSES);
  const ofType = Object.fromEntries(Object.entries(METRIC_TYPES).map(([key, { keys }]) => [key, keys]));
  refuseForeign(entry, ofType, typeName, `a metric of type ${typeName}`, path);
  refuseForeign(entry, OF_MEMORY, memory, `a metric with memory "${memory}"`, path);
  refuseForeign(entry, OF_MODE, mode, `a metric with mode "${mode}"`, path);
  refuseForeign(entry, OF_RESPONSE, named, `a metric with response "${named}"`, path);
  const own = [...OF_MODE[mode], ...OF_MEMORY[memory], ...OF_RESPONSE[named]];
  refuseUnknown(entry, [...COMMON, ...ofType[typeName], ...own], `${path}.`);
  const type = METRIC_TYPES[typeName].make(entry, path);
  const { response, noise } = checkResponse(entry, type, mode, path);
  const params = makeParams({ ...noise, ...type.size }, path);
  if (response === UNARY) checkMode(mode, params, path);
  const epsilonPermanent = response.epsilonPermanent(type, params);
  const epsilonReport = response.epsilonReport(type, params);
  const count = (/** @type {string} */ key, /** @type {number} */ usual, least = 1, most = LARGEST_VERSION) =>
    integer(entry[key] ?? usual, `${path}.${key}`, least, most);
  const hasPeriods = memory === "period";
  const maxAnswers = count(hasPeriods ? "max_periods" : "max_values", USUAL_CAP);
  return Object.freeze({
    application,
    name,
    version: integer(entry.version, `${path}.version`, 1, LARGEST_VERSION),
    type,
    mode,
    memory,
    periodDays: hasPeriods ? integer(entry.period_days, `${path}.period_days`, 1, LONGEST_PERIOD) : 0,
    maxAnswers: mode === "one-time" ? 1 : maxAnswers,
    reportsPerDay: entry.reports_per_day === undefined ? 0 : count("reports_per_day", 0, 1, 1),
    description: sentence(entry.description, `${path}.description`),
    owner: sentence(entry.owner, `${path}.owner`),
    expires: day(entry.expires, `${path}.expires`),
    params,
    response,
    group: null,
    dimensions: dimensionsOf(entry, dimensions, path),
    minReports: count("min_reports", USUAL_MIN_REPORTS, LEAST_MIN_REPORTS),
    slice: "",
    epsilonPermanent,
    epsilonReport,
    price: mode === "longitudinal" ? epsilonPermanent : epsilonReport,
  });
}

/** @param {Record<string, unknown>} entry @param {Registry["dimensions"]} known @param {string} metricPath */
function dimensionsOf(entry, known, metricPath) {
  const path = `${metricPath}.dimensions`;
  if (entry.dimensions === undefined) return Object.freeze([]);
  const names = list(entry.dimensions, path, 1, MOST_DIMENSIONS, "texts");
  const named = names.map((name, i) => {
    const dimension = known.get(/** @type {string} */ (name));
    if (!dimension) {
      const named = [...known.keys()].join(", ") || "those of the table dimensions, which is missing";
      throw new MetricError(`${path} = ${shown(name)}: must be dimensions of the file: ${named}`);
    }
    if (names.indexOf(name) < i) throw new MetricError(`${path} = ${shown(names)}: must be different texts`);
    return dimension;
  });
  checkCombinations(named, path);
  return Object.freeze(named);
}

/** @param {Record<string, unknown>} entry @param {Metric["mode"]} mode @param {string} path */
function memoryOf(entry, mode, path) {
  const usual = mode === "once" ? "period" : "value";
  const memory = oneOf(entry.memory ?? usual, `${path}.memory`, MEMORIES);
  if (memory === "period" && mode === "one-time") {
    throw new MetricError(`${path}.memory = "period": must be left out, or mode "longitudinal" or "once"`);
  }
  if (memory === "value" && mode === "once") {
    throw new MetricError(`${path}.memory = "value": must be "period", or left out, with mode "once"`);
  }
  return memory;
}

/**
 * Return how a value's bits are blurred, and with which noise.
 * @param {Record<string, unknown>} entry @param {import("./metric-types.js").MetricType} type
 * @param {Metric["mode"]} mode @param {string} path
 * @returns {{response: import("./responses.js").Response, noise: Record<string, unknown>}}
 */
function checkResponse(entry, type, mode, path) {
  if (entry.response !== "subset" && !type.ownResponse) {
    return { response: UNARY, noise: unaryNoise(entry, mode, path) };
  }
  const choice = type.ownResponse ? `type = "${type.name}"` : 'response = "subset"';
  if (mode === "longitudinal") {
    throw new MetricError(
      `${path}.${choice}: needs mode = "once" or "one-time": each report of an answer would be drawn from the ` +
        "answer itself",
    );
  }
  const extra = ["f", "f0", "f1", "p"].find((key) => entry[key] !== undefined);
  if (extra) throw new MetricError(`${path}.${extra}: must be left out with ${choice}, whose noise is q`);
  if (type.ownResponse && entry.response !== undefined) {
    throw new MetricError(`${path}.response: must be left out with ${choice}`);
  }
  const chance = probability(entry.q, `${path}.q`);
  if (!type.ownResponse && type.values === null) {
    throw new MetricError(
      `${path}.response = "subset": needs a type with one bit per category: enum, boolean, ordinal, or joint ` +
        "without hashing",
    );
  }
  const most = (type.values ?? 0) - 1;
  const response =
    type.ownResponse?.(chance) ?? subsetOf(most + 1, integer(entry.size, `${path}.size`, 1, most), chance);
  const { cells, width } = response;
  if (chance * cells <= width || chance === 1) {
    throw new MetricError(
      `${path}.q = ${chance}: must be above ${width}/${cells}, or reports say nothing, and below 1`,
    );
  }
  // A set of one of two values is a boolean's one bit, turned over.
  if (cells === 2 && type.isOneBit) return { response: UNARY, noise: { f: 0, p: 1 - chance, q: chance } };
  return { response, noise: { f: 0, ...response.noise } };
}

/**
 * Return f (or f0 and f1), p and q, of which modes with one response may leave out some.
 * @param {Record<string, unknown>} entry @param {Metric["mode"]} mode @param {string} path
 */
function unaryNoise({ f, f0, f1, p, q }, mode, path) {
  const isAsymmetric = f0 !== undefined || f1 !== undefined;
  if (isAsymmetric && f !== undefined) {
    throw new MetricError(`${path}.f = ${shown(f)}: must be left out with f0 and f1`);
  }
  const hasPermanent = isAsymmetric || (f !== undefined && f !== 0);
  const isLongitudinal = mode === "longitudinal";
  const permanent = isAsymmetric ? { f0, f1 } : { f: isLongitudinal ? f : (f ?? 0) };
  const isComplete = isLongitudinal || !hasPermanent;
  return isComplete ? { ...permanent, p, q } : { ...permanent, p: p ?? 0, q: q ?? 1 };
}

/**
 * Return the metrics with the groups that they are in.
 * @param {Map<string, Readonly<Metric>>} metrics @param {unknown} given
 * @returns {Map<string, Readonly<Metric>>} throws MetricError
 */
function inGroups(metrics, given) {
  for (const [name, entry] of Object.entries(table(given, "groups"))) {
    const group = makeGroup(name, entry, metrics);
    for (const each of group.metrics) {
      const metric = /** @type {Readonly<Metric>} */ (metrics.get(each));
      if (metric.group) {
        throw new MetricError(
          `groups.${name}.metrics: must not hold "${each}", which is in groups.${metric.group.name}`,
        );
      }
      metrics.set(each, Object.freeze({ ...metric, group }));
    }
  }
  return metrics;
}

/**
 * @param {string} name @param {unknown} given @param {ReadonlyMap<string, Readonly<Metric>>} metrics
 * @returns {Readonly<Group>}
 */
function makeGroup(name, given, metrics) {
  const path = `groups.${name}`;
  checkName(name, path);
  const entry = table(given, path);
  refuseUnknown(entry, ["metrics", "choice"], `${path}.`);
  const names = list(entry.metrics, `${path}.metrics`, 2, metrics.size, "different metrics");
  const members = names.map((each, i) => {
    const at = `${path}.metrics[${i}] = ${shown(each)}`;
    const metric = metrics.get(/** @type {string} */ (each));
    if (!metric) {
      throw new MetricError(`${at}: must be a registered metric: ${[...metrics.keys()].join(", ")}`);
    }
    if (names.indexOf(each) < i) throw new MetricError(`${at}: must not occur twice`);
    return metric;
  });
  const choice = oneOf(entry.choice ?? "life", `${path}.choice`, CHOICES);
  const [{ periodDays, maxAnswers }] = members;
  const fits = members.every((each) => {
    return each.mode === "once" && each.periodDays === periodDays && each.maxAnswers === maxAnswers;
  });
  if (choice === "period" && !fits) {
    throw new MetricError(
      `${path}.choice = "period": needs metrics with mode = "once" and the same period_days and ` +
        "max_periods, which they share",
    );
  }
  return Object.freeze({ name, metrics: Object.freeze(members.map((each) => each.name)), choice });
}

/**
 * Return all that reports depend on; it is fixed for a version.
 * @param {Readonly<Metric>} metric
 * @returns {Record<string, unknown>} as JSON can hold it, its keys always in the same order
 */
export function definitionOf({ type, params, mode, memory, periodDays, response }) {
  const { k, h, m } = params;
  return {
    type: type.name,
    ...type.definition,
    ...{ k, h, m },
    ...noiseOf(params),
    ...(memory === "period" && { memory, period_days: periodDays }),
    ...(mode === "once" && { mode }),
    ...response.definition,
  };
}

/** @param {Readonly<Metric>} metric @returns {number} what it costs at most if only times decide */
export function reserveOf({ price, memory, maxAnswers }) {
  return price * (memory === "period" ? maxAnswers : 1);
}

/**
 * Return what metrics cost at most if only times decide: a group costs as its dearest metric.
 * @param {readonly Readonly<Metric>[]} metrics @returns {number}
 */
export function reserveOfAll(metrics) {
  /** @type {Map<unknown, number>} */
  const reserves = new Map();
  for (const metric of metrics) {
    const together = metric.group?.name ?? metric;
    reserves.set(together, Math.max(reserveOf(metric), reserves.get(together) ?? 0));
  }
  return [...reserves.values()].reduce((total, reserve) => total + reserve, 0);
}

/**
 * Refuse a mode that has a response too many or too few.
 * @param {Metric["mode"]} mode @param {import("./params.js").RapporParams} params @param {string} path
 */
function checkMode(mode, params, path) {
  const { f, f0, f1, p, q } = params;
  const values = shownNoise(params);
  const noPermanent = f === 0;
  if (mode !== "longitudinal" && !noPermanent && !(p === 0 && q === 1)) {
    throw new MetricError(
      `${path}: ${values}: a metric with mode "${mode}" leaves out one response: f = 0, or p = 0 and q = 1`,
    );
  }
  if (mode !== "longitudinal") return;
  const noInstantaneous = (p === 0 && q === 1) || (p === 1 && q === 0);
  if (noPermanent || noInstantaneous) {
    throw new MetricError(
      `${path}: ${values}: needs both responses: f above 0, and p or q strictly between 0 and 1; ` +
        'or mode = "once" or "one-time"',
    );
  }
  if (f0 === 0 || f1 === 0) {
    throw new MetricError(`${path}: ${values}: f0 and f1 must both be above 0, or all reports reveal an answer`);
  }
}
