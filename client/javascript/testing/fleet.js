/**
 * Many clients, each with a storage and so a secret of its own, report once to a real collector.
 *
 * The job on standard input is JSON: {registry, endpoint, metric, clients: {value: how many}}, or, where values are no
 * texts, `values: [...]` instead of `clients`. On standard output: the sums of all clients' counters.
 */

import { readFileSync } from "node:fs";

import { Telemetry } from "../src/index.js";
import { memoryStorage } from "./collecting.js";

const AT_ONCE = 32;
const PATIENCE = 60_000;

const { registry, endpoint, metric, clients, values = textsOf(clients) } = JSON.parse(readFileSync(0, "utf8"));
const sums = { recorded: 0, delivered: 0, dropped: 0 };

/** @param {Record<string, number>} counts @returns {unknown[]} */
function textsOf(counts) {
  return Object.entries(counts).flatMap(([value, count]) => Array(count).fill(value));
}

/** @param {unknown} value */
async function report(value) {
  const telemetry = new Telemetry({ registry, endpoint, storage: memoryStorage() });
  telemetry.record(metric, value);
  await telemetry.close(PATIENCE);
  const { recorded, delivered, dropped } = telemetry.status();
  sums.recorded += recorded;
  sums.delivered += delivered;
  sums.dropped += Object.values(dropped).reduce((sum, count) => sum + count, 0);
}

async function work() {
  while (values.length) await report(values.pop());
}

await Promise.all(Array.from({ length: AT_ONCE }, work));
console.log(JSON.stringify(sums));
