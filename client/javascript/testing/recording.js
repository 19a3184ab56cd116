/**
 * Records into a directory's storage, as a process or a worker: `node recording.js <job>`, a job being JSON:
 * {directory, endpoint, registry, times, pauseMillis}.
 */

import { Telemetry } from "../src/index.js";
import { fileStorage } from "../src/node-storage.js";

const PATIENCE = 60_000;

const { directory, endpoint, registry, times, pauseMillis } = JSON.parse(process.argv[2]);
const storage = fileStorage(directory);
const telemetry = new Telemetry({ registry, endpoint, storage, batchSize: 10, log() {} });
for (let i = 0; i < times; i++) {
  telemetry.record("homepage", `page ${i % 7}`);
  telemetry.record("page", `page ${i % 7}`);
  telemetry.record("theme", true);
  if (i % 5 === 4) await new Promise((resolve) => setTimeout(resolve, pauseMillis));
}
await telemetry.flush(PATIENCE);
await telemetry.close(PATIENCE);
