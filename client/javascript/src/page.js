/** Notice when a browser's page is hidden: it may never come back, and no later moment is certain. */

/**
 * @param {(hidden: boolean) => void} tell
 * @returns {() => void} stop listening
 */
export function whenHidden(tell) {
  const page = globalThis.document;
  if (typeof page?.addEventListener !== "function") return () => {};
  const listen = () => tell(page.visibilityState === "hidden");
  page.addEventListener("visibilitychange", listen);
  return () => page.removeEventListener("visibilitychange", listen);
}
