/** The account as a pure function of recordings: what is admitted, again, stale or refused. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { fromHex } from "../src/bytes.js";
import { Encoder } from "../src/encoder.js";
import {
  closePastPeriods,
  committed,
  countReset,
  countRestore,
  decide,
  emptyAccount,
  enter,
  spent,
} from "../src/ledger.js";
import { recordingOf } from "../src/recorder.js";
import { epsilonAfter, makeRegistry } from "../src/registry.js";
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

test("each distinct value is admitted once and paid for as a whole", () => {
  const { account, registry, record, price, spent } = client({ homepage: {} });
  assert.deepEqual(
    ["a", "a", "b", "a"].map((value) => record("homepage", value)),
    ["admitted", "again", "admitted", "again"],
  );
  assert.equal(committed(account), 2 * price("homepage"));
  const metric = registry.metrics.get("homepage");
  const revealed = epsilonAfter(metric, 3) + metric.epsilonReport;
  assert.ok(Math.abs(spent() - revealed) < 1e-12);
});

test("beyond max_values the last admitted answer is reported, so that the cap can't be heard", () => {
  const { account, record, reported, price } = client({ homepage: { max_values: 2 } });
  assert.deepEqual(
    ["a", "b", "c", "a", "d"].map((value) => record("homepage", value)),
    ["admitted", "admitted", "stale", "again", "stale"],
  );
  assert.equal(reported("homepage", "e"), "bits of b");
  assert.equal(reported("homepage", "a"), "bits of a");
  assert.equal(committed(account), 2 * price("homepage"));
  assert.deepEqual(
    account.entries[0].open.map(({ reports }) => reports),
    [3, 4],
  );
});

test("histories that differ in values alone are silent at the same times", () => {
  const times = Array.from({ length: 12 }, (_, i) => START + i * DAY);
  const metrics = { homepage: { max_values: 2 }, page: PERIOD, theme: ONCE };
  const silenceOf = (values, lifetime_epsilon) => {
    const { record } = client(metrics, { lifetime_epsilon });
    const spoken = new Set(["admitted", "again", "stale"]);
    return times.flatMap((time, i) =>
      Object.keys(metrics).map((name) => spoken.has(record(name, values[i], time))),
    );
  };
  for (const budget of [undefined, 10, 25, 60, 70, 100]) {
    const constant = silenceOf("AAAAAAAAAAAA", budget);
    for (const values of ["AABBAABBAABB", "ABCDEFGHIJKL", "AAAAAAAAAAAB"]) {
      assert.deepEqual(silenceOf(values, budget), constant);
    }
  }
});

test("a period has one answer, whatever is recorded", () => {
  const { record, reported } = client({ page: PERIOD });
  assert.equal(record("page", "a", START), "admitted");
  assert.equal(record("page", "b", START + DAY - 1), "again");
  assert.equal(reported("page", "c", START + DAY - 1), "bits of a");
  assert.equal(record("page", "b", START + DAY), "admitted");
  assert.equal(reported("page", "a", START + DAY), "bits of b");
});

test("periods begin with the days since 1970, the same for all clients", () => {
  const { record } = client({ page: { memory: "period", period_days: 7 } });
  const begin = 7 * DAY * 2_900;
  assert.equal(record("page", "a", begin - 1), "admitted");
  assert.equal(record("page", "a", begin), "admitted");
  assert.equal(record("page", "a", begin + 7 * DAY - 1), "again");
});

test("max_periods ends a metric at a time that doesn't depend on values", () => {
  const { record, account } = client({ page: { ...PERIOD, max_periods: 2 } });
  const outcomes = [0, 0, 1, 1, 2, 3].map((day) =>
    record("page", `page ${day}`, START + day * DAY),
  );
  const over = "more periods than max_periods";
  assert.deepEqual(outcomes, ["admitted", "again", "admitted", "again", over, over]);
  assert.equal(account.entries[0].last, null, "the last period's answer is deleted");
});

test("a clock that goes back uses the stored answer, but for one period's length only", () => {
  const { record, reported, account } = client({ page: PERIOD });
  record("page", "a", START);
  const back = START - 30 * DAY;
  assert.equal(record("page", "b", back), "again");
  assert.equal(reported("page", "b", back + DAY - 1), "bits of a");
  assert.equal(record("page", "b", back + DAY), "admitted");
  assert.equal(reported("page", "c", back + DAY), "bits of b");
  assert.equal(account.entries[0].answers, 2, "each answer counts");
});

test("a clock that comes back to the stored answer's period forgets that it was behind", () => {
  const { record, account } = client({ page: PERIOD });
  record("page", "a", START);
  record("page", "a", START - 5 * DAY);
  record("page", "a", START + 10);
  assert.equal(account.periods.page.backSince, null);
  assert.equal(record("page", "a", START - 3 * DAY), "again");
  assert.equal(account.entries[0].answers, 1);
});

test("two wrong clocks keep an answer for no longer than a period", () => {
  const { record, reported, account } = client({ page: PERIOD });
  record("page", "a", START);
  for (const days of [10, 30]) assert.equal(record("page", "b", START - days * DAY), "again");
  assert.equal(reported("page", "c", START - 29 * DAY - 1), "bits of a");
  assert.equal(record("page", "d", START - 29 * DAY), "admitted");
  assert.equal(account.entries[0].answers, 2);
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

test("three versions give max_periods answers in all, and none of them reports again in a period", () => {
  for (const rules of [{ memory: "period" }, { mode: "once", f: 0 }]) {
    const account = emptyAccount();
    const versions = [1, 2, 3].map((version) => {
      return client({ page: { ...rules, version, period_days: 1, max_periods: 2 } }, { account });
    });
    const outcomes = versions.flatMap(({ record }, i) => {
      return [0, 1, 2].map((day) => record("page", "a", START + (i + day) * DAY));
    });
    const answered = outcomes.filter((outcome) => outcome === "admitted");
    assert.equal(answered.length, 2);
    assert.equal(outcomes[3], "already reported in this period");
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

test("a one-time metric is reported once, and nothing of its value is kept", () => {
  const { account, record, spent, price } = client({ theme: ONCE });
  assert.equal(record("theme", "true"), "admitted");
  assert.equal(record("theme", "true"), "already reported (one-time metric)");
  assert.equal(record("theme", "false"), "already reported (one-time metric)");
  assert.equal(account.entries[0].reports, 1);
  assert.doesNotMatch(JSON.stringify(account), /bits of|digest of/);
  assert.deepEqual([spent(), committed(account)], [price("theme"), price("theme")]);
});

test("lifetime_epsilon keeps a reserve for what times decide; changes share the rest", () => {
  const price = client({ homepage: {} }).price("homepage");
  const metrics = { homepage: {}, search: {} };
  const { record, account } = client(metrics, { lifetime_epsilon: 3 * price });
  assert.deepEqual(
    ["a", "b", "c"].map((value) => record("homepage", value)),
    ["admitted", "admitted", "stale"],
  );
  assert.equal(record("search", "a"), "admitted", "its first answer was reserved");
  assert.equal(record("search", "b"), "stale");
  assert.ok(committed(account) <= 3 * price * (1 + 1e-9));
});

test("a budget below the reserve admits first answers while it lasts, and no change", () => {
  const price = client({ homepage: {} }).price("homepage");
  const metrics = { homepage: {}, search: {}, news: {} };
  const { record } = client(metrics, { lifetime_epsilon: 2 * price });
  assert.equal(record("homepage", "a"), "admitted");
  assert.equal(record("homepage", "b"), "stale");
  assert.equal(record("search", "a"), "admitted");
  assert.equal(record("news", "a"), "over the lifetime budget");
});

test("what was admitted for versions that aren't asked any more is counted", () => {
  const price = client({ homepage: {} }).price("homepage");
  const first = client({ homepage: {} }, { lifetime_epsilon: 3 * price });
  first.record("homepage", "a");
  first.record("homepage", "b");
  const { account } = first;
  const second = client({ homepage: { version: 2 } }, { lifetime_epsilon: 3 * price, account });
  assert.equal(second.record("homepage", "a"), "admitted");
  assert.equal(second.record("homepage", "b"), "stale", "1 for version 2, 1 + 1 for version 1");
  assert.ok(Math.abs(committed(account) - 3 * price) < 1e-9);
});

test("a budget that comes later silences nobody for the changes before it", () => {
  const price = client({ homepage: {} }).price("homepage");
  for (const values of ["aaaaaa", "abcdef"]) {
    const { account, record } = client({ homepage: {} });
    for (const value of values) record("homepage", value);
    const metrics = { homepage: {}, search: {} };
    const after = client(metrics, { lifetime_epsilon: 3 * price, account });
    assert.equal(after.record("search", "a"), "admitted");
    const room = values === "aaaaaa";
    assert.equal(after.record("search", "b"), room ? "admitted" : "stale", "changes keep to it");
  }
});

test("a definition that changed under the same version isn't reported, and its past keeps its price", () => {
  const before = client({ homepage: { f: 0.5 } });
  before.record("homepage", "a");
  const { account } = before;
  for (const fields of [{ f: 0.9 }, { k: 64 }, { m: 8 }, { p: 0.3 }, PERIOD]) {
    const after = client({ homepage: { f: 0.5, ...fields } }, { account });
    assert.equal(after.record("homepage", "a"), "definition changed without a new version");
    assert.equal(committed(account), before.price("homepage"));
  }
  const described = client(
    { homepage: { f: 0.5, description: "In other words", max_values: 3 } },
    { account },
  );
  assert.equal(described.record("homepage", "a"), "again");
});

test("an expired metric isn't reported, and its last day counts", () => {
  const { record } = client({ homepage: { expires: "2026-03-31" } });
  const end = Date.parse("2026-04-01T00:00:00Z") / 1_000;
  assert.equal(record("homepage", "a", end - 1), "admitted");
  assert.equal(record("homepage", "a", end), "expired metric");
});

test("after a reset all answers cost again, and the past stays paid for", () => {
  const { account, record, spent, price } = client({ homepage: { max_values: 3 }, page: PERIOD });
  for (const value of ["a", "b"]) record("homepage", value);
  record("page", "a");
  const before = spent();
  countReset(account);
  assert.equal(account.resets, 1);
  assert.equal(spent(), before);
  assert.doesNotMatch(JSON.stringify(account), /bits of|digest of/);
  assert.equal(record("homepage", "new a"), "admitted");
  assert.equal(record("homepage", "new b"), "stale");
  assert.equal(record("page", "a"), "admitted");
  assert.ok(Math.abs(committed(account) - 3 * price("homepage") - 2 * price("page")) < 1e-9);
});

test("in a copied state one-time metrics are taken as reported", () => {
  const { account, registry, record, price } = client({ theme: ONCE, homepage: {} });
  record("homepage", "a");
  countRestore(account, registry);
  assert.equal(account.restores, 1);
  assert.equal(record("theme", "true"), "already reported (one-time metric)");
  assert.equal(record("homepage", "a"), "again");
  assert.ok(Math.abs(committed(account) - price("theme") - price("homepage")) < 1e-9);
});

for (const prices of [null, 3, 2]) {
  const budget = prices === null ? "no budget" : `a budget of ${prices} answers`;
  test(`a reset doesn't tell whether answers had changed (${budget})`, () => {
    const { price } = client({ theme: { max_values: 2 } });
    const lifetime_epsilon = prices === null ? undefined : prices * price("theme");
    const seen = ["red", "blue"].map((second) => {
      const one = client({ theme: { max_values: 2 } }, { lifetime_epsilon });
      one.record("theme", "red");
      one.record("theme", second);
      countReset(one.account);
      return one.record("theme", "red");
    });
    assert.deepEqual(
      seen,
      Array(2).fill(prices === null ? "admitted" : "over the lifetime budget"),
    );
  });
}
