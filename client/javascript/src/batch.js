/**
 * Reports into a batch with an id, and that into the bytes of a request.
 *
 * The id is drawn once and kept through every retry, so the collector recognizes a batch that it has
 * already counted. Invariant: the same reports are never sent under two ids.
 */

import { toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";

const ID_BYTES = 16;

/**
 * @typedef {object} Batch
 * @property {string} id 32 lower-case hexadecimal digits
 * @property {readonly import("./encoder.js").Report[]} reports
 */

/**
 * A report as it is stored and sent.
 *
 * @typedef {object} WireReport
 * @property {string} metric
 * @property {number} version
 * @property {number} cohort
 * @property {string} bits in base64
 */

/** @returns {string} a batch's id */
export function newBatchId() {
  return toHex(randomBytes(ID_BYTES));
}

/**
 * Put reports under a new id.
 *
 * @param {readonly import("./encoder.js").Report[]} reports
 * @returns {Readonly<Batch>}
 */
export function makeBatch(reports) {
  return Object.freeze({ id: newBatchId(), reports: Object.freeze([...reports]) });
}

/**
 * Return the JSON body of a request.
 *
 * @param {Readonly<Batch>} batch
 * @returns {string}
 */
export function batchToJson({ id, reports }) {
  return bodyOf(id, reports.map(wireReport));
}

/** @param {import("./encoder.js").Report} report @returns {WireReport} without anything else it carries */
export function wireReport({ metric, version, cohort, bits }) {
  return { metric, version, cohort, bits: btoa(String.fromCharCode(...bits)) };
}

/** @param {string} id @param {readonly WireReport[]} reports @returns {string} */
export function bodyOf(id, reports) {
  return JSON.stringify({ batch_id: id, reports });
}

/** How many bytes a body has without its reports. */
export const EMPTY_BODY_SIZE = bodyOf("0".repeat(2 * ID_BYTES), []).length;

/**
 * Return how many bytes a report takes in a body. Everything in it is ASCII that needs no escape.
 *
 * @param {WireReport} report
 * @returns {number} with a comma
 */
export function reportSize({ metric, version, cohort, bits }) {
  return EMPTY_REPORT_SIZE + metric.length + `${version}${cohort}`.length + bits.length + 1;
}

const EMPTY_REPORT_SIZE = '{"metric":"","version":,"cohort":,"bits":""}'.length;
