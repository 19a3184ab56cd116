/** The protocol's test vectors: every step that can be repeated, compared with the specification's. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { batchToJson, storedReport } from "../src/batch.js";
import { bernoulli, exactChance } from "../src/bernoulli.js";
import { bloomPositions, filterOf } from "../src/bloom.js";
import { fromHex, toHex } from "../src/bytes.js";
import { compactBody, inAscendingOrder } from "../src/compact.js";
import { Encoder } from "../src/encoder.js";
import { message } from "../src/keyed.js";
import { makeParams } from "../src/params.js";
import { makeRegistry, telling } from "../src/registry.js";
import { UNARY } from "../src/responses.js";
import { chosen, firstDay } from "../src/schedule.js";
import { Shake256 } from "../src/shake256.js";
import { buildMetric, trueBits, vectors } from "../testing/making.js";

const bytes = (text) => new TextEncoder().encode(text.normalize("NFC"));

/** f = 0, or p = 0 and q = 1, leave out a response: the vectors use them, so the mode must fit. */
function metricOf({ f = 0.5, p = 0.25, q = 0.75, ...fields }) {
  const mode = f === 0 || (p === 0 && q === 1) ? "one-time" : "longitudinal";
  return buildMetric({ mode, f, p, q, ...fields });
}

function nineDigits(number) {
  return number === Infinity ? null : Number(number.toPrecision(9));
}

test("Bloom filters have the positions of the vectors", () => {
  for (const { value, k, h, cohort, positions, bits } of vectors("bloom")) {
    assert.deepEqual(bloomPositions(bytes(value), cohort, { k, h }), positions);
    assert.equal(toHex(filterOf(positions, k)), bits);
    const metric = buildMetric({ k, h, m: 1024 });
    assert.equal(toHex(trueBits(metric, value, cohort)), bits);
  }
});

/** Epsilons to nine digits. */
function assertEpsilons(metric, { epsilon_permanent, epsilon_report }) {
  assert.equal(nineDigits(metric.epsilonPermanent), epsilon_permanent);
  assert.equal(nineDigits(metric.epsilonReport), epsilon_report);
}

test("values of every type set the bits of the vectors, and have their epsilons", () => {
  for (const { entry, value, k, bits, ...epsilons } of vectors("types")) {
    const metric = metricOf(entry);
    assert.equal(metric.params.k, k);
    assert.equal(toHex(trueBits(metric, value)), bits);
    assertEpsilons(metric, epsilons);
  }
});

for (const file of ["permanent", "asymmetric", "open_strings", "joint"]) {
  test(`cohorts, bits and permanent responses are those of vectors/${file}.json`, () => {
    for (const vector of vectors(file)) {
      const { entry, application, metric: name, version, k, h, m, f, f0, f1, secret, value } = vector;
      const made = metricOf({ ...(entry ?? { k, h, m, f }), application, name, version });
      // An entry would need f0 and f1 above 0.
      const metric = f0 === undefined ? made : { ...made, params: { ...made.params, f0, f1 } };
      const encoder = new Encoder(metric, fromHex(secret));
      const filter = encoder.filter(value);
      const found = [encoder.cohort, toHex(filter), toHex(encoder.permanentResponse(filter))];
      assert.deepEqual(found, [vector.cohort, vector.bits, vector.permanent]);
      if (entry) assertEpsilons(metric, vector);
      if (file === "joint") assert.deepEqual([metric.params.k, metric.params.h, metric.params.m], [k, h, m]);
    }
  });
}

test("coins of a known stream fall as in the vectors", () => {
  for (const { low, high, selector, stream_message, bits } of vectors("bernoulli")) {
    const stream = new Shake256(fromHex(stream_message));
    const drawn = bernoulli(exactChance(low), exactChance(high), fromHex(selector), stream);
    assert.equal(toHex(drawn), bits);
  }
});

test("messages and cohorts are those of the vectors", () => {
  for (const vector of vectors("cohort")) {
    const { application, metric: name, version, m } = vector;
    const metric = buildMetric({ application, name, version, m });
    const secret = fromHex(vector.secret);
    assert.equal(toHex(message("hubbub/1/cohort", secret, metric)), vector.message);
    assert.equal(new Encoder(metric, secret).cohort, vector.cohort);
  }
});

test("prices of more reports of an answer are those of the vectors, to nine digits", () => {
  for (const { type, h, reports, epsilon, epsilon_permanent, ...noise } of vectors("prices")) {
    const params = makeParams({ k: 8, h, m: 1, ...noise }, "vector");
    const metricType = buildMetric({ type, ...(type === "enum" ? { categories: ["a", "b"] } : {}) }).type;
    assert.equal(nineDigits(UNARY.epsilonAfter(metricType, params, reports)), epsilon);
    assert.equal(nineDigits(UNARY.epsilonPermanent(metricType, params)), epsilon_permanent);
  }
});

test("reports that are drawn as a whole are those of the vectors", () => {
  for (const vector of vectors("whole_reports")) {
    const { response, params, epsilonReport, price } = buildMetric(vector.entry);
    assert.deepEqual([params.k, params.h, params.m], [vector.k, 1, vector.m]);
    const stated = [params.p, params.q, epsilonReport, price].map(nineDigits);
    assert.deepEqual(stated, [vector.p, vector.q, vector.epsilon, vector.epsilon]);
    const stream = new Shake256(fromHex(vector.stream_message));
    const draw = response.drawer(params);
    assert.equal(toHex(draw(filterOf([vector.own], params.k), stream)), vector.bits);
  }
});

test("numbers stand where the vectors have them", () => {
  for (const { entry, value, cohort, coins, position } of vectors("numbers")) {
    const { type, params } = buildMetric(entry);
    const stream = { fill: (/** @type {Uint8Array} */ target) => target.set(fromHex(coins)) };
    assert.deepEqual(type.drawnBits(value, cohort, params, stream), filterOf([position], params.k));
  }
});

test("first days of periods and choices are those of the vectors", () => {
  for (const vector of vectors("first_days")) {
    const { secret, application, period_days, period, first_day } = vector;
    const [of, name] = vector.name.split(":");
    const metric = buildMetric({ mode: "once", f: 0, name, application, period_days });
    const group = of === "group" ? { name, metrics: [], choice: "life" } : null;
    assert.equal(firstDay({ ...metric, group }, fromHex(secret), period), first_day);
  }
  for (const { secret, application, group: name, metrics, choice, period, ...row } of vectors("choices")) {
    assert.equal(chosen({ name, metrics, choice }, application, fromHex(secret), period), row.chosen);
  }
});

test("registries are refused for each mistake of the vectors, and accepted without", () => {
  for (const { why, registry } of vectors("refused_registries")) {
    if (why === null) makeRegistry(registry);
    else assert.throws(() => makeRegistry(registry), { name: "MetricError" }, why);
  }
});

test("reports of an app that tells of itself have the slices of the vectors", () => {
  for (const { registry, values, slices, mistyped } of vectors("slices")) {
    const reported = (strict) =>
      [...telling(makeRegistry(registry), values, strict).metrics].map(([name, metric]) => {
        return [name, new Encoder(metric, new Uint8Array(32)).encode("red").slice];
      });
    assert.deepEqual(Object.fromEntries(reported(false)), slices);
    if (mistyped) assert.throws(() => reported(true), { name: "MetricError" });
    else assert.deepEqual(reported(true), reported(false));
  }
});

test("a batch has exactly the compact bytes of the vectors", () => {
  for (const { batch_id, reports, order, body, name } of vectors("compact")) {
    const stored = reports.map((report) => storedReport({ ...report, bits: fromHex(report.bits) }));
    const compact = compactBody(batch_id, stored);
    assert.equal(toHex(new Uint8Array(compact)), body, name);
    assert.deepEqual(
      inAscendingOrder(stored),
      order.map((i) => stored[i]),
      name,
    );
    assert.equal(toHex(new Uint8Array(compactBody(batch_id, stored.reverse()))), body);
  }
});

test("a batch has exactly the JSON of the vectors", () => {
  for (const { batch_id, reports, json } of vectors("wire")) {
    const decoded = reports.map((report) => ({ ...report, bits: fromHex(report.bits) }));
    assert.equal(batchToJson({ id: batch_id, reports: decoded }), json);
  }
});
