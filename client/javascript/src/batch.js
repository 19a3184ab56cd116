/**
 * Reports into a batch with an id, and that into the bytes of a request.
 *
 * The id is drawn once and kept through every retry: by it the collector knows a batch that it has
 * already counted. The same reports must never be sent under two ids.
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
 * Put reports under a new id.
 *
 * @param {readonly import("./encoder.js").Report[]} reports
 * @returns {Readonly<Batch>}
 */
export function makeBatch(reports) {
  return Object.freeze({ id: toHex(randomBytes(ID_BYTES)), reports: Object.freeze([...reports]) });
}

/**
 * Return the batch, under its id, without the reports that the collector will never accept.
 *
 * @param {Readonly<Batch>} batch
 * @param {ReadonlySet<number>} refused their indices
 * @returns {Readonly<Batch>}
 */
export function withoutReports(batch, refused) {
  const reports = batch.reports.filter((_, i) => !refused.has(i));
  return Object.freeze({ id: batch.id, reports: Object.freeze(reports) });
}

/**
 * Return the JSON body of a request.
 *
 * @param {Readonly<Batch>} batch
 * @returns {string}
 */
export function batchToJson({ id, reports }) {
  return JSON.stringify({
    batch_id: id,
    reports: reports.map(({ metric, version, cohort, bits }) => ({
      metric,
      version,
      cohort,
      bits: btoa(String.fromCharCode(...bits)),
    })),
  });
}
