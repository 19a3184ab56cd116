/**
 * All that a client keeps, as one text: its secret, its account, and its unsent reports.
 *
 * One text, so that what a report costs and the report itself are stored together or not at all. A client that lost its
 * secret and silently drew another would answer the same question twice with fresh permanent noise, and so spend its
 * privacy twice. Invariant: a text that can't be trusted is an error, never a reason to make a new one.
 */

import { fromHex, toHex } from "./bytes.js";
import { randomBytes } from "./coins.js";
import { SECRET_BYTES } from "./encoder.js";
import { StorageError } from "./errors.js";
import { closePastPeriods, countRestore, emptyAccount } from "./ledger.js";
import { murmur3x86 } from "./murmur3.js";
import { clear, countsOf, dropUnsent, emptyOutbox, noteSent } from "./outbox.js";
import { periodAt } from "./schedule.js";
import { updaterOf } from "./storage.js";

const FORMAT = "hubbub-javascript-state-2";
const REMEDY = "nothing is sent; forget() starts a new privacy account";
const encoder = new TextEncoder();

/**
 * @typedef {object} State
 * @property {string} secret 64 hexadecimal digits
 * @property {import("./ledger.js").Account} account
 * @property {import("./outbox.js").Outbox} outbox
 * @property {import("./switch.js").KeptSwitches} switches that were asked for
 */

/** One client's state in a storage. Everything that happens to it is one atomic update. */
export class StateStore {
  #storage;
  #key;
  /** @type {Promise<unknown>} the last update: none is under way once one that follows is done */
  #last = Promise.resolve();
  /** @type {string | null} the secret that this client works with, once it is open */
  #secret = null;

  /** @param {import("./storage.js").KeptTexts} storage @param {string} application each has a state of its own */
  constructor(storage, application) {
    this.#storage = updaterOf(storage);
    this.#key = `hubbub.${application}`;
  }

  /**
   * Return the client's secret, drawing it if there is no state yet.
   * @param {Readonly<import("./registry.js").Registry>} registry @param {string} origin of the collector
   * @param {number} seconds since 1970
   * @returns {Promise<{secret: Uint8Array, account: State["account"], counts: import("./outbox.js").Counts, lost:
   *   number}>} with the unsent reports, and how many were given up because the state is a copy; throws StorageError if
   *   it is damaged, RandomnessError, and what the storage throws
   */
  async open(registry, origin, seconds) {
    const { state, lost } = await this.#update((kept, copied) => {
      const state = (kept.state ??= newState());
      let lost = 0;
      if (copied) {
        const secret = fromHex(state.secret);
        countRestore(state.account, registry, (metric) => periodAt(metric, secret, seconds));
        for (const { name, reportsPerDay } of registry.metrics.values()) {
          if (reportsPerDay) noteSent(state.outbox, name, seconds * 1_000);
        }
        // The original may have sent these, under an id that isn't known here.
        lost = dropUnsent(state.outbox);
      }
      closePastPeriods(state.account, seconds);
      return { state, lost };
    });
    // Whoever stored it first, all go by what the storage now holds.
    const stored = await this.read();
    if (stored?.secret !== state.secret) throw new StorageError(`the storage didn't keep ${this.#key}`);
    this.#secret = state.secret;
    const { secret, account, outbox } = state;
    return { secret: fromHex(secret), account, counts: countsOf(outbox, origin), lost };
  }

  /**
   * Change the state. The work may be done several times over, on different states, before one is stored; what it
   * returned then is returned.
   * @template T @param {(state: State) => T} work changes the state in place
   * @returns {Promise<T>} throws StorageError if it isn't the state that was opened any more
   */
  change(work) {
    return this.#update(({ state }) => {
      if (state && state.secret === this.#secret) return work(state);
      throw new StorageError(`${this.#key}: deleted or replaced by another tab, process or call; nothing is sent`);
    });
  }

  /** @returns {Promise<State | null>} as it is stored; throws StorageError if it is damaged */
  read() {
    return this.#update(({ state }) => state);
  }

  /** Delete the unsent reports. @returns {Promise<number>} how many; throws StorageError if the state is damaged */
  clearOutbox() {
    return this.#update(({ state }) => (state ? clear(state.outbox) : 0));
  }

  /** Delete the state, damaged or not. @returns {Promise<void>} throws what the storage throws */
  async forget() {
    await this.#enqueue(() => null);
  }

  /** @template T @param {(kept: {state: State | null}, copied: boolean) => T} work @returns {Promise<T>} what it returned */
  async #update(work) {
    let result = /** @type {T} */ (undefined);
    await this.#enqueue((text, { copied } = { copied: false }) => {
      const kept = { state: text === null ? null : parse(text, this.#key) };
      result = work(kept, copied);
      if (!kept.state) return undefined;
      const { secret, account, outbox, switches } = kept.state;
      const json = JSON.stringify({ secret, account, outbox, switches });
      return text?.endsWith(` ${json}`) ? undefined : `${FORMAT} ${checksum(json)} ${json}`;
    });
    return result;
  }

  /** @param {import("./storage.js").Change} change @returns {Promise<void>} */
  #enqueue(change) {
    const update = this.#last.then(() => this.#storage(this.#key, change));
    this.#last = update.catch(() => {});
    return update;
  }
}

/** @returns {State} */
function newState() {
  const secret = toHex(randomBytes(SECRET_BYTES));
  return { secret, account: emptyAccount(), outbox: emptyOutbox(), switches: {} };
}

/** @param {string} text @param {string} key what to call it in an error @returns {State} throws StorageError */
export function parse(text, key) {
  const [format, sum] = text.split(" ", 2);
  const known = format === FORMAT;
  if (!known && /^hubbub-javascript-state-\d+$/.test(format)) {
    throw new StorageError(`${key}: ${format} is the format of another version; ${REMEDY}`);
  }
  const json = text.slice(FORMAT.length + sum?.length + 2);
  if (!known || checksum(json) !== sum) {
    throw new StorageError(`${key}: is damaged (its checksum doesn't match); ${REMEDY}`);
  }
  const state = JSON.parse(json);
  if (!/^[0-9a-f]{64}$/.test(state.secret) || !state.account?.entries || !state.outbox?.spool) {
    throw new StorageError(`${key}: is damaged (a part is missing); ${REMEDY}`);
  }
  return state;
}

/** Return a checksum against damage, not against malice. @param {string} json */
function checksum(json) {
  const words = murmur3x86(encoder.encode(json));
  return Array.from(words, (word) => word.toString(16).padStart(8, "0")).join("");
}
