import assert from "node:assert/strict";
import { test } from "node:test";

import { uniformBelow } from "../src/keyed.js";

/** Hand out 32-bit words as little-endian bytes. */
function wordStream(...words) {
  const bytes = new Uint8Array(Uint32Array.from(words).buffer);
  let used = 0;
  return { fill: (target) => target.set(bytes.subarray(used, (used += target.length))) };
}

test("words at or above the largest multiple of m are skipped, those below aren't", () => {
  const largest = 2 ** 32 - (2 ** 32 % 1000);
  assert.equal(uniformBelow(1000, wordStream(largest - 1, 5)), 999);
  assert.equal(uniformBelow(1000, wordStream(largest, 5)), 5);
  assert.equal(uniformBelow(1000, wordStream(2 ** 32 - 1, largest + 7, 3006)), 6);
});
