import assert from "node:assert/strict";
import { test } from "node:test";

import { batchToJson, bodyOf, EMPTY_BODY_SIZE, makeBatch, newBatchId, reportSize, storedReport } from "../src/batch.js";

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

test("a body has no key but the specified ones, whatever a report carries", () => {
  const [report] = reports(1);
  const body = JSON.parse(batchToJson(makeBatch([{ ...report, value: "hunter2" }])));
  assert.deepEqual(Object.keys(body), ["batch_id", "reports"]);
  assert.deepEqual(Object.keys(body.reports[0]), ["metric", "version", "cohort", "bits"]);
});

test("a body's size is known without making it", () => {
  const sizes = [1, 2, 50].map((count) => {
    const told = reports(count).map((report, i) => ({ ...report, slice: i % 2 ? "a=b" : "" }));
    const sent = told.map(storedReport);
    const size = sent.reduce((sum, report) => sum + reportSize(report), EMPTY_BODY_SIZE);
    return size - 1 - new TextEncoder().encode(bodyOf(newBatchId(), sent)).length;
  });
  assert.deepEqual(sizes, [0, 0, 0]);
});
