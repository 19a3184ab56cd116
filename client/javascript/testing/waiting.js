/** Waiting in tests, for what will happen and never for time to pass. */

import assert from "node:assert/strict";

const { setTimeout: realSetTimeout } = globalThis;

/** Wait for something that takes network, files or timers. @param {() => unknown} condition */
export async function until(condition) {
  for (let left = 10_000; !(await condition()); left--) {
    assert.ok(left, "waited in vain");
    await new Promise((resolve) => realSetTimeout(resolve, 2));
  }
}

/** Let everything happen that needs no timer. @param {number} count */
export async function turns(count) {
  for (let i = 0; i < count; i++) await new Promise(setImmediate);
}

/** As `until`, where a test holds the timers. @param {() => unknown} condition */
export async function untilTurned(condition) {
  for (let left = 100_000; !condition(); left--) {
    assert.ok(left, "waited in vain");
    await turns(1);
  }
}
