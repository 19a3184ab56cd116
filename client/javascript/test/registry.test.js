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

/** Fields of an entry, and the message that they must give. */
const WRONG = [
  [{ k: 100 }, "metrics.homepage.k = 100: must be a multiple of 8 between 8 and 4096"],
  [{ k: 0 }, "metrics.homepage.k = 0: must be a multiple of 8 between 8 and 4096"],
  [{ k: 4104 }, "metrics.homepage.k = 4104: must be a multiple of 8 between 8 and 4096"],
  [{ k: "128" }, 'metrics.homepage.k = "128": must be a multiple of 8 between 8 and 4096'],
  [{ k: undefined }, "metrics.homepage.k = (missing): must be a multiple of 8 between 8 and 4096"],
  [{ h: 0 }, "metrics.homepage.h = 0: must be an integer between 1 and 8"],
  [{ h: 9 }, "metrics.homepage.h = 9: must be an integer between 1 and 8"],
  [{ h: 1.5 }, "metrics.homepage.h = 1.5: must be an integer between 1 and 8"],
  [{ m: 0 }, "metrics.homepage.m = 0: must be an integer between 1 and 1024"],
  [{ m: 1025 }, "metrics.homepage.m = 1025: must be an integer between 1 and 1024"],
  [{ f: -0.1 }, "metrics.homepage.f = -0.1: must be a number between 0 and 1"],
  [{ f: NaN }, "metrics.homepage.f = NaN: must be a number between 0 and 1"],
  [{ f: true }, "metrics.homepage.f = true: must be a number between 0 and 1"],
  [{ f: 1 }, "metrics.homepage.f = 1: must be at least 0 and less than 1"],
  [{ p: 1.1 }, "metrics.homepage.p = 1.1: must be a number between 0 and 1"],
  [{ p: 0.75 }, "metrics.homepage.q = 0.75: must differ from p, or reports say nothing"],
  [{ version: 0 }, "metrics.homepage.version = 0: must be an integer between 1 and 2147483647"],
  [{ version: 2 ** 31 }, /^metrics\.homepage\.version = 2147483648: must be an integer/],
  [{ type: "text" }, /^metrics\.homepage\.type = "text": must be one of "string", "enum", /],
  [
    { mode: "twice" },
    /^metrics\.homepage\.mode = "twice": must be one of "longitudinal", "one-time", "once"/,
  ],
  [{ description: " " }, 'metrics.homepage.description = " ": must be a text that isn\'t blank'],
  [{ owner: 5 }, "metrics.homepage.owner = 5: must be a text that isn't blank"],
  [{ expires: "soon" }, 'metrics.homepage.expires = "soon": must be a day as YYYY-MM-DD'],
  [{ expires: "2027-02-30" }, /expires = "2027-02-30": must be a day/],
  [{ expires: undefined }, "metrics.homepage.expires = (missing): must be a day as YYYY-MM-DD"],
  [{ colour: "red" }, "metrics.homepage.colour: unknown key"],
  [{ f: 5e-324 }, "metrics.homepage.f = 5e-324: must be 0, or large enough for f/2 to be above 0"],
  [{ memory: "day" }, 'metrics.homepage.memory = "day": must be one of "value", "period"'],
  [{ memory: "period" }, /period_days = \(missing\): must be an integer between 1 and 3650/],
  [{ ...PERIOD, period_days: 3651 }, /period_days = 3651: must be an integer between 1 and 3650/],
  [{ ...PERIOD, period_days: 0.5 }, /period_days = 0.5: must be an integer between 1 and 3650/],
  [{ ...PERIOD, max_periods: 0 }, /max_periods = 0: must be an integer between 1 and 2147483647/],
  [
    { ...PERIOD, max_values: 5 },
    'metrics.homepage.max_values = 5: a metric with memory "period" has no max_values',
  ],
  [
    { period_days: 7 },
    'metrics.homepage.period_days = 7: a metric with memory "value" has no period_days',
  ],
  [{ memory: "value", max_periods: 7 }, /a metric with memory "value" has no max_periods/],
  [
    { ...PERIOD, mode: "one-time", p: 0, q: 1 },
    'metrics.homepage.memory = "period": must be left out, or mode "longitudinal" or "once"',
  ],
  [{ edges: [1] }, "metrics.homepage.edges = [1]: a metric of type string has no edges"],
  [{ ...ENUM, k: 8 }, "metrics.homepage.k = 8: a metric of type enum has no k"],
  [{ ...ENUM, categories: ["a"] }, /categories = \["a"\]: must be a list of 2 to 4096 different/],
  [{ ...ENUM, categories: undefined }, /categories = \(missing\): must be a list of 2 to 4096/],
  [
    { ...ENUM, categories: ["a", 5] },
    "metrics.homepage.categories[1] = 5: must be a string, not number",
  ],
  [
    { ...ENUM, categories: ["\u00fc", "u\u0308"] },
    /categories\[1\] = "u\u0308": must not occur twice/,
  ],
  [
    { ...ORDINAL, edges: [] },
    "metrics.homepage.edges = []: must be a list of 1 to 4095 ascending numbers",
  ],
  [
    { ...ORDINAL, edges: [0, -0] },
    "metrics.homepage.edges[1] = -0: must be above the edge before it",
  ],
  [
    { ...ORDINAL, edges: [2, 1] },
    "metrics.homepage.edges[1] = 1: must be above the edge before it",
  ],
  [
    { ...ORDINAL, edges: [Infinity] },
    "metrics.homepage.edges[0] = Infinity: must be a finite number",
  ],
  [
    { ...OPEN, steps: [7, 4] },
    "metrics.homepage.steps[1] = 4: must be above the step before it",
  ],
  [
    { ...OPEN, steps: [4, 4] },
    "metrics.homepage.steps[1] = 4: must be above the step before it",
  ],
  [
    { ...OPEN, steps: [] },
    "metrics.homepage.steps = []: must be a list of 1 to 8 ascending integers",
  ],
  [{ ...OPEN, steps: undefined }, /steps = \(missing\): must be a list of 1 to 8/],
  [{ ...OPEN, steps: 4 }, /steps = 4: must be a list of 1 to 8 ascending integers/],
  [{ ...OPEN, steps: [1, 2, 3, 4, 5, 6, 7, 8, 9] }, /steps = .*: must be a list of 1 to 8/],
  [
    { ...OPEN, steps: [0] },
    "metrics.homepage.steps[0] = 0: must be an integer between 1 and 64",
  ],
  [{ ...OPEN, steps: [65] }, /steps\[0\] = 65: must be an integer between 1 and 64/],
  [{ ...OPEN, steps: [1, true] }, /steps\[1\] = true: must be an integer between 1 and 64/],
  [{ ...OPEN, steps: [4.5] }, /steps\[0\] = 4.5: must be an integer between 1 and 64/],
  [{ ...OPEN, steps: ["4"] }, /steps\[0\] = "4": must be an integer between 1 and 64/],
  [{ ...OPEN, h: 2 }, "metrics.homepage.h = 2: must be 1, or left out"],
  [{ ...OPEN, h: true }, "metrics.homepage.h = true: must be 1, or left out"],
  [
    { ...OPEN, m: 21_846 },
    "metrics.homepage.m = 21846: must be an integer between 1 and 21845",
  ],
  [{ ...OPEN, m: 0 }, "metrics.homepage.m = 0: must be an integer between 1 and 21845"],
  [{ ...OPEN, categories: ["a"] }, /a metric of type open-string has no categories/],
  [{ steps: [4] }, "metrics.homepage.steps = [4]: a metric of type string has no steps"],
  [{ ...ENUM, other: 1 }, "metrics.homepage.other = 1: must be true or false"],
  [{ ...ENUM, other: true, categories: [] }, /categories = \[\]: must be a list of 1 to 4095/],
  [
    { ...ENUM, other: true, categories: ["a", "other"] },
    'metrics.homepage.categories: must not hold "other", which other = true adds as the last',
  ],
  [{ other: true }, "metrics.homepage.other = true: a metric of type string has no other"],
  [{ type: "joint" }, /fields = \(missing\): must be a list of 2 to 3 tables, one a field/],
  [{ ...CELLS, fields: [CRASH] }, /fields = .*: must be a list of 2 to 3 tables, one a field/],
  [{ ...CELLS, fields: [CRASH, 5] }, "metrics.homepage.fields[1] = 5: must be an object"],
  [joined({ name: "Crash" }), /fields\[0\]\.name = "Crash": must be 1 to 64 of a-z 0-9 _ -, beg/],
  [joined({ name: 3 }), "metrics.homepage.fields[0].name = 3: must be a text that isn't blank"],
  [joined({ name: undefined }), /fields\[0\]\.name = \(missing\): must be a text/],
  [
    joined({ name: "tabs" }),
    "metrics.homepage.fields[1].name = \"tabs\": must differ from other fields'",
  ],
  [joined({ name: "p_value" }), /fields\[0\]\.name = "p_value": must not be the name of a column/],
  [joined({ name: "residual" }), /fields\[0\]\.name = "residual": must not be the name of a column/],
  [
    joined({ type: "open-string" }),
    'metrics.homepage.fields[0].type = "open-string": must be one of "enum", "boolean", "ordinal", ' +
      '"string"',
  ],
  [joined({ type: "joint" }), /fields\[0\]\.type = "joint": must be one of "enum", "boolean"/],
  [joined({ k: 8 }), "metrics.homepage.fields[0].k: unknown key"],
  [joined({ edges: [1] }), "metrics.homepage.fields[0].edges: unknown key"],
  [{ ...HASHED, fields: [CRASH, { ...DRIVER, m: 8 }] }, "metrics.homepage.fields[1].m: unknown key"],
  [
    joined({ categories: ["none", "none"] }),
    'metrics.homepage.fields[0].categories[1] = "none": must not occur twice',
  ],
  [joined({ categories: undefined }), /fields\[0\]\.categories = \(missing\): must be a list of 1/],
  [joined({ other: "yes" }), 'metrics.homepage.fields[0].other = "yes": must be true or false'],
  [{ ...CELLS, edges: [1] }, "metrics.homepage.edges = [1]: a metric of type joint has no edges"],
  [{ ...CELLS, m: 8 }, /homepage\.m = 8: must be 1, or left out, where each of the 12 cells has a b/],
  [{ ...CELLS, k: 16, h: 2 }, /homepage\.h = 2: must be 1, or left out, where each of the 12 cells/],
  [{ ...CELLS, k: 8 }, "metrics.homepage.m = (missing): must be an integer between 1 and 1024"],
  [{ ...CELLS, k: 20 }, "metrics.homepage.k = 20: must be a multiple of 8 between 8 and 4096"],
  [
    { ...CELLS, fields: [CRASH, WIDE] },
    "metrics.homepage.fields: have 6003 cells, more than 4096 bits; give k and m, with which cells " +
      "are hashed",
  ],
  [{ ...HASHED, m: 1025 }, "metrics.homepage.m = 1025: must be an integer between 1 and 1024"],
  [{ ...HASHED, h: 9 }, "metrics.homepage.h = 9: must be an integer between 1 and 8"],
  [{ ...HASHED, k: undefined }, /homepage\.k = \(missing\): must be a multiple of 8/],
  [{ ...ORDINAL, edges: ["1"] }, 'metrics.homepage.edges[0] = "1": must be a finite number'],
];

test("a wrong entry is refused with its field, its value and what was expected", () => {
  for (const [fields, message] of WRONG) {
    assert.throws(
      () => buildMetric(fields),
      (error) => {
        assert.ok(error instanceof MetricError);
        if (message instanceof RegExp) assert.match(error.message, message);
        else assert.equal(error.message, message);
        return true;
      },
    );
  }
});

test("parameters under which a report reveals a true bit for certain are refused", () => {
  for (const [p, q] of [
    [0, 0.5],
    [0, 1],
    [0.5, 1],
    [1, 0.5],
    [0.5, 0],
    [1, 0],
  ]) {
    const fields = { mode: "one-time", f: 0, p, q };
    assert.throws(() => buildMetric(fields), /would reveal a true bit for certain/);
  }
});

test("the longitudinal mode needs both responses", () => {
  assert.throws(() => buildMetric({ f: 0 }), /needs both responses/);
  assert.throws(() => buildMetric({ p: 0, q: 1 }), /needs both responses/);
  assert.throws(() => buildMetric({ p: 1, q: 0 }), /needs both responses/);
  assert.equal(buildMetric({ p: 0, q: 0.5 }).mode, "longitudinal");
});

test("the one-time mode leaves out one response", () => {
  assert.throws(() => buildMetric({ mode: "one-time" }), /leaves out one response/);
  assert.throws(() => buildMetric({ mode: "one-time", p: 1, q: 0 }), /leaves out one response/);
  assert.equal(buildMetric({ mode: "one-time", f: 0 }).mode, "one-time");
  assert.equal(buildMetric({ mode: "one-time", p: 0, q: 1 }).mode, "one-time");
});

test("names are 1 to 64 of a-z 0-9 _ -, beginning with a letter", () => {
  for (const name of ["a", "home-page_2", "a".repeat(64)]) buildMetric({ name });
  for (const name of ["", "2a", "_a", "A", "a.b", "ä", "a".repeat(65), "a\n"]) {
    assert.throws(() => buildMetric({ name }), /beginning with a letter/);
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
    return [/** @type {any} */ (type).hashed, params.k, params.h, params.m];
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
    [
      { os: ["mac"] },
      ["arch"],
      'metrics.homepage.dimensions = "arch": must be dimensions of the file: os',
    ],
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
    assert.throws(
      () => makeRegistry(registry(budget)),
      /^MetricError: lifetime_epsilon = .*: must be/,
    );
  }
});

test("a one-time metric without p and q leaves out the second response", () => {
  const { p, q, ...crashed } = makeEntry({ type: "boolean", mode: "one-time" });
  const { params } = makeRegistry({ application: "a", metrics: { crashed } }).metrics.get(
    "crashed",
  );
  assert.deepEqual([params.p, params.q], [0, 1]);
});

test("a one-time metric without f leaves out the permanent response", () => {
  const fields = { mode: "one-time", f: undefined };
  assert.deepEqual(buildMetric(fields), buildMetric({ ...fields, f: 0 }));
  const noNoise = { ...fields, p: undefined, q: undefined };
  assert.throws(() => buildMetric(noNoise), /^MetricError: metrics\.homepage\.p/);
});

test("caps have defaults, and a one-time metric has one answer", () => {
  assert.equal(buildMetric().maxAnswers, 100);
  assert.equal(buildMetric({ max_values: 7 }).maxAnswers, 7);
  assert.equal(buildMetric({ mode: "one-time", f: 0, max_values: 7 }).maxAnswers, 1);
  const { periodDays, maxAnswers, memory } = buildMetric(PERIOD);
  assert.deepEqual([memory, periodDays, maxAnswers], ["period", 7, 100]);
  assert.equal(buildMetric({ ...PERIOD, max_periods: 2 ** 31 - 1 }).maxAnswers, 2 ** 31 - 1);
  assert.equal(buildMetric({ memory: "value" }).memory, "value");
});

test("the price of an answer is epsilon_permanent, and of a one-time report epsilon_report", () => {
  const [usual, once] = [buildMetric(), buildMetric({ mode: "one-time", f: 0 })];
  assert.equal(usual.price, usual.epsilonPermanent);
  assert.equal(once.price, once.epsilonReport);
});
