/** A wait that ends after some time, or when it is woken. */

export class Nap {
  #wake = () => {};

  /** Sleep for some time, or until woken. @param {number} millis @returns {Promise<void>} */
  sleep(millis) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, millis);
      // A program that has nothing else to do may end; to wait for the reports it can flush.
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
   * Sleep for some time even if woken, unless a condition holds.
   * @param {number} millis @param {() => boolean} isOver
   */
  async sleepThrough(millis, isOver) {
    const end = performance.now() + millis;
    for (let rest; (rest = end - performance.now()) > 0 && !isOver(); ) await this.sleep(rest);
  }
}
