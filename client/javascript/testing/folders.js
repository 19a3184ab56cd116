/** Directories that a test may fill. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Make a directory that is removed after the test.
 * @param {import("node:test").TestContext} t @returns {Promise<string>}
 */
export async function temporaryFolder(t) {
  const path = await mkdtemp(join(tmpdir(), "hubbub-"));
  t.after(() => rm(path, { recursive: true, force: true, maxRetries: 5 }));
  return path;
}
