/**
 * Reports into delivered batches: collects them, sends one batch after the other, and repeats each
 * under its one id until the collector has settled it.
 *
 * Everything waits in memory. Beyond the limit the oldest reports make room, but never those of the
 * batch under way: nobody knows whether the collector has them already.
 */

import { waitAfter } from "./backoff.js";
import { makeBatch, withoutReports } from "./batch.js";

/**
 * @typedef {object} DeliveryOptions
 * @property {import("./sender.js").Sender} sender
 * @property {number} batchSize
 * @property {number} batchMillis
 * @property {number} maxWaiting
 * @property {import("./backoff.js").Delays} delays
 * @property {(count: number) => void} onDelivered
 * @property {(reason: string, count: number, detail?: string) => void} onDropped
 * @property {(why: string) => void} onRetry
 */

/** Reports on their way, and the one loop that moves them. */
export class Delivery {
  /** Whether the page may vanish at any moment: requests should then outlive it. */
  leaving = false;

  #options;
  /** @type {{report: import("./encoder.js").Report, since: number}[]} */
  #queue = [];
  #underWay = 0;
  #working = false;
  #hurry = false;
  #stopped = false;
  #requests = new AbortController();
  /** @type {Set<() => void>} */
  #idleWaiters = new Set();
  #wake = () => {};

  /** @param {DeliveryOptions} options */
  constructor(options) {
    this.#options = options;
  }

  /** How many reports are neither delivered nor dropped. */
  get waiting() {
    return this.#queue.length + this.#underWay;
  }

  /** @param {import("./encoder.js").Report} report */
  add(report) {
    const { maxWaiting, batchSize, onDropped } = this.#options;
    if (this.#stopped) return onDropped("closed", 1);
    this.#queue.push({ report, since: performance.now() });
    if (this.waiting > maxWaiting) {
      this.#queue.shift();
      onDropped("queue full", 1);
    }
    if (!this.#working) this.#work();
    else if (this.#queue.length >= batchSize) this.#wake();
  }

  /** Send what waits without waiting for more; a wait that follows a failure isn't cut short. */
  hurry() {
    this.#hurry = this.waiting > 0;
    this.#wake();
  }

  /** @returns {Promise<void>} fulfilled once nothing waits */
  idle() {
    if (!this.waiting) return Promise.resolve();
    return new Promise((resolve) => this.#idleWaiters.add(resolve));
  }

  /** Give up. @returns {number} how many reports were given up */
  stop() {
    const abandoned = this.waiting;
    this.#queue = [];
    this.#underWay = 0;
    this.#stopped = true;
    if (!this.leaving) this.#requests.abort();
    this.#wake();
    this.#tellIdle();
    return abandoned;
  }

  /** Deliver batch after batch until the queue is empty; never rejects. */
  async #work() {
    this.#working = true;
    try {
      while (this.#queue.length) {
        await this.#untilDue();
        const taken = this.#queue.splice(0, this.#options.batchSize);
        if (taken.length) await this.#deliver(makeBatch(taken.map(({ report }) => report)));
      }
    } catch (error) {
      this.#options.onDropped(
        "internal error",
        this.stop(),
        error instanceof Error ? error.name : "",
      );
    }
    this.#working = false;
    this.#hurry = false;
    this.#tellIdle();
  }

  /** Wait until a batch is due, or there is nothing to wait for any more. */
  async #untilDue() {
    const { batchSize, batchMillis } = this.#options;
    while (!this.#hurry && this.#queue.length && this.#queue.length < batchSize) {
      const wait = this.#queue[0].since + batchMillis - performance.now();
      if (wait <= 0) return;
      await this.#sleep(wait);
    }
  }

  /**
   * Repeat a batch until it is settled.
   *
   * @param {Readonly<import("./batch.js").Batch>} batch
   */
  async #deliver(batch) {
    const { sender, delays, onRetry } = this.#options;
    let failures = 0;
    while (batch.reports.length && !this.#stopped) {
      this.#underWay = batch.reports.length;
      const outcome = await sender.post(batch, {
        signal: this.#requests.signal,
        outliveThePage: this.leaving,
      });
      if (this.#stopped) return;
      if (outcome.kind === "retry") {
        failures++;
        onRetry(outcome.why);
        await this.#sleepUntil(performance.now() + waitAfter(failures, outcome.asked, delays));
      } else {
        batch = this.#settle(batch, outcome);
      }
    }
    this.#underWay = 0;
  }

  /**
   * Count what is settled, and return what is left of the batch.
   *
   * @param {Readonly<import("./batch.js").Batch>} batch
   * @param {Exclude<import("./sender.js").Outcome, {kind: "retry"}>} outcome
   */
  #settle(batch, outcome) {
    const all = new Set(batch.reports.keys());
    const settled = outcome.kind === "partly" ? outcome.refused : all;
    if (outcome.kind === "delivered") this.#options.onDelivered(settled.size);
    else this.#options.onDropped("refused by the collector", settled.size, outcome.why);
    return withoutReports(batch, settled);
  }

  /** Sleep, through all calls of `hurry`. @param {number} time */
  async #sleepUntil(time) {
    for (let rest; (rest = time - performance.now()) > 0 && !this.#stopped;)
      await this.#sleep(rest);
  }

  /** Sleep until it is time, or something happens. @param {number} millis */
  #sleep(millis) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, millis);
      // A program that has nothing else to do may end; who wants to wait for the reports flushes.
      /** @type {{unref?: () => void}} */ (timer).unref?.();
      this.#wake = () => {
        clearTimeout(timer);
        resolve(undefined);
      };
    });
  }

  #tellIdle() {
    for (const resolve of this.#idleWaiters) resolve();
    this.#idleWaiters.clear();
  }
}
