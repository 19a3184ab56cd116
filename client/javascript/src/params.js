/**
 * k, h, m, f, p and q into the probabilities of reported bits and the two epsilons.
 *
 * Parameters under which some report would reveal a true bit for certain are refused here, so no
 * later step has to think of them.
 */

import { MetricError, shown } from "./errors.js";

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
  const k = integer(given.k, `${path}.k`, 8, 1024, 8);
  const h = integer(given.h, `${path}.h`, 1, 8);
  const m = integer(given.m, `${path}.m`, 1, 1024);
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
 * Return the chances of a reported 1 and of a reported 0, given the true bit.
 *
 * All terms are positive, so that even chances near 0 keep their precision.
 *
 * @param {{f: number, p: number, q: number}} params
 * @param {0 | 1} bit
 */
export function reported({ f, p, q }, bit) {
  const flip = f / 2;
  const [same, other] = bit ? [q, p] : [p, q];
  return {
    one: (1 - flip) * same + flip * other,
    zero: (1 - flip) * (1 - same) + flip * (1 - other),
  };
}

/**
 * Return what one report reveals and what all reports of one value reveal.
 *
 * @param {RapporParams} params
 * @param {string} type the metric's
 * @returns {{permanent: number, report: number}}
 */
export function epsilons(params, type) {
  const flip = params.f / 2;
  const permanent = Math.log((1 - flip) / flip);
  const [unset, set] = [reported(params, 0), reported(params, 1)];
  const ones = Math.log(set.one) - Math.log(unset.one);
  const zeros = Math.log(unset.zero) - Math.log(set.zero);
  if (type === "boolean") return { permanent, report: Math.max(Math.abs(ones), Math.abs(zeros)) };
  return { permanent: 2 * params.h * permanent, report: params.h * Math.abs(ones + zeros) };
}

/**
 * Return the value if it is an integer in range.
 *
 * @param {unknown} value
 * @param {string} path
 * @param {number} least
 * @param {number} most
 * @param {number} [step]
 * @returns {number}
 */
export function integer(value, path, least, most, step = 1) {
  const number = typeof value === "number" ? value : NaN;
  if (Number.isInteger(number) && number >= least && number <= most && number % step === 0)
    return number;
  const what = step === 1 ? "an integer" : `a multiple of ${step}`;
  throw new MetricError(`${path} = ${shown(value)}: must be ${what} between ${least} and ${most}`);
}

/** @param {unknown} value @param {string} path @returns {number} */
function probability(value, path) {
  if (typeof value === "number" && value >= 0 && value <= 1) return value;
  throw new MetricError(`${path} = ${shown(value)}: must be a number between 0 and 1`);
}
