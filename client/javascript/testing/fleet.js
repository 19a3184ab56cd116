/**
 * Many clients, each with a storage and so a secret of its own, report once to a real collector.
 *
 * The job on standard input is JSON: {registry, endpoint, metric, clients: {value: how many}}. On
 * standard output: the sums of all clients' counters.
 */

import { readFileSync } from "node:fs";

import { Telemetry } from "../src/index.js";
import { memoryStorage } from "./collecting.js";

const AT_ONCE = 32;
const PATIENCE = 60_000;

const { registry, endpoint, metric, clients } = JSON.parse(readFileSync(0, "utf8"));
const values = Object.entries(clients).flatMap(([value, count]) => Array(count).fill(value));
const sums = { recorded: 0, delivered: 0, dropped: 0 };

/** @param {string} value */
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
