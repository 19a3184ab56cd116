/** Reports a second, by type and parameters: `node testing/bench.js`. */

import { Encoder } from "../src/encoder.js";
import { buildMetric, buildSecret } from "./making.js";

const SECONDS = 1;
const CASES = {
  "string, k = 128, f = 0.5, p = 0.25, q = 0.75": [{}, "example.com"],
  "string, k = 128, f = 0.3141, p = 0.1234, q = 0.8765": [{ f: 0.3141, p: 0.1234, q: 0.8765 }, "example.com"],
  "string, k = 1024, h = 8": [{ k: 1024, h: 8 }, "example.com"],
  boolean: [{ type: "boolean" }, true],
};

for (const [name, [fields, value]] of Object.entries(CASES)) {
  const encoder = new Encoder(buildMetric(/** @type {object} */ (fields)), buildSecret());
  for (let i = 0; i < 5_000; i++) encoder.encode(value);
  const start = performance.now();
  let reports = 0;
  while (performance.now() - start < 1_000 * SECONDS) {
    for (let i = 0; i < 100; i++) encoder.encode(value);
    reports += 100;
  }
  const rate = (1_000 * reports) / (performance.now() - start);
  console.log(`${Math.round(rate).toLocaleString("en").padStart(10)} reports/s  ${name}`);
}
