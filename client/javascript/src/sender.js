/**
 * One HTTP attempt to deliver a batch, what its outcome means, and why it failed.
 *
 * Only an answer that the collector itself could have given counts as delivered: a captive portal that redirects, or
 * answers 200 with its own page, must not make the client discard reports. What is sent is a batch's compact form, or
 * JSON where that isn't understood. No answer changes how later batches are sent, or it would mark the client. The
 * description of a failure contains no value and no key.
 */

import { retryAfter } from "./backoff.js";
import { bodyOf } from "./batch.js";
import { compactBody, MEDIA_TYPE } from "./compact.js";
import { SWITCH_BYTES } from "./switch.js";

export const REFUSED = "refused by the collector";

// What collectors, or firewalls before them, answer to a media type that they don't know.
const UNKNOWN_FORM = new Set([400, 403, 406, 415]);
// 407 comes from a proxy, not from the collector.
const AGAIN = new Set([407, 408, 429]);
const LONGEST_ANSWER = 1_048_576;
const LONGEST_DETAIL = 200;
// Browsers allow 64 KiB for all keepalive requests of a page together.
const LONGEST_KEEPALIVE = 60_000;
/** No server was reached that could be trusted: nothing was sent. */
const NOT_SENT_CODES =
  /^(ENOTFOUND|EAI_\w+|ECONNREFUSED|ERR_TLS_CERT\w*|CERT_\w+|DEPTH_ZERO_\w+|SELF_SIGNED_\w+|UNABLE_TO_\w+|HOSTNAME_MISMATCH)$/;

/**
 * Why an attempt didn't deliver its batch.
 *
 * @typedef {object} DeliveryFailure
 * @property {"DNS" | "TLS" | "connection" | "timeout" | "redirect" | "status" | "answer"} kind what a browser doesn't
 *   distinguish is a "connection"; an "answer" is a 2xx that isn't the collector's
 * @property {number | null} status of the answer, if there was one that may be looked at
 * @property {string} detail for people
 * @property {number} time milliseconds since 1970
 */

/** What the platform's codes mean. @type {[DeliveryFailure["kind"], RegExp][]} */
const KINDS = [
  ["DNS", /^(ENOTFOUND|EAI_\w+|ERR_DNS\w*)$/],
  ["TLS", /^(ERR_(TLS|SSL)\w*|CERT_\w+|DEPTH_ZERO_\w+|SELF_SIGNED_\w+|UNABLE_TO_\w+|HOSTNAME_MISMATCH|EPROTO)$/],
  ["timeout", /^(ETIMEDOUT|UND_ERR_\w*TIMEOUT)$/],
  ["connection", /./],
];

/** @typedef {{metric: string, version: number}} Version */

/**
 * What became of an attempt: `partly` names, by index, the reports that will never be accepted; `unknown` names
 * versions that the collector doesn't know yet, whose reports are to be kept, and may name such, too; `mayBeStored` is
 * whether the collector may have stored the batch although it is to be sent again.
 * @typedef {{kind: "delivered"} | {kind: "retry", asked: number, mayBeStored: boolean, error: DeliveryFailure} | {kind:
 *   "refused", reason: string, error: DeliveryFailure} | {kind: "partly", refused: Set<number>, reason: string, error:
 *   DeliveryFailure} | {kind: "unknown", unknown: Version[], refused: Set<number>, reason: string, error:
 *   DeliveryFailure}} Outcome
 */

/** @typedef {Pick<import("./options.js").CheckedOptions, "endpoint" | "timeoutMillis" | "fetch" | "ingestKey">} Route */

/** As every client asks: without cookie, or anything of an earlier answer. @type {RequestInit} */
const UNMARKED = { redirect: "manual", credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store" };

/** No answer came in time. */
class TimedOut extends Error {}

/**
 * Try to deliver a batch once; twice if the compact form isn't understood.
 * @param {Route} route
 * @param {{id: string, reports: readonly import("./batch.js").StoredReport[]}} batch its reports in ascending order:
 *   answers name them by their places
 * @param {{signal: AbortSignal, outliveThePage: boolean}} options
 * @returns {Promise<Outcome>} never rejects for anything that the network or the server does
 */
export async function postBatch(route, { id, reports }, { signal, outliveThePage }) {
  const { endpoint, timeoutMillis, ingestKey } = route;
  const url = `${endpoint.href.replace(/\/+$/, "")}/v1/reports`;
  /** @param {string | ArrayBuffer} body @param {string} mediaType @param {AbortSignal} signal */
  const post = async (body, mediaType, signal) => {
    /** @type {Record<string, string>} */
    const headers = { "Content-Type": mediaType };
    if (ingestKey !== undefined) headers.Authorization = `Bearer ${ingestKey}`;
    const size = typeof body === "string" ? body.length : body.byteLength;
    const keepalive = outliveThePage && size <= LONGEST_KEEPALIVE;
    const send = route.fetch ?? globalThis.fetch;
    const response = await send(url, { ...UNMARKED, method: "POST", headers, body, keepalive, signal });
    const asked = retryAfter(response.headers.get("Retry-After"), Date.now());
    // A browser shows nothing of a redirect but that it is one.
    const status = response.type === "opaqueredirect" ? 302 : response.status;
    const answer = await readAtMost(response, LONGEST_ANSWER + 1);
    const text = answer.length > LONGEST_ANSWER ? "" : new TextDecoder().decode(answer);
    return classifyResponse(status, text, reports.length, asked);
  };
  try {
    return await inTime(timeoutMillis, signal, async (signal) => {
      const outcome = await post(compactBody(id, reports), MEDIA_TYPE, signal);
      const isUnknownForm = outcome.kind === "refused" && UNKNOWN_FORM.has(outcome.error.status ?? 0);
      return isUnknownForm ? post(bodyOf(id, reports), "application/json", signal) : outcome;
    });
  } catch (error) {
    const mayBeStored = !codesOf(error).some((code) => NOT_SENT_CODES.test(code));
    return { kind: "retry", asked: 0, mayBeStored, error: explain(error) };
  }
}

/**
 * Ask for the switch, once, without key.
 * @param {Route} route @param {string} address @param {AbortSignal} signal
 * @returns {Promise<Uint8Array | null>} at most `SWITCH_BYTES` of it; null if there is none (never rejects)
 */
export async function fetchSwitch({ fetch, timeoutMillis }, address, signal) {
  try {
    return await inTime(timeoutMillis, signal, async (signal) => {
      const response = await (fetch ?? globalThis.fetch)(address, { ...UNMARKED, signal });
      return response.status === 200 ? await readAtMost(response, SWITCH_BYTES) : null;
    });
  } catch {
    return null;
  }
}

/**
 * Abort work after some time, or when `outer` is.
 * @template T @param {number} millis @param {AbortSignal} outer @param {(signal: AbortSignal) => Promise<T>} work
 * @returns {Promise<T>} rejects with TimedOut, or as the work does
 */
async function inTime(millis, outer, work) {
  const controller = new AbortController();
  const abort = () => controller.abort();
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    abort();
  }, millis);
  outer.addEventListener("abort", abort);
  try {
    return await work(controller.signal);
  } catch (error) {
    throw timedOut ? new TimedOut(`no complete answer in ${millis / 1_000} s`) : error;
  } finally {
    clearTimeout(timer);
    outer.removeEventListener("abort", abort);
  }
}

/**
 * Return what an answer means.
 * @param {number} status @param {string} body @param {number} count reports in the batch
 * @param {number} [asked] milliseconds of Retry-After @returns {Outcome}
 */
export function classifyResponse(status, body, count, asked = 0) {
  const answer = parse(body);
  if (status < 400 || status >= 500 || AGAIN.has(status)) {
    const own = status === 200 || status === 201;
    if (own && Number.isInteger(answer?.accepted)) return { kind: "delivered" };
    const mayBeStored = answer?.stored !== false;
    return { kind: "retry", asked, mayBeStored, error: explainStatus(status, answer) };
  }
  const error = explainStatus(status, answer);
  if (status === 422 && answer?.retry === true) {
    const unknown = namedVersions(answer.unknown);
    if (!unknown.length) return { kind: "retry", asked, mayBeStored: false, error };
    const refused = namedReports(answer.errors, count) ?? new Set();
    return { kind: "unknown", unknown, refused, reason: REFUSED, error };
  }
  const refused = status === 422 ? namedReports(answer?.errors, count) : null;
  if (refused) return { kind: "partly", refused, reason: REFUSED, error };
  const reasons = { 401: ": ingest key", 403: ": ingest key", 404: ": no such address", 405: ": no such address" };
  const about = /** @type {Record<number, string>} */ (reasons)[status] ?? "";
  return { kind: "refused", reason: REFUSED + about, error };
}

/** @param {number} status @param {any} answer the parsed JSON, if it is that @returns {DeliveryFailure} */
function explainStatus(status, answer) {
  if (status >= 300 && status < 400) return failed("redirect", status, "redirects aren't followed");
  if (status < 300) return failed("answer", status, "not an answer of a hubbub collector");
  const named = answer?.errors?.[0]?.detail ?? answer?.detail ?? answer?.title;
  return failed("status", status, typeof named === "string" ? named : `status ${status}`);
}

/**
 * Return why there was no answer, as far as `fetch` reveals it. Its own text isn't repeated: some quote the address.
 * @param {unknown} error @returns {DeliveryFailure}
 */
function explain(error) {
  if (error instanceof TimedOut) return failed("timeout", null, error.message);
  const codes = codesOf(error);
  for (const [kind, known] of KINDS) {
    const code = codes.find((code) => known.test(code));
    if (code !== undefined) return failed(kind, null, code);
  }
  return failed("connection", null, error instanceof Error ? error.name : "no answer");
}

/** @param {unknown} error @returns {string[]} its code, and those of what caused it */
function codesOf(error) {
  const codes = [];
  for (let depth = 0; error instanceof Error && depth < 5; depth++) {
    const { code, cause, errors } = /** @type {any} */ (error);
    if (typeof code === "string") codes.push(code);
    error = cause ?? errors?.[0];
  }
  return codes;
}

/**
 * @param {DeliveryFailure["kind"]} kind @param {number | null} status @param {string} detail @returns {DeliveryFailure}
 */
function failed(kind, status, detail) {
  return { kind, status, detail: detail.slice(0, LONGEST_DETAIL), time: Date.now() };
}

/**
 * Return the indices that the errors name, or null unless all of them name reports of the batch.
 * @param {unknown} errors @param {number} count
 */
function namedReports(errors, count) {
  if (!Array.isArray(errors) || !errors.length) return null;
  const indices = errors.map((error) => error?.report);
  const valid = indices.every((i) => Number.isInteger(i) && i >= 0 && i < count);
  return valid ? new Set(indices) : null;
}

/** Return which metrics and versions the collector doesn't know yet. @param {any} unknown @returns {Version[]} */
function namedVersions(unknown) {
  const listed = Array.isArray(unknown) ? unknown : [];
  return listed.filter((it) => typeof it?.metric === "string" && Number.isInteger(it?.version));
}

/** @param {string} body @returns {any} the parsed JSON, or null */
function parse(body) {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

/** @param {Response} response @param {number} most @returns {Promise<Uint8Array>} no more than so many bytes */
async function readAtMost(response, most) {
  const reader = response.body?.getReader();
  const chunks = [];
  let length = 0;
  for (let chunk; reader && length < most && !(chunk = await reader.read()).done; ) {
    chunks.push(chunk.value.subarray(0, most - length));
    length += chunk.value.length;
  }
  if (length >= most) await reader?.cancel();
  return new Uint8Array(await new Blob(chunks).arrayBuffer());
}
