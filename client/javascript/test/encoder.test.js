import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import { toHex } from "../src/bytes.js";
import { Encoder } from "../src/encoder.js";
import { buildMetric, buildSecret } from "../testing/making.js";

const permanentOf = (/** @type {object} */ fields, secret = buildSecret()) => {
  const encoder = new Encoder(buildMetric(fields), secret);
  return toHex(encoder.permanentResponse(encoder.filter("example.com")));
};

test("a report names its metric, slice, version and cohort, and has k bits", () => {
  const encoder = new Encoder(buildMetric({ version: 3 }), buildSecret());
  const report = encoder.encode("example.com");
  assert.deepEqual(Object.keys(report), ["metric", "slice", "version", "cohort", "bits"]);
  assert.deepEqual([report.metric, report.slice, report.version], ["homepage", "", 3]);
  assert.equal(report.cohort, encoder.cohort);
  assert.equal(report.bits.length, 16);
});

test("the permanent response is the same for life, and no report is", () => {
  assert.equal(permanentOf({}), permanentOf({}));
  const encoder = new Encoder(buildMetric(), buildSecret());
  const reports = Array.from({ length: 50 }, () => toHex(encoder.encode("example.com").bits));
  assert.equal(new Set(reports).size, 50);
});

test("without permanent noise the true bits go on, without instantaneous noise the permanent", () => {
  const bare = new Encoder(buildMetric({ mode: "one-time", f: 0 }), buildSecret());
  const filter = bare.filter("example.com");
  assert.deepEqual(bare.permanentResponse(filter), filter);
  const once = new Encoder(buildMetric({ mode: "one-time", p: 0, q: 1 }), buildSecret());
  assert.deepEqual(once.encode("a").bits, once.permanentResponse(once.filter("a")));
});

test("bits that no value sets are noise as all others", () => {
  const encoder = new Encoder(buildMetric({ type: "boolean" }), buildSecret());
  let seen = 0;
  for (let i = 0; i < 200; i++) seen |= encoder.encode(false).bits[0]; // missed with chance < 1e-24
  assert.equal(seen, 0xff);
});

test("a secret of another length is refused", () => {
  assert.throws(() => new Encoder(buildMetric(), new Uint8Array(31)), /32 bytes/);
});

test("nothing of the secret or of a value shows in an encoder that is logged", () => {
  const encoder = new Encoder(buildMetric(), buildSecret());
  encoder.encode("hunter2");
  assert.deepEqual(Object.keys(encoder), ["metric", "cohort"]);
  assert.ok(!inspect(encoder, { depth: 9, showHidden: true }).includes("hunter2"));
});

test("with periods each answer has a cohort and coins of its own, and no secret tells them", () => {
  const encoder = new Encoder(buildMetric({ memory: "period", period_days: 1, m: 64 }), buildSecret());
  assert.equal(encoder.cohort, null);
  const answers = Array.from({ length: 200 }, () => encoder.answer("example.com"));
  assert.ok(answers.every(({ digest }) => digest === null));
  assert.equal(new Set(answers.map(({ permanent }) => toHex(permanent))).size, 200);
  assert.ok(new Set(answers.map(({ cohort }) => cohort)).size > 32); // P(not) < 1e-50
});

test("reports of a period's answer bear its cohort, in noise over its permanent response", () => {
  const encoder = new Encoder(buildMetric({ memory: "period", period_days: 1, p: 0 }), buildSecret());
  const answer = encoder.answer("example.com");
  for (let i = 0; i < 20; i++) {
    const { cohort, bits } = encoder.report(answer);
    assert.equal(cohort, answer.cohort);
    assert.ok(bits.every((byte, j) => (byte & ~answer.permanent[j]) === 0));
  }
});
