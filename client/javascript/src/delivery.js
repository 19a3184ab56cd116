/**
 * The outbox into delivered batches: makes them when they are due, leases one after the other, and repeats each under
 * its id until the collector has settled it.
 *
 * The outbox is in the storage and may be shared with other tabs or processes; this module decides only what happens
 * when. Invariant: nothing but the collector's own answer settles a report.
 */

import { waitAfter } from "./backoff.js";
import { toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";
import { HubbubError } from "./errors.js";
import { Nap } from "./nap.js";
import { batchSpooled, countsOf, dropOff, leaseOldest, noteSent, putOff, release, trim } from "./outbox.js";
import { fetchSwitch, postBatch } from "./sender.js";
import { checkSwitch, claimFetch, keepSwitch, offBy, parseSwitch, SWITCHED_OFF, SwitchError } from "./switch.js";

/** After a request's time: what a slow machine may need to store its result. */
const LEASE_MARGIN = 5_000;
/** Before looking again for batches that others are sending. */
const PAUSE = 500;

/** @typedef {NonNullable<ReturnType<typeof leaseOldest>>} LeasedBatch */
/** @typedef {import("./outbox.js").Counts} Counts */
/** @typedef {import("./sender.js").DeliveryFailure} DeliveryFailure */

/**
 * @typedef {object} Outcomes
 * @property {(count: number) => void} onDelivered
 * @property {(reason: string, count: number, error: DeliveryFailure) => void} onRefused
 * @property {(error: DeliveryFailure) => void} onError an attempt failed
 * @property {(why: string) => void} onNoSwitch the switch is as before, for there is none that may be obeyed
 */

/** Reports on their way from the storage to the collector, and the one loop that moves them. */
export class Delivery {
  /** Whether the page may vanish at any moment: requests should then outlive it. */
  leaving = false;

  #client;
  #outcomes;
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
  /** @type {Set<{orStuck: boolean, resolve: () => void}>} */
  #waiters = new Set();

  /** @param {import("./recorder.js").Client} client @param {Outcomes} outcomes */
  constructor(client, outcomes) {
    this.#client = client;
    this.#outcomes = outcomes;
  }

  /** How many reports were unsent in the storage when it was last looked at. */
  get waiting() {
    return this.#counts.waiting;
  }

  /** Take note of what is in the outbox. @param {Counts} counts */
  notice(counts) {
    this.#counts = counts;
    this.#since = counts.spooled ? (this.#since ?? performance.now()) : null;
    if (!counts.waiting) this.#resolve();
    else if (!this.#working && !this.#stopped) this.#work();
    else if (counts.spooled >= this.#client.options.batchSize) this.#nap.wake();
  }

  /** Send what waits without waiting for more; a wait that follows a failure isn't cut short. */
  beginFlush() {
    this.#isFlushing = this.waiting > 0;
    this.#nap.wake();
  }

  /**
   * @param {{orStuck: boolean}} options or nothing can be sent now
   * @returns {Promise<void>} fulfilled once nothing waits
   */
  idle({ orStuck }) {
    const isIdle = !this.waiting || this.#stopped || (orStuck && (this.#stuck || this.#isResting()));
    return new Promise((resolve) => void (isIdle ? resolve() : this.#waiters.add({ orStuck, resolve })));
  }

  /** @param {{onlyStuck?: boolean}} [options] those that wait for no more than that */
  #resolve({ onlyStuck = false } = {}) {
    for (const waiter of this.#waiters) {
      if (onlyStuck && !waiter.orStuck) continue;
      waiter.resolve();
      this.#waiters.delete(waiter);
    }
  }

  /**
   * Fetch the switch, unless that was done of late, though nothing is sent: all may be off. Without that a client of
   * which everything is off would never learn that it is on again.
   */
  ask() {
    this.#asking ??= this.#fetchSwitch()
      .catch((error) => this.#client.onTrouble(error))
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
    this.#resolve();
  }

  /** Let others send what this client was sending, or about to send, when it was stopped. */
  async releaseLeases() {
    await this.#leasing;
    const batch = this.#underWay;
    if (!batch || this.leaving) return;
    await this.#client.store.change(({ outbox }) => release(outbox, batch.id, new Set()));
  }

  /** Deliver batch after batch until the outbox is empty; never rejects. */
  async #work() {
    this.#working = true;
    while (this.waiting && !this.#stopped) {
      await this.#untilDue();
      try {
        if (!this.#stopped) await this.#step();
      } catch (error) {
        if (error instanceof HubbubError) {
          this.#client.onEnd(error);
          this.stop();
        } else {
          this.#client.onTrouble(error);
          await this.#waitAfterFailure(0);
        }
      }
    }
    this.#working = false;
    this.#isFlushing = false;
  }

  /** @param {number} asked milliseconds that the collector asked for */
  async #waitAfterFailure(asked) {
    const wait = waitAfter(++this.#failures, asked, this.#client.options);
    this.#noteStuck();
    await this.#nap.sleepThrough(wait, () => this.#stopped);
  }

  #noteStuck() {
    this.#stuck = true;
    this.#resolve({ onlyStuck: true });
  }

  /** Lease a batch and send it, or wait for others that are sending. */
  async #step() {
    this.#leasing = this.#lease();
    const { dropped, batch } = await this.#leasing;
    for (const [reason, count] of Object.entries(dropped)) this.#client.drop(reason, count);
    if (this.#stopped) return;
    if (batch) return this.#deliver(batch);
    this.#noteStuck();
    if (this.waiting) await this.#nap.sleep(PAUSE);
  }

  /** Wait until a batch is due, or there is nothing to wait for any more. */
  async #untilDue() {
    while (this.waiting && !this.#stopped && !this.#isDue()) {
      if (this.#isResting()) this.#resolve({ onlyStuck: true });
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
    const full = spooled >= this.#client.options.batchSize;
    return spooled > 0 && (this.#isFlushing || full || this.#dueAt() <= performance.now());
  }

  #dueAt() {
    return (this.#since ?? performance.now()) + this.#client.options.batchMillis;
  }

  async #lease() {
    const { store, options } = this.#client;
    const { origin } = options.endpoint;
    this.#stuck = false;
    const found = await store.change((state) => {
      const { outbox } = state;
      const now = Date.now();
      const lease = { holder: this.#holder, since: now, millis: options.timeoutMillis + LEASE_MARGIN };
      const off = dropOff(outbox, offBy(state, options.switched), now);
      /** @type {Record<string, number>} */
      const dropped = { ...trim(outbox, options, now), [SWITCHED_OFF]: off };
      let batch = leaseOldest(outbox, lease, origin);
      if (!batch && this.#isBatchDue(countsOf(outbox, origin).spooled)) {
        batchSpooled(outbox, options.batchSize, origin);
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
    const { store, options } = this.#client;
    const { metrics } = options.registry;
    const { onDelivered, onRefused, onError } = this.#outcomes;
    const attempt = { signal: this.#requests.signal, outliveThePage: this.leaving };
    const outcome = await postBatch(options, { id, reports }, attempt);
    if (this.#stopped) return;
    if (outcome.kind !== "delivered") onError(outcome.error);
    const settled = settledBy(outcome, reports.length);
    const { there, counts } = await store.change(({ outbox }) => {
      const isUnknown = outcome.kind === "unknown";
      const mayBeStored = !isUnknown && (outcome.kind !== "retry" || outcome.mayBeStored);
      for (const { metric } of mayBeStored ? reports : []) {
        if (metrics.get(metric)?.reportsPerDay) noteSent(outbox, metric, Date.now());
      }
      // Whose id no collector can have seen.
      const holder = isNew && !mayBeStored ? this.#holder : null;
      const there = isUnknown ? putOff(outbox, id, outcome, holder) : release(outbox, id, settled, holder);
      return { there, counts: countsOf(outbox, options.endpoint.origin) };
    });
    this.#underWay = null;
    if (there) {
      if (outcome.kind === "delivered") onDelivered(settled.size);
      else if (outcome.kind !== "retry") onRefused(outcome.reason, settled.size, outcome.error);
    }
    // The collector has answered: this client has shown itself anyway.
    if (outcome.kind !== "retry") await this.#fetchSwitch();
    this.notice(counts);
    if (outcome.kind === "retry") await this.#waitAfterFailure(outcome.asked);
    else this.#failures = 0;
  }

  /** Ask for the switch, at most once a day, and obey it; go on as before if there is none to obey. */
  async #fetchSwitch() {
    const { store, options } = this.#client;
    const { switched } = options;
    if (!switched || this.#stopped) return;
    const { address, application, key, keptAs } = switched;
    if (!(await store.change((state) => claimFetch(state, Date.now(), keptAs)))) return;
    const bytes = await fetchSwitch(options, address, this.#requests.signal);
    if (this.#stopped) return;
    try {
      if (!bytes) throw new SwitchError("it can't be fetched");
      const file = parseSwitch(bytes);
      await checkSwitch(file, application, key, Date.now());
      const isKept = await store.change((state) => keepSwitch(state, file.document, keptAs));
      if (!isKept) throw new SwitchError("a later one is obeyed");
    } catch (error) {
      if (!(error instanceof SwitchError)) throw error;
      this.#outcomes.onNoSwitch(error.message);
    }
  }
}

/** @param {import("./sender.js").Outcome} outcome @param {number} count @returns {Set<number>} */
function settledBy(outcome, count) {
  if (outcome.kind === "partly" || outcome.kind === "unknown") return outcome.refused;
  return new Set(outcome.kind === "retry" ? [] : Array(count).keys());
}
