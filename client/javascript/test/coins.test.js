import assert from "node:assert/strict";
import { test } from "node:test";

import { randomBytes } from "../src/coins.js";
import { Encoder } from "../src/encoder.js";
import { buildMetric, buildSecret } from "../testing/making.js";

test("more bytes than one call of the system gives are drawn in several", () => {
  const bytes = randomBytes(200_000);
  for (let at = 0; at < bytes.length; at += 50_000) {
    assert.ok(bytes.subarray(at, at + 50_000).some((byte) => byte !== 0));
  }
});

test("reports draw their coins from the system, anew for each report", (t) => {
  const getRandomValues = t.mock.method(globalThis.crypto, "getRandomValues");
  const mathRandom = t.mock.method(Math, "random");
  const encoder = new Encoder(buildMetric(), buildSecret());
  for (let reports = 1; reports <= 3; reports++) {
    encoder.encode("example.com");
    assert.equal(getRandomValues.mock.callCount(), reports);
  }
  new Encoder(buildMetric({ memory: "period", period_days: 1 }), buildSecret()).encode("example.com");
  assert.equal(mathRandom.mock.callCount(), 0);
});
