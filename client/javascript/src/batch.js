/**
 * Reports into a batch with an id, and that into the bytes of a request.
 *
 * The id is drawn once and kept through every retry, so the collector recognizes a batch that it has already counted.
 * Invariant: the same reports are never sent under two ids.
 */

import { toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";

const ID_BYTES = 16;
const COHORT_BYTES = 2;

/**
 * @typedef {object} Batch
 * @property {string} id 32 lower-case hexadecimal digits
 * @property {readonly import("./encoder.js").Report[]} reports
 */

/**
 * A report as it is stored, and sent in the compact form.
 *
 * @typedef {object} StoredReport
 * @property {string} metric
 * @property {string} [slice] facts about the app, if any
 * @property {number} version
 * @property {string} record in base64: the cohort (2 bytes, little-endian), then the bits
 */

/** @returns {string} a batch's id */
export function newBatchId() {
  return toHex(randomBytes(ID_BYTES));
}

/** Put reports under a new id. @param {readonly import("./encoder.js").Report[]} reports @returns {Readonly<Batch>} */
export function makeBatch(reports) {
  return Object.freeze({ id: newBatchId(), reports: Object.freeze([...reports]) });
}

/** Return the JSON body of a request. @param {Readonly<Batch>} batch @returns {string} */
export function batchToJson({ id, reports }) {
  return bodyOf(id, reports.map(storedReport));
}

/** @param {import("./encoder.js").Report} report @returns {StoredReport} without anything else it carries */
export function storedReport({ metric, slice, version, cohort, bits }) {
  const record = String.fromCharCode(cohort & 255, cohort >> 8, ...bits);
  return { metric, ...(slice && { slice }), version, record: btoa(record) };
}

/** @param {string} id @param {readonly StoredReport[]} reports @returns {string} the JSON body */
export function bodyOf(id, reports) {
  const decoded = reports.map(({ metric, slice, version, record }) => {
    const bits = btoa(atob(record).slice(COHORT_BYTES));
    return { metric, slice, version, cohort: cohortOf(record), bits };
  });
  return JSON.stringify({ batch_id: id, reports: decoded });
}

/** @param {string} record @returns {number} */
function cohortOf(record) {
  const bytes = atob(record.slice(0, 4));
  return bytes.charCodeAt(0) + 256 * bytes.charCodeAt(1);
}

/** How many bytes a body has without its reports. */
export const EMPTY_BODY_SIZE = bodyOf("0".repeat(2 * ID_BYTES), []).length;

/**
 * Return how many bytes a report takes in a JSON body. Everything in it is ASCII that needs no escape.
 * @param {StoredReport} report @returns {number} with a comma
 */
export function reportSize({ metric, slice, version, record }) {
  const padding = record.endsWith("==") ? 2 : Number(record.endsWith("="));
  const width = (record.length / 4) * 3 - padding - COHORT_BYTES;
  const numbers = `${version}${cohortOf(record)}`;
  const texts = metric + numbers + (slice ? `"slice":"${slice}",` : "");
  return EMPTY_REPORT_SIZE + texts.length + 4 * Math.ceil(width / 3) + 1;
}

const EMPTY_REPORT_SIZE = '{"metric":"","version":,"cohort":,"bits":""}'.length;
