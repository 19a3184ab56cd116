/**
 * One HTTP attempt to deliver a batch, what its outcome means, and why it failed.
 *
 * Only an answer that the collector itself could have given counts as delivered: a captive portal
 * that redirects, or answers 200 with its own page, must not make the client discard reports. What is
 * sent is a batch's compact form, or JSON where that isn't understood. No answer changes how later batches
 * are sent, or it would mark the client. The description of a failure contains no value and no key.
 */

import { retryAfter } from "./backoff.js";
import { bodyOf } from "./batch.js";
import { compactBody, MEDIA_TYPE } from "./compact.js";
import { SWITCH_BYTES } from "./switch.js";

export const REFUSED = "refused by the collector";

const NO_KEY = new Set([401, 403]);
const NO_ADDRESS = new Set([404, 405]);
// What collectors, or firewalls before them, answer to a media type that they don't know.
const UNKNOWN_FORM = new Set([400, 403, 406, 415]);
// 407 comes from a proxy, not from the collector.
const AGAIN = new Set([407, 408, 429]);
const LONGEST_ANSWER = 1_048_576;
const LONGEST_DETAIL = 200;
// Browsers allow 64 KiB for all keepalive requests of a page together.
const LONGEST_KEEPALIVE = 60_000;
const DNS_CODES = /^(ENOTFOUND|EAI_\w+|ERR_DNS\w*)$/;
const TLS_CODES =
  /^(ERR_(TLS|SSL)\w*|CERT_\w+|DEPTH_ZERO_\w+|SELF_SIGNED_\w+|UNABLE_TO_\w+|HOSTNAME_MISMATCH|EPROTO)$/;
/** No server was reached that could be trusted: nothing was sent. */
const NOT_SENT_CODES =
  /^(ENOTFOUND|EAI_\w+|ECONNREFUSED|ERR_TLS_CERT\w*|CERT_\w+|DEPTH_ZERO_\w+|SELF_SIGNED_\w+|UNABLE_TO_\w+|HOSTNAME_MISMATCH)$/;
const TIMEOUT_CODES = /^(ETIMEDOUT|UND_ERR_\w*TIMEOUT)$/;

/**
 * Why an attempt didn't deliver its batch.
 *
 * @typedef {object} DeliveryFailure
 * @property {"DNS" | "TLS" | "connection" | "timeout" | "redirect" | "status" | "answer"} kind
 *   what a browser doesn't distinguish is a "connection"; an "answer" is a 2xx that isn't the collector's
 * @property {number | null} status of the answer, if there was one that may be looked at
 * @property {string} detail for people
 * @property {number} time milliseconds since 1970
 */

/** @typedef {{metric: string, version: number}} Version */

/**
 * What became of an attempt: `partly` names, by index, the reports that will never be accepted; `unknown` names
 * versions that the collector doesn't know yet, whose reports are to be kept, and may name such, too;
 * `mayBeStored` is whether the collector may have stored the batch although it is to be sent again.
 * @typedef {{kind: "delivered"} | {kind: "retry", asked: number, mayBeStored: boolean, error: DeliveryFailure}
 *   | {kind: "refused", reason: string, error: DeliveryFailure} | {kind: "partly", refused: Set<number>,
 *   reason: string, error: DeliveryFailure} | {kind: "unknown", unknown: Version[], refused: Set<number>,
 *   reason: string, error: DeliveryFailure}} Outcome
 */

/** Posts batches to one collector. */
export class Sender {
  #url;
  #timeout;
  #fetch;
  /** @type {Record<string, string>} */
  #headers = {};

  /**
   * @param {URL} address the collector's base address
   * @param {{timeout: number, fetch?: typeof globalThis.fetch, ingestKey?: string}} options timeout in
   *   milliseconds
   */
  constructor(address, { timeout, fetch, ingestKey }) {
    this.#url = `${address.href.replace(/\/+$/, "")}/v1/reports`;
    if (ingestKey !== undefined) this.#headers.Authorization = `Bearer ${ingestKey}`;
    this.#timeout = timeout;
    this.#fetch = fetch;
  }

  /**
   * Try once; twice if the compact form isn't understood. Never throws for anything that the network or the
   * server does.
   * @param {{id: string, reports: readonly import("./batch.js").StoredReport[]}} batch its reports in ascending
   *   order: answers name them by their places
   * @param {{signal: AbortSignal, outliveThePage: boolean}} options @returns {Promise<Outcome>}
   */
  async post({ id, reports }, { signal, outliveThePage }) {
    const attempt = this.#beginAttempt(signal);
    /** @param {string | ArrayBuffer} body @param {string} mediaType */
    const request = async (body, mediaType) => {
      const send = this.#fetch ?? globalThis.fetch;
      const size = typeof body === "string" ? body.length : body.byteLength;
      const response = await send(this.#url, {
        method: "POST",
        headers: { "Content-Type": mediaType, ...this.#headers },
        body,
        redirect: "manual",
        credentials: "omit",
        referrerPolicy: "no-referrer",
        cache: "no-store",
        keepalive: outliveThePage && size <= LONGEST_KEEPALIVE,
        signal: attempt.signal,
      });
      const asked = retryAfter(response.headers.get("Retry-After"), Date.now());
      // A browser shows nothing of a redirect but that it is one.
      const status = response.type === "opaqueredirect" ? 302 : response.status;
      return classifyResponse(status, await readBounded(response), reports.length, asked);
    };
    try {
      const outcome = await request(compactBody(id, reports), MEDIA_TYPE);
      if (!isUnknownForm(outcome)) return outcome;
      return await request(bodyOf(id, reports), "application/json");
    } catch (error) {
      const seconds = `no complete answer in ${this.#timeout / 1_000} s`;
      const failure = attempt.timedOut() ? failed("timeout", null, seconds) : explain(error);
      const mayBeStored = !codesOf(error).some((code) => NOT_SENT_CODES.test(code));
      return { kind: "retry", asked: 0, mayBeStored, error: failure };
    } finally {
      attempt.end();
    }
  }

  /**
   * Ask for the switch, once, as every client does: without key, cookie, or anything of an earlier answer.
   * @param {string} address @param {AbortSignal} signal
   * @returns {Promise<Uint8Array | null>} at most `SWITCH_BYTES` of it; null if there is none (never rejects)
   */
  async fetchSwitch(address, signal) {
    const attempt = this.#beginAttempt(signal);
    try {
      const send = this.#fetch ?? globalThis.fetch;
      const response = await send(address, {
        redirect: "manual",
        credentials: "omit",
        referrerPolicy: "no-referrer",
        cache: "no-store",
        signal: attempt.signal,
      });
      return response.status === 200 ? await readAtMost(response, SWITCH_BYTES) : null;
    } catch {
      return null;
    } finally {
      attempt.end();
    }
  }

  /** Return what ends an attempt in time, or when `outer` does. @param {AbortSignal} outer */
  #beginAttempt(outer) {
    const controller = new AbortController();
    const abort = () => controller.abort();
    let timedOut = false;
    const timer = setTimeout(() => {
      timedOut = true;
      abort();
    }, this.#timeout);
    outer.addEventListener("abort", abort);
    const end = () => {
      clearTimeout(timer);
      outer.removeEventListener("abort", abort);
    };
    return { signal: controller.signal, end, timedOut: () => timedOut };
  }
}

/** @param {Outcome} outcome of a compact body @returns {boolean} whether JSON should be tried */
function isUnknownForm(outcome) {
  return outcome.kind === "refused" && UNKNOWN_FORM.has(outcome.error.status ?? 0);
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
  return { kind: "refused", reason: refusalReason(status), error };
}

/** @param {number} status @returns {string} under what the batch's reports are counted */
function refusalReason(status) {
  if (NO_KEY.has(status)) return `${REFUSED}: ingest key`;
  return NO_ADDRESS.has(status) ? `${REFUSED}: no such address` : REFUSED;
}

/** @param {number} status @param {any} answer the parsed JSON, if it is that @returns {DeliveryFailure} */
function explainStatus(status, answer) {
  if (status >= 300 && status < 400) return failed("redirect", status, "redirects aren't followed");
  if (status < 300) return failed("answer", status, "not an answer of a hubbub collector");
  const named = answer?.errors?.[0]?.detail ?? answer?.detail ?? answer?.title;
  return failed("status", status, typeof named === "string" ? named : `status ${status}`);
}

/**
 * Return why there was no answer, as far as `fetch` reveals it. Its own text isn't repeated: some quote the
 * address.
 * @param {unknown} error @returns {DeliveryFailure}
 */
function explain(error) {
  const codes = codesOf(error);
  const find = (/** @type {RegExp} */ known) => codes.find((code) => known.test(code));
  /** @type {[DeliveryFailure["kind"], RegExp][]} */
  const kinds = [
    ["DNS", DNS_CODES],
    ["TLS", TLS_CODES],
    ["timeout", TIMEOUT_CODES],
  ];
  const kind = kinds.find(([, known]) => find(known)) ?? ["connection", /./];
  const name = error instanceof Error ? error.name : "no answer";
  return failed(kind[0], null, find(kind[1]) ?? name);
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
 * @param {DeliveryFailure["kind"]} kind @param {number | null} status @param {string} detail
 * @returns {DeliveryFailure}
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

/**
 * Return which metrics and versions the collector doesn't know yet.
 * @param {any} unknown @returns {Version[]}
 */
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

/** @param {Response} response @returns {Promise<string>} empty if it is longer than any real answer */
async function readBounded(response) {
  const bytes = await readAtMost(response, LONGEST_ANSWER + 1);
  return bytes.length > LONGEST_ANSWER ? "" : new TextDecoder().decode(bytes);
}

/** @param {Response} response @param {number} most @returns {Promise<Uint8Array>} no more than so many bytes */
async function readAtMost(response, most) {
  const reader = response.body?.getReader();
  /** @type {Uint8Array[]} */
  const chunks = [];
  let length = 0;
  for (let chunk; reader && !(chunk = await reader.read()).done;) {
    chunks.push(chunk.value.subarray(0, most - length));
    length += chunk.value.length;
    if (length >= most) {
      await reader.cancel();
      break;
    }
  }
  const bytes = new Uint8Array(Math.min(length, most));
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.length;
  }
  return bytes;
}
