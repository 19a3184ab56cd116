/**
 * One HTTP attempt to deliver a batch, and what its outcome means.
 *
 * Only an answer that the collector itself could have given counts as delivered: a captive portal
 * that redirects, or says 200 with a page of its own, must not make the client throw reports away.
 */

import { retryAfter } from "./backoff.js";
import { batchToJson } from "./batch.js";

const AGAIN = new Set([408, 429]);
const LONGEST_ANSWER = 1_048_576;
// Browsers allow 64 KiB for all keepalive requests of a page together.
const LONGEST_KEEPALIVE = 60_000;

/**
 * What became of an attempt: `partly` names, by index, the reports that will never be accepted.
 *
 * @typedef {{kind: "delivered"}
 *   | {kind: "retry", asked: number, why: string}
 *   | {kind: "refused", why: string}
 *   | {kind: "partly", refused: Set<number>, why: string}} Outcome
 */

/** Posts batches to one collector. */
export class Sender {
  #url;
  #timeout;
  #fetch;
  /** @type {Record<string, string>} */
  #headers = { "Content-Type": "application/json" };

  /**
   * @param {URL} address the collector's base address
   * @param {{timeout: number, fetch?: typeof globalThis.fetch, ingestKey?: string}} options timeout
   *   in milliseconds
   */
  constructor(address, { timeout, fetch, ingestKey }) {
    this.#url = `${address.href.replace(/\/+$/, "")}/v1/reports`;
    if (ingestKey !== undefined) this.#headers.Authorization = `Bearer ${ingestKey}`;
    this.#timeout = timeout;
    this.#fetch = fetch;
  }

  /**
   * Try once. Never throws for anything that the network or the server does.
   *
   * @param {Readonly<import("./batch.js").Batch>} batch
   * @param {{signal: AbortSignal, outliveThePage: boolean}} options
   * @returns {Promise<Outcome>}
   */
  async post(batch, { signal, outliveThePage }) {
    const body = batchToJson(batch);
    const timeout = new AbortController();
    const giveUp = () => timeout.abort();
    const timer = setTimeout(giveUp, this.#timeout);
    signal.addEventListener("abort", giveUp);
    try {
      const send = this.#fetch ?? globalThis.fetch;
      const response = await send(this.#url, {
        method: "POST",
        headers: this.#headers,
        body,
        redirect: "error",
        credentials: "omit",
        referrerPolicy: "no-referrer",
        cache: "no-store",
        keepalive: outliveThePage && body.length <= LONGEST_KEEPALIVE,
        signal: timeout.signal,
      });
      const asked = retryAfter(response.headers.get("Retry-After"), Date.now());
      return judge(response.status, await readBounded(response), batch.reports.length, asked);
    } catch (error) {
      return { kind: "retry", asked: 0, why: error instanceof Error ? error.name : "no answer" };
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", giveUp);
    }
  }
}

/**
 * Return what an answer means.
 *
 * @param {number} status
 * @param {string} body
 * @param {number} count reports in the batch
 * @param {number} [asked] milliseconds of Retry-After
 * @returns {Outcome}
 */
export function judge(status, body, count, asked = 0) {
  const why = `status ${status}`;
  if (status < 400 || status >= 500 || AGAIN.has(status)) {
    const delivered = (status === 200 || status === 201) && Number.isInteger(parse(body)?.accepted);
    return delivered ? { kind: "delivered" } : { kind: "retry", asked, why };
  }
  const errors = parse(body)?.errors;
  const refused = status === 422 ? namedReports(errors, count) : null;
  if (!refused) return { kind: "refused", why };
  return { kind: "partly", refused, why: `${why}: ${String(errors[0].detail).slice(0, 200)}` };
}

/**
 * Return the indices that the errors name, or null unless all of them name reports of the batch.
 *
 * @param {unknown} errors @param {number} count
 */
function namedReports(errors, count) {
  if (!Array.isArray(errors) || !errors.length) return null;
  const indices = errors.map((error) => error?.report);
  const valid = indices.every((i) => Number.isInteger(i) && i >= 0 && i < count);
  return valid ? new Set(indices) : null;
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
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let [text, length] = ["", 0];
  for (let chunk; reader && !(chunk = await reader.read()).done;) {
    length += chunk.value.length;
    if (length > LONGEST_ANSWER) {
      await reader.cancel();
      return "";
    }
    text += decoder.decode(chunk.value, { stream: true });
  }
  return text + decoder.decode();
}
