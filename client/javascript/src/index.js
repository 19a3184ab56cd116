/** The public names. `fileStorage`, for Node, is in `hubbub-client/node`. */

/**
 * @typedef {import("./batch.js").Batch} Batch @typedef {import("./dimensions.js").Dimension} Dimension
 * @typedef {import("./encoder.js").Report} Report @typedef {import("./options.js").Options} Options
 * @typedef {import("./registry.js").Metric} Metric @typedef {import("./registry.js").Registry} Registry
 * @typedef {import("./sender.js").DeliveryFailure} DeliveryFailure @typedef {import("./storage.js").Change} Change
 * @typedef {import("./storage.js").KeptTexts} KeptTexts
 * @typedef {import("./telemetry.js").MetricSpending} MetricSpending @typedef {import("./telemetry.js").Preview} Preview
 * @typedef {import("./telemetry.js").Spending} Spending @typedef {import("./telemetry.js").Status} Status
 */

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
export { browserStorage, indexedDbStorage } from "./storage.js";
export { Telemetry } from "./telemetry.js";
