/**
 * When a client's periods begin, and which metric of a group it answers.
 *
 * Both are pure functions of the client's secret, so that all tabs and processes agree and nothing is stored.
 * Invariant: neither depends on a value, so a client's silence reveals nothing about its answers; and periods begin on
 * days that are independent of each other, so that days link no two reports.
 */

import { toHex } from "./bytes.js";
import { prefixed, uniformBelow } from "./keyed.js";
import { Shake256 } from "./shake256.js";

const DAY = "hubbub/1/first-day";
const CHOICE = "hubbub/1/choice";
const SAMPLE = "hubbub/1/sample";
const WEIGHT_BYTES = 16;
const SECONDS_A_DAY = 86_400;
const encoder = new TextEncoder();

/** @typedef {Readonly<import("./registry.js").Metric>} Metric */

/**
 * A client's period: its number, its first day, and the day after its last, counted from 1970 on.
 * @typedef {{number: number, firstDay: number, endDay: number}} Period
 */

/**
 * Return the day, counted from 1970 on, on which a client's period begins.
 *
 * With mode "once" it is uniform over secrets among the days of the calendar's period, and independent of every other
 * period's: so each day is the first for an equal share of clients, and reports of two periods can't be linked by their
 * days. It is the same for all metrics of a group, and for all versions. A permanent response has the calendar's
 * periods.
 * @param {Metric} metric @param {Uint8Array} secret @param {number} period @returns {number}
 */
export function firstDay({ mode, group, name, application, periodDays }, secret, period) {
  if (mode !== "once") return period * periodDays;
  const names = [application, group ? `group:${group.name}` : `metric:${name}`];
  const stream = keyed(DAY, secret, names, eightBytes(period));
  return period * periodDays + uniformBelow(periodDays, stream);
}

/**
 * Return a client's period at a moment. It lasts until the next one begins: 1 to 2 periodDays - 1 days.
 * @param {Metric} metric @param {Uint8Array} secret @param {number} seconds since 1970 @returns {Period}
 */
export function periodAt(metric, secret, seconds) {
  const day = dayAt(seconds);
  const number = Math.floor(day / metric.periodDays);
  const begin = firstDay(metric, secret, number);
  if (day >= begin) {
    return { number, firstDay: begin, endDay: firstDay(metric, secret, number + 1) };
  }
  return { number: number - 1, firstDay: firstDay(metric, secret, number - 1), endDay: begin };
}

/** @param {number} periodDays @param {number} seconds since 1970 @returns {Period} the calendar's */
export function calendarPeriod(periodDays, seconds) {
  const number = Math.floor(dayAt(seconds) / periodDays);
  return { number, firstDay: number * periodDays, endDay: (number + 1) * periodDays };
}

/** @param {number} seconds since 1970 @returns {number} the day, counted from 1970 on */
export function dayAt(seconds) {
  return Math.floor(seconds / SECONDS_A_DAY);
}

/** @param {number} days @returns {number} */
export function inSeconds(days) {
  return days * SECONDS_A_DAY;
}

/**
 * Return the metric of a group that a client answers, uniform over secrets.
 *
 * Each metric has a keyed random weight, and the greatest wins (rendezvous hashing): a metric that joins the group
 * takes an equal share of clients from every other, and no client changes between two that stay.
 * @param {Readonly<import("./registry.js").Group>} group @param {string} application @param {Uint8Array} secret
 * @param {number} period number of the period, for a group whose choice is "period" @returns {string}
 */
export function chosen(group, application, secret, period) {
  const details = group.choice === "period" ? [eightBytes(period)] : [];
  const weights = group.metrics.map((metric) => {
    const stream = keyed(CHOICE, secret, [application, group.name, metric], ...details);
    return { metric, weight: toHex(stream.fill(new Uint8Array(WEIGHT_BYTES))) };
  });
  return weights.reduce((best, each) => (each.weight > best.weight ? each : best)).metric;
}

/**
 * Return a client's number for a metric, uniform in [0, 1) over secrets: it is in a sample of a rate if its number is
 * below that. So samples of lower rates are parts of those of higher ones. Each period has a number of its own: one for
 * life would link the reports of two periods more closely, as fewer clients made them.
 * @param {string} metric @param {string} application @param {Uint8Array} secret
 * @param {number} [period] its number; a metric without periods has a number for life @returns {number}
 */
export function sampleNumber(metric, application, secret, period) {
  const moment = period === undefined ? [] : [eightBytes(period)];
  const stream = keyed(SAMPLE, secret, [application, metric], ...moment);
  const bytes = stream.fill(new Uint8Array(8)).subarray(0, 7);
  const number = bytes.reduceRight((rest, byte) => (rest << 8n) | BigInt(byte), 0n);
  return Number(number >> 3n) / 2 ** 53;
}

/** @param {string} tag @param {Uint8Array} secret @param {string[]} names @param {...Uint8Array} details */
function keyed(tag, secret, names, ...details) {
  const parts = names.map((name) => encoder.encode(name));
  return new Shake256(prefixed(encoder.encode(tag), secret, ...parts, ...details));
}

/** @param {number} period its number; a clock may be before 1970 @returns {Uint8Array} little-endian */
function eightBytes(period) {
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigInt64(0, BigInt(period), true);
  return bytes;
}
