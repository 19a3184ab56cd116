import assert from "node:assert/strict";
import { test } from "node:test";

import { toHex } from "../src/bytes.js";
import { ValueError } from "../src/errors.js";
import { LARGEST_TEXT } from "../src/bloom.js";
import { buildMetric, trueBits } from "../testing/making.js";

const SECRET_WORD = "hunter2";

function bitsOf(fields, value) {
  return toHex(trueBits(buildMetric(fields), value));
}

function refusal(fields, value) {
  try {
    bitsOf(fields, value);
  } catch (error) {
    assert.ok(error instanceof ValueError);
    return error.message;
  }
  return assert.fail("was accepted");
}

test("the empty text is a value, and blanks and case count", () => {
  const forms = ["", " ", "a", "A", " a"].map((value) => bitsOf({ k: 1024 }, value));
  assert.equal(new Set(forms).size, forms.length);
});

const LONGEST = "a".repeat(LARGEST_TEXT);
const CATEGORIES = { type: "enum", categories: ["a", "b"] };
const EDGES = { type: "ordinal", edges: [0] };

test("a text may have 65,536 bytes of UTF-8, of its normal form, and no lone surrogate", () => {
  for (const text of [LONGEST, "ü".repeat(LARGEST_TEXT / 2), "u\u0308".repeat(LARGEST_TEXT / 2), "\ud83d\ude00"]) {
    bitsOf({}, text);
  }
});

test("a value that can't be one is refused, never converted, and not shown", () => {
  const cases = [
    [{}, [1, true, null, undefined, {}, Symbol("x"), ["a"]], /must be a string/],
    [{}, [`${LONGEST}a`, `${"ü".repeat(LARGEST_TEXT / 2)}a`, SECRET_WORD.repeat(10_000)], /at most 65536 bytes/],
    [{}, ["\ud83d", "a\ude00", "\ude00\ud83d", `${SECRET_WORD}\ud800`], /lone surrogate/],
    [{ type: "boolean" }, [1, 0, "true", null], /must be a boolean/],
    [EDGES, ["1", true, null, 1n, new Date(), SECRET_WORD], /must be a number/],
    [EDGES, [NaN], /not NaN/],
    [CATEGORIES, ["c", SECRET_WORD], /one of the metric's categ/],
  ];
  for (const [fields, values, message] of cases) {
    for (const value of values) {
      assert.match(refusal(fields, value), message);
      assert.ok(!refusal(fields, value).includes(SECRET_WORD));
    }
  }
});

const OPEN = { type: "open-string", steps: [4, 7], m: 2 };

test("an open string's value is a text like any other, at every step", () => {
  for (const cohort of [0, 5]) {
    for (const wrong of [1, null, undefined, "\ud800", "a".repeat(LARGEST_TEXT + 1)]) {
      assert.throws(() => trueBits(buildMetric(OPEN), wrong, cohort), ValueError);
    }
  }
});

const OTHERS = { type: "enum", categories: ["Bern", "Zürich"], other: true };

test("a text that isn't listed is the last category, if there is one for others", () => {
  assert.equal(bitsOf(OTHERS, "Zu\u0308rich"), "02");
  for (const other of ["other", "Basel", "", "\ud800", "a".repeat(LARGEST_TEXT + 1)]) {
    assert.equal(bitsOf(OTHERS, other), "04");
  }
  for (const wrong of [1, null, undefined, {}]) assert.match(refusal(OTHERS, wrong), /a string/);
});

const CRASH = { name: "crash", type: "enum", categories: ["none", "oom"], other: true };
const SLOW = { name: "slow", type: "boolean" };
const TABS = { name: "tabs", type: "ordinal", edges: [1, 10, 100] };
const DRIVER = { name: "driver", type: "string" };
const CELLS = { type: "joint", fields: [CRASH, SLOW, TABS] };
const HASHED = { type: "joint", fields: [CRASH, DRIVER], k: 128, h: 2, m: 64 };

test("a joint value has exactly the fields, each of its type", () => {
  const value = { crash: "oom", slow: true, tabs: 3 };
  const cases = [
    ["oom", /must be an object with the fields crash, slow, tabs, not string/],
    [null, /must be an object .*, not null/],
    [["oom", true, 3], /must be an object .*, not a list/],
    [{}, /exactly the fields crash, slow, tabs; crash, slow, tabs missing/],
    [{ crash: "oom", tabs: 3 }, /slow missing$/],
    [Object.create(value), /crash, slow, tabs missing$/],
    [{ ...value, [SECRET_WORD]: 1 }, /; there are others$/],
    [{ ...value, crash: 1 }, /^field crash: must be a string, not number/],
    [{ ...value, slow: SECRET_WORD }, /^field slow: must be a boolean, not string/],
    [{ ...value, tabs: NaN }, /^field tabs: must be a number, not NaN/],
  ];
  for (const [wrong, message] of cases) {
    assert.match(refusal(CELLS, wrong), message);
    assert.ok(!refusal(CELLS, wrong).includes(SECRET_WORD));
  }
  assert.match(refusal(HASHED, { crash: "", driver: `${SECRET_WORD}\ud800` }), /^field driver: must/);
});

test("a field may be called as what every object has", () => {
  const fields = [CRASH, { name: "constructor", type: "boolean" }];
  assert.equal(bitsOf({ type: "joint", fields }, { crash: "none", constructor: true }), "02");
  assert.match(refusal({ type: "joint", fields }, { crash: "none" }), /constructor missing/);
});
