/**
 * Draws what many clients answer, for a statistician: a job on standard input, packed bits in a file.
 *
 * The job is JSON: {entry, values, stages, clients, label, output}. For each of the clients, whose secrets follow from
 * the label, the file gets some bytes for each value and stage:
 *
 * - "filter" (the true bits), "permanent", "report", and "instantaneous", of which a value is the permanent response in
 *   hexadecimal: k/8 bytes each;
 * - "answer": a new answer's cohort (2 bytes, little-endian) and its permanent bits;
 * - "period": as "answer", then a report of it.
 *
 * Instantaneous responses, and with memory "period" the answers, are drawn with the system's coins. On standard output:
 * the metric's epsilons.
 */

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

import { fromHex, littleEndian } from "../src/bytes.js";
import { Encoder } from "../src/encoder.js";
import { buildMetric } from "./making.js";

/** @type {Record<string, (encoder: Encoder, value: any) => Uint8Array[]>} */
const STAGES = {
  filter: (encoder, value) => [encoder.filter(value)],
  permanent: (encoder, value) => [encoder.answer(value).permanent],
  report: (encoder, value) => [encoder.encode(value).bits],
  instantaneous: (encoder, value) => [encoder.instantaneousResponse(fromHex(value))],
  answer: (encoder, value) => answerParts(encoder.answer(value)),
  period: (encoder, value) => {
    const answer = encoder.answer(value);
    return [...answerParts(answer), encoder.report(answer).bits];
  },
};

/** @param {import("../src/encoder.js").Answer} answer */
function answerParts({ cohort, permanent }) {
  return [littleEndian(cohort, 2), permanent];
}

const job = JSON.parse(readFileSync(0, "utf8"));
const metric = buildMetric(job.entry);
/** @type {Uint8Array[]} */
const drawn = [];
for (let client = 0; client < job.clients; client++) {
  const secret = createHash("sha256").update(`${job.label} ${client}`).digest();
  const encoder = new Encoder(metric, new Uint8Array(secret));
  for (const value of job.values) {
    for (const stage of job.stages) drawn.push(...STAGES[stage](encoder, value));
  }
}
writeFileSync(job.output, Buffer.concat(drawn));
console.log(JSON.stringify({ permanent: metric.epsilonPermanent, report: metric.epsilonReport }));
