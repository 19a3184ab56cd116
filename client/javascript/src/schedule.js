/**
 * When a client's periods begin, and which metric of a group it answers.
 *
 * Both are pure functions of the client's secret, so that all tabs and processes agree and nothing is
 * stored. Invariant: neither depends on a value, so whether a client is silent says nothing about its
 * answers.
 */

import { toHex } from "./bytes.js";
import { prefixed, uniformBelow } from "./keyed.js";
import { Shake256 } from "./shake256.js";

const PHASE = "hubbub/1/phase";
const CHOICE = "hubbub/1/choice";
const WEIGHT_BYTES = 16;
const SECONDS_A_DAY = 86_400;
const encoder = new TextEncoder();

/**
 * Return the days by which a client's periods begin before those of the calendar.
 *
 * Uniform over secrets, so that each day is the first of a period for an equal share of clients. The same
 * for all metrics of a group, and for all versions. Only mode "once" has a phase: the periods of a
 * permanent response are those of the calendar.
 *
 * @param {Readonly<import("./registry.js").Metric>} metric
 * @param {Uint8Array} secret
 * @returns {number} from 0 to periodDays - 1
 */
export function phaseOf({ mode, group, name, application, periodDays }, secret) {
  if (mode !== "once") return 0;
  const named = group ? `group:${group.name}` : `metric:${name}`;
  return uniformBelow(periodDays, keyed(PHASE, secret, [application, named]));
}

/**
 * Return the metric of a group that a client answers, uniform over secrets.
 *
 * Each metric has a keyed random weight, and the greatest wins (rendezvous hashing): a metric that joins
 * the group takes an equal share of clients from every other, and no client changes between two that stay.
 *
 * @param {Readonly<import("./registry.js").Group>} group
 * @param {string} application
 * @param {Uint8Array} secret
 * @param {number} period number of the period, for a group whose choice is "period"
 * @returns {string}
 */
export function chosen(group, application, secret, period) {
  const details = group.choice === "period" ? [wideInteger(period)] : [];
  const weights = group.metrics.map((metric) => {
    const stream = keyed(CHOICE, secret, [application, group.name, metric], ...details);
    return { metric, weight: toHex(stream.fill(new Uint8Array(WEIGHT_BYTES))) };
  });
  return weights.reduce((best, each) => (each.weight > best.weight ? each : best)).metric;
}

/**
 * Return the number of the period in which a moment falls.
 *
 * @param {number} periodDays
 * @param {number} seconds since 1970
 * @param {number} [phase] days by which periods begin before those of the calendar
 * @returns {number}
 */
export function periodOf(periodDays, seconds, phase = 0) {
  return Math.floor((Math.floor(seconds / SECONDS_A_DAY) + phase) / periodDays);
}

/** @param {number} periodDays @returns {number} the length of such a period */
export function periodSeconds(periodDays) {
  return periodDays * SECONDS_A_DAY;
}

/** @param {number} periodDays @param {number} seconds @param {number} phase */
export function isFirstDay(periodDays, seconds, phase) {
  const yesterday = periodOf(periodDays, seconds - SECONDS_A_DAY, phase);
  return yesterday < periodOf(periodDays, seconds, phase);
}

/**
 * @param {string} tag @param {Uint8Array} secret @param {string[]} names
 * @param {...Uint8Array} details
 */
function keyed(tag, secret, names, ...details) {
  const parts = names.map((name) => encoder.encode(name));
  return new Shake256(prefixed(encoder.encode(tag), secret, ...parts, ...details));
}

/** @param {number} value @returns {Uint8Array} of 8 bytes, little-endian */
function wideInteger(value) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value), true);
  return bytes;
}
