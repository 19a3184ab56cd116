/**
 * Everything that this client throws. Only construction throws into an app; afterwards errors are caught, counted and
 * logged once. No message contains a recorded value.
 */

/** Base of all errors of this client. */
export class HubbubError extends Error {
  /** @param {string} message @param {ErrorOptions} [options] */
  constructor(message, options) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An entry of the registry is wrong; the message names field and value. */
export class MetricError extends HubbubError {}

/** A recorded value can't be a value of its metric. */
export class ValueError extends HubbubError {}

/** An option of the telemetry is unusable. */
export class OptionError extends HubbubError {}

/** The storage failed, or what it holds is damaged. */
export class StorageError extends HubbubError {}

/** There is no system generator to draw coins from. */
export class RandomnessError extends HubbubError {}

/**
 * Return how a value that was written in a registry or an option looks in a message.
 * @param {unknown} value @returns {string}
 */
export function shown(value) {
  if (value === undefined) return "(missing)";
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  if (typeof value === "bigint" || typeof value === "symbol") return String(value);
  if (typeof value === "function") return "(a function)";
  try {
    const text = JSON.stringify(value);
    return text.length > 80 ? `${text.slice(0, 77)}...` : text;
  } catch {
    return "(an object)";
  }
}

/** @param {unknown} value @returns {string} what it is, for a message that mustn't show it */
export function typeOf(value) {
  return value === null ? "null" : typeof value;
}
