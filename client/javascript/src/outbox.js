/**
 * Unsent reports, spooled one by one and then put into batches, as plain data in the client's state.
 *
 * Invariant: a batch's id is drawn when its reports leave the spool, in the same update, and stays with
 * it, so no report is ever sent under two ids. The tab or process that sends a batch leases it.
 */

import { EMPTY_BODY_SIZE, newBatchId, reportSize } from "./batch.js";
import { systemCoins } from "./coins.js";
import { uniformBelow } from "./keyed.js";

export const QUEUE_FULL = "queue full";
export const TOO_OLD = "too old";
export const MAY_HAVE_ARRIVED = "may have arrived before";

/** The collector knows a batch's id for 14 days; a batch's day is all that is kept of its time. */
const LONGEST_DAYS = 13;
const LARGEST_BATCH = 1_000_000;
const MILLIS_A_DAY = 86_400_000;

/** @typedef {import("./batch.js").WireReport} WireReport */

/**
 * @typedef {object} Lease
 * @property {string} holder
 * @property {number} since milliseconds since 1970
 * @property {number} millis for how long
 */

/** Two tabs may read the clock in another order than they get their turns. */
const CLOCK_SLACK = 60_000;

/**
 * @typedef {object} StoredBatch
 * @property {string} id
 * @property {number} day on which it was made, counted from 1970
 * @property {WireReport[]} reports
 * @property {Lease | null} lease
 */

/**
 * @typedef {object} Outbox
 * @property {{report: WireReport, lasting: boolean}[]} spool the oldest first; `lasting` if the
 *   report's cohort is the client's for life and so may not meet another such in a batch
 * @property {StoredBatch[]} batches the oldest first
 */

/** @returns {Outbox} */
export function emptyOutbox() {
  return { spool: [], batches: [] };
}

/**
 * How many reports are unsent: in no batch yet, and all.
 *
 * @typedef {{spooled: number, waiting: number}} Counts
 */

/** @param {Outbox} outbox @returns {Counts} */
export function countsOf({ spool, batches }) {
  const batched = sum(batches.map(({ reports }) => reports.length));
  return { spooled: spool.length, waiting: spool.length + batched };
}

/** @param {Outbox} outbox @returns {number} how many reports were dropped: all */
export function clear(outbox) {
  const { waiting } = countsOf(outbox);
  outbox.spool = [];
  outbox.batches = [];
  return waiting;
}

/** @param {Outbox} outbox @returns {number} how many reports that are in no batch yet were dropped */
export function dropSpool(outbox) {
  return outbox.spool.splice(0).length;
}

/**
 * Put reports in random order under a new id: the oldest in the spool, but of at most one metric with
 * a cohort for life, and no more than the collector takes.
 *
 * @param {Outbox} outbox is changed
 * @param {number} most reports
 * @param {number} now milliseconds since 1970
 */
export function batchSpooled(outbox, most, now) {
  /** @type {WireReport[]} */
  const reports = [];
  /** @type {string | null} */
  let lastingMetric = null;
  let room = LARGEST_BATCH - EMPTY_BODY_SIZE;
  outbox.spool = outbox.spool.filter(({ report, lasting }) => {
    const size = reportSize(report);
    const foreign = lasting && lastingMetric !== null && lastingMetric !== report.metric;
    if (reports.length === most || foreign || size > room) return true;
    if (lasting) lastingMetric = report.metric;
    room -= size;
    reports.push(report);
    return false;
  });
  if (!reports.length) return;
  outbox.batches.push({
    id: newBatchId(),
    day: dayOf(now),
    reports: shuffled(reports),
    lease: null,
  });
}

/**
 * Lease the oldest batch that nobody else is sending.
 *
 * @param {Outbox} outbox is changed
 * @param {Lease} lease
 * @returns {StoredBatch | null}
 */
export function leaseOldest(outbox, lease) {
  const batch = outbox.batches.find((candidate) => {
    return candidate.lease?.holder === lease.holder || !isLeased(candidate, lease.since);
  });
  if (!batch) return null;
  batch.lease = lease;
  return batch;
}

/**
 * Let a batch go: what is settled of it is forgotten, the rest waits for another attempt.
 *
 * @param {Outbox} outbox is changed
 * @param {string} id
 * @param {ReadonlySet<number>} settled indices of reports
 * @returns {boolean} whether the batch was there
 */
export function release(outbox, id, settled) {
  const batch = outbox.batches.find((candidate) => candidate.id === id);
  if (!batch) return false;
  batch.lease = null;
  batch.reports = batch.reports.filter((_, i) => !settled.has(i));
  outbox.batches = outbox.batches.filter(({ reports }) => reports.length);
  return true;
}

/**
 * Give what is left of a batch, of which nothing has ever arrived, an id of its own.
 *
 * @param {Outbox} outbox is changed
 * @param {string} id
 */
export function renew(outbox, id) {
  const batch = outbox.batches.find((candidate) => candidate.id === id);
  if (batch) batch.id = newBatchId();
}

/**
 * Drop batches that the collector might have forgotten, and the oldest reports beyond the bounds; but
 * nothing that is being sent: nobody knows whether the collector has it already.
 *
 * @param {Outbox} outbox is changed
 * @param {{reports: number, bytes: number}} most
 * @param {number} now milliseconds since 1970
 * @returns {Record<string, number>} dropped reports by reason
 */
export function trim(outbox, most, now) {
  const before = countsOf(outbox).waiting;
  outbox.batches = outbox.batches.filter((batch) => {
    return isLeased(batch, now) || dayOf(now) - batch.day < LONGEST_DAYS;
  });
  const young = countsOf(outbox).waiting;
  let reports = young;
  let bytes = sum(outbox.spool.map(({ report }) => reportSize(report)));
  bytes += sum(outbox.batches.map((batch) => bytesOf(batch)));
  const isFull = () => reports > most.reports || bytes > most.bytes;
  outbox.batches = outbox.batches.filter((batch) => {
    if (!isFull() || isLeased(batch, now)) return true;
    reports -= batch.reports.length;
    bytes -= bytesOf(batch);
    return false;
  });
  let surplus = 0;
  for (; isFull() && surplus < outbox.spool.length; surplus++) {
    reports--;
    bytes -= reportSize(outbox.spool[surplus].report);
  }
  outbox.spool.splice(0, surplus);
  return { [TOO_OLD]: before - young, [QUEUE_FULL]: young - reports };
}

/** @param {StoredBatch} batch */
function bytesOf({ reports }) {
  return sum(reports.map(reportSize));
}

/**
 * Whether a batch is being sent. A clock that was set back leases nothing.
 *
 * @param {StoredBatch} batch @param {number} now milliseconds since 1970
 */
function isLeased({ lease }, now) {
  if (!lease) return false;
  return now < lease.since + lease.millis && lease.since <= now + CLOCK_SLACK;
}

/** @param {WireReport[]} reports @returns {WireReport[]} in an order that reveals nothing */
function shuffled(reports) {
  const order = [...reports];
  for (let i = order.length - 1; i > 0; i--) {
    const other = uniformBelow(i + 1, systemCoins);
    [order[i], order[other]] = [order[other], order[i]];
  }
  return order;
}

/** @param {number} millis since 1970 */
function dayOf(millis) {
  return Math.floor(millis / MILLIS_A_DAY);
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
