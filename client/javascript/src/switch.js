/**
 * The switch: a file that turns metrics off, or down to a sample of clients, and nothing else.
 *
 * docs/protocol, section 12, describes it. Invariants: a rate is below 1 and a metric has the least rate that is given
 * for it, so no document turns anything on or up; and what is off is neither reported nor charged, while answers,
 * account and periods stay as they are.
 */

import { fromHex, toHex } from "./bytes.js";
import { integer, isName, must, refuseUnknown, table } from "./checks.js";
import { HubbubError, MetricError, OptionError, shown } from "./errors.js";
import { sampleNumber } from "./schedule.js";

export const SWITCHED_OFF = "switched off";
export const NOT_SAMPLED = "not in the sample";
/** One more than any switch has: what is longer is malformed. */
export const SWITCH_BYTES = 65_537;

/**
 * A smaller sample is no use: of 100,000 clients it leaves 100, the fewest reports that are published for a part of
 * them (min_reports). But it would single out the few that answer.
 */
export const LEAST_RATE = 0.001;
/** A file may seem to be from the future: a clock set to local time instead of UTC is wrong by up to 14 hours. */
const CLOCK_SKEW = 86_400_000;
const LATEST = Date.UTC(9999, 11, 31, 23, 59, 59);
const FORMAT = 1;
const MILLIS_A_DAY = 86_400_000;
const LARGEST_VERSION = 2 ** 31 - 1;
const LINE = "hubbub-switch-1 ";
const SIGNATURE = /^[A-Za-z0-9_-]{86}$/;
const SIGNATURE_LENGTH = 86;
const DOMAIN = "hubbub/1/switch\n";
const KEY = /^hub_verify_([A-Za-z0-9_-]{43})$/;
const ISSUED = /^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z$/;

const encoder = new TextEncoder();

/** A switch's file isn't what it should be. */
export class SwitchError extends HubbubError {}

/** @typedef {{metric: string, version?: number, rate: number}} Rate of all versions, if none is named */
/** @typedef {{application: string, issued: string, rates: Rate[]}} SwitchDocument */
/** @typedef {{document: SwitchDocument, body: Uint8Array, signature: Uint8Array | null}} SwitchFile */

/**
 * What a client keeps of it.
 *
 * @typedef {object} KeptSwitch
 * @property {number} asked when it was asked for last, in milliseconds since 1970
 * @property {SwitchDocument | null} document what is obeyed
 */

/**
 * By the key that signed them, or "" where an app has none. What another key signed, or none, isn't obeyed: an app that
 * got a key, or another one, may have been given a file by the thief of the old one.
 * @typedef {Record<string, KeptSwitch>} KeptSwitches
 */

/** @typedef {Readonly<import("./registry.js").Metric>} Metric */
/** @typedef {import("./schedule.js").Period} Period */
/** @typedef {(metric: Metric, period?: Period) => string | null} Refusal why it isn't reported, if so */

/** Read a file; its signature isn't looked at. @param {Uint8Array} bytes @returns {SwitchFile} throws SwitchError */
export function parseSwitch(bytes) {
  if (bytes.length >= SWITCH_BYTES) throw new SwitchError(`switch: must be at most ${SWITCH_BYTES - 1} bytes`);
  const end = LINE.length + SIGNATURE_LENGTH;
  const head = String.fromCharCode(...bytes.subarray(0, end + 1));
  const text = head.slice(LINE.length, end);
  const isSigned = head.startsWith(LINE) && SIGNATURE.test(text) && head[end] === "\n";
  const body = isSigned ? bytes.subarray(end + 1) : bytes;
  let value;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body));
  } catch {
    throw new SwitchError("switch: must be JSON, in UTF-8");
  }
  try {
    return { document: checkDocument(value), body, signature: isSigned ? fromBase64(text) : null };
  } catch (error) {
    throw error instanceof MetricError ? new SwitchError(error.message) : error;
  }
}

/** @type {import("./checks.js").Check<string>} */
const issuedAt = must("a UTC time such as 2026-11-27T09:30:00Z", (it) => typeof it === "string" && ISSUED.test(it));
/** @type {import("./checks.js").Check<string>} */
const metricName = must("a metric's name", (it) => typeof it === "string" && isName(it));
/** @type {import("./checks.js").Check<number>} */
const sampleRate = must(
  `0, or a number from ${LEAST_RATE} to below 1`,
  (it) => typeof it === "number" && (it === 0 || (it >= LEAST_RATE && it < 1)),
);

/** @param {unknown} value @returns {SwitchDocument} throws MetricError */
function checkDocument(value) {
  const { hubbub_switch: format, application, issued, rates, ...others } = table(value, "switch");
  refuseUnknown(others, [], "");
  must(`${FORMAT}`, (it) => it === FORMAT)(format, "hubbub_switch");
  return {
    application: must("a text", (it) => typeof it === "string")(application, "application"),
    issued: issuedAt(issued, "issued"),
    rates: must("a list", Array.isArray)(rates, "rates").map((/** @type {unknown} */ each, /** @type {number} */ i) => {
      const { metric, rate, version, ...others } = table(each, `rates[${i}]`);
      refuseUnknown(others, [], `rates[${i}].`);
      return {
        metric: metricName(metric, `rates[${i}].metric`),
        rate: sampleRate(rate, `rates[${i}].rate`),
        ...(version !== undefined && { version: integer(version, `rates[${i}].version`, 1, LARGEST_VERSION) }),
      };
    }),
  };
}

/**
 * Reject unless an application may obey a file at a moment. One from the future would outlast all that are issued until
 * then.
 * @param {SwitchFile} file @param {string} application
 * @param {Uint8Array | null} key with it, the file must be signed, with this key
 * @param {number} now milliseconds since 1970 @returns {Promise<void>} rejects with SwitchError
 */
export async function checkSwitch({ document, body, signature }, application, key, now) {
  if (document.application !== application) {
    throw new SwitchError(`application = ${shown(document.application)}: must be ${shown(application)}`);
  }
  // Texts of this form are ordered as times are.
  const latest = `${new Date(Math.min(now + CLOCK_SKEW, LATEST)).toISOString().slice(0, -5)}Z`;
  if (document.issued > latest) {
    const found = `issued = ${shown(document.issued)}`;
    throw new SwitchError(`${found}: must be at most ${latest}, a day from now by this machine's clock`);
  }
  if (!key) return;
  if (!signature) throw new SwitchError("switch: isn't signed; must be, as this app has a key");
  if (!(await isSignedBy(key, signature, body))) {
    throw new SwitchError("switch: its signature isn't this key's, or it was changed");
  }
}

/** @param {Uint8Array} key @param {Uint8Array} signature @param {Uint8Array} body */
async function isSignedBy(key, signature, body) {
  const domain = encoder.encode(DOMAIN);
  const signed = new Uint8Array(domain.length + body.length);
  signed.set(domain);
  signed.set(body, domain.length);
  try {
    const { subtle } = globalThis.crypto;
    const imported = await subtle.importKey("raw", Uint8Array.from(key), "Ed25519", false, ["verify"]);
    return await subtle.verify("Ed25519", imported, Uint8Array.from(signature), signed);
  } catch {
    throw new SwitchError("switch: this platform can't check signatures (Ed25519)");
  }
}

/** @param {unknown} text as `hubbub-collector token --switch` prints it @returns {Uint8Array} */
export function parseVerifyKey(text) {
  const found = typeof text === "string" ? KEY.exec(text.trim()) : null;
  if (!found) {
    throw new OptionError("switchKey: must be hub_verify_ and 43 letters, digits, - and _");
  }
  // 43 letters have two bits more than 32 bytes: another text of the same key is a mistake.
  const spare = "AEIMQUYcgkosw048";
  if (!spare.includes(found[1].slice(-1))) {
    throw new OptionError("switchKey: its last letter has spare bits set");
  }
  return fromBase64(found[1]);
}

/** @param {string} text @returns {Uint8Array} */
function fromBase64(text) {
  const digits = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  return Uint8Array.from(digits, (digit) => digit.charCodeAt(0));
}

/**
 * @param {SwitchDocument} document @param {string} metric @param {number} version
 * @returns {number} the share of clients that reports it; 1 unless it is turned down
 */
export function rateOf({ rates }, metric, version) {
  const named = rates.filter(
    (rate) => rate.metric === metric && (rate.version === undefined || rate.version === version),
  );
  return Math.min(1, ...named.map(({ rate }) => rate));
}

/** @param {Uint8Array | null} key @returns {string} what names it among the kept switches */
export function nameOfKey(key) {
  return key ? toHex(key) : "";
}

/** @typedef {{keptAs: string} | null} Kept as of `nameOfKey`; null: the app has no switch */

/**
 * Return why a client doesn't report a metric in a period, if so.
 * @param {import("./state.js").State} state @param {Kept} kept @returns {Refusal}
 */
export function refusalBy(state, kept) {
  const document = documentOf(state, kept);
  if (!document?.rates.length) return () => null;
  const bytes = fromHex(state.secret);
  return ({ name, version }, period) => {
    const rate = rateOf(document, name, version);
    if (rate === 0) return SWITCHED_OFF;
    if (rate === 1) return null;
    const number = sampleNumber(name, document.application, bytes, period?.number);
    return number < rate ? null : NOT_SAMPLED;
  };
}

/**
 * Return whether no client reports a metric's version, which goes for what waits, too.
 * @param {import("./state.js").State} state @param {Kept} kept @returns {(metric: string, version: number) => boolean}
 */
export function offBy(state, kept) {
  const document = documentOf(state, kept);
  return (metric, version) => document !== null && rateOf(document, metric, version) === 0;
}

/** @param {import("./state.js").State} state @param {Kept} kept */
function documentOf({ switches }, kept) {
  return kept && (switches[kept.keptAs]?.document ?? null);
}

/**
 * Whether a day has passed since the switch was asked for; also if a clock was set back.
 * @param {import("./state.js").State} state @param {number} now milliseconds since 1970
 * @param {string} switchKey as of `nameOfKey`
 */
export function isFetchDue({ switches }, now, switchKey) {
  const kept = switches[switchKey];
  return !kept || !(kept.asked <= now && now < kept.asked + MILLIS_A_DAY);
}

/**
 * Return whether the switch is to be asked for now; then no other tab or process does so for a day.
 * @param {import("./state.js").State} state is changed @param {number} now milliseconds since 1970
 * @param {string} switchKey as of `nameOfKey`
 */
export function claimFetch(state, now, switchKey) {
  if (!isFetchDue(state, now, switchKey)) return false;
  state.switches[switchKey] = { document: state.switches[switchKey]?.document ?? null, asked: now };
  return true;
}

/**
 * Obey a document from now on; but none that the same key signed before the one that is obeyed: whoever keeps old
 * files, and has no key, can't bring them back. Without a signature anybody could state any time.
 * @param {import("./state.js").State} state is changed @param {SwitchDocument} document
 * @param {string} switchKey as of `nameOfKey` @returns {boolean} whether it is obeyed
 */
export function keepSwitch({ switches }, document, switchKey) {
  const kept = switches[switchKey];
  if (switchKey && kept?.document && document.issued < kept.document.issued) return false;
  switches[switchKey] = { asked: kept?.asked ?? 0, document };
  return true;
}
