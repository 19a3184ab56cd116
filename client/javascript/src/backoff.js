/**
 * How long to wait before the next attempt. Full jitter keeps clients from coming back all at once after an outage; a
 * collector's Retry-After is the shortest wait.
 */

import { randomBytes } from "./coins.js";

const LONGEST_ASKED = 24 * 3_600_000;

/**
 * Return the milliseconds to wait after so many failures.
 * @param {number} failures at least 1 @param {number} asked what the collector asked for, 0 if nothing
 * @param {{firstRetryMillis: number, longestRetryMillis: number}} delays upper ends of the first wait, and of all later
 *   ones
 * @param {() => number} [random] from 0 to 1 @returns {number}
 */
export function waitAfter(failures, asked, { firstRetryMillis, longestRetryMillis }, random = uniform) {
  return asked + random() * Math.min(longestRetryMillis, firstRetryMillis * 2 ** (failures - 1));
}

/**
 * Return the milliseconds of a Retry-After header, which has seconds or a date.
 * @param {string | null} header @param {number} now milliseconds since 1970
 * @returns {number} 0 to a day; 0 if there is no such header, or not in a known form
 */
export function retryAfter(header, now) {
  const text = header?.trim() ?? "";
  const asked = /^\d+$/.test(text) ? 1_000 * Number(text) : Date.parse(text) - now;
  return Number.isNaN(asked) ? 0 : Math.min(Math.max(asked, 0), LONGEST_ASKED);
}

/** @returns {number} from 0 to 1 */
export function uniform() {
  return new DataView(randomBytes(4).buffer).getUint32(0) / 2 ** 32;
}
