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
  dropOff,
  leaseOldest,
  noteSent,
  putOff,
  release,
  trim,
} from "./outbox.js";
import {
  checkSwitch,
  claimFetch,
  keepSwitch,
  offBy,
  parseSwitch,
  SWITCHED_OFF,
  SwitchError,
} from "./switch.js";

/** After a request's time: what a slow machine may need to store its result. */
const LEASE_MARGIN = 5_000;
/** Before looking again for batches that others are sending. */
const PAUSE = 500;

/** @typedef {NonNullable<ReturnType<typeof leaseOldest>>} LeasedBatch */
/** @typedef {import("./outbox.js").Counts} Counts */
/**
 * Where to ask for the switch, for whom, and which key must have signed it; `keptAs` is the key's name.
 * @typedef {{address: string, application: string, key: Uint8Array | null, keptAs: string}} Switched
 */

/**
 * @typedef {object} DeliveryOptions
 * @property {import("./state.js").StateStore} store
 * @property {import("./sender.js").Sender} sender
 * @property {string} origin of the collector
 * @property {ReadonlySet<string>} daily metrics of which one report is sent a day
 * @property {Switched | null} switched
 * @property {number} batchSize
 * @property {number} batchMillis
 * @property {{reports: number, bytes: number}} most the outbox's bounds; beyond them the oldest are dropped
 * @property {number} timeoutMillis of a request
 * @property {import("./backoff.js").Delays} delays
 * @property {(count: number) => void} onDelivered
 * @property {(reason: string, count: number) => void} onDropped count may be 0
 * @property {(reason: string, count: number, error: import("./sender.js").DeliveryFailure) => void} onRefused
 * @property {(error: import("./sender.js").DeliveryFailure) => void} onError an attempt failed
 * @property {(why: string) => void} onNoSwitch the switch is as before, for there is none that may be obeyed
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
  /** @type {Promise<{dropped: Record<string, number>, batch: LeasedBatch | null}> | null} the last */
  #leasing = null;
  /** Whether nothing can be sent now: an attempt has failed, or others are sending. */
  #stuck = false;
  #failures = 0;
  #working = false;
  #isFlushing = false;
  #stopped = false;
  #requests = new AbortController();
  /** @type {Promise<void> | null} */
  #asking = null;
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

  /** Take note of what is in the outbox. @param {Counts} counts */
  notice(counts) {
    this.#counts = counts;
    this.#since = counts.spooled ? (this.#since ?? performance.now()) : null;
    if (!counts.waiting) this.#resolveIdle();
    else if (!this.#working && !this.#stopped) this.#work();
    else if (counts.spooled >= this.#options.batchSize) this.#nap.wake();
  }

  /** Send what waits without waiting for more; a wait that follows a failure isn't cut short. */
  beginFlush() {
    this.#isFlushing = this.waiting > 0;
    this.#nap.wake();
  }

  /** @returns {Promise<void>} fulfilled once nothing waits */
  idle() {
    if (!this.waiting || this.#stopped) return Promise.resolve();
    return new Promise((resolve) => this.#idleWaiters.add(resolve));
  }

  /** @returns {Promise<void>} fulfilled once nothing waits, or nothing can be sent now */
  idleOrStuck() {
    if (!this.waiting || this.#stopped || this.#stuck || this.#isResting()) return Promise.resolve();
    return new Promise((resolve) => this.#stuckWaiters.add(resolve));
  }

  /**
   * Fetch the switch, unless that was done of late, though nothing is sent: all may be off. Without that a
   * client of which everything is off would never learn that it is on again.
   */
  ask() {
    this.#asking ??= this.#fetchSwitch()
      .catch((error) => this.#options.onTrouble(error))
      .finally(() => void (this.#asking = null));
  }

  /** @returns {Promise<void>} fulfilled once the switch isn't waited for */
  async asked() {
    await this.#asking;
  }

  /** Stop, and unless the page is being left, cancel requests. What isn't settled stays in the storage. */
  stop() {
    this.#stopped = true;
    if (!this.leaving) this.#requests.abort();
    this.#nap.wake();
    this.#resolveIdle();
  }

  /** Let others send what this client was sending, or about to send, when it was stopped. */
  async releaseLeases() {
    await this.#leasing;
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
    this.#isFlushing = false;
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
    this.#leasing = this.#lease();
    const { dropped, batch } = await this.#leasing;
    for (const [reason, count] of Object.entries(dropped)) this.#options.onDropped(reason, count);
    if (this.#stopped) return;
    if (batch) return this.#deliver(batch);
    this.#noteStuck();
    if (this.waiting) await this.#nap.sleep(PAUSE);
  }

  /** Wait until a batch is due, or there is nothing to wait for any more. */
  async #untilDue() {
    while (this.waiting && !this.#stopped && !this.#isDue()) {
      if (this.#isResting()) this.#resolveStuck();
      const rest = (this.#counts.rest?.until ?? Infinity) - Date.now();
      await this.#nap.sleep(Math.max(1, Math.min(this.#dueAt() - performance.now(), rest)));
    }
  }

  /** Whether all that waits is what the collector doesn't know yet. */
  #isResting() {
    return this.#counts.rest?.reports === this.waiting;
  }

  #isDue() {
    const { spooled, waiting, rest } = this.#counts;
    if (rest && rest.until <= Date.now()) return true;
    const batched = waiting - spooled - (rest?.reports ?? 0);
    return batched > 0 || this.#isBatchDue(spooled);
  }

  /** @param {number} spooled */
  #isBatchDue(spooled) {
    const full = spooled >= this.#options.batchSize;
    return spooled > 0 && (this.#isFlushing || full || this.#dueAt() <= performance.now());
  }

  #dueAt() {
    return (this.#since ?? performance.now()) + this.#options.batchMillis;
  }

  async #lease() {
    const { store, origin, batchSize, most, timeoutMillis, switched } = this.#options;
    this.#stuck = false;
    const found = await store.change((state) => {
      const { outbox } = state;
      const now = Date.now();
      const lease = { holder: this.#holder, since: now, millis: timeoutMillis + LEASE_MARGIN };
      const off = dropOff(outbox, offBy(state, switched?.keptAs ?? null), now);
      /** @type {Record<string, number>} */
      const dropped = { ...trim(outbox, most, now), [SWITCHED_OFF]: off };
      let batch = leaseOldest(outbox, lease, origin);
      if (!batch && this.#isBatchDue(countsOf(outbox, origin).spooled)) {
        batchSpooled(outbox, batchSize, origin);
        batch = leaseOldest(outbox, lease, origin);
      }
      return { dropped, batch, counts: countsOf(outbox, origin) };
    });
    this.#underWay = found.batch;
    this.notice(found.counts);
    return found;
  }

  /** @param {LeasedBatch} batch */
  async #deliver({ id, reports, isNew }) {
    const { store, origin, sender, daily, delays, onError } = this.#options;
    const outcome = await sender.post({ id, reports }, {
      signal: this.#requests.signal,
      outliveThePage: this.leaving,
    });
    if (this.#stopped) return;
    if (outcome.kind !== "delivered") onError(outcome.error);
    const settled = settledBy(outcome, reports.length);
    const { there, counts } = await store.change(({ outbox }) => {
      if (outcome.kind === "unknown") {
        const wasThere = putOff(outbox, id, outcome, isNew ? this.#holder : null);
        return { there: wasThere, counts: countsOf(outbox, origin) };
      }
      const mayBeStored = outcome.kind !== "retry" || outcome.mayBeStored;
      const sent = reports.map(({ metric }) => metric).filter((metric) => daily.has(metric));
      if (mayBeStored) for (const metric of sent) noteSent(outbox, metric, Date.now());
      const isUnknown = isNew && !mayBeStored;
      const was = release(outbox, id, settled, isUnknown ? this.#holder : null);
      return { there: was, counts: countsOf(outbox, origin) };
    });
    this.#underWay = null;
    if (there) this.#count(outcome, settled.size);
    // The collector has answered: this client has shown itself anyway.
    if (outcome.kind !== "retry") await this.#fetchSwitch();
    this.notice(counts);
    if (outcome.kind !== "retry") {
      this.#failures = 0;
      return;
    }
    const wait = waitAfter(++this.#failures, outcome.asked, delays);
    this.#noteStuck();
    await this.#nap.sleepThrough(wait, () => this.#stopped);
  }

  /** Ask for the switch, at most once a day, and obey it; go on as before if there is none to obey. */
  async #fetchSwitch() {
    const { store, sender, switched, onNoSwitch } = this.#options;
    if (!switched || this.#stopped) return;
    const { address, application, key, keptAs } = switched;
    if (!(await store.change((state) => claimFetch(state, Date.now(), keptAs)))) return;
    const bytes = await sender.fetchSwitch(address, this.#requests.signal);
    if (this.#stopped) return;
    if (!bytes) return onNoSwitch("it can't be fetched");
    try {
      const file = parseSwitch(bytes);
      await checkSwitch(file, application, key, Date.now());
      const kept = await store.change((state) => keepSwitch(state, file.document, keptAs));
      if (!kept) onNoSwitch("a later one is obeyed");
    } catch (error) {
      if (!(error instanceof SwitchError)) throw error;
      onNoSwitch(error.message);
    }
  }

  /** @param {import("./sender.js").Outcome} outcome @param {number} settled */
  #count(outcome, settled) {
    if (outcome.kind === "delivered") this.#options.onDelivered(settled);
    else if (outcome.kind !== "retry" && settled) {
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
  if (outcome.kind === "partly" || outcome.kind === "unknown") return outcome.refused;
  return new Set(outcome.kind === "retry" ? [] : Array(count).keys());
}
