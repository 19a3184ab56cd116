/**
 * k, h, m and the chances of both responses: what is allowed, and what they promise of a single bit.
 *
 * Parameters with which some report would reveal a true bit for certain are refused here, so no later step has to
 * consider them.
 */

import { integer, probability } from "./checks.js";
import { MetricError } from "./errors.js";

/** The largest k: a report is at most 512 bytes. */
export const MOST_BITS = 4096;
/** What two bytes can number; types may allow fewer. */
export const MOST_COHORTS = 65_535;

/**
 * @typedef {object} RapporParams
 * @property {number} k bits of the filter
 * @property {number} h hash functions
 * @property {number} m cohorts
 * @property {number} f noise of the permanent response: f0 + f1
 * @property {number} f0 chance that it makes a true 0 a 1; f means f0 = f1 = f/2
 * @property {number} f1 chance that it makes a true 1 a 0
 * @property {number} p chance of a reported 1 where the permanent bit is 0
 * @property {number} q chance of a reported 1 where the permanent bit is 1
 */

/**
 * Check the parameters.
 * @param {Record<string, unknown>} given k, h, m, f or f0 and f1, p, q
 * @param {string} path what to call them in an error @returns {Readonly<RapporParams>}
 */
export function makeParams(given, path) {
  const k = integer(given.k, `${path}.k`, 8, MOST_BITS, 8);
  const h = integer(given.h, `${path}.h`, 1, 8);
  const m = integer(given.m, `${path}.m`, 1, MOST_COHORTS);
  const { f, f0, f1 } = permanentNoise(given, path);
  const p = probability(given.p, `${path}.p`);
  const q = probability(given.q, `${path}.q`);
  if (p === q) throw new MetricError(`${path}.q = ${q}: must differ from p, or reports say nothing`);
  const params = Object.freeze({ k, h, m, f, f0, f1, p, q });
  // p* and q* lie strictly between p and q unless the permanent response leaves such a bit as it is.
  const isCertain = (/** @type {number} */ chance) => chance === 0 || chance === 1;
  if ((f0 === 0 && isCertain(p)) || (f1 === 0 && isCertain(q))) {
    throw new MetricError(
      `${path}: ${shownNoise(params)}: some report would reveal a true bit for certain; ` +
        "f must be above 0, or p and q strictly between 0 and 1",
    );
  }
  return params;
}

/** @param {Record<string, unknown>} given @param {string} path */
function permanentNoise(given, path) {
  if (given.f0 === undefined && given.f1 === undefined) {
    const f = probability(given.f, `${path}.f`);
    if (f === 1) throw new MetricError(`${path}.f = 1: must be at least 0 and less than 1`);
    if (f > 0 && f / 2 === 0) {
      throw new MetricError(`${path}.f = ${f}: must be 0, or large enough for f/2 to be above 0`);
    }
    return { f, f0: f / 2, f1: f / 2 };
  }
  const f0 = probability(given.f0, `${path}.f0`);
  const f1 = probability(given.f1, `${path}.f1`);
  if (f0 + f1 >= 1) {
    throw new MetricError(`${path}: f0 = ${f0}, f1 = ${f1}: must add up to less than 1, or reports say nothing`);
  }
  return { f: f0 + f1, f0, f1 };
}

/**
 * Return the chances by name: f, p and q, or f0, f1, p and q.
 * @param {Readonly<RapporParams>} params @returns {Record<string, number>}
 */
export function noiseOf({ f, f0, f1, p, q }) {
  return f0 === f1 ? { f, p, q } : { f0, f1, p, q };
}

/** @param {Readonly<RapporParams>} params @returns {string} for messages */
export function shownNoise(params) {
  const shown = Object.entries(noiseOf(params)).map(([name, chance]) => `${name} = ${chance}`);
  return shown.join(", ");
}

/**
 * Return by how much a true 1 makes a permanent 1 likelier, and a true 0 a permanent 0: logarithms of the ratios of
 * their chances.
 * @param {{f0: number, f1: number}} params
 */
export function permanentLogRatios({ f0, f1 }) {
  return { ones: Math.log((1 - f1) / f0), zeros: Math.log((1 - f0) / f1) };
}

/**
 * Return the same of so many reports of one permanent response: of reports that are all 1, and all 0, which are the
 * extremes. All terms are positive, so even chances near 0 keep their precision.
 * @param {{f0: number, f1: number, p: number, q: number}} params @param {number} reports
 */
export function reportLogRatios({ f0, f1, p, q }, reports) {
  const logRatio = (/** @type {number} */ ifOne, /** @type {number} */ ifZero) => {
    // Both likelihoods divided by the greater, so that none overflows.
    const greater = Math.max(ifOne, ifZero);
    const [one, zero] = [(ifOne / greater) ** reports, (ifZero / greater) ** reports];
    return Math.log(((1 - f1) * one + f1 * zero) / (f0 * one + (1 - f0) * zero));
  };
  return { ones: logRatio(q, p), zeros: -logRatio(1 - q, 1 - p) };
}
