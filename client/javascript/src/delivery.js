/**
 * The outbox into delivered batches: makes them when they are due, leases one after the other, and
 * repeats each under its id until the collector has settled it.
 *
 * The outbox is in the storage and may be shared with other tabs or processes; this module decides only
 * what happens when. Invariant: nothing but the collector's own answer settles a report.
 */

import { waitAfter } from "./backoff.js";
import { toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";
import { HubbubError } from "./errors.js";
import { Nap } from "./nap.js";
import {
  batchSpooled,
  countsOf,
  dropOtherForm,
  leaseOldest,
  MAY_HAVE_ARRIVED,
  noteSent,
  release,
  trim,
} from "./outbox.js";

/** After a request's time: what a slow machine may need to store its result. */
const LEASE_MARGIN = 5_000;
/** Before looking again for batches that others are sending. */
const PAUSE = 500;

/** @typedef {NonNullable<ReturnType<typeof leaseOldest>>} LeasedBatch */
/** @typedef {import("./outbox.js").Counts} Counts */

/**
 * @typedef {object} DeliveryOptions
 * @property {import("./state.js").StateStore} store
 * @property {import("./sender.js").Sender} sender
 * @property {import("./outbox.js").Route} route
 * @property {ReadonlySet<string>} daily metrics of which one report is sent a day
 * @property {number} batchSize
 * @property {number} batchMillis
 * @property {{reports: number, bytes: number}} most the outbox's bounds; beyond them the oldest are dropped
 * @property {number} timeoutMillis of a request
 * @property {import("./backoff.js").Delays} delays
 * @property {(count: number) => void} onDelivered
 * @property {(reason: string, count: number) => void} onDropped count may be 0
 * @property {(reason: string, count: number, error: import("./sender.js").DeliveryFailure) => void} onRefused
 * @property {(error: import("./sender.js").DeliveryFailure) => void} onError an attempt failed
 * @property {(error: unknown) => void} onTrouble the storage failed; it is tried again
 * @property {(error: HubbubError) => void} onEnd nothing can be delivered any more
 */

/** Reports on their way from the storage to the collector, and the one loop that moves them. */
export class Delivery {
  /** Whether the page may vanish at any moment: requests should then outlive it. */
  leaving = false;

  #options;
  #holder = toHex(randomBytes(8));
  /** @type {Counts} when they were last read */
  #counts = { spooled: 0, waiting: 0 };
  /** @type {number | null} when reports were first seen in the spool */
  #since = null;
  /** @type {LeasedBatch | null} */
  #underWay = null;
  /** Whether nothing can be sent now: an attempt has failed, or others are sending. */
  #stuck = false;
  #failures = 0;
  #working = false;
  #hurry = false;
  #stopped = false;
  #requests = new AbortController();
  #nap = new Nap();
  /** @type {Set<() => void>} */
  #idleWaiters = new Set();
  /** @type {Set<() => void>} */
  #stuckWaiters = new Set();

  /** @param {DeliveryOptions} options */
  constructor(options) {
    this.#options = options;
  }

  /** How many reports were unsent in the storage when it was last looked at. */
  get waiting() {
    return this.#counts.waiting;
  }

  /**
   * Take note of what is in the outbox.
   *
   * @param {Counts} counts
   */
  notice(counts) {
    this.#counts = counts;
    this.#since = counts.spooled ? (this.#since ?? performance.now()) : null;
    if (!counts.waiting) this.#resolveIdle();
    else if (!this.#working && !this.#stopped) this.#work();
    else if (counts.spooled >= this.#options.batchSize) this.#nap.wake();
  }

  /** Send what waits without waiting for more; a wait that follows a failure isn't cut short. */
  hurry() {
    this.#hurry = this.waiting > 0;
    this.#nap.wake();
  }

  /** @returns {Promise<void>} fulfilled once nothing waits */
  idle() {
    if (!this.waiting || this.#stopped) return Promise.resolve();
    return new Promise((resolve) => this.#idleWaiters.add(resolve));
  }

  /** @returns {Promise<void>} fulfilled once nothing waits, or nothing can be sent now */
  idleOrStuck() {
    if (!this.waiting || this.#stopped || this.#stuck) return Promise.resolve();
    return new Promise((resolve) => this.#stuckWaiters.add(resolve));
  }

  /** Stop, and unless the page is being left, cancel requests. What isn't settled stays in the storage. */
  stop() {
    this.#stopped = true;
    if (!this.leaving) this.#requests.abort();
    this.#nap.wake();
    this.#resolveIdle();
  }

  /** Let others send what this client was sending when it was stopped. */
  async letGo() {
    const batch = this.#underWay;
    if (!batch || this.leaving) return;
    await this.#options.store.change(({ outbox }) => release(outbox, batch.id, new Set()));
  }

  /** Deliver batch after batch until the outbox is empty; never rejects. */
  async #work() {
    this.#working = true;
    while (this.waiting && !this.#stopped) {
      await this.#untilDue();
      try {
        if (!this.#stopped) await this.#step();
      } catch (error) {
        await this.#fail(error);
      }
    }
    this.#working = false;
    this.#hurry = false;
  }

  /** @param {unknown} error */
  async #fail(error) {
    const { delays, onEnd, onTrouble } = this.#options;
    if (error instanceof HubbubError) {
      onEnd(error);
      return this.stop();
    }
    onTrouble(error);
    const wait = waitAfter(++this.#failures, 0, delays);
    this.#noteStuck();
    await this.#nap.sleepThrough(wait, () => this.#stopped);
  }

  #noteStuck() {
    this.#stuck = true;
    this.#resolveStuck();
  }

  #resolveStuck() {
    for (const resolve of this.#stuckWaiters) resolve();
    this.#stuckWaiters.clear();
  }

  /** Lease a batch and send it, or wait for others that are sending. */
  async #step() {
    const { dropped, batch } = await this.#lease();
    for (const [reason, count] of Object.entries(dropped)) this.#options.onDropped(reason, count);
    if (this.#stopped) return;
    if (batch) return this.#deliver(batch);
    this.#noteStuck();
    if (this.waiting) await this.#nap.sleep(PAUSE);
  }

  /** Wait until a batch is due, or there is nothing to wait for any more. */
  async #untilDue() {
    while (this.waiting && !this.#stopped && !this.#isDue()) {
      await this.#nap.sleep(Math.max(1, this.#dueAt() - performance.now()));
    }
  }

  #isDue() {
    const { spooled, waiting } = this.#counts;
    const batched = waiting - spooled;
    return batched > 0 || this.#isBatchDue(spooled);
  }

  /** @param {number} spooled */
  #isBatchDue(spooled) {
    const full = spooled >= this.#options.batchSize;
    return spooled > 0 && (this.#hurry || full || this.#dueAt() <= performance.now());
  }

  #dueAt() {
    return (this.#since ?? performance.now()) + this.#options.batchMillis;
  }

  async #lease() {
    const { store, route, batchSize, most, timeoutMillis } = this.#options;
    this.#stuck = false;
    const found = await store.change(({ outbox }) => {
      const now = Date.now();
      const lease = { holder: this.#holder, since: now, millis: timeoutMillis + LEASE_MARGIN };
      const dropped = trim(outbox, most, now);
      dropped[MAY_HAVE_ARRIVED] = dropOtherForm(outbox, route, now);
      let batch = leaseOldest(outbox, lease, route);
      if (!batch && this.#isBatchDue(countsOf(outbox, route.origin).spooled)) {
        batchSpooled(outbox, batchSize, route);
        batch = leaseOldest(outbox, lease, route);
      }
      return { dropped, batch, counts: countsOf(outbox, route.origin) };
    });
    this.#underWay = found.batch;
    this.notice(found.counts);
    return found;
  }

  /** @param {LeasedBatch} batch */
  async #deliver({ id, reports, isNew }) {
    const { store, route, sender, daily, delays, onError } = this.#options;
    const outcome = await sender.post({ id, reports }, {
      signal: this.#requests.signal,
      outliveThePage: this.leaving,
    });
    if (this.#stopped) return;
    if (outcome.kind !== "delivered") onError(outcome.error);
    const settled = settledBy(outcome, reports.length);
    const { there, counts } = await store.change(({ outbox }) => {
      const mayBeStored = outcome.kind !== "retry" || outcome.mayBeStored;
      const sent = reports.map(({ metric }) => metric).filter((metric) => daily.has(metric));
      if (mayBeStored) for (const metric of sent) noteSent(outbox, metric, Date.now());
      const isUnknown = isNew && !mayBeStored;
      const was = release(outbox, id, settled, isUnknown ? this.#holder : null);
      return { there: was, counts: countsOf(outbox, route.origin) };
    });
    this.#underWay = null;
    if (there) this.#count(outcome, settled.size);
    this.notice(counts);
    if (outcome.kind !== "retry") {
      this.#failures = 0;
      return;
    }
    const wait = waitAfter(++this.#failures, outcome.asked, delays);
    this.#noteStuck();
    await this.#nap.sleepThrough(wait, () => this.#stopped);
  }

  /** @param {import("./sender.js").Outcome} outcome @param {number} settled */
  #count(outcome, settled) {
    if (outcome.kind === "delivered") this.#options.onDelivered(settled);
    else if (outcome.kind !== "retry") {
      this.#options.onRefused(outcome.reason, settled, outcome.error);
    }
  }

  #resolveIdle() {
    for (const resolve of this.#idleWaiters) resolve();
    this.#idleWaiters.clear();
    this.#resolveStuck();
  }
}

/** @param {import("./sender.js").Outcome} outcome @param {number} count @returns {Set<number>} */
function settledBy(outcome, count) {
  if (outcome.kind === "partly") return outcome.refused;
  return new Set(outcome.kind === "retry" ? [] : Array(count).keys());
}
