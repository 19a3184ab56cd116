import assert from "node:assert/strict";
import { test } from "node:test";

import { retryAfter, waitAfter } from "../src/backoff.js";

const DELAYS = { firstRetryMillis: 1_000, longestRetryMillis: 300_000 };
const NOW = Date.parse("2026-01-01T00:00:00Z");

test("the longest wait doubles with each failure, up to a limit", () => {
  const longest = [1, 2, 3, 9, 10, 5_000].map((failures) => waitAfter(failures, 0, DELAYS, () => 1));
  assert.deepEqual(longest, [1_000, 2_000, 4_000, 256_000, 300_000, 300_000]);
});

test("jitter is full: from nothing to the longest wait", () => {
  assert.equal(
    waitAfter(3, 0, DELAYS, () => 0),
    0,
  );
  const waits = Array.from({ length: 1_000 }, () => waitAfter(3, 0, DELAYS));
  // Each tenth of the range is missed by 1,000 waits with chance 0.9^1000 < 1e-45.
  assert.deepEqual(new Set(waits.map((wait) => Math.floor(wait / 400))).size, 10);
});

test("what the collector asks for is a floor, with the jitter above it", () => {
  assert.equal(
    waitAfter(1, 7_000, DELAYS, () => 0),
    7_000,
  );
  assert.equal(
    waitAfter(1, 7_000, DELAYS, () => 0.5),
    7_500,
  );
});

test("Retry-After has seconds or a date, and a day is the most", () => {
  assert.equal(retryAfter("120", NOW), 120_000);
  assert.equal(retryAfter("Thu, 01 Jan 2026 00:00:30 GMT", NOW), 30_000);
  assert.equal(retryAfter("Wed, 31 Dec 2025 00:00:00 GMT", NOW), 0);
  assert.equal(retryAfter("99999999999", NOW), 86_400_000);
  for (const none of [null, "", "soon"]) assert.equal(retryAfter(none, NOW), 0);
});
