/**
 * Which values this client has reported, so that it reports no more of them than the registry allows.
 *
 * Values stand in the storage as keyed digests, each in a slot of its own, so that several processes or
 * tabs can't take more slots than there are. A slot is taken before the first report goes out.
 */

import { storeIfAbsent } from "./storage.js";

/** @typedef {import("./registry.js").Metric} Metric */

/** The values that one client has reported. */
export class Ledger {
  #storage;
  #admitted = new Set();
  /** @type {Promise<unknown>} the last of the calls, which wait for each other */
  #last = Promise.resolve();

  /** @param {import("./storage.js").KeptTexts} storage */
  constructor(storage) {
    this.#storage = storage;
  }

  /** @param {Metric} metric @param {string} digest @returns {boolean} whether it is known to be in */
  knows(metric, digest) {
    return this.#admitted.has(`${slots(metric)}${digest}`);
  }

  /**
   * Remember a value, if there is room for it.
   *
   * @param {Metric} metric
   * @param {string} digest
   * @returns {Promise<boolean>} whether it may be reported; rejects if the storage fails
   */
  admit(metric, digest) {
    const admitted = this.#last.then(() => this.#admit(metric, digest));
    this.#last = admitted.catch(() => {});
    return admitted;
  }

  /** @param {Metric} metric @param {string} digest @returns {Promise<boolean>} */
  async #admit(metric, digest) {
    if (this.knows(metric, digest)) return true;
    for (let slot = 0; slot < metric.maxValues; slot++) {
      const key = `${slots(metric)}${slot}`;
      const mine = await storeIfAbsent(this.#storage, key, digest);
      if (mine || (await this.#storage.get(key)) === digest) {
        this.#admitted.add(`${slots(metric)}${digest}`);
        return true;
      }
    }
    return false;
  }
}

/** @param {Metric} metric @returns {string} the beginning of its slots' keys */
function slots({ application, name, version }) {
  return `hubbub.value.${application}.${name}.${version}.`;
}
