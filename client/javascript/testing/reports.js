/**
 * Draws what many clients answer, for a statistician: a job on standard input, packed bits in a file.
 *
 * The job is JSON: {entry, values, stages, clients, label, output}. For each of the clients, whose
 * secrets follow from the label, the file gets k/8 bytes for each value and stage. The stages are
 * "filter" (the true bits), "permanent", "report", and "instantaneous", of which a value is the
 * permanent response in hexadecimal. Instantaneous responses are drawn with the system's coins. On
 * standard output: the metric's epsilons.
 */

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

import { fromHex } from "../src/bytes.js";
import { Encoder } from "../src/encoder.js";
import { buildMetric } from "./making.js";

/** @type {Record<string, (encoder: Encoder, value: any) => Uint8Array>} */
const STAGES = {
  filter: (encoder, value) => encoder.filter(value),
  permanent: (encoder, value) => encoder.permanentResponse(encoder.filter(value)),
  report: (encoder, value) => encoder.encode(value).bits,
  instantaneous: (encoder, value) => encoder.instantaneousResponse(fromHex(value)),
};

const job = JSON.parse(readFileSync(0, "utf8"));
const metric = buildMetric(job.entry);
const width = metric.params.k / 8;
const packed = new Uint8Array(job.clients * job.values.length * job.stages.length * width);

let at = 0;
for (let client = 0; client < job.clients; client++) {
  const secret = createHash("sha256").update(`${job.label} ${client}`).digest();
  const encoder = new Encoder(metric, new Uint8Array(secret));
  for (const value of job.values) {
    for (const stage of job.stages) {
      packed.set(STAGES[stage](encoder, value), at);
      at += width;
    }
  }
}
writeFileSync(job.output, packed);
console.log(JSON.stringify({ permanent: metric.epsilonPermanent, report: metric.epsilonReport }));
