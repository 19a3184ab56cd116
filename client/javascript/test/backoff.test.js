import assert from "node:assert/strict";
import { test } from "node:test";

import { retryAfter, waitAfter } from "../src/backoff.js";

const DELAYS = { firstRetryMillis: 1_000, longestRetryMillis: 300_000 };
const NOW = Date.parse("2026-01-01T00:00:00Z");

test("the longest wait doubles with each failure, up to a limit; what the collector asks for is added", () => {
  for (const [failures, asked, random, expected] of [
    [1, 0, 1, 1_000],
    [2, 0, 1, 2_000],
    [3, 0, 1, 4_000],
    [9, 0, 1, 256_000],
    [10, 0, 1, 300_000],
    [5_000, 0, 1, 300_000],
    [3, 0, 0, 0],
    [1, 7_000, 0, 7_000],
    [1, 7_000, 0.5, 7_500],
  ]) {
    const wait = waitAfter(failures, asked, DELAYS, () => random);
    assert.equal(wait, expected);
  }
});

test("jitter is full: from nothing to the longest wait", () => {
  const waits = Array.from({ length: 1_000 }, () => waitAfter(3, 0, DELAYS));
  // Each tenth of the range is missed by 1,000 waits with chance 0.9^1000 < 1e-45.
  assert.deepEqual(new Set(waits.map((wait) => Math.floor(wait / 400))).size, 10);
});

test("Retry-After has seconds or a date, and a day is the most", () => {
  assert.equal(retryAfter("120", NOW), 120_000);
  assert.equal(retryAfter("Thu, 01 Jan 2026 00:00:30 GMT", NOW), 30_000);
  assert.equal(retryAfter("Wed, 31 Dec 2025 00:00:00 GMT", NOW), 0);
  assert.equal(retryAfter("99999999999", NOW), 86_400_000);
  for (const none of [null, "", "soon"]) assert.equal(retryAfter(none, NOW), 0);
});
