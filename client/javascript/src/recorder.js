/**
 * Recordings into the state: what becomes of each is decided, and the report of its answer drawn, in one atomic update
 * of the account and the outbox.
 *
 * So of several tabs or processes that answer at once, the one whose answer is stored first wins, and the others report
 * that one. Until then a recording waits in memory as a permanent response; its value isn't kept.
 */

import { waitAfter } from "./backoff.js";
import { storedReport } from "./batch.js";
import { fromHex, toHex } from "./bytes.js";
import { HubbubError } from "./errors.js";
import { enter, REPLACED_BY_NEWER, REPORTED_TODAY, wait } from "./ledger.js";
import { Nap } from "./nap.js";
import { countsOf, dropWaiting, isSent, QUEUE_FULL, spool, trim } from "./outbox.js";
import { dayAt } from "./schedule.js";
import { isFetchDue, NOT_SAMPLED, refusalBy } from "./switch.js";

/** A page or process that vanishes loses at most the recordings of this time. */
const SPOOL_MILLIS = 1_000;
/** Or this many times what storing the last ones took, so that it costs little time. */
const PATIENCE = 20;
/** Drawing this many reports takes a page a few dozen milliseconds. */
const MOST_AT_ONCE = 1_000;
/** In place of an answer that isn't drawn. */
const UNDRAWN = { digest: null, cohort: 0, permanent: "" };

/**
 * A recording that isn't stored yet.
 *
 * @typedef {object} Entry
 * @property {import("./encoder.js").Encoder} encoder
 * @property {number} seconds since 1970
 * @property {import("./ledger.js").Recording["answer"]} answer
 * @property {boolean} atOnce whether the client doesn't wait for its first period
 */

/**
 * What an update did.
 *
 * @typedef {object} Stored
 * @property {number} recorded reports, stale ones among them
 * @property {number} stale reports of an earlier answer in place of the value's own
 * @property {[string, number][]} dropped recordings that were refused, and older reports that had to make room, by
 *   reason
 * @property {import("./outbox.js").Counts} counts
 * @property {import("./ledger.js").Account} account as it is now
 * @property {boolean} asks whether something is off by a switch that was asked for a day ago
 */

/**
 * What the loops need of their client.
 *
 * @typedef {object} Client
 * @property {import("./state.js").StateStore} store
 * @property {import("./options.js").CheckedOptions} options
 * @property {(reason: string, count: number, detail?: string) => void} drop counts; there may be none to count
 * @property {(error: unknown) => void} onTrouble the storage failed; it is tried again
 * @property {(error: HubbubError) => void} onEnd nothing can be stored or delivered any more
 */

/**
 * Return a value's entry: all of it that is kept.
 * @param {import("./encoder.js").Encoder} encoder @param {unknown} value @param {number} seconds since 1970
 * @param {boolean} [atOnce] whether the client doesn't wait for its first period
 * @returns {Entry} throws ValueError, RandomnessError
 */
export function makeEntry(encoder, value, seconds, atOnce = false) {
  const { digest, cohort, permanent } = encoder.answer(value);
  return { encoder, seconds, answer: { digest, cohort, permanent: toHex(permanent) }, atOnce };
}

/** @param {Entry} entry @returns {import("./ledger.js").Recording} */
export function recordingOf({ encoder, seconds, answer, atOnce }) {
  const { metric } = encoder;
  const period = encoder.period(seconds);
  const begins = atOnce || period?.firstDay === dayAt(seconds);
  return { metric, seconds, answer, period, begins, isChosen: encoder.isChosen(period?.number) };
}

/**
 * Enter recordings into the account, and their reports into the outbox.
 * @param {import("./state.js").State} state is changed
 * @param {import("./options.js").CheckedOptions} options @param {readonly Entry[]} entries @returns {Stored}
 */
function commit(state, options, entries) {
  const { account, outbox } = state;
  const { registry, switched } = options;
  const { origin } = options.endpoint;
  const now = Date.now();
  let [recorded, stale, replaced, asks] = [0, 0, 0, false];
  /** @type {Map<string, number>} */
  const refused = new Map();
  const off = refusalBy(state, switched);
  const newest = new Map(entries.map(({ encoder }, i) => [encoder.metric.name, i]));
  for (const [i, entry] of entries.entries()) {
    const { encoder } = entry;
    const { metric } = encoder;
    const recording = recordingOf(entry);
    let reason = off(metric, recording.period);
    if (reason !== null) {
      asks = isFetchDue(state, now, switched?.keptAs ?? "");
      if (reason === NOT_SAMPLED && recording.isChosen) wait(account, recording);
    }
    // It is reports that arrive on one day which this bounds, whenever they were recorded.
    const isDaily = metric.reportsPerDay === 1;
    if (isDaily && isSent(outbox, metric.name, now)) reason ??= REPORTED_TODAY;
    if (isDaily && newest.get(metric.name) !== i) reason ??= REPLACED_BY_NEWER;
    const decision =
      reason === null ? enter(account, registry, recording) : { kind: /** @type {const} */ ("refused"), reason };
    if (decision.kind === "refused") {
      refused.set(decision.reason, (refused.get(decision.reason) ?? 0) + 1);
      continue;
    }
    const { cohort, permanent } = decision.answer;
    const report = storedReport(encoder.report({ cohort, permanent: fromHex(permanent) }));
    const lasting = metric.memory === "value" && metric.params.m > 1;
    if (isDaily) replaced += dropWaiting(outbox, metric.name, origin);
    spool(outbox, report, { origin, lasting, now });
    recorded++;
    if (decision.kind === "stale") stale++;
  }
  const trimmed = Object.entries({ ...trim(outbox, options, now), [REPLACED_BY_NEWER]: replaced });
  return { recorded, stale, dropped: [...refused, ...trimmed], counts: countsOf(outbox, origin), account, asks };
}

/** Recordings on their way to the storage, and the one loop that moves them. */
export class Recorder {
  #client;
  #onStored;
  /** The account as this was last to store it: other tabs and processes may have spent more since. */
  #account;
  /** @type {Entry[]} */
  #pending = [];
  /** @type {Entry[]} */
  #underWay = [];
  #since = 0;
  #lastTook = 0;
  #failures = 0;
  #isFlushing = false;
  #stopped = false;
  #nap = new Nap();
  /** @type {Promise<void> | null} */
  #work = null;

  /** @param {Client} client @param {import("./ledger.js").Account} account @param {(stored: Stored) => void} onStored */
  constructor(client, account, onStored) {
    this.#client = client;
    this.#account = account;
    this.#onStored = onStored;
  }

  /** How many recordings aren't stored yet. */
  get waiting() {
    return this.#pending.length + this.#underWay.length;
  }

  /**
   * Return why a period's answer needn't be drawn: the account refuses it, and has nothing to note of that. Null if
   * that is seen only when it is stored, after what waits.
   * @param {import("./encoder.js").Encoder} encoder @param {number} seconds since 1970 @returns {string | null}
   */
  refusal(encoder, seconds) {
    const { memory, name } = encoder.metric;
    const isIts = (/** @type {Entry} */ entry) => entry.encoder.metric.name === name;
    if (memory === "value" || this.#pending.some(isIts) || this.#underWay.some(isIts)) return null;
    const { registry, development: atOnce } = this.#client.options;
    const account = structuredClone(this.#account);
    const decision = enter(account, registry, recordingOf({ encoder, seconds, answer: UNDRAWN, atOnce }));
    const isNoted = JSON.stringify(account) !== JSON.stringify(this.#account);
    return decision.kind === "refused" && !isNoted ? decision.reason : null;
  }

  /** @param {Entry} entry */
  add(entry) {
    if (!this.#pending.length) this.#since = performance.now();
    this.#pending.push(entry);
    this.#dropSurplus();
    this.#work ??= this.#store();
    if (this.#isDue()) this.#nap.wake();
  }

  /** @returns {Promise<void>} fulfilled once all that was recorded so far is stored, or given up */
  async flush() {
    if (!this.#work) return;
    this.#isFlushing = true;
    this.#nap.wake();
    await this.#work;
  }

  /**
   * Give up what isn't on its way to the storage.
   * @returns {{lost: number, ended: Promise<void>}} how many, and when the rest is stored
   */
  stop() {
    const lost = this.#pending.splice(0).length;
    this.#stopped = true;
    this.#nap.wake();
    return { lost, ended: this.#work ?? Promise.resolve() };
  }

  /** Store what waits until nothing does; never rejects. */
  async #store() {
    const most = Math.min(SPOOL_MILLIS, this.#client.options.batchMillis);
    await null; // All of one turn at once.
    while (this.#pending.length && !this.#stopped) {
      // Sooner where that is cheap, for a page may be left at any moment.
      const rest = this.#since + Math.min(most, PATIENCE * this.#lastTook) - performance.now();
      if (rest > 0 && !this.#isDue()) await this.#nap.sleep(rest);
      else await this.#attempt(this.#pending.splice(0, MOST_AT_ONCE));
    }
    this.#isFlushing = false;
    this.#work = null;
  }

  #isDue() {
    return this.#isFlushing || this.#pending.length >= this.#client.options.batchSize;
  }

  /** @param {Entry[]} entries */
  async #attempt(entries) {
    const { store, options, drop, onTrouble, onEnd } = this.#client;
    this.#underWay = entries;
    try {
      const start = performance.now();
      const stored = await store.change((state) => commit(state, options, entries));
      this.#lastTook = performance.now() - start;
      this.#account = stored.account;
      this.#underWay = [];
      this.#failures = 0;
      this.#onStored(stored);
    } catch (error) {
      this.#underWay = [];
      if (error instanceof HubbubError) {
        onEnd(error);
        this.#stopped = true;
        return drop("disabled", entries.length + this.#pending.splice(0).length);
      }
      if (this.#stopped) return drop("storage failed", entries.length);
      this.#pending.unshift(...entries);
      this.#dropSurplus();
      onTrouble(error);
      await this.#nap.sleepThrough(waitAfter(++this.#failures, 0, options), () => this.#stopped);
    }
  }

  #dropSurplus() {
    const surplus = this.#pending.length - this.#client.options.maxWaiting;
    if (surplus > 0) this.#client.drop(QUEUE_FULL, this.#pending.splice(0, surplus).length);
  }
}
