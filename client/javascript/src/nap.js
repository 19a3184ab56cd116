/** Waiting that can be ended: by time, or by somebody who has news. */

export class Nap {
  #wake = () => {};

  /**
   * Sleep until it is time, or somebody wakes.
   *
   * @param {number} millis
   * @returns {Promise<void>}
   */
  sleep(millis) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, millis);
      // A program that has nothing else to do may end; who wants to wait for the reports flushes.
      /** @type {{unref?: () => void}} */ (timer).unref?.();
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  /** End the sleep, if there is one. */
  wake() {
    this.#wake();
  }

  /**
   * Sleep until it is time, through all news but one.
   *
   * @param {number} millis
   * @param {() => boolean} isOver
   */
  async sleepThrough(millis, isOver) {
    const end = performance.now() + millis;
    for (let rest; (rest = end - performance.now()) > 0 && !isOver();) await this.sleep(rest);
  }
}
