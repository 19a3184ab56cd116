/**
 * k, h, m, f, p and q: what is allowed, and what they promise of a single bit.
 *
 * Parameters with which some report would reveal a true bit for certain are refused here, so no later
 * step has to consider them.
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
 * @property {number} f noise of the permanent response
 * @property {number} p chance of a reported 1 where the permanent bit is 0
 * @property {number} q chance of a reported 1 where the permanent bit is 1
 */

/**
 * Check the parameters.
 *
 * @param {Record<string, unknown>} given k, h, m, f, p, q
 * @param {string} path what to call them in an error
 * @returns {Readonly<RapporParams>}
 */
export function makeParams(given, path) {
  const k = integer(given.k, `${path}.k`, 8, MOST_BITS, 8);
  const h = integer(given.h, `${path}.h`, 1, 8);
  const m = integer(given.m, `${path}.m`, 1, MOST_COHORTS);
  const f = probability(given.f, `${path}.f`);
  const p = probability(given.p, `${path}.p`);
  const q = probability(given.q, `${path}.q`);
  if (f === 1) throw new MetricError(`${path}.f = 1: must be at least 0 and less than 1`);
  if (f > 0 && f / 2 === 0) {
    throw new MetricError(`${path}.f = ${f}: must be 0, or large enough for f/2 to be above 0`);
  }
  if (p === q)
    throw new MetricError(`${path}.q = ${q}: must differ from p, or reports say nothing`);
  // p* and q* lie strictly between p and q unless there is no permanent noise at all.
  if (f === 0 && [p, q].some((chance) => chance === 0 || chance === 1)) {
    throw new MetricError(
      `${path}: f = ${f}, p = ${p}, q = ${q}: some report would reveal a true bit for certain; ` +
        "f must be above 0, or p and q strictly between 0 and 1",
    );
  }
  return Object.freeze({ k, h, m, f, p, q });
}

/**
 * Return the logarithm of the odds that the permanent response keeps a bit.
 *
 * @param {{f: number}} params
 */
export function permanentLogOdds({ f }) {
  const flip = f / 2;
  return Math.log((1 - flip) / flip);
}

/**
 * Return by how much a true 1 makes a reported 1 likelier, and a true 0 a reported 0: logarithms of
 * the ratios of their chances.
 *
 * @param {{f: number, p: number, q: number}} params
 */
export function reportLogRatios({ f, p, q }) {
  const flip = f / 2;
  // All terms are positive, so even chances near 0 keep their precision.
  const chances = (/** @type {number} */ same, /** @type {number} */ other) => ({
    one: (1 - flip) * same + flip * other,
    zero: (1 - flip) * (1 - same) + flip * (1 - other),
  });
  const [unset, set] = [chances(p, q), chances(q, p)];
  return {
    ones: Math.log(set.one) - Math.log(unset.one),
    zeros: Math.log(unset.zero) - Math.log(set.zero),
  };
}
