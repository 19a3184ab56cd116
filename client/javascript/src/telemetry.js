/**
 * What an app calls: `new Telemetry({...}).record("homepage", url)`.
 *
 * Construction throws if the registry or an option can't work. After that neither `record` (but with the option
 * `development`) nor delivery throws into the app: trouble is counted, logged once, and visible in `status()`. Only
 * `preview`, `ledger`, `explain` and `forget`, which people ask for, reject if they fail.
 */

import { waitAfter } from "./backoff.js";
import { newBatchId, storedReport } from "./batch.js";
import { fromHex } from "./bytes.js";
import { randomBytes } from "./coins.js";
import { refusal } from "./consent.js";
import { compactBody, MEDIA_TYPE } from "./compact.js";
import { Delivery } from "./delivery.js";
import { Encoder, SECRET_BYTES } from "./encoder.js";
import { HubbubError, MetricError, ValueError } from "./errors.js";
import { ALREADY_REPORTED, closePastPeriods, committed, decide, emptyAccount, NOT_CHOSEN } from "./ledger.js";
import { REPLACED_BY_NEWER, REPORTED_IN_PERIOD, REPORTED_TODAY, spent, WAITING } from "./ledger.js";
import { checkOptions, DEFAULTS, isInTheClear, LARGEST_TIMER } from "./options.js";
import { isSent, QUEUE_FULL } from "./outbox.js";
import { whenHidden } from "./page.js";
import { makeEntry, Recorder, recordingOf } from "./recorder.js";
import { StateStore } from "./state.js";
import { NOT_SAMPLED, refusalBy, SWITCHED_OFF } from "./switch.js";
import { describeForgetting, describePreview, explain } from "./explanations.js";

const WITHDRAWN = "consent withdrawn";
/** Why recordings are dropped in normal use: that isn't logged. */
const EXPECTED = [
  ...[ALREADY_REPORTED, REPORTED_IN_PERIOD, REPORTED_TODAY, REPLACED_BY_NEWER, WAITING, NOT_CHOSEN, SWITCHED_OFF],
  NOT_SAMPLED,
];
const CLOSING_MILLIS = 1_000;
/** Between looks for periods that ended while nothing was recorded. */
const SWEEPING_MILLIS = 3_600_000;
/** The status of an answer that may quote a cohort, which doesn't belong into a log. */
const NAMES_REPORTS = 422;

/**
 * @typedef {object} Status
 * @property {number} recorded reports made
 * @property {number} stale those of them that report an earlier answer, because a cap was reached
 * @property {number} delivered reports that the collector acknowledged to this object
 * @property {number} waiting reports still to be sent, in memory and in the storage (also those of other tabs or
 *   processes, and of earlier runs)
 * @property {Readonly<Record<string, number>>} dropped reports or calls dropped, by reason
 * @property {string | null} disabled why nothing is recorded at all, if so
 * @property {import("./sender.js").DeliveryFailure | null} lastError why an attempt failed last
 */

/**
 * What a client has spent on one version of a metric.
 *
 * @typedef {object} MetricSpending
 * @property {string} metric
 * @property {number} version
 * @property {number} answers distinct values, periods, or one-time reports that were admitted
 * @property {number} reports
 * @property {number} spent what they reveal, together, of histories that change at the same times
 * @property {number} anyHistory what they reveal of any history; Infinity where that isn't bounded
 * @property {number} committed the prices of all answers, however few reports there were so far
 */

/**
 * A client's whole account.
 *
 * @typedef {object} Spending
 * @property {MetricSpending[]} metrics
 * @property {number} spent
 * @property {number} anyHistory
 * @property {number} committed
 * @property {number | null} lifetimeEpsilon the registry's bound on `committed`
 * @property {number} restores how often the state was found to be a copy
 */

/**
 * What `record` would send for a value.
 *
 * @typedef {object} Preview
 * @property {import("./encoder.js").Report} report drawn as `record` would; each call draws another
 * @property {string} mediaType
 * @property {Uint8Array} body what would go over the wire if this report were sent by itself, in its compact form
 *   (docs/protocol, section 8)
 * @property {string} words the same for people
 * @property {string | null} refusal why it wouldn't be sent, if so
 * @property {boolean} stale whether the report is of an earlier answer, because there is no room for another value
 * @property {number} epsilonReport
 * @property {number} epsilonPermanent
 */

/**
 * What works between opening the state and stopping.
 * @typedef {{encoders: Map<string, Encoder>, recorder: Recorder, delivery: Delivery}} Run
 */

/** Records values and delivers their noisy reports in the background. */
export class Telemetry {
  #options;
  #store;
  #log;
  #forgetPage = () => {};
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #sweeping;
  /** @type {Run | null} null until the state is open, and once this is off */
  #run = null;
  /** @type {Run | null} the last one, for what it left in the storage */
  #last = null;
  /** Counts starts and stops: work that was begun before the last of them has no effect. */
  #generation = 0;
  /** @type {Promise<void>} what is done to the state one after the other; never rejects */
  #ready = Promise.resolve();
  /** @type {{name: unknown, value: unknown, seconds: number}[]} calls made before the state is open */
  #early = [];
  /** @type {Map<string, number>} */
  #dropped = new Map();
  /** @type {Set<string>} */
  #logged = new Set();
  /** @type {string | null} why the user lets nothing be recorded, if so */
  #refusal;
  /** @type {string | null} */
  #disabled;
  /** @type {import("./sender.js").DeliveryFailure | null} */
  #lastError = null;
  #recorded = 0;
  #stale = 0;
  #delivered = 0;
  #failures = 0;
  #closed = false;
  /** Whether reports from before consent was withdrawn may still be in the storage. */
  #uncleared = false;

  /** @param {import("./options.js").Options} options throws MetricError, OptionError */
  constructor(options) {
    this.#options = checkOptions(options);
    const { registry, storage, endpoint, consent, log } = this.#options;
    this.#store = new StateStore(storage, registry.application);
    this.#log = log ?? ((/** @type {string} */ message) => console.warn(message));
    // So that `const { record } = telemetry` works.
    const { constructor: _, ...methods } = Object.getOwnPropertyDescriptors(Telemetry.prototype);
    for (const [name, { value }] of Object.entries(methods))
      Object.defineProperty(this, name, { value: value.bind(this) });
    if (isInTheClear(endpoint)) {
      const sent = this.#options.ingestKey === undefined ? "reports" : "reports and the ingest key";
      this.#logOnce("http", `${endpoint.origin}: ${sent} travel in the clear: use https`);
    }
    this.#disabled = this.#refusal = refusal(consent);
    if (this.#refusal === null) this.#start();
  }

  /**
   * Report a value, in noise. Returns at once, and throws only with the option `development`: MetricError if the metric
   * isn't registered, ValueError if the value isn't one of its type.
   * @param {string} metric its name in the registry
   * @param {string | boolean | number | Record<string, string | boolean | number>} value as its type wants: the fields'
   *   values, where it is joint
   * @returns {void}
   */
  record(metric, value) {
    if (this.#refusal !== null) return;
    const seconds = secondsNow();
    if (this.#options.development) {
      const { type, params } = this.#known(metric);
      type.bits(value, 0, params);
    }
    if (this.#closed) this.#drop("closed");
    else if (this.#run) this.#take(this.#run, { name: metric, value, seconds });
    else if (this.#disabled !== null) this.#drop("disabled");
    else this.#keepEarly(metric, value, seconds);
  }

  /** @param {string} name */
  #known(name) {
    const { metrics } = this.#options.registry;
    const metric = metrics.get(name);
    if (!metric) throw new MetricError(`unknown metric; known: ${[...metrics.keys()]}`);
    return metric;
  }

  /**
   * Send what waits, now.
   * @param {number} [timeoutMillis] @returns {Promise<boolean>} whether all was settled in time; never rejects
   */
  async flush(timeoutMillis = DEFAULTS.timeoutMillis) {
    return (await within(timeoutMillis, this.#settled())) === true;
  }

  /**
   * Send what waits, until an attempt fails, then stop. What the collector didn't accept in time stays in the storage
   * for the next start; later calls of `record` are dropped and counted.
   * @param {number} [timeoutMillis] @returns {Promise<void>} never rejects
   */
  async close(timeoutMillis = 2_000) {
    this.#closed = true;
    await within(timeoutMillis, this.#settled({ orStuck: true }));
    const run = this.#run;
    this.#stop("not stored before close");
    const released = run?.delivery.releaseLeases().catch(() => {});
    await within(CLOSING_MILLIS, released);
  }

  /** @returns {Status} counters and, if recording is off, the reason */
  status() {
    const last = this.#last;
    return {
      recorded: this.#recorded,
      stale: this.#stale,
      delivered: this.#delivered,
      waiting: this.#early.length + (last ? last.recorder.waiting + last.delivery.waiting : 0),
      dropped: Object.fromEntries(this.#dropped),
      disabled: this.#disabled,
      lastError: this.#lastError,
    };
  }

  /**
   * Take the user's new answer. Without consent recording and sending stop at once and unsent reports are deleted;
   * secret and account stay. With it they start again, unless the environment refuses.
   * @param {boolean} consent anything but true is a no
   * @returns {Promise<void>} fulfilled once the storage is as it should be; never rejects
   */
  async setConsent(consent) {
    const before = this.#refusal;
    this.#refusal = refusal(consent === true);
    if (consent !== true) {
      const ended = this.#stop(WITHDRAWN, { hangUp: true });
      this.#disabled = this.#refusal;
      // New consent doesn't cover what was recorded before it: it is deleted before anything is sent.
      this.#uncleared = true;
      this.#enqueue(() => ended.then(() => this.#clearOrRetry()));
    } else if (before !== null && this.#refusal === null && !this.#closed) {
      this.#start();
    } else {
      this.#disabled = this.#refusal ?? this.#disabled;
    }
    await this.#ready;
  }

  /**
   * Return what this client has spent of its privacy, by metric and in total.
   * @returns {Promise<Spending>} rejects if the state can't be read
   */
  async ledger() {
    await this.#ready;
    const { registry } = this.#options;
    const account = (await this.#store.read())?.account ?? emptyAccount();
    // Of what a client only waits for, nothing was spent.
    const answered = account.entries.filter(({ answers }) => answers > 0);
    const metrics = answered.map((entry) => {
      const { metric, version, answers, reports, first, changed, alone, definition } = entry;
      const revealed = spent(entry, registry);
      const anyHistory = alone || definition.memory === "period" ? revealed : Infinity;
      return { metric, version, answers, reports, spent: revealed, anyHistory, committed: first + changed };
    });
    const sum = (/** @type {"spent" | "anyHistory"} */ key) => metrics.reduce((total, one) => total + one[key], 0);
    return {
      metrics,
      spent: sum("spent"),
      anyHistory: sum("anyHistory"),
      committed: committed(account),
      lifetimeEpsilon: registry.lifetimeEpsilon,
      restores: account.restores,
    };
  }

  /**
   * Return in words what is asked, what it can reveal, and what has been spent.
   * @returns {Promise<string>} rejects if the state can't be read
   */
  async explain() {
    return explain(this.#options.registry, await this.ledger());
  }

  /**
   * Return exactly what `record` would send, by the same code, without spending anything. Works without consent too,
   * with a secret that is thrown away; so it can be shown before.
   * @param {string} metric its name in the registry
   * @param {string | boolean | number | Record<string, string | boolean | number>} value as its type wants: the fields'
   *   values, where it is joint
   * @returns {Promise<Preview>} rejects with MetricError if the metric isn't registered, with ValueError if the value
   *   isn't one of its type
   */
  async preview(metric, value) {
    const { registry } = this.#options;
    const known = this.#known(metric);
    const given = detached(value);
    await this.#ready;
    const state = this.#run ? await this.#store.read() : null;
    const encoder = new Encoder(known, state ? fromHex(state.secret) : randomBytes(SECRET_BYTES));
    const entry = makeEntry(encoder, given, secondsNow(), this.#options.development);
    const { seconds, answer } = entry;
    // Without a state of its own it is a client that is asked everything, at once.
    const recording = state ? recordingOf(entry) : { metric: known, seconds, answer };
    const decision = decide(state?.account ?? emptyAccount(), registry, recording);
    const refused = decision.kind === "refused";
    const { cohort, permanent } = refused ? answer : decision.answer;
    const report = encoder.report({ cohort, permanent: fromHex(permanent) });
    const isDone = state && known.reportsPerDay && isSent(state.outbox, metric, seconds * 1_000);
    const off = state && refusalBy(state, this.#options.switched)(known, recording.period);
    const reason = off ?? (refused ? decision.reason : isDone ? REPORTED_TODAY : null);
    const why = this.#disabled ?? (this.#closed ? "closed" : reason);
    return {
      report,
      mediaType: MEDIA_TYPE,
      body: new Uint8Array(compactBody(newBatchId(), [storedReport(report)])),
      words: describePreview(known, report, { refusal: why, kind: decision.kind }),
      refusal: why,
      stale: decision.kind === "stale",
      epsilonReport: known.epsilonReport,
      epsilonPermanent: known.epsilonPermanent,
    };
  }

  /**
   * Delete this client's secret, account and unsent reports, and stop.
   * @returns {Promise<string>} what that means, in words; rejects if the storage fails
   */
  async forget() {
    const spending = await this.ledger().catch(() => null);
    const ended = this.#stop("disabled", { hangUp: true });
    this.#disabled = "forgotten";
    await this.#ready;
    await ended;
    await this.#store.forget();
    this.#last = null;
    return describeForgetting(spending);
  }

  async #clearOrRetry() {
    try {
      await this.#clearOutbox();
    } catch (error) {
      // What is damaged is never sent.
      if (error instanceof HubbubError) return;
      this.#later(() => this.#enqueue(() => this.#clearOrRetry()));
      throw error;
    }
  }

  async #clearOutbox() {
    if (!this.#uncleared) return;
    this.#drop(WITHDRAWN, await this.#store.clearOutbox());
    this.#uncleared = false;
    this.#last = null;
  }

  /** Open the state, and work with it from then on. */
  #start() {
    const generation = ++this.#generation;
    this.#disabled = null;
    this.#forgetPage();
    this.#forgetPage = whenHidden((hidden) => this.#pageTurned(hidden));
    this.#enqueue(() => this.#open(generation));
  }

  /**
   * Stop working, and count what isn't stored yet.
   * @param {string} reason @param {{hangUp?: boolean}} [options] cancel even a request that should outlive the page
   * @returns {Promise<void>} fulfilled once nothing more is stored
   */
  #stop(reason, { hangUp = false } = {}) {
    this.#generation++;
    this.#forgetPage();
    clearInterval(this.#sweeping);
    const run = this.#run;
    this.#run = null;
    const { lost, ended } = run?.recorder.stop() ?? { lost: 0, ended: Promise.resolve() };
    if (run) {
      if (hangUp) run.delivery.leaving = false;
      run.delivery.stop();
    }
    this.#drop(reason, lost + this.#early.splice(0).length);
    return ended;
  }

  /** @param {() => Promise<void>} work on the state, after all that was enqueued before */
  #enqueue(work) {
    this.#ready = this.#ready.then(work).catch((error) => this.#storageFailed(error));
  }

  /** @param {number} generation */
  async #open(generation) {
    const { registry } = this.#options;
    try {
      await this.#clearOutbox();
      randomBytes(1); // A client without coins is off from the start, not from its first report on.
      const { origin } = this.#options.endpoint;
      const opened = await this.#store.open(registry, origin, secondsNow());
      if (generation !== this.#generation) return;
      /** @type {Map<string, Encoder>} */
      const encoders = new Map();
      for (const [name, metric] of registry.metrics) encoders.set(name, new Encoder(metric, opened.secret));
      const run = { encoders, ...this.#makeLoops(opened.account) };
      this.#run = this.#last = run;
      this.#sweeping = setInterval(() => this.#sweep(), SWEEPING_MILLIS);
      /** @type {{unref?: () => void}} */ (this.#sweeping).unref?.();
      this.#failures = 0;
      this.#drop("restored state", opened.lost);
      run.delivery.notice(opened.counts);
      for (const call of this.#early.splice(0)) this.#take(run, call);
    } catch (error) {
      if (generation !== this.#generation) return;
      this.#disable(error);
      // What is damaged stays off.
      if (error instanceof HubbubError) return;
      this.#later(() => generation === this.#generation && this.#start());
    }
  }

  /** Delete the answers of periods that ended while nothing was recorded. */
  #sweep() {
    this.#enqueue(() => this.#store.change(({ account }) => closePastPeriods(account, secondsNow())));
  }

  /** @param {() => unknown} work to repeat, because the storage failed for now */
  #later(work) {
    const timer = setTimeout(work, waitAfter(++this.#failures, 0, this.#options));
    /** @type {{unref?: () => void}} */ (timer).unref?.();
  }

  /** @param {unknown} error */
  #disable(error) {
    this.#disabled = error instanceof Error ? error.message : String(error);
    this.#logOnce("disabled", `off: ${this.#disabled}`);
    this.#drop("disabled", this.#early.splice(0).length);
  }

  /** @param {import("./ledger.js").Account} account @returns {{recorder: Recorder, delivery: Delivery}} */
  #makeLoops(account) {
    const client = {
      store: this.#store,
      options: this.#options,
      drop: this.#drop.bind(this),
      onTrouble: this.#storageFailed.bind(this),
      onEnd: (/** @type {HubbubError} */ error) => {
        this.#stop("disabled");
        this.#disable(error);
      },
    };
    const delivery = new Delivery(client, {
      onDelivered: (count) => void (this.#delivered += count),
      onRefused: (reason, count, error) => this.#drop(reason, count, loggedDetail(error)),
      onError: (error) => this.#deliveryFailed(error),
      onNoSwitch: (why) => this.#logOnce("switch", `the switch stays as it was: ${why}`),
    });
    const recorder = new Recorder(client, account, ({ recorded, stale, dropped, counts, asks }) => {
      this.#recorded += recorded;
      this.#stale += stale;
      for (const [reason, count] of dropped) this.#drop(reason, count);
      delivery.notice(counts);
      if (asks) delivery.ask();
    });
    return { recorder, delivery };
  }

  /** @param {boolean} hidden */
  #pageTurned(hidden) {
    const run = this.#run;
    if (!run) return;
    run.delivery.leaving = hidden;
    if (hidden) run.recorder.flush().then(() => run.delivery.beginFlush());
  }

  /** @param {unknown} name @param {unknown} value @param {number} seconds */
  #keepEarly(name, value, seconds) {
    try {
      this.#early.push({ name, value: detached(value), seconds });
    } catch {
      return this.#drop("internal error");
    }
    if (this.#early.length > this.#options.maxWaiting) {
      this.#early.shift();
      this.#drop(QUEUE_FULL);
    }
  }

  /** @param {Run} run @param {{name: unknown, value: unknown, seconds: number}} call */
  #take({ encoders, recorder }, { name, value, seconds }) {
    const encoder = encoders.get(/** @type {string} */ (name));
    // The name given isn't shown: it is a value if the arguments were swapped.
    if (!encoder) return this.#drop("unknown metric", 1, `known: ${[...encoders.keys()]}`);
    const { development } = this.#options;
    try {
      const why = recorder.refusal(encoder, seconds);
      if (why !== null) {
        encoder.check(value);
        return this.#drop(why);
      }
      recorder.add(makeEntry(encoder, value, seconds, development));
    } catch (error) {
      const reason = error instanceof ValueError ? "bad value" : "internal error";
      this.#drop(reason, 1, `${encoder.metric.name}: ${harmless(error)}`);
    }
  }

  /** @param {{orStuck?: boolean}} [options] or nothing can be sent now, but all is stored */
  async #settled({ orStuck = false } = {}) {
    await this.#ready;
    const run = this.#run;
    await run?.recorder.flush();
    run?.delivery.beginFlush();
    await run?.delivery.asked();
    await run?.delivery.idle({ orStuck });
    return true;
  }

  /** @param {unknown} error */
  #storageFailed(error) {
    this.#logOnce("storage", `the storage failed and is tried again (${harmless(error)})`);
  }

  /** @param {import("./sender.js").DeliveryFailure} error */
  #deliveryFailed(error) {
    this.#lastError = error;
    this.#logOnce("delivery", `a batch wasn't delivered (${error.kind}: ${loggedDetail(error)})`);
  }

  /**
   * Count a loss; log each reason once, unless it comes in normal use.
   * @param {string} reason @param {number} [count] @param {string} [detail]
   */
  #drop(reason, count = 1, detail = "") {
    if (!count) return;
    this.#dropped.set(reason, (this.#dropped.get(reason) ?? 0) + count);
    if (EXPECTED.includes(reason)) return;
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

/**
 * @template T @param {number} millis @param {Promise<T> | undefined} promise
 * @returns {Promise<T | undefined>} undefined if it takes longer
 */
async function within(millis, promise) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {Promise<undefined>} */
  const timeout = new Promise((resolve) => {
    timer = setTimeout(() => resolve(undefined), Math.min(millis, LARGEST_TIMER));
  });
  const first = await Promise.race([promise, timeout]);
  clearTimeout(timer);
  return first;
}

/** @returns {number} since 1970 */
function secondsNow() {
  return Date.now() / 1_000;
}

/** @param {import("./sender.js").DeliveryFailure} error @returns {string} as much of it as may be logged */
function loggedDetail({ status, detail }) {
  return status === NAMES_REPORTS ? `status ${status}` : detail;
}

/** @param {unknown} value @returns {unknown} what the app can't change any more, though it waits */
function detached(value) {
  return typeof value === "object" && value !== null ? { ...value } : value;
}

/** @param {unknown} error @returns {string} what may be logged: no foreign message, it could hold a value */
function harmless(error) {
  if (error instanceof HubbubError) return error.message;
  return error instanceof Error ? error.name : typeof error;
}
