/** The account as a pure function of recordings: what is admitted, again, stale or refused. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHex } from "../src/bytes.js";
import { Encoder } from "../src/encoder.js";
import { closePastPeriods, committed, decide, emptyAccount, enter, spent } from "../src/ledger.js";
import { recordingOf } from "../src/recorder.js";
import { makeRegistry } from "../src/registry.js";
import { buildRegistry, buildSecret, vectors } from "../testing/making.js";

const DAY = 86_400;
const START = 20_000 * DAY;
const PERIOD = { memory: "period", period_days: 1 };
const ONCE = { type: "boolean", mode: "one-time", f: 0.5, p: 0, q: 1 };

/** A client with an account, which records values by metric, value and time. */
function client(entries, { lifetime_epsilon, account = emptyAccount() } = {}) {
  const registry = makeRegistry({ ...buildRegistry(entries), lifetime_epsilon });
  const recording = (name, value, seconds) => {
    const metric = registry.metrics.get(name);
    const digest = metric.memory === "period" ? null : `digest of ${value}`;
    return { metric, seconds, answer: { digest, cohort: 3, permanent: `bits of ${value}` } };
  };
  const outcomeOf = (decision) => decision.reason ?? decision.kind;
  return {
    account,
    registry,
    record(name, value, seconds = START) {
      const made = recording(name, value, seconds);
      const foreseen = decide(account, registry, made);
      const decision = enter(account, registry, made);
      assert.deepEqual(decision, foreseen, "to decide and to enter come to the same");
      return outcomeOf(decision);
    },
    reported(name, value, seconds = START) {
      return enter(account, registry, recording(name, value, seconds)).answer?.permanent;
    },
    spent: () => account.entries.reduce((sum, entry) => sum + spent(entry, registry), 0),
    price: (name) => registry.metrics.get(name).price,
  };
}

/** Play recordings; return what becomes of each, and the number (from 0) of the answer reported. */
function play(account, registry, recordings, numbers, secret = buildSecret()) {
  return recordings.map(({ time, metric: name, value }, i) => {
    const metric = registry.metrics.get(name);
    const encoder = new Encoder(metric, secret);
    const period = metric.memory === "period";
    const digest = period ? null : JSON.stringify(value);
    // What is admitted is known by its permanent bits: a period's are drawn anew by each recording.
    const permanent = `${name} ${metric.version} ${period ? `${i} at ${time}` : digest}`;
    const answer = { digest, cohort: 0, permanent };
    const decision = enter(account, registry, recordingOf({ encoder, seconds: time, answer }));
    if (decision.kind === "admitted") numbers.set(permanent, numbers.size);
    const reported = numbers.get(decision.answer?.permanent) ?? null;
    return { result: decision.kind, answer: reported };
  });
}

const nineDigits = (number) => Number(number.toPrecision(9));

for (const name of ["account", "updates", "once"]) {
  test(`recordings become what vectors/${name}.json says, and the sums are its own`, () => {
    for (const vector of vectors(name)) {
      const [account, numbers] = [emptyAccount(), new Map()];
      const secret = vector.secret && fromHex(vector.secret);
      let registry;
      for (const { registry: given, recordings } of vector.steps ?? [vector]) {
        registry = makeRegistry(given);
        const expected = recordings.map(({ result, answer }) => ({ result, answer }));
        const played = play(account, registry, recordings, numbers, secret);
        assert.deepEqual(played, expected, vector.name);
      }
      const revealed = account.entries.reduce((sum, entry) => sum + spent(entry, registry), 0);
      const sums = [committed(account), revealed].map(nineDigits);
      assert.deepEqual(sums, [vector.committed, vector.spent], vector.name);
    }
  });
}

test("histories that differ in values alone are silent at the same times", () => {
  const times = Array.from({ length: 12 }, (_, i) => START + i * DAY);
  const metrics = { homepage: { max_values: 2 }, page: PERIOD, theme: ONCE };
  const silenceOf = (values, lifetime_epsilon) => {
    const { record } = client(metrics, { lifetime_epsilon });
    const spoken = new Set(["admitted", "again", "stale"]);
    return times.flatMap((time, i) => Object.keys(metrics).map((name) => spoken.has(record(name, values[i], time))));
  };
  for (const budget of [undefined, 10, 25, 60, 70, 100]) {
    const constant = silenceOf("AAAAAAAAAAAA", budget);
    for (const values of ["AABBAABBAABB", "ABCDEFGHIJKL", "AAAAAAAAAAAB"]) {
      assert.deepEqual(silenceOf(values, budget), constant);
    }
  }
});

test("what was recorded in a period whose answer was deleted, or before it, isn't answered again", () => {
  const over = "recorded in a period that is over";
  for (const late of [START, START + DAY - 1, START - 1, START - DAY, START - 400 * DAY]) {
    const { record, account } = client({ page: PERIOD });
    record("page", "a", START);
    closePastPeriods(account, START + DAY);
    const before = JSON.stringify(account.entries);
    assert.doesNotMatch(before, /bits of/);
    assert.equal(record("page", "b", late), over);
    assert.equal(JSON.stringify(account.entries), before, "nor does it change the account");
    assert.equal(record("page", "b", START + DAY), "admitted", "a later period is another");
    assert.equal(account.entries[0].answers, 2);
  }
});

test("a clock that stays behind for a period draws an answer, which counts, also if the last is deleted", () => {
  for (const far of [START - 2 * DAY, START - 400 * DAY]) {
    const { record, reported, account } = client({ page: { ...PERIOD, max_periods: 2 } });
    record("page", "a", START);
    closePastPeriods(account, START + DAY);
    assert.equal(record("page", "b", far), "recorded in a period that is over");
    assert.equal(record("page", "b", far + DAY), "admitted");
    assert.equal(reported("page", "c", far + DAY), "bits of b");
    assert.equal(account.entries[0].answers, 2);
    assert.equal(record("page", "d", START + DAY), "more periods than max_periods");
  }
});

test("answers of past periods are deleted, also those of metrics that aren't asked any more", () => {
  const { account, record } = client({ page: PERIOD });
  record("page", "a", START);
  const other = client({ mood: PERIOD }, { account });
  other.record("mood", "good", START + DAY);
  assert.equal(account.entries[0].last, null);
  assert.doesNotMatch(JSON.stringify(account), /bits of a/);
  closePastPeriods(account, START + 2 * DAY);
  assert.doesNotMatch(JSON.stringify(account), /bits of/);
});

test("an expired metric isn't reported, and its last day counts", () => {
  const { record } = client({ homepage: { expires: "2026-03-31" } });
  const end = Date.parse("2026-04-01T00:00:00Z") / 1_000;
  assert.equal(record("homepage", "a", end - 1), "admitted");
  assert.equal(record("homepage", "a", end), "expired metric");
});
