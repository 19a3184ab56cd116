/**
 * What an app calls: `new Telemetry({...}).record("homepage", url)`.
 *
 * Construction throws if the registry or an option can't work. From then on nothing throws or
 * rejects into the app: trouble is counted, logged once, and visible in `status()`.
 */

import { randomBytes } from "./coins.js";
import { Delivery } from "./delivery.js";
import { Encoder } from "./encoder.js";
import { HubbubError, ValueError } from "./errors.js";
import { Ledger } from "./ledger.js";
import { checkOptions, DEFAULTS, LARGEST_TIMER } from "./options.js";
import { whenHidden } from "./page.js";
import { loadOrCreateSecret } from "./secret.js";
import { Sender } from "./sender.js";
import { storeIfAbsent } from "./storage.js";

/**
 * @typedef {object} Status
 * @property {number} recorded reports made
 * @property {number} delivered reports that the collector acknowledged
 * @property {number} waiting reports still to be sent
 * @property {Readonly<Record<string, number>>} dropped reports or calls dropped, by reason
 * @property {string | null} disabled why nothing is recorded at all, if so
 */

/** Records values and delivers their noisy reports in the background. */
export class Telemetry {
  #consent;
  #metrics;
  #storage;
  #maxWaiting;
  #log;
  #delivery;
  #ready;
  #forgetPage;
  /** @type {Map<string, Encoder> | null} null until the secret is there */
  #encoders = null;
  /** @type {{name: unknown, value: unknown}[]} calls made before that */
  #early = [];
  /** @type {Ledger} */
  #ledger;
  /** @type {Set<Promise<void>>} reports that wait for the storage to remember their values */
  #claims = new Set();
  /** @type {Set<string>} */
  #reportedOnce = new Set();
  /** @type {Map<string, number>} */
  #dropped = new Map();
  /** @type {Set<string>} */
  #logged = new Set();
  /** @type {string | null} */
  #disabled;
  #recorded = 0;
  #delivered = 0;
  #closed = false;

  /** @param {import("./options.js").Options} options throws MetricError, OptionError */
  constructor(options) {
    const checked = checkOptions(options);
    this.#consent = checked.consent;
    this.#metrics = checked.metrics;
    this.#storage = checked.storage;
    this.#ledger = new Ledger(checked.storage);
    this.#log = options.log ?? ((/** @type {string} */ message) => console.warn(message));
    this.#disabled = this.#consent ? null : "no consent";
    this.#maxWaiting = checked.numbers.maxWaiting;
    this.#delivery = this.#makeDelivery(checked);
    this.#ready = this.#consent ? this.#open() : Promise.resolve();
    this.#forgetPage = this.#consent ? whenHidden((hidden) => this.#pageTurned(hidden)) : () => {};
  }

  /**
   * Report a value, in noise. Returns at once and never throws.
   *
   * @param {string} metric its name in the registry
   * @param {unknown} value a string, boolean or number, as its type wants
   */
  record(metric, value) {
    if (!this.#consent) return;
    if (this.#closed) this.#drop("closed");
    else if (this.#encoders || this.#disabled !== null) this.#recordNow(metric, value);
    else this.#keepEarly(metric, value);
  }

  /**
   * Send what waits, now.
   *
   * @param {number} [timeoutMillis]
   * @returns {Promise<boolean>} whether all was settled in time; never rejects
   */
  async flush(timeoutMillis = DEFAULTS.timeoutMillis) {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    const timeout = new Promise((resolve) => {
      timer = setTimeout(() => resolve(false), Math.min(timeoutMillis, LARGEST_TIMER));
    });
    const settled = await Promise.race([this.#settled(), timeout]);
    clearTimeout(timer);
    return settled === true;
  }

  /**
   * Flush, then stop; later calls of `record` are dropped and counted.
   *
   * @param {number} [timeoutMillis]
   * @returns {Promise<void>} never rejects
   */
  async close(timeoutMillis = 2_000) {
    this.#closed = true;
    await this.flush(timeoutMillis);
    this.#forgetPage();
    const abandoned = this.#delivery.stop() + this.#early.length;
    this.#early = [];
    if (abandoned) this.#drop("not delivered before close", abandoned);
  }

  /** @returns {Status} counters and, if recording is off, the reason */
  status() {
    return {
      recorded: this.#recorded,
      delivered: this.#delivered,
      waiting: this.#early.length + this.#claims.size + this.#delivery.waiting,
      dropped: Object.fromEntries(this.#dropped),
      disabled: this.#disabled,
    };
  }

  /** @param {boolean} hidden */
  #pageTurned(hidden) {
    this.#delivery.leaving = hidden;
    if (!hidden) return;
    this.#delivery.hurry();
    Promise.allSettled(this.#claims).then(() => this.#delivery.hurry());
  }

  /** @param {ReturnType<typeof checkOptions>} checked */
  #makeDelivery({ endpoint, ingestKey, fetch, numbers }) {
    return new Delivery({
      sender: new Sender(endpoint, { timeout: numbers.timeoutMillis, fetch, ingestKey }),
      batchSize: numbers.batchSize,
      batchMillis: numbers.batchMillis,
      maxWaiting: numbers.maxWaiting,
      delays: { first: numbers.firstRetryMillis, longest: numbers.longestRetryMillis },
      onDelivered: (count) => (this.#delivered += count),
      onDropped: (reason, count, detail) => this.#drop(reason, count, detail),
      onRetry: (why) => this.#logOnce("retry", `the collector didn't take a batch yet (${why})`),
    });
  }

  async #open() {
    try {
      randomBytes(1); // A client without coins is off from the start, not from its first report on.
      const secret = await loadOrCreateSecret(this.#storage);
      const made = [...this.#metrics].map(
        ([name, metric]) => /** @type {const} */ ([name, new Encoder(metric, secret)]),
      );
      this.#encoders = new Map(made);
    } catch (error) {
      this.#disabled = error instanceof Error ? error.message : String(error);
      this.#logOnce("disabled", `off: ${this.#disabled}`);
    }
    for (const { name, value } of this.#early.splice(0)) this.#recordNow(name, value);
  }

  /** @param {unknown} name @param {unknown} value */
  #keepEarly(name, value) {
    this.#early.push({ name, value });
    if (this.#early.length > this.#maxWaiting) {
      this.#early.shift();
      this.#drop("queue full");
    }
  }

  /** @param {unknown} name @param {unknown} value */
  #recordNow(name, value) {
    if (!this.#encoders) return this.#drop("disabled");
    const encoder = this.#encoders.get(/** @type {string} */ (name));
    // The name given isn't shown: it is a value if the arguments were swapped.
    if (!encoder) return this.#drop("unknown metric", 1, `known: ${[...this.#encoders.keys()]}`);
    const { metric } = encoder;
    try {
      if (today() > metric.expires) return this.#drop("expired metric", 1, metric.name);
      const report = encoder.encode(value);
      if (metric.mode === "one-time") this.#addOnce(metric, report);
      else this.#addWithinCap(metric, encoder.valueDigest(value), report);
    } catch (error) {
      const reason = error instanceof ValueError ? "bad value" : "internal error";
      this.#drop(reason, 1, `${metric.name}: ${harmless(error)}`);
    }
  }

  /** @param {import("./encoder.js").Report} report */
  #add(report) {
    this.#recorded++;
    this.#delivery.add(report);
  }

  /**
   * Let the report go if this client has never reported the metric; the storage remembers it first.
   *
   * @param {import("./registry.js").Metric} metric
   * @param {import("./encoder.js").Report} report
   */
  #addOnce({ application, name, version }, report) {
    const key = `hubbub.reported.${application}.${name}.${version}`;
    if (this.#reportedOnce.has(key)) return this.#drop("already reported", 1, name);
    this.#reportedOnce.add(key);
    this.#addIf(storeIfAbsent(this.#storage, key, today()), report, "already reported", () =>
      this.#reportedOnce.delete(key),
    );
  }

  /**
   * Let the report go if its value is known, or if there is room for another; see `Ledger`.
   *
   * @param {import("./registry.js").Metric} metric
   * @param {string} digest
   * @param {import("./encoder.js").Report} report
   */
  #addWithinCap(metric, digest, report) {
    if (this.#ledger.knows(metric, digest)) return this.#add(report);
    this.#addIf(this.#ledger.admit(metric, digest), report, "more distinct values than max_values");
  }

  /**
   * Let the report go once the storage has said yes.
   *
   * @param {Promise<boolean>} admitted
   * @param {import("./encoder.js").Report} report
   * @param {string} otherwise why it is dropped if the answer is no
   * @param {() => void} [undo] for a storage that failed
   */
  #addIf(admitted, report, otherwise, undo = () => {}) {
    const claim = admitted
      .then(
        (yes) => (yes ? this.#add(report) : this.#drop(otherwise, 1, report.metric)),
        () => {
          undo();
          this.#drop("storage failed", 1, report.metric);
        },
      )
      .finally(() => this.#claims.delete(claim));
    this.#claims.add(claim);
  }

  async #settled() {
    await this.#ready;
    while (this.#claims.size) await Promise.allSettled(this.#claims);
    this.#delivery.hurry();
    await this.#delivery.idle();
    return true;
  }

  /**
   * Count a loss; log each reason once.
   *
   * @param {string} reason
   * @param {number} [count]
   * @param {string} [detail]
   */
  #drop(reason, count = 1, detail = "") {
    this.#dropped.set(reason, (this.#dropped.get(reason) ?? 0) + count);
    this.#logOnce(reason, `dropped a report: ${reason}${detail && ` (${detail})`}`);
  }

  /** @param {string} kind @param {string} message */
  #logOnce(kind, message) {
    if (this.#logged.has(kind)) return;
    this.#logged.add(kind);
    try {
      this.#log(`hubbub: ${message}`);
    } catch {
      // An app's own log must not hurt the app through us.
    }
  }
}

/** @param {unknown} error @returns {string} what may be logged: no foreign message, it could hold a value */
function harmless(error) {
  if (error instanceof HubbubError) return error.message;
  return error instanceof Error ? error.name : typeof error;
}

/** @returns {string} the day in UTC */
function today() {
  return new Date().toISOString().slice(0, 10);
}
