import assert from "node:assert/strict";
import { test } from "node:test";

import { batchToJson, makeBatch, withoutReports } from "../src/batch.js";

function reports(count) {
  return Array.from({ length: count }, (_, i) => {
    return { metric: "homepage", version: 1, cohort: i, bits: Uint8Array.of(i) };
  });
}

test("every batch has an id of its own, 32 lower-case hexadecimal digits", () => {
  const ids = new Set(Array.from({ length: 100 }, () => makeBatch(reports(1)).id));
  assert.equal(ids.size, 100);
  for (const id of ids) assert.match(id, /^[0-9a-f]{32}$/);
});

test("what is left of a batch keeps its id", () => {
  const batch = makeBatch(reports(4));
  const left = withoutReports(batch, new Set([0, 2]));
  assert.equal(left.id, batch.id);
  assert.deepEqual(
    left.reports.map(({ cohort }) => cohort),
    [1, 3],
  );
});

test("a body has no key but the specified ones, whatever a report carries", () => {
  const [report] = reports(1);
  const body = JSON.parse(batchToJson(makeBatch([{ ...report, value: "hunter2" }])));
  assert.deepEqual(Object.keys(body), ["batch_id", "reports"]);
  assert.deepEqual(Object.keys(body.reports[0]), ["metric", "version", "cohort", "bits"]);
});
