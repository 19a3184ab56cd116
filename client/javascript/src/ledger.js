/**
 * What a client has answered, what that cost, and what becomes of a recording: its own answer is
 * reported, the period's, the last admitted one, or none.
 *
 * An answer (a distinct value, a period, a one-time report) is paid for as a whole when it is
 * admitted, so that reporting it again never fails. Invariant: whether a client is silent depends on
 * the times of its recordings and never on their values; so the lifetime budget has a part for what
 * times decide, and what changes of values may use is only the rest (docs/protocol, section 6). Here
 * is nothing but functions of plain data; values appear as keyed digests.
 */

import { definitionOf, epsilonAfter, reserveOfAll } from "./registry.js";
import { calendarPeriod, periodSeconds } from "./schedule.js";

export const ALREADY_REPORTED = "already reported (one-time metric)";
export const REPORTED_IN_PERIOD = "already reported in this period";
export const REPORTED_TODAY = "already reported today";
export const REPLACED_BY_NEWER = "replaced by a newer report";
export const WAITING = "waiting for its first period";
export const NOT_CHOSEN = "another metric of its group is answered";
export const TOO_MANY_ANSWERS = "more periods than max_periods";
export const OVER_BUDGET = "over the lifetime budget";
export const REDEFINED = "definition changed without a new version";
export const EXPIRED = "expired metric";
export const PERIOD_OVER = "recorded in a period that is over";

const TOLERANCE = 1 + 1e-9;

/** @typedef {Readonly<import("./registry.js").Metric>} Metric */
/** @typedef {Readonly<import("./registry.js").Registry>} Registry */

/**
 * An answer that may still be reported.
 *
 * @typedef {object} OpenAnswer
 * @property {string | null} digest of the value; null for a period's, and for a one-time report, which
 *   needn't be known again
 * @property {number} price
 * @property {number} epsilonReport
 * @property {number} reports
 * @property {number} [spent] what these reveal, together; missing in states of version 0.1
 */

/**
 * What a client has answered to one version of a metric.
 *
 * @typedef {object} Entry
 * @property {string} metric
 * @property {number} version
 * @property {Record<string, unknown>} definition by which the answers were made
 * @property {boolean} oneTime
 * @property {boolean} alone whether all of it was recorded while a second answer was out of the
 *   question (max_values = 1), so that no change can have been seen
 * @property {number} answers how many were ever admitted
 * @property {number} first sum of the prices of those on which times alone decided
 * @property {number} changed sum of the prices of the others: second and later distinct values
 * @property {number} closed what was spent by answers that are reported no more
 * @property {number} [closedApart] the same, of a version that isn't registered (any more); missing in states
 *   of version 0.1
 * @property {number} reports of all answers
 * @property {OpenAnswer[]} open
 * @property {{digest: string | null, cohort: number, permanent: string} | null} last the answer that
 *   was admitted last; its permanent bits in hexadecimal. Null once its period is over
 * @property {{number: number, backSince: number | null, waits?: boolean} | null} period the last answer's,
 *   which stays when that is deleted, and the clock's earliest reading in an earlier one (seconds since
 *   1970); or that in which the client began to wait for its first period
 */

/**
 * A client's account, as it is stored.
 *
 * @typedef {object} Account
 * @property {Entry[]} entries
 * @property {number} resets how often the secret was replaced
 * @property {number} restores how often the state was found to be a copy, whose original may have
 *   spent more
 */

/**
 * @typedef {object} Recording
 * @property {Metric} metric
 * @property {number} seconds since 1970
 * @property {{digest: string | null, cohort: number, permanent: string}} answer what it would report
 *   if it is admitted; permanent bits in hexadecimal
 * @property {import("./schedule.js").Period} [period] the client's; by default the calendar's, on its
 *   first day
 * @property {boolean} [isChosen] whether the client answers the metric, as one of its group (default: true)
 */

/**
 * What becomes of a recording, and the answer that is reported for it.
 *
 * @typedef {{kind: "admitted" | "again" | "stale", answer: {cohort: number, permanent: string}}
 *   | {kind: "refused", reason: string}} Decision
 */

/** @returns {Account} */
export function emptyAccount() {
  return { entries: [], resets: 0, restores: 0 };
}

/**
 * Return what becomes of a recording, without changing the account.
 *
 * @param {Account} account
 * @param {Registry} registry
 * @param {Recording} recording
 * @returns {Decision}
 */
export function decide(account, registry, recording) {
  const { metric, seconds, answer } = recording;
  if (dayOf(seconds) > metric.expires) return refused(EXPIRED);
  const entry = entryOf(account, metric);
  if (metric.group && !isChosen(account, metric.group, recording)) return refused(NOT_CHOSEN);
  if (entry && !isDefined(entry, metric)) return refused(REDEFINED);
  if (metric.mode === "once") return decideOnce(account, registry, recording, entry);
  if (!entry) return admitIf(roomForFirst(account, registry, metric), answer);
  if (metric.mode === "one-time") return refused(ALREADY_REPORTED);
  const { last } = entry;
  if (metric.memory === "period") {
    if (isLate(entry, metric, seconds)) return refused(PERIOD_OVER);
    if (last && isInUse(entry, recording)) return { kind: "again", answer: last };
  } else if (entry.open.some(({ digest }) => digest === answer.digest)) {
    return { kind: "again", answer };
  } else if (last) {
    const room = entry.answers < metric.maxAnswers && roomForChange(account, registry, metric);
    return room ? { kind: "admitted", answer } : { kind: "stale", answer: last };
  }
  if (metric.memory === "period" && entry.answers >= metric.maxAnswers) {
    return refused(TOO_MANY_ANSWERS);
  }
  return admitIf(roomForFirst(account, registry, metric), answer);
}

/**
 * Return what becomes of a recording of a metric that is reported once per period.
 *
 * @param {Account} account @param {Registry} registry @param {Recording} recording
 * @param {Entry | undefined} entry
 * @returns {Decision}
 */
function decideOnce(account, registry, recording, entry) {
  const { metric, answer } = recording;
  if (entry && isInUse(entry, recording)) {
    return refused(entry.period?.waits ? WAITING : REPORTED_IN_PERIOD);
  }
  if (mustWait(account, recording)) return refused(WAITING);
  if (answersTogether(account, registry, metric) >= metric.maxAnswers) {
    return refused(TOO_MANY_ANSWERS);
  }
  return admitIf(roomForFirst(account, registry, metric), answer);
}

/**
 * Return how many answers count against a metric's max_periods: its own, and those of all metrics of a group
 * that chooses for each period, or a client would spend their sum.
 *
 * @param {Account} account @param {Registry} registry @param {Metric} metric
 */
function answersTogether(account, registry, metric) {
  const { group, name } = metric;
  const names = group?.choice === "period" ? group.metrics : [name];
  const entries = names.map((each) => {
    const registered = registry.metrics.get(each);
    return registered && entryOf(account, registered);
  });
  return entries.reduce((sum, entry) => sum + (entry?.answers ?? 0), 0);
}

/**
 * Enter a recording into the account.
 *
 * @param {Account} account is changed
 * @param {Registry} registry
 * @param {Recording} recording
 * @returns {Decision}
 */
export function enter(account, registry, recording) {
  const { metric, seconds, answer } = recording;
  closePastPeriods(account, seconds);
  const decision = decide(account, registry, recording);
  if (decision.kind === "refused") {
    if (decision.reason === WAITING || decision.reason === REPORTED_IN_PERIOD) {
      waitOrNoticeClock(account, recording);
    }
    return decision;
  }
  const entry = entryOf(account, metric) ?? addEntry(account, metric);
  if (decision.kind === "admitted") admit(entry, recording);
  else if (metric.memory === "period") noticeClock(entry, recording);
  const digest = decision.kind === "stale" ? entry.last?.digest : digestKept(metric, answer);
  const open = entry.open.find((candidate) => candidate.digest === digest);
  if (open) {
    open.reports++;
    open.spent = Math.min(epsilonAfter(metric, open.reports), open.price);
  }
  if (metric.mode === "once") closeAnswers(entry);
  entry.reports++;
  entry.alone &&= isAlone(metric);
  return decision;
}

/**
 * Delete the answers of periods that are over, but not the periods' numbers: what was recorded in such
 * a period and comes late isn't answered once more.
 *
 * @param {Account} account is changed
 * @param {number} seconds since 1970
 */
export function closePastPeriods(account, seconds) {
  for (const entry of account.entries) {
    const days = Number(entry.definition.period_days);
    const { period, last } = entry;
    if (!period || !last || calendarPeriod(days, seconds) <= period.number) continue;
    close(entry);
    entry.period = { number: period.number, backSince: null };
  }
}

/**
 * Note that the secret was replaced: no earlier answer can be given again, and all were paid for.
 *
 * @param {Account} account is changed
 */
export function countReset(account) {
  account.resets++;
  account.entries.forEach(close);
}

/**
 * Note that the state is a copy: its original may have given any one-time answer since, and in this period
 * any answer of mode "once".
 *
 * @param {Account} account is changed
 * @param {Registry} registry
 * @param {(metric: Metric) => number} currentPeriod
 */
export function countRestore(account, registry, currentPeriod) {
  account.restores++;
  for (const metric of registry.metrics.values()) {
    const known = entryOf(account, metric);
    if (metric.mode === "once") {
      const entry = known ?? addEntry(account, metric);
      entry.period = { number: currentPeriod(metric), backSince: null, waits: true };
    } else if (metric.mode === "one-time" && !known) {
      const entry = addEntry(account, metric);
      entry.answers = 1;
      entry.first = entry.closed = metric.price;
    }
  }
}

/** @param {Account} account @returns {number} the sum of all prices that were ever admitted */
export function committed(account) {
  return sum(account.entries.map(({ first, changed }) => first + changed));
}

/**
 * Return what an entry's reports reveal: of each answer what so many reports of it do, or of a version
 * that isn't registered its whole price if there are several.
 *
 * @param {Entry} entry
 * @param {Registry} registry
 * @returns {number}
 */
export function spent(entry, { metrics }) {
  const metric = metrics.get(entry.metric);
  const isRegistered = metric?.version === entry.version && isDefined(entry, metric);
  return isRegistered ? spentOf(entry) : spentApart(entry);
}

/** @param {Entry} entry @returns {number} */
function spentOf({ closed, open }) {
  return closed + sum(open.map((a) => a.spent ?? Math.min(a.reports * a.epsilonReport, a.price)));
}

/** @param {Entry} entry @returns {number} */
function spentApart({ closed, closedApart, open }) {
  const whole = open.map((a) => (a.reports > 1 ? a.price : a.reports * a.epsilonReport));
  return (closedApart ?? closed) + sum(whole);
}

/**
 * Whether a metric's reports stay within their figure whatever the history of values is.
 *
 * @param {Metric} metric
 */
export function isBounded(metric) {
  return metric.memory === "period" || isAlone(metric);
}

/** @param {Metric} metric @returns {boolean} whether a client has one answer to it, for life */
function isAlone({ memory, maxAnswers }) {
  return memory === "value" && maxAnswers === 1;
}

/**
 * Return a metric's version's entry.
 *
 * @param {Account} account
 * @param {{name: string, version: number}} metric
 */
function entryOf(account, { name, version }) {
  return account.entries.find((entry) => entry.metric === name && entry.version === version);
}

/** @param {Account} account @param {Metric} metric @returns {Entry} */
function addEntry(account, metric) {
  /** @type {Entry} */
  const entry = {
    metric: metric.name,
    version: metric.version,
    definition: definitionOf(metric),
    oneTime: metric.mode === "one-time",
    alone: isAlone(metric),
    answers: 0,
    first: 0,
    changed: 0,
    closed: 0,
    reports: 0,
    open: [],
    last: null,
    period: null,
  };
  account.entries.push(entry);
  return entry;
}

/** @param {Entry} entry @param {Recording} recording */
function admit(entry, recording) {
  const { metric, answer } = recording;
  const isChange = entry.last !== null && metric.memory === "value";
  if (metric.memory === "period") close(entry);
  entry.definition = definitionOf(metric);
  entry.answers++;
  entry[isChange ? "changed" : "first"] += metric.price;
  const { epsilonReport, price } = metric;
  const digest = digestKept(metric, answer);
  entry.open.push({ digest, price, epsilonReport, reports: 0 });
  // What is reported once is never repeated, so nothing of it is kept.
  if (metric.mode === "longitudinal") entry.last = answer;
  if (metric.memory === "period") entry.period = { number: periodNow(recording), backSince: null };
}

/**
 * Return what is kept of a value to recognize it. For a one-time metric that isn't needed, and with the
 * secret a digest would reveal which of a few values it was.
 *
 * @param {Metric} metric @param {Recording["answer"]} answer
 */
function digestKept({ mode }, { digest }) {
  return mode === "one-time" ? null : digest;
}

/** @param {Entry} entry whose answers can't be reported any more */
function close(entry) {
  closeAnswers(entry);
  entry.last = entry.period = null;
}

/** @param {Entry} entry */
function closeAnswers(entry) {
  const [closed, closedApart] = [spentOf(entry), spentApart(entry)];
  entry.closed = closed;
  entry.closedApart = closedApart;
  entry.open = [];
}

/**
 * Whether a client answers a metric, as one of its group: by the secret's choice, and unless another has its
 * answer already, because the group had other metrics then.
 *
 * @param {Account} account @param {Readonly<import("./registry.js").Group>} group
 * @param {Recording} recording
 */
function isChosen(account, group, recording) {
  if (recording.isChosen === false) return false;
  const { name } = recording.metric;
  const others = account.entries.filter(({ metric }) => {
    return metric !== name && group.metrics.includes(metric);
  });
  if (group.choice === "life") return !others.some(({ answers }) => answers > 0);
  const now = periodNow(recording);
  return !others.some(({ period }) => period && !period.waits && period.number === now);
}

/**
 * Whether a client has to wait for the next period: it comes after the first day of this one, and wasn't
 * asked in an earlier period. So the reports of a roll-out come evenly.
 *
 * @param {Account} account @param {Recording} recording
 */
function mustWait(account, { metric, period }) {
  if (period?.begins ?? true) return false;
  const { group, name } = metric;
  const names = group?.choice === "period" ? group.metrics : [name];
  return !account.entries.some((entry) => {
    const isThisVersion = entry.metric !== name || entry.version === metric.version;
    return entry.period !== null && isThisVersion && names.includes(entry.metric);
  });
}

/**
 * Remember the period in which a client begins to wait, or that its clock went back.
 *
 * @param {Account} account @param {Recording} recording
 */
function waitOrNoticeClock(account, recording) {
  const { metric } = recording;
  const entry = entryOf(account, metric) ?? addEntry(account, metric);
  if (isInUse(entry, recording)) return noticeClock(entry, recording);
  entry.period = { number: periodNow(recording), backSince: null, waits: true };
}

/**
 * Whether something was recorded in the period whose answer was deleted, or in the one before.
 *
 * @param {Entry} entry @param {Metric} metric @param {number} seconds
 */
function isLate({ period, last }, { periodDays }, seconds) {
  if (!period || last) return false;
  const behind = period.number - calendarPeriod(periodDays, seconds);
  return behind === 0 || behind === 1;
}

/**
 * Whether the period's answer is in use at this moment. While the clock is in an earlier period it
 * stays so, but only for the length of a period: a clock that was wrong once must not keep it for years.
 *
 * @param {Entry} entry @param {Recording} recording
 */
function isInUse({ period }, recording) {
  if (!period) return false;
  const { metric, seconds } = recording;
  const now = periodNow(recording);
  if (now >= period.number) return now === period.number;
  const { backSince } = period;
  if (backSince === null || seconds < backSince) return true;
  return seconds - backSince < periodSeconds(metric.periodDays);
}

/** @param {Entry} entry @param {Recording} recording */
function noticeClock({ period }, recording) {
  if (!period) return;
  const { seconds } = recording;
  if (periodNow(recording) === period.number) period.backSince = null;
  else period.backSince = Math.min(period.backSince ?? seconds, seconds);
}

/** @param {Recording} recording @returns {number} */
function periodNow({ metric, seconds, period }) {
  return period?.number ?? calendarPeriod(metric.periodDays, seconds);
}

/**
 * Whether the budget's part for first answers has room. Changes don't count here, or a client's
 * silence would reveal them.
 *
 * @param {Account} account @param {Registry} registry @param {Metric} metric
 */
function roomForFirst(account, registry, metric) {
  const { lifetimeEpsilon } = registry;
  if (lifetimeEpsilon === null) return true;
  const firsts = sum(account.entries.map(({ first }) => first));
  return fits(firsts + metric.price, Math.min(lifetimeEpsilon, reserve(account, registry)));
}

/** @param {Account} account @param {Registry} registry @param {Metric} metric */
function roomForChange(account, registry, metric) {
  const { lifetimeEpsilon } = registry;
  if (lifetimeEpsilon === null) return true;
  const changes = sum(account.entries.map(({ changed }) => changed));
  const rest = Math.max(0, lifetimeEpsilon - reserve(account, registry));
  return (
    fits(changes + metric.price, rest) && fits(committed(account) + metric.price, lifetimeEpsilon)
  );
}

/**
 * Return what times alone decide: one answer, or all periods, of each metric that may be reported,
 * and what was admitted so for versions that may not (any more).
 *
 * @param {Account} account @param {Registry} registry
 */
function reserve(account, { metrics }) {
  const reported = [...metrics.values()].filter((metric) => {
    const entry = entryOf(account, metric);
    return !entry || isDefined(entry, metric);
  });
  const isReported = (/** @type {Entry} */ entry) => {
    return reported.some(({ name, version }) => entry.metric === name && entry.version === version);
  };
  const others = account.entries.filter((entry) => !isReported(entry));
  return reserveOfAll(reported) + sum(others.map(({ first }) => first));
}

/** @param {number} total @param {number} bound */
function fits(total, bound) {
  return total <= bound * TOLERANCE;
}

/** @param {Entry} entry @param {Metric} metric @returns {boolean} whether it is still what it was */
function isDefined(entry, metric) {
  if (!entry.answers) return true;
  return JSON.stringify(entry.definition) === JSON.stringify(definitionOf(metric));
}

/** @param {boolean} room @param {Recording["answer"]} answer @returns {Decision} */
function admitIf(room, answer) {
  return room ? { kind: "admitted", answer } : refused(OVER_BUDGET);
}

/** @param {string} reason @returns {Decision} */
function refused(reason) {
  return { kind: "refused", reason };
}

/** @param {number} seconds since 1970 @returns {string} the day in UTC */
function dayOf(seconds) {
  return new Date(1_000 * seconds).toISOString().slice(0, 10);
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
