/**
 * Unsent reports, spooled one by one and then put into batches, as plain data in the client's state.
 *
 * Invariants: a batch keeps its id for as long as the collector may have stored it, so no report is ever counted under
 * two ids; reports are sent only to the origin for which they were recorded; and of a metric with reports_per_day = 1
 * at most one can be stored on a day, as far as the client's clock is right. The tab or process that sends a batch
 * leases it.
 */

import { uniform } from "./backoff.js";
import { EMPTY_BODY_SIZE, newBatchId, reportSize } from "./batch.js";
import { inAscendingOrder } from "./compact.js";

export const QUEUE_FULL = "queue full";
export const TOO_OLD = "too old";

/** The collector knows a batch's id for 14 days; a report's day is all that is kept of its time. */
const LONGEST_DAYS = 13;
const LARGEST_BATCH = 1_000_000;
const MILLIS_A_DAY = 86_400_000;
const FIRST_REST = 1_000;
const LONGEST_REST = 3_600_000;
/** Two tabs may read the clock in another order than they get their turns. */
const CLOCK_SLACK = 60_000;

/** @typedef {import("./batch.js").StoredReport} StoredReport */

/**
 * @typedef {object} Lease
 * @property {string} holder
 * @property {number} since milliseconds since 1970
 * @property {number} millis for how long
 */

/**
 * @typedef {object} SpooledReport
 * @property {StoredReport} report
 * @property {string} origin of the collector that it was recorded for
 * @property {number} day on which it was made, counted from 1970
 * @property {boolean} lasting whether its cohort is the client's for life, and so may not meet another such in a batch
 */

/**
 * @typedef {object} StoredBatch
 * @property {string | null} id null while no collector can have stored it
 * @property {string} origin
 * @property {number} day of its oldest report
 * @property {StoredReport[]} reports in ascending order, which reveals nothing
 * @property {Lease | null} lease
 * @property {{times: number, until: number}} [rest] until when, in milliseconds since 1970, it isn't sent, for the
 *   collector didn't know what it holds, and how often that was so
 */

/**
 * @typedef {object} Outbox
 * @property {SpooledReport[]} spool the oldest first
 * @property {StoredBatch[]} batches the oldest first
 * @property {Record<string, number>} [sentDays] the day, counted from 1970, on which a report of a metric with
 *   reports_per_day = 1 may have arrived last
 */

/** @typedef {SpooledReport | StoredBatch} Holder of reports */

/** @returns {Outbox} */
export function emptyOutbox() {
  return { spool: [], batches: [] };
}

/**
 * How many reports are unsent: in no batch yet, and all; and how many of these rest, and until when at least.
 * @typedef {{spooled: number, waiting: number, rest?: {reports: number, until: number}}} Counts
 */

/**
 * @param {Outbox} outbox @param {string} [origin] by default all @param {number} [now] milliseconds since 1970
 * @returns {Counts}
 */
export function countsOf({ spool, batches }, origin, now = Date.now()) {
  const isCounted = (/** @type {Holder} */ one) => !origin || one.origin === origin;
  const batched = batches.filter(isCounted);
  const waiting = spool.filter(isCounted).length + numberIn(batched);
  const resting = batched.filter((batch) => isResting(batch, now));
  const isHeld = heldBy(resting);
  const held = spool.filter((one) => isCounted(one) && isHeld(one.report)).length;
  const spooled = waiting - numberIn(batched) - held;
  if (!resting.length) return { spooled, waiting };
  const until = Math.min(...resting.map(({ rest }) => rest?.until ?? 0));
  return { spooled, waiting, rest: { reports: held + numberIn(resting), until } };
}

/** @param {StoredBatch[]} batches */
function numberIn(batches) {
  return sum(batches.map(({ reports }) => reports.length));
}

/** @param {StoredBatch} batch @param {number} now milliseconds since 1970; a clock set back ends the rest */
function isResting({ rest }, now) {
  return rest !== undefined && now < rest.until && rest.until <= now + LONGEST_REST;
}

/** Whether a holder is a batch that a collector may have stored. @param {Holder} holder */
function mayHaveArrived(holder) {
  return "id" in holder && holder.id !== null;
}

/**
 * Return whether reports are of versions that the collector didn't know.
 * @param {StoredBatch[]} resting @returns {(report: StoredReport) => boolean}
 */
function heldBy(resting) {
  const versions = resting.filter(({ id }) => id === null).flatMap(({ reports }) => reports);
  const held = new Set(versions.map(({ metric, version }) => `${metric} ${version}`));
  return ({ metric, version }) => held.has(`${metric} ${version}`);
}

/**
 * Drop all reports but those that stay.
 * @param {Outbox} outbox is changed
 * @param {(report: StoredReport, holder: Holder, i: number) => boolean} stays i: its place in the batch
 * @returns {number} how many were dropped
 */
function keepOnly(outbox, stays) {
  const before = countsOf(outbox).waiting;
  outbox.spool = outbox.spool.filter((one) => stays(one.report, one, 0));
  for (const batch of outbox.batches) {
    batch.reports = batch.reports.filter((report, i) => stays(report, batch, i));
  }
  outbox.batches = outbox.batches.filter(({ reports }) => reports.length);
  return before - countsOf(outbox).waiting;
}

/**
 * Put a report into the outbox.
 * @param {Outbox} outbox is changed @param {StoredReport} report
 * @param {{origin: string, lasting: boolean, now: number}} about now: milliseconds since 1970
 */
export function spool(outbox, report, { origin, lasting, now }) {
  outbox.spool.push({ report, origin, day: dayOf(now), lasting });
}

/**
 * Note that a report of a metric may have arrived today.
 * @param {Outbox} outbox is changed @param {string} metric @param {number} now milliseconds since 1970
 */
export function noteSent(outbox, metric, now) {
  outbox.sentDays = { ...outbox.sentDays, [metric]: dayOf(now) };
}

/**
 * Return whether a report of a metric may have arrived today, or one that still waits, ever.
 * @param {Outbox} outbox @param {string} metric @param {number} now milliseconds since 1970
 */
export function isSent({ batches, sentDays }, metric, now) {
  const sent = batches.filter(mayHaveArrived).flatMap(({ reports }) => reports);
  return sent.some((report) => report.metric === metric) || sentDays?.[metric] === dayOf(now);
}

/**
 * Drop a metric's reports that no collector can have.
 * @param {Outbox} outbox is changed @param {string} metric @param {string} origin of the collector
 */
export function dropWaiting(outbox, metric, origin) {
  return keepOnly(outbox, (report, holder) => {
    return report.metric !== metric || holder.origin !== origin || mayHaveArrived(holder);
  });
}

/** @param {Outbox} outbox @returns {number} how many reports were dropped: all */
export function clear(outbox) {
  return keepOnly(outbox, () => false);
}

/** Drop what another client may send as well: what no collector can know by a batch's id. @param {Outbox} outbox */
export function dropUnsent(outbox) {
  return keepOnly(outbox, (_, holder) => mayHaveArrived(holder));
}

/**
 * Put reports into a batch: the oldest in the spool, but of at most one metric with a cohort for life, and no more than
 * the collector takes.
 * @param {Outbox} outbox is changed @param {number} most reports @param {string} origin of the collector
 * @param {number} [now] milliseconds since 1970
 */
export function batchSpooled(outbox, most, origin, now = Date.now()) {
  const isHeld = heldBy(outbox.batches.filter((it) => it.origin === origin && isResting(it, now)));
  /** @type {SpooledReport[]} */
  const taken = [];
  /** @type {string | null} */
  let lastingMetric = null;
  let room = LARGEST_BATCH - EMPTY_BODY_SIZE;
  outbox.spool = outbox.spool.filter((spooled) => {
    const { report, lasting } = spooled;
    const size = reportSize(report);
    const foreign = lasting && lastingMetric !== null && lastingMetric !== report.metric;
    const elsewhere = spooled.origin !== origin || isHeld(report);
    if (elsewhere || taken.length === most || foreign || size > room) return true;
    if (lasting) lastingMetric = report.metric;
    room -= size;
    taken.push(spooled);
    return false;
  });
  if (!taken.length) return;
  const reports = inAscendingOrder(taken.map(({ report }) => report));
  outbox.batches.push({ id: null, origin, day: Math.min(...taken.map(({ day }) => day)), reports, lease: null });
}

/**
 * Lease the oldest batch that no other tab or process is sending, and draw an id for it if it has none.
 * @param {Outbox} outbox is changed @param {Lease} lease @param {string} origin of the collector
 * @returns {{id: string, reports: StoredReport[], isNew: boolean} | null} whether its id was drawn now
 */
export function leaseOldest(outbox, lease, origin) {
  const batch = outbox.batches.find((candidate) => {
    const isFree = candidate.lease?.holder === lease.holder || !isLeased(candidate, lease.since);
    return candidate.origin === origin && isFree && !isResting(candidate, lease.since);
  });
  if (!batch) return null;
  const isNew = batch.id === null;
  const id = batch.id ?? newBatchId();
  Object.assign(batch, { id, lease });
  return { id, reports: batch.reports, isNew };
}

/**
 * Let a batch go: what is settled of it is forgotten, the rest waits for another attempt.
 * @param {Outbox} outbox is changed @param {string} id @param {ReadonlySet<number>} settled indices of reports
 * @param {string | null} [holder] whose attempt it was for which the id was drawn, if no collector can have stored
 *   anything: the id is then forgotten, for to show it again, perhaps from another network, would tell that it is the
 *   same client's
 * @returns {boolean} whether the batch was there
 */
export function release(outbox, id, settled, holder = null) {
  const batch = outbox.batches.find((candidate) => candidate.id === id);
  if (!batch) return false;
  // Another holder may have sent it since.
  if (holder !== null && batch.lease?.holder === holder) batch.id = null;
  batch.lease = null;
  keepOnly(outbox, (_, holding, i) => holding !== batch || !settled.has(i));
  return true;
}

/**
 * Let a batch go of which the collector doesn't know some versions yet. Their reports rest in a batch of their own, a
 * second at first and then twice as long each time, an hour at most; the others go at once. Nothing of the batch was
 * stored, so both get other ids, unless an earlier attempt may have stored all of it under this one: then the whole
 * batch rests, or a report might count twice.
 * @param {Outbox} outbox is changed @param {string} id
 * @param {{unknown: {metric: string, version: number}[], refused: ReadonlySet<number>}} answer refused: indices of
 *   reports that will never be accepted
 * @param {string | null} holder whose attempt it was for which the id was drawn, if it was
 * @param {number} [now] milliseconds since 1970 @returns {boolean} whether the batch was there
 */
export function putOff(outbox, id, { unknown, refused }, holder, now = Date.now()) {
  const batch = outbox.batches.find((candidate) => candidate.id === id);
  if (!batch) return false;
  const isOwn = holder !== null && batch.lease?.holder === holder;
  const times = (batch.rest?.times ?? 0) + 1;
  const millis = Math.min(FIRST_REST * 2 ** (times - 1), LONGEST_REST) * (0.5 + 0.5 * uniform());
  const rest = { times: Math.min(times, 30), until: now + millis };
  release(outbox, id, refused, holder);
  if (!isOwn) batch.rest = rest;
  if (!isOwn || !outbox.batches.includes(batch)) return true;
  delete batch.rest;
  const isUnknown = (/** @type {StoredReport} */ { metric, version }) =>
    unknown.some((one) => one.metric === metric && one.version === version);
  outbox.batches.splice(outbox.batches.indexOf(batch) + 1, 0, {
    ...batch,
    reports: batch.reports.filter(isUnknown),
    rest,
  });
  keepOnly(outbox, (report, holding) => holding !== batch || !isUnknown(report));
  return true;
}

/**
 * Drop reports of what is switched off, but for those that are being sent.
 * @param {Outbox} outbox is changed @param {(metric: string, version: number) => boolean} isOff
 * @param {number} now milliseconds since 1970 @returns {number} how many
 */
export function dropOff(outbox, isOff, now) {
  return keepOnly(outbox, ({ metric, version }, holder) => {
    if (isLeased(holder, now) || !isOff(metric, version)) return true;
    // What shows that it may have arrived is deleted.
    if (mayHaveArrived(holder)) noteSent(outbox, metric, now);
    return false;
  });
}

/**
 * Drop reports whose batch the collector might have forgotten, and the oldest beyond the bounds; but nothing that is
 * being sent: the collector may have it already.
 * @param {Outbox} outbox is changed @param {{maxWaiting: number, maxOutboxBytes: number}} bounds
 * @param {number} now milliseconds since 1970 @returns {Record<string, number>} dropped reports by reason
 */
export function trim(outbox, { maxWaiting, maxOutboxBytes }, now) {
  const tooOld = keepOnly(outbox, (_, holder) => isLeased(holder, now) || dayOf(now) - holder.day < LONGEST_DAYS);
  const all = [...outbox.batches, ...outbox.spool];
  const reportsIn = (/** @type {Holder} */ holder) => ("reports" in holder ? holder.reports : [holder.report]);
  const bytesOf = (/** @type {Holder} */ holder) => sum(reportsIn(holder).map(reportSize));
  let reports = countsOf(outbox).waiting;
  let bytes = sum(all.map(bytesOf));
  const gone = new Set();
  for (const holder of all) {
    if (reports <= maxWaiting && bytes <= maxOutboxBytes) break;
    if (isLeased(holder, now)) continue;
    reports -= reportsIn(holder).length;
    bytes -= bytesOf(holder);
    gone.add(holder);
  }
  return { [TOO_OLD]: tooOld, [QUEUE_FULL]: keepOnly(outbox, (_, holder) => !gone.has(holder)) };
}

/**
 * Whether a batch is being sent. A clock that was set back leases nothing.
 * @param {Holder} holder @param {number} now milliseconds since 1970
 */
function isLeased(holder, now) {
  const lease = "lease" in holder ? holder.lease : null;
  return lease !== null && now < lease.since + lease.millis && lease.since <= now + CLOCK_SLACK;
}

/** @param {number} millis since 1970 */
function dayOf(millis) {
  return Math.floor(millis / MILLIS_A_DAY);
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
