/** The public names. `fileStorage`, for Node, is in `hubbub-client/node`. */

export { batchToJson, makeBatch } from "./batch.js";
export { Encoder } from "./encoder.js";
export {
  HubbubError,
  MetricError,
  OptionError,
  RandomnessError,
  StorageError,
  ValueError,
} from "./errors.js";
export { makeRegistry } from "./registry.js";
export { browserStorage } from "./storage.js";
export { Telemetry } from "./telemetry.js";
