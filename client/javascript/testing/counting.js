/** Adds 1 to a number in a directory's storage, so many times: `node counting.js <directory> <times>`. */

import { fileStorage } from "../src/node-storage.js";

const [directory, times] = process.argv.slice(2);
const storage = fileStorage(directory);
for (let i = 0; i < Number(times); i++) {
  await storage.update("n", (text) => String(Number(text ?? 0) + 1));
}
