/**
 * What a client has answered, what that cost, and what becomes of a recording: its own answer is reported, the
 * period's, the last admitted one, or none.
 *
 * An answer (a distinct value, a period, a one-time report) is paid for as a whole when it is admitted, so that
 * reporting it again never fails. Invariant: whether a client is silent depends on the times of its recordings and
 * never on their values; so the lifetime budget has a part for what times decide, and what changes of values may use is
 * only the rest (docs/protocol, section 6). Here is nothing but functions of plain data; values appear as keyed
 * digests.
 */

import { definitionOf, reserveOfAll } from "./registry.js";
import { calendarPeriod, dayAt, inSeconds } from "./schedule.js";

export const ALREADY_REPORTED = "already reported (one-time metric)";
export const REPORTED_IN_PERIOD = "already reported in this period";
export const REPORTED_TODAY = "already reported today";
export const REPLACED_BY_NEWER = "replaced by a newer report";
export const WAITING = "waiting for its first period";
export const NOT_CHOSEN = "another metric of its group is answered";
const TOO_MANY_ANSWERS = "more periods than max_periods";
const OVER_BUDGET = "over the lifetime budget";
const REDEFINED = "definition changed without a new version";
const EXPIRED = "expired metric";
const PERIOD_OVER = "recorded in a period that is over";

/** Refusals of recordings that have nothing to do with periods. */
const TURNED_AWAY = new Set([EXPIRED, NOT_CHOSEN, REDEFINED]);
const TOLERANCE = 1 + 1e-9;

/** @typedef {Readonly<import("./registry.js").Metric>} Metric */
/** @typedef {Readonly<import("./registry.js").Registry>} Registry */

/**
 * An answer that may still be reported.
 *
 * @typedef {object} OpenAnswer
 * @property {string | null} digest of the value; null for a period's, and for a one-time report, which needn't be known
 *   again
 * @property {number} price
 * @property {number} epsilonReport
 * @property {number} reports
 * @property {number} spent what these reveal, together
 */

/**
 * What a client has answered to one version of a metric.
 *
 * @typedef {object} Entry
 * @property {string} metric
 * @property {number} version
 * @property {Record<string, unknown>} definition by which the answers were made
 * @property {boolean} alone whether all of it was recorded while a second answer was out of the question (max_values =
 *   1), so that no change can have been seen
 * @property {number} answers how many were ever admitted
 * @property {number} firsts how many of those only times decided
 * @property {number} first sum of the prices of those on which only times decided
 * @property {number} changed sum of the prices of the others: second and later distinct values
 * @property {number} closed what was spent by answers that are reported no more
 * @property {number} closedApart the same, of a version that isn't registered (any more)
 * @property {number} reports of all answers
 * @property {OpenAnswer[]} open
 * @property {{digest: string | null, cohort: number, permanent: string} | null} last the answer that was admitted last;
 *   its permanent bits in hexadecimal. Null once its period is over
 * @property {number | null} endDay on which that is, counted from 1970; null without periods
 */

/**
 * The last period that a client answered, or waited in, of all versions of a metric.
 *
 * @typedef {object} LastPeriod
 * @property {number} version that answered or waited
 * @property {number} firstDay counted from 1970
 * @property {number} endDay on which it is over
 * @property {boolean} answered
 * @property {number | null} backSince the clock's earliest reading before it (seconds since 1970), while it is behind
 */

/**
 * A client's account, as it is stored.
 *
 * @typedef {object} Account
 * @property {Entry[]} entries
 * @property {Record<string, LastPeriod>} periods by metric
 * @property {number} restores how often the state was found to be a copy, whose original may have spent more
 */

/**
 * @typedef {object} Recording
 * @property {Metric} metric
 * @property {number} seconds since 1970
 * @property {{digest: string | null, cohort: number, permanent: string}} answer what it would report if it is admitted;
 *   permanent bits in hexadecimal
 * @property {import("./schedule.js").Period} [period] the client's; by default the calendar's
 * @property {boolean} [begins] whether it is its first day, on which a client may start at once (default: true)
 * @property {boolean} [isChosen] whether the client answers the metric, as one of its group (default: true)
 */

/**
 * What becomes of a recording, and the answer that is reported for it.
 * @typedef {{kind: "admitted" | "again" | "stale", answer: {cohort: number, permanent: string}} | {kind: "refused",
 *   reason: string}} Decision
 */

/** @returns {Account} */
export function emptyAccount() {
  return { entries: [], periods: {}, restores: 0 };
}

/**
 * Return what becomes of a recording; the account stays.
 * @param {Account} account @param {Registry} registry @param {Recording} recording @returns {Decision}
 */
export function decide(account, registry, recording) {
  const { metric, seconds, answer } = recording;
  if (new Date(1_000 * seconds).toISOString().slice(0, 10) > metric.expires) return refused(EXPIRED);
  const entry = entryOf(account, metric);
  if (metric.group && !isChosen(account, metric.group, recording)) return refused(NOT_CHOSEN);
  if (entry && !isDefined(entry, metric)) return refused(REDEFINED);
  if (metric.memory === "period") return decidePeriod(account, registry, recording, entry);
  if (!entry) return admitFirst(account, registry, recording);
  if (metric.mode === "one-time") return refused(ALREADY_REPORTED);
  const { last } = entry;
  if (entry.open.some(({ digest }) => digest === answer.digest)) {
    return { kind: "again", answer };
  } else if (last) {
    const room = entry.answers < metric.maxAnswers && roomForChange(account, registry, metric);
    return room ? { kind: "admitted", answer } : { kind: "stale", answer: last };
  }
  return admitFirst(account, registry, recording);
}

/**
 * @param {Account} account @param {Registry} registry @param {Recording} recording of a metric with periods
 * @param {Entry | undefined} entry @returns {Decision}
 */
function decidePeriod(account, registry, recording, entry) {
  const { metric } = recording;
  const inUse = periodsInUse(account, recording);
  const own = inUse.get(metric.name);
  const isOwn = own?.version === metric.version;
  if (isOwn && entry?.last) return { kind: "again", answer: entry.last };
  if (inUse.size) {
    if (![...inUse.values()].some(({ answered }) => answered)) return refused(WAITING);
    return refused(isOwn && metric.mode !== "once" ? PERIOD_OVER : REPORTED_IN_PERIOD);
  }
  if (!(recording.begins ?? true) && isNewTo(account, metric)) return refused(WAITING);
  // max_periods holds for a metric's name: a version that is raised doesn't start it again. All first answers count, of
  // versions without periods, too, for these follow from times; further values would make silence depend on values.
  const together = account.entries.filter((each) => namesTogether(metric).includes(each.metric));
  if (sum(together.map(({ firsts }) => firsts)) >= metric.maxAnswers) return refused(TOO_MANY_ANSWERS);
  return admitFirst(account, registry, recording);
}

/**
 * Return the last periods, by metric, because of which a recording draws no answer, as they are at its moment.
 *
 * Metrics of a group that chooses for each period are one question here: a clock that goes back to a period in which
 * the client has another choice finds it answered. A period is free if it begins only when the last one is over. This
 * holds between versions, and where these have other periods: no two periods that a client answers share a day, nor
 * does a version that is raised within one answer once more in it. While the clock is before the last period nothing is
 * drawn, but only for the length of a period: a clock that was wrong once must not silence a client for years.
 * @param {Account} account @param {Recording} recording @returns {Map<string, LastPeriod>}
 */
function periodsInUse(account, recording) {
  const { metric, seconds } = recording;
  const found = new Map();
  for (const name of namesTogether(metric)) {
    const last = account.periods[name];
    if (!last || periodOf(recording).firstDay >= last.endDay) continue;
    const isBack = seconds < inSeconds(last.firstDay);
    const backSince = isBack ? Math.min(last.backSince ?? seconds, seconds) : null;
    if (backSince !== null && seconds - backSince >= inSeconds(metric.periodDays)) continue;
    found.set(name, { ...last, backSince });
  }
  return found;
}

/** @param {Metric} metric @returns {readonly string[]} the metrics that have periods, and max_periods, together */
function namesTogether({ group, name }) {
  return group?.choice === "period" ? group.metrics : [name];
}

/**
 * Whether a client waits for a first period of a metric, or of others of its group. So the reports of a roll-out come
 * evenly.
 * @param {Account} account @param {Metric} metric
 */
function isNewTo({ periods }, metric) {
  return metric.mode === "once" && !namesTogether(metric).some((name) => periods[name]);
}

/**
 * Enter a recording into the account.
 * @param {Account} account is changed @param {Registry} registry @param {Recording} recording @returns {Decision}
 */
export function enter(account, registry, recording) {
  const { metric, seconds, answer } = recording;
  closePastPeriods(account, seconds);
  const decision = decide(account, registry, recording);
  const isTurnedAway = decision.kind === "refused" && TURNED_AWAY.has(decision.reason);
  if (metric.memory === "period" && !isTurnedAway) {
    const kept = periodsInUse(account, recording);
    for (const [name, last] of kept) account.periods[name] = last;
    if (decision.kind === "refused" && decision.reason === WAITING) wait(account, recording);
  }
  if (decision.kind === "refused") return decision;
  const entry = entryOf(account, metric) ?? addEntry(account, metric);
  if (decision.kind === "admitted") {
    admit(entry, recording);
    if (metric.memory === "period") account.periods[metric.name] = lastPeriod(recording, true);
  }
  const digest = decision.kind === "stale" ? entry.last?.digest : digestKept(metric, answer);
  const open = entry.open.find((candidate) => candidate.digest === digest);
  if (open) {
    open.reports++;
    const { response, type, params } = metric;
    open.spent = Math.min(response.epsilonAfter(type, params, open.reports), open.price);
  }
  if (metric.mode === "once") closeAnswers(entry);
  entry.reports++;
  entry.alone &&= isAlone(metric);
  return decision;
}

/**
 * Delete the answers of periods that are over, but not the periods' numbers: what was recorded in such a period and
 * comes late isn't answered once more.
 * @param {Account} account is changed @param {number} seconds since 1970
 */
export function closePastPeriods(account, seconds) {
  for (const entry of account.entries) {
    if (entry.endDay !== null && dayAt(seconds) >= entry.endDay) close(entry);
  }
}

/**
 * Remember the period in which a client begins to wait, if it is new to a metric. Also if it is in no sample then, or
 * the samples of some periods would have no new clients.
 * @param {Account} account is changed @param {Recording} recording
 */
export function wait(account, recording) {
  const { metric } = recording;
  if (isNewTo(account, metric)) account.periods[metric.name] = lastPeriod(recording, false);
}

/** @param {Recording} recording @param {boolean} answered @returns {LastPeriod} */
function lastPeriod(recording, answered) {
  const { firstDay, endDay } = periodOf(recording);
  return { version: recording.metric.version, firstDay, endDay, answered, backSince: null };
}

/**
 * Note that the state is a copy: its original may have given any one-time answer since, and in this period any answer
 * of mode "once".
 * @param {Account} account is changed @param {Registry} registry
 * @param {(metric: Metric) => import("./schedule.js").Period} currentPeriod
 */
export function countRestore(account, registry, currentPeriod) {
  account.restores++;
  for (const metric of registry.metrics.values()) {
    if (metric.mode === "once") {
      const { firstDay, endDay } = currentPeriod(metric);
      const { name, version } = metric;
      account.periods[name] = { version, firstDay, endDay, answered: false, backSince: null };
    } else if (metric.mode === "one-time" && !entryOf(account, metric)) {
      const entry = addEntry(account, metric);
      entry.answers = entry.firsts = 1;
      entry.first = entry.closed = entry.closedApart = metric.price;
    }
  }
}

/** @param {Account} account @returns {number} the sum of all prices that were ever admitted */
export function committed(account) {
  return sum(account.entries.map(({ first, changed }) => first + changed));
}

/**
 * Return what an entry's reports reveal: of each answer what so many reports of it do, or of a version that isn't
 * registered its whole price if there are several.
 * @param {Entry} entry @param {Registry} registry @returns {number}
 */
export function spent(entry, { metrics }) {
  const metric = metrics.get(entry.metric);
  const { registered, apart } = spentOf(entry);
  return metric?.version === entry.version && isDefined(entry, metric) ? registered : apart;
}

/** What reports reveal of a version that is registered, and of one that isn't. @param {Entry} entry */
function spentOf({ closed, closedApart, open }) {
  const whole = open.map((a) => (a.reports > 1 ? a.price : a.reports * a.epsilonReport));
  return { registered: closed + sum(open.map((a) => a.spent)), apart: closedApart + sum(whole) };
}

/** Whether a metric's reports stay within their figure whatever the history of values is. @param {Metric} metric */
export function isBounded(metric) {
  return metric.memory === "period" || isAlone(metric);
}

/** @param {Metric} metric @returns {boolean} whether a client has one answer to it, for life */
function isAlone({ memory, maxAnswers }) {
  return memory === "value" && maxAnswers === 1;
}

/** @param {Account} account @param {{name: string, version: number}} metric */
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
    alone: isAlone(metric),
    answers: 0,
    firsts: 0,
    first: 0,
    changed: 0,
    closed: 0,
    closedApart: 0,
    reports: 0,
    open: [],
    last: null,
    endDay: null,
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
  if (!isChange) entry.firsts++;
  entry[isChange ? "changed" : "first"] += metric.price;
  const { epsilonReport, price } = metric;
  const digest = digestKept(metric, answer);
  entry.open.push({ digest, price, epsilonReport, reports: 0, spent: 0 });
  // What is reported once is never repeated, so nothing of it is kept.
  if (metric.mode === "longitudinal") entry.last = answer;
  if (entry.last && metric.memory === "period") entry.endDay = periodOf(recording).endDay;
}

/**
 * What is kept of a value to recognize it. For a one-time metric that isn't needed, and with the secret a digest would
 * reveal which of a few values it was.
 * @param {Metric} metric @param {Recording["answer"]} answer
 */
function digestKept({ mode }, { digest }) {
  return mode === "one-time" ? null : digest;
}

/** @param {Entry} entry whose answers can't be reported any more */
function close(entry) {
  closeAnswers(entry);
  entry.last = entry.endDay = null;
}

/** @param {Entry} entry */
function closeAnswers(entry) {
  const { registered: closed, apart: closedApart } = spentOf(entry);
  Object.assign(entry, { closed, closedApart, open: [] });
}

/**
 * Whether a client answers a metric, as one of its group: by the secret's choice, and unless another has its answer
 * already, because the group had other metrics then.
 * @param {Account} account @param {Readonly<import("./registry.js").Group>} group @param {Recording} recording
 */
function isChosen(account, group, { metric: { name }, isChosen = true }) {
  const others = account.entries.filter(({ metric }) => metric !== name && group.metrics.includes(metric));
  return isChosen && (group.choice === "period" || !others.some(({ answers }) => answers > 0));
}

/** @param {Recording} recording @returns {import("./schedule.js").Period} */
function periodOf({ metric, seconds, period }) {
  return period ?? calendarPeriod(metric.periodDays, seconds);
}

/**
 * Admit an answer if the budget's part for first answers has room. Changes don't count here, or a client's silence
 * would reveal them.
 * @param {Account} account @param {Registry} registry @param {Recording} recording @returns {Decision}
 */
function admitFirst(account, registry, { metric, answer }) {
  const most = Math.min(registry.lifetimeEpsilon ?? Infinity, reserve(account, registry));
  const firsts = sum(account.entries.map(({ first }) => first));
  const hasRoom = registry.lifetimeEpsilon === null || fits(firsts + metric.price, most);
  return hasRoom ? { kind: "admitted", answer } : refused(OVER_BUDGET);
}

/** @param {Account} account @param {Registry} registry @param {Metric} metric */
function roomForChange(account, registry, metric) {
  const { lifetimeEpsilon } = registry;
  if (lifetimeEpsilon === null) return true;
  const changes = sum(account.entries.map(({ changed }) => changed));
  const rest = Math.max(0, lifetimeEpsilon - reserve(account, registry));
  return fits(changes + metric.price, rest) && fits(committed(account) + metric.price, lifetimeEpsilon);
}

/**
 * Return what only times decide: one answer, or all periods, of each metric that may be reported, and what was admitted
 * so for versions that may not (any more).
 * @param {Account} account @param {Registry} registry
 */
function reserve(account, { metrics }) {
  const entries = new Map([...metrics.values()].map((metric) => [metric, entryOf(account, metric)]));
  const reported = [...entries].filter(([metric, entry]) => !entry || isDefined(entry, metric));
  const own = new Set(reported.map(([, entry]) => entry));
  const others = account.entries.filter((entry) => !own.has(entry));
  return reserveOfAll(reported.map(([metric]) => metric)) + sum(others.map(({ first }) => first));
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

/** @param {string} reason @returns {Decision} */
function refused(reason) {
  return { kind: "refused", reason };
}

/** @param {number[]} numbers */
function sum(numbers) {
  return numbers.reduce((total, number) => total + number, 0);
}
