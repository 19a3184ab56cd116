/** What people read is what the Python client says, word for word. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { fromHex } from "../src/bytes.js";
import { describeForgetting, describePreview, explain } from "../src/explanations.js";
import { makeRegistry } from "../src/registry.js";

const TEXTS = new URL("../../../tests/unit/client/texts.json", import.meta.url);
const KINDS = { new: "admitted", again: "again", stale: "stale", refused: "refused" };

const said = {
  preview: ({ registry, cohort, bits, slice, verdict, refusal }) => {
    const [metric] = makeRegistry(registry).metrics.values();
    const { name, version } = metric;
    const report = { metric: name, slice, version, cohort, bits: fromHex(bits) };
    return describePreview(metric, report, { refusal, kind: KINDS[verdict] });
  },
  explain: ({ registry, spending }) => explain(makeRegistry(registry), spendingOf(spending)),
  forget: ({ spending }) => describeForgetting(spendingOf(spending)),
};

function spendingOf(spending) {
  return spending && { ...spending, anyHistory: spending.anyHistory ?? Infinity };
}

test("texts are those of the file for both clients", () => {
  const rows = JSON.parse(readFileSync(TEXTS, "utf8"));
  assert.ok(rows.length > 40);
  for (const row of rows) assert.equal(said[row.case.split(":")[0]](row), row.text, row.case);
});
