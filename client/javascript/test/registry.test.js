import assert from "node:assert/strict";
import { test } from "node:test";

import { MetricError } from "../src/errors.js";
import { makeRegistry } from "../src/registry.js";
import { buildMetric, buildRegistry, makeEntry } from "../testing/making.js";

const ENUM = { type: "enum", categories: ["light", "dark"] };
const PERIOD = { memory: "period", period_days: 7 };
const OPEN = { type: "open-string", steps: [4, 7] };
const CRASH = { name: "crash", type: "enum", categories: ["none", "oom"], other: true };
const TABS = { name: "tabs", type: "ordinal", edges: [1, 10, 100] };
const DRIVER = { name: "driver", type: "string" };
const CELLS = { type: "joint", fields: [CRASH, TABS] };
const HASHED = { type: "joint", fields: [CRASH, DRIVER], k: 128, m: 64 };
const WIDE = { ...TABS, edges: Array.from({ length: 2000 }, (_, i) => i) };
const joined = (/** @type {object} */ changes) => ({
  type: "joint",
  fields: [{ ...CRASH, ...changes }, TABS],
});
const ORDINAL = { type: "ordinal", edges: [0, 1] };

/** Fields of an entry, and the message that they must give; vectors.test.js has all that is refused. */
const WRONG = [
  [{ k: 100 }, "k = 100: must be a multiple of 8 between 8 and 4096"],
  [{ k: undefined }, "k = (missing): must be a multiple of 8 between 8 and 4096"],
  [{ h: 1.5 }, "h = 1.5: must be an integer between 1 and 8"],
  [{ f: NaN }, "f = NaN: must be a number between 0 and 1"],
  [{ f: 1 }, "f = 1: must be at least 0 and less than 1"],
  [{ f: 5e-324 }, "f = 5e-324: must be 0, or large enough for f/2 to be above 0"],
  [{ p: 0.75 }, "q = 0.75: must differ from p, or reports say nothing"],
  [{ type: "text" }, /type = "text": must be one of "string", "enum", /],
  [{ description: " " }, 'description = " ": must be a text that isn\'t blank'],
  [{ expires: "2027-02-30" }, /expires = "2027-02-30": must be a day/],
  [{ colour: "red" }, "colour: unknown key"],
  [{ memory: "period" }, /period_days = \(missing\): must be an integer between 1 and 3650/],
  [{ ...PERIOD, max_values: 5 }, 'max_values = 5: a metric with memory "period" has no max_values'],
  [
    { ...PERIOD, mode: "one-time", p: 0, q: 1 },
    'memory = "period": must be left out, or mode "longitudinal" or "once"',
  ],
  [{ edges: [1] }, "edges = [1]: a metric of type string has no edges"],
  [{ ...ENUM, categories: ["a"] }, /categories = \["a"\]: must be a list of 2 to 4096 different/],
  [{ ...ENUM, categories: ["a", 5] }, "categories[1] = 5: must be a string, not number"],
  [{ ...ENUM, categories: ["\u00fc", "u\u0308"] }, /categories\[1\] = "u\u0308": must not occur twice/],
  [
    { ...ENUM, other: true, categories: ["a", "other"] },
    'categories: must not hold "other", which other = true adds as the last',
  ],
  [{ ...ENUM, other: 1 }, "other = 1: must be true or false"],
  [{ ...ORDINAL, edges: [0, -0] }, "edges[1] = -0: must be above the edge before it"],
  [{ ...ORDINAL, edges: [Infinity] }, "edges[0] = Infinity: must be a finite number"],
  [{ ...OPEN, steps: [4, 4] }, "steps[1] = 4: must be above the step before it"],
  [{ ...OPEN, steps: [0] }, "steps[0] = 0: must be an integer between 1 and 64"],
  [{ ...OPEN, h: 2 }, "h = 2: must be 1, or left out"],
  [{ ...OPEN, m: 21_846 }, "m = 21846: must be an integer between 1 and 21845"],
  [{ ...CELLS, fields: [CRASH] }, /fields = .*: must be a list of 2 to 3 tables, one a field/],
  [joined({ name: "tabs" }), 'fields[1].name = "tabs": must differ from other fields\''],
  [joined({ name: "p_value" }), /fields\[0\]\.name = "p_value": must not be the name of a column/],
  [joined({ type: "joint" }), /fields\[0\]\.type = "joint": must be one of "enum", "boolean"/],
  [joined({ edges: [1] }), "fields[0].edges: unknown key"],
  [{ ...CELLS, m: 8 }, /^metrics\.homepage\.m = 8: must be 1, or left out, where each of the 12 cells/],
  [{ ...CELLS, fields: [CRASH, WIDE] }, /fields: have 6003 cells, more than 4096 bits; give k and m/],
  [{ mode: "one-time" }, /leaves out one response/],
  [{ f: 0 }, /needs both responses/],
  [{ name: "ä" }, /beginning with a letter/],
  [{ mode: "one-time", f: 0, p: 0, q: 0.5 }, /would reveal a true bit for certain/],
];

test("a wrong entry is refused with its field, its value and what was expected", () => {
  for (const [fields, message] of WRONG) {
    assert.throws(
      () => buildMetric(fields),
      (error) => {
        assert.ok(error instanceof MetricError);
        if (message instanceof RegExp) assert.match(error.message, message);
        else assert.equal(error.message, `metrics.homepage.${message}`);
        return true;
      },
    );
  }
});

test("the number of bits follows from the type", () => {
  const categories = Array.from({ length: 4096 }, (_, i) => `c${i}`);
  const kOf = (/** @type {object} */ fields) => buildMetric(fields).params.k;
  assert.equal(kOf({ type: "boolean" }), 8);
  assert.equal(kOf({ ...ENUM, categories: categories.slice(0, 8) }), 8);
  assert.equal(kOf({ ...ENUM, categories: categories.slice(0, 9) }), 16);
  assert.equal(kOf({ ...ENUM, categories }), 4096);
  assert.equal(kOf({ ...ORDINAL, edges: [1, 2, 3, 4, 5, 6, 7] }), 8);
  assert.equal(kOf({ ...ORDINAL, edges: [1, 2, 3, 4, 5, 6, 7, 8] }), 16);
  const { h, m } = buildMetric(ENUM).params;
  assert.deepEqual([h, m], [1, 1]);
});

test("k decides whether the combinations of a joint metric's fields have a bit each", () => {
  const sizeOf = (/** @type {object} */ fields) => {
    const { type, params } = buildMetric(fields);
    return [type.definition.hashed, params.k, params.h, params.m];
  };
  assert.deepEqual(sizeOf(CELLS), [false, 16, 1, 1]);
  assert.deepEqual(sizeOf({ ...CELLS, k: 64, h: 1, m: 1 }), [false, 64, 1, 1]);
  assert.deepEqual(sizeOf({ ...CELLS, k: 8, m: 4 }), [true, 8, 1, 4]);
  assert.deepEqual(sizeOf({ ...CELLS, fields: [CRASH, WIDE], k: 256, h: 2, m: 4 }), [true, 256, 2, 4]);
  assert.deepEqual(sizeOf(HASHED), [true, 128, 1, 64]);
  const categories = Array.from({ length: 64 }, (_, i) => `c${i}`);
  const field = { name: "a", type: "enum", categories };
  assert.deepEqual(sizeOf({ ...CELLS, fields: [field, { ...field, name: "b" }] }), [false, 4096, 1, 1]);
});

test("the cohorts of an open string are those of all its steps, up to 65,535", () => {
  const { params } = buildMetric({ ...OPEN, m: 21_845 });
  assert.deepEqual([params.h, params.m], [1, 65_535]);
  assert.equal(buildMetric({ ...OPEN, h: 1 }).params.m, 192);
});

test("a day may come as a Date, as some TOML parsers make it", () => {
  assert.equal(buildMetric({ expires: new Date("2027-12-31T00:00:00Z") }).expires, "2027-12-31");
});

test("epsilons stay exact where p* is tiny", () => {
  const { epsilonReport } = buildMetric({ h: 1, f: 1e-20, p: 0, q: 1, mode: "one-time" });
  assert.ok(Math.abs(epsilonReport - 2 * Math.log(2e20)) < 1e-9);
});

test("a registry has an application and at least one metric, and nothing else", () => {
  const { metrics, application } = makeRegistry(buildRegistry({ homepage: {}, search: ENUM }));
  assert.equal(application, "com.example.browser");
  assert.deepEqual([...metrics.keys()], ["homepage", "search"]);
  const wrong = {
    "registry = null: must be an object": null,
    "application = (missing): must be a text that isn't blank": { metrics: { a: makeEntry() } },
    "metrics = (missing): must be an object": { application: "a" },
    "metrics: must have at least one metric": { application: "a", metrics: {} },
    "metrics.a = 5: must be an object": { application: "a", metrics: { a: 5 } },
    "owner: unknown key": { ...buildRegistry(), owner: "me" },
  };
  for (const [message, registry] of Object.entries(wrong)) {
    assert.throws(() => makeRegistry(registry), { name: "MetricError", message });
  }
});

test("what is wrong with dimensions is named where it stands", () => {
  const wrong = [
    [{ "a-b": ["mac"] }, [], /^dimensions\.a-b: the name must be 1 to 32 of a-z, 0-9 and _/],
    [{ os: ["other"] }, [], /^dimensions\.os = \["other"\]: must be a list of 1 to 63 different values/],
    [{ os: { pattern: "a|b" } }, [], /^dimensions\.os\.pattern = "a\|b": must be a regular expression/],
    [{ os: { pattern: "[b-a]" } }, [], /^dimensions\.os\.pattern = "\[b-a\]": SyntaxError: /],
    [{ os: ["mac"] }, ["arch"], 'metrics.homepage.dimensions = "arch": must be dimensions of the file: os'],
    [
      { a: [..."1234567"], b: [..."12345678"] },
      ["a", "b"],
      'metrics.homepage.dimensions = ["a","b"]: must be dimensions with at most 64 combinations, and not 72',
    ],
  ];
  for (const [dimensions, told, message] of wrong) {
    const registry = buildRegistry({ homepage: told.length ? { dimensions: told } : {} });
    assert.throws(() => makeRegistry({ ...registry, dimensions }), { name: "MetricError", message });
  }
});

test("a lifetime budget is a number above 0, and may be less than what could be asked", () => {
  const registry = (budget) => ({ ...buildRegistry({ homepage: {} }), lifetime_epsilon: budget });
  assert.equal(makeRegistry(registry(0.1)).lifetimeEpsilon, 0.1);
  assert.equal(makeRegistry(registry(undefined)).lifetimeEpsilon, null);
  for (const budget of [0, -1, NaN, Infinity, "5", null]) {
    assert.throws(() => makeRegistry(registry(budget)), /^MetricError: lifetime_epsilon = .*: must be/);
  }
});
