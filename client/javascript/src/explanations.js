/** Sentences for people: what is asked, what would be sent, and what it can reveal. */

import { toHex } from "./bytes.js";
import { isBounded } from "./ledger.js";

/** @typedef {Readonly<import("./registry.js").Metric>} Metric */
/** @typedef {import("./telemetry.js").Spending} Spending */

export const NOT_BOUNDED = "not bounded: a change can be seen by whoever links reports";

/**
 * Return what a metric asks, for whom, until when.
 *
 * @param {Metric} metric
 */
export function describeMetric(metric) {
  const { name, version, type, description, owner, expires } = metric;
  return (
    `${name} (version ${version}, ${type.name}): ${description}. ` +
    `Asked by ${owner} until ${expires}, ${extent(metric)}.` +
    (type.fieldNames().length ? ` Each answer is one value, about ${allFields(metric)}.` : "")
  );
}

/** @param {Metric} metric */
function allFields({ type }) {
  const names = type.fieldNames();
  return `${names.length === 2 ? "both" : "all"} of: ${names.join(", ")}`;
}

/**
 * Return a line about the fields that a report is about at once, if values have any.
 *
 * @param {Metric} metric
 * @returns {string[]}
 */
function describeFields(metric) {
  if (!metric.type.fieldNames().length) return [];
  return [
    `  about ${allFields(metric)}, in noise: they travel as one value under one epsilon, ` +
      "whichever of them changes;",
  ];
}

/**
 * Return what a metric's reports reveal, a line each for one report, all reports of a history that
 * changes at the same times, and all reports of any history.
 *
 * @param {Metric} metric
 * @returns {string[]}
 */
export function describeExposure(metric) {
  const { epsilonReport, epsilonPermanent, maxAnswers, mode, memory } = metric;
  const one = `one report: epsilon ${number(epsilonReport)}`;
  if (mode === "one-time") {
    return [
      one,
      `all reports, linked, of any history: ${number(epsilonReport)}, for there is only one`,
    ];
  }
  if (memory === "period") {
    const least = `min(n x ${number(epsilonReport)}, ${number(epsilonPermanent)})`;
    const all = number(maxAnswers * epsilonPermanent);
    return [
      one,
      "all reports, linked, of any history: the sum, over its periods of n reports each, of " +
        `${least}; at most ${all} in ${maxAnswers} periods`,
    ];
  }
  const each = `${number(epsilonPermanent)} for each different answer`;
  return [
    one,
    `all reports, linked, of histories that change at the same times: ${each}`,
    `all reports, linked, of any history: ${isBounded(metric) ? number(epsilonPermanent) : NOT_BOUNDED}`,
  ];
}

/**
 * Return a line about which parts of answers clients report, unless these are always whole.
 *
 * @param {Metric} metric
 * @returns {string[]}
 */
function describeParts({ type, memory }) {
  const parts = type.parts();
  if (!parts.length) return [];
  const lasting = memory === "period" ? "of each answer" : "of all its answers, for life";
  return [`a client reports one part ${lasting}: ${parts.join(", or ")}`];
}

/**
 * Return the text of a preview.
 *
 * @param {Metric} metric
 * @param {import("./encoder.js").Report} report
 * @param {{refusal: string | null, kind: import("./ledger.js").Decision["kind"]}} verdict
 */
export function describePreview(metric, report, { refusal, kind }) {
  const ones = report.bits.reduce((count, byte) => count + ones8(byte), 0);
  const { k, m } = metric.params;
  const part = metric.type.part(report.cohort);
  return [
    describeMetric(metric),
    refusal ? `This would not be sent: ${refusal}.` : sentWords(metric, kind),
    ...(part ? [`  about ${part} of your answer, in noise;`] : []),
    ...describeFields(metric),
    `  group ${report.cohort} of ${m}, and ${k} bits of which ${ones} are 1, after coin flips:`,
    `  ${toHex(report.bits)}`,
    "Your answer itself stays here. Epsilon bounds the logarithm of how much the odds between any " +
      "two answers change for whoever sees",
    ...describeExposure(metric).map((line) => `  ${line}`),
  ].join("\n");
}

/** @param {Metric} metric @param {import("./ledger.js").Decision["kind"]} kind */
function sentWords({ memory }, kind) {
  if (kind === "stale") {
    return "In place of this answer, noise over the one that was admitted last would be sent:";
  }
  const fixed = kind === "again" && memory === "period";
  const source = fixed ? " (drawn from this period's answer, which is fixed already)" : "";
  return `This is what would be sent${source}:`;
}

/**
 * Return what is asked and what it can reveal, metric by metric and in total.
 *
 * @param {Readonly<import("./registry.js").Registry>} registry
 * @param {Spending} spending
 * @param {number} people who share the device
 */
export function explain(registry, spending, people) {
  const lines = [`What ${registry.application} asks, and how much it can reveal (epsilon):`, ""];
  for (const metric of registry.metrics.values()) {
    const exposure = [...describeExposure(metric), ...describeParts(metric)];
    lines.push(describeMetric(metric), ...exposure.map((line) => `  ${line}`));
  }
  const { spent, committed, lifetimeEpsilon, resets, restores } = spending;
  const bound = lifetimeEpsilon === null ? "" : `, of at most ${number(lifetimeEpsilon)}`;
  lines.push(
    "",
    `Spent so far, of histories that change at the same times: ${number(spent)}; ` +
      `of any history: ${number(spending.anyHistory)}.`,
    `Answers that were admitted cost ${number(committed)} if all are reported for ever${bound}.`,
  );
  if (resets) lines.push(`The secret was replaced ${times(resets)}: all answers cost anew.`);
  if (restores) {
    lines.push(
      `The state was found to be a copy ${times(restores)}: what its original spent isn't known here.`,
    );
  }
  if (people > 1) {
    lines.push(
      `${people} people who share this device are protected as a group by ${people} times epsilon: ` +
        `${number(people * spent)} spent.`,
    );
  }
  return lines.join("\n");
}

/** @param {Spending | null} spending null if the account couldn't be read */
export function describeForgetting(spending) {
  const spent = spending === null ? "can't be read any more" : `was ${number(spending.spent)}`;
  return (
    "Deleted the secret, the account and all unsent reports. What was sent before can't be called " +
    `back: the epsilon that it has spent ${spent}. A later start draws a new secret, and then the ` +
    "same answers cost as much again, which no account will know."
  );
}

/** @param {Metric} metric @returns {string} how often it is asked */
function extent({ mode, memory, maxAnswers, periodDays }) {
  if (mode === "one-time") return "once";
  const most = maxAnswers.toLocaleString("en");
  if (memory === "value") return `for at most ${most} different answers`;
  return `for at most ${most} periods of ${periodDays} days, each with one answer`;
}

/** @param {number} epsilon */
function number(epsilon) {
  return epsilon === Infinity ? "not bounded" : String(Number(epsilon.toPrecision(3)));
}

/** @param {number} count */
function times(count) {
  return count === 1 ? "once" : `${count} times`;
}

/** @param {number} byte @returns {number} how many of its bits are 1 */
function ones8(byte) {
  let count = 0;
  for (let rest = byte; rest; rest &= rest - 1) count++;
  return count;
}
