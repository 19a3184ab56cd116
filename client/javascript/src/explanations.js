/**
 * Sentences for people: what is asked, what would be sent, and what has been spent.
 *
 * What a report reveals is said in odds, with epsilon in brackets, by one sentence for each way in which a metric may
 * be asked. The Python client uses the same words: tests hold both to one list of texts.
 */

import { toHex } from "./bytes.js";
import { isBounded } from "./ledger.js";
import { reserveOf, reserveOfAll } from "./registry.js";

/** @typedef {Readonly<import("./registry.js").Metric>} Metric */
/** @typedef {import("./telemetry.js").Spending} Spending */

/** Beyond it a power of ten is read more easily. */
const LARGEST_ODDS = 1e6;

/**
 * Return the text of a preview.
 * @param {Metric} metric @param {import("./encoder.js").Report} report
 * @param {{refusal: string | null, kind: import("./ledger.js").Decision["kind"]}} verdict
 */
export function describePreview(metric, report, { refusal, kind }) {
  const part = metric.type.part(report.cohort);
  const hasFields = metric.type.fieldNames.length > 0;
  return [
    describeMetric(metric),
    refusal === null ? `This is what would be sent${sourceOf(metric, kind)}:` : `This would not be sent: ${refusal}.`,
    ...(part ? [`  about ${part} of your answer, in noise;`] : []),
    ...(hasFields
      ? [`  about ${allFields(metric)}, in noise: they travel as one value, whichever of them changes;`]
      : []),
    ...(report.slice ? [`  in the clear: ${report.slice};`] : []),
    `  ${content(metric, report)}:`,
    `  ${toHex(report.bits)}`,
    "Your answer itself stays on this device. How much the odds between any two answers can change for " +
      "somebody who sees",
    ...exposure(metric).map((line) => `  ${line}`),
  ].join("\n");
}

/**
 * Return what a report holds, and by what chance.
 * @param {Metric} metric @param {import("./encoder.js").Report} report
 */
function content({ params, response }, report) {
  const { k, m, f, p, q } = params;
  const group = m > 1 ? `group ${report.cohort} of ${m}, and ` : "";
  if (response.name !== "unary") {
    const { name, cells, width, chance } = /** @type {import("./responses.js").CellsResponse} */ (response);
    const drawn =
      name === "subset"
        ? `a set of ${width} of the ${cells} possible answers, drawn so that it holds yours`
        : `one of ${cells} steps of the range, drawn so that it is among the ${width} next to your answer`;
    return `${group}${drawn} with probability ${number(chance)}, as ${k} bits`;
  }
  const ones = [...report.bits].map((byte) => byte.toString(2).replaceAll("0", "")).join("").length;
  const noise = f === 0 || (p === 0 && q === 1) ? "one round" : "two rounds";
  return `${group}${k} bits, ${ones} of them 1, after ${noise} of coin flips`;
}

/** @param {Metric} metric @param {import("./ledger.js").Decision["kind"]} kind */
function sourceOf({ memory }, kind) {
  if (kind === "stale") return " (drawn from an earlier answer, because there is no room for another)";
  const fixed = kind === "again" && memory === "period";
  return fixed ? " (drawn from this period's answer, which is already fixed)" : "";
}

/** Return what a metric asks, for whom, until when. @param {Metric} metric */
export function describeMetric(metric) {
  const { name, version, type, description, owner, expires, group, dimensions } = metric;
  const names = dimensions.map((dimension) => dimension.name).join(", ");
  return (
    `${name} (version ${version}, ${type.name}): ${description}. ` +
    `Asked by ${owner} until ${expires}, ${extent(metric)}.` +
    (type.fieldNames.length ? ` Each answer is one value, about ${allFields(metric)}.` : "") +
    (group ? ` It belongs to ${group.name}: a client answers only one question of this group.` : "") +
    (names
      ? ` Its reports also describe the app, in the clear: ${names}. They hide only among ` +
        "reports of apps that are described alike."
      : "")
  );
}

/** @param {Metric} metric @returns {string} how often it is asked */
function extent({ mode, memory, maxAnswers, periodDays }) {
  const most = maxAnswers.toLocaleString("en-US");
  if (mode === "one-time") return "once";
  if (memory === "period") {
    const days = periodDays === 1 ? "1 day" : `${periodDays.toLocaleString("en-US")} days`;
    const once = mode === "once" ? "once in each of" : "with one answer for each of";
    return `${once} at most ${most} periods of ${days}`;
  }
  return maxAnswers === 1 ? "with the first answer only" : `for at most ${most} different answers`;
}

/**
 * Return what is asked and what it can reveal, metric by metric and in total.
 * @param {Readonly<import("./registry.js").Registry>} registry @param {Spending} spending
 */
export function explain(registry, spending) {
  const metrics = [...registry.metrics.values()];
  const lines = [
    `What ${registry.application} asks. How much the odds between any two answers can change for ` +
      "somebody who sees",
    "",
  ];
  for (const metric of metrics) {
    lines.push(describeMetric(metric));
    lines.push(...exposure(metric).map((line) => `  ${line}`));
    const { parts } = metric.type;
    const lasting = metric.memory === "period" ? "of each answer" : "of all its answers, for life";
    if (parts.length) lines.push(`  a client reports one part ${lasting}: ${parts.join(", or ")}`);
  }
  for (const { name, metrics: members, choice } of groupsOf(metrics)) {
    const lasting =
      choice === "life"
        ? "for life, so its reports hide only among those of clients that chose alike"
        : "drawn by lot for each period";
    lines.push(`A client answers only one of ${members.join(", ")} (${name}), ${lasting}.`);
  }
  const constant = reserveOfAll(metrics);
  const answers = metrics.every(isBounded)
    ? ", however answers change"
    : ` if no answer changes, ${bound(Infinity)} if answers change`;
  const { committed, lifetimeEpsilon, restores } = spending;
  const most = lifetimeEpsilon === null ? "" : `, of at most ${number(lifetimeEpsilon)}`;
  lines.push(
    "",
    `All questions together, as they are asked now: ${bound(constant)}${answers}.`,
    `Privacy budget used so far: ${spending.metrics.length ? used(spending) : "nothing"}.`,
    `Paid for: epsilon ${number(committed)}${most}.`,
  );
  if (restores) {
    const times = restores === 1 ? "once" : `${restores} times`;
    lines.push(`This state was found to be a copy ${times}; what its originals spent since isn't known here.`);
  }
  return lines.join("\n");
}

/** @param {Spending | null} spending null if the account couldn't be read */
export function describeForgetting(spending) {
  let sent = "Nothing was sent before.";
  if (spending === null) {
    sent = "What was sent before can't be called back; what it reveals is no longer known.";
  } else if (spending.metrics.length) {
    sent = `What was sent before can't be called back: it changes the odds between any two answers ${used(spending)}.`;
  }
  return (
    `Deleted the secret, the account and all unsent reports. ${sent} A later start draws a new ` +
    "secret. The same answers then cost as much again, and no account shows it."
  );
}

/**
 * Return a line for each set of reports that somebody may see, in the order of their size.
 * @param {Metric} metric @returns {string[]}
 */
function exposure(metric) {
  const { maxAnswers, mode, memory } = metric;
  const [report, permanent] = [bound(metric.epsilonReport), bound(metric.epsilonPermanent)];
  if (mode === "one-time") return [`the report: ${report}; there is only one of each version`];
  const one = `one report: ${report}`;
  if (memory === "period") {
    const periods = maxAnswers.toLocaleString("en-US");
    const ofOne =
      mode === "once"
        ? [
            `the report of one period: ${report}; there is only one`,
            `the reports of two periods: at most ${odds(linking(metric.epsilonReport))} times as ` +
              "likely from one device as from two whose apps are described alike",
          ]
        : [one, `all reports of one period: ${permanent}`];
    return [
      ...ofOne,
      `all reports of all periods, however answers change: ${bound(reserveOf(metric))}, in ` +
        `${periods} periods, whatever the version`,
    ];
  }
  if (maxAnswers === 1) return [one, `all reports of this version: ${permanent}`];
  return [
    one,
    `all reports of one answer: ${permanent}`,
    "all reports, if the answer changes: not bounded, as that and when it changes shows",
  ];
}

/** @param {Spending} spending @returns {string} what has been spent */
function used({ spent, anyHistory }) {
  const shows = anyHistory === Infinity;
  return bound(spent) + (shows ? ", but not bounded for somebody who sees when answers changed" : "");
}

/** @param {Metric} metric */
function allFields({ type }) {
  const names = type.fieldNames;
  return `${names.length === 2 ? "both" : "all"} of: ${names.join(", ")}`;
}

/** @param {Metric[]} metrics @returns {Readonly<import("./registry.js").Group>[]} each once, by name */
function groupsOf(metrics) {
  const groups = metrics.flatMap(({ group }) => group ?? []);
  return [...new Map(groups.map((group) => [group.name, group])).values()];
}

/** @param {number} epsilon @returns {string} on the odds: "at most 81-fold (epsilon 4.39)" */
function bound(epsilon) {
  if (epsilon === Infinity) return "not bounded";
  if (epsilon > Math.log(LARGEST_ODDS)) return `perhaps over a million-fold (epsilon ${number(epsilon)})`;
  return `at most ${odds(epsilon)}-fold (epsilon ${number(epsilon)})`;
}

/** @param {number} logarithm @returns {string} */
function odds(logarithm) {
  const exponent = logarithm / Math.log(10);
  const isReadable = exponent < Math.log10(LARGEST_ODDS);
  return isReadable ? number(Math.exp(logarithm)) : `10^${Math.ceil(exponent)}`;
}

/** @param {number} epsilon @returns {number} ln cosh^2(epsilon / 2): how two periods' reports are linked */
function linking(epsilon) {
  return epsilon + 2 * Math.log1p(Math.exp(-epsilon)) - 2 * Math.LN2;
}

/** @param {number} value @returns {string} three significant digits */
function number(value) {
  const rounded = Number(value.toPrecision(3));
  return rounded >= 100 ? rounded.toLocaleString("en-US") : String(rounded);
}
