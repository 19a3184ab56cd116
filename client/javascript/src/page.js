/** Notice when a browser's page is hidden: it may never come back, and no later moment is certain. */

/** @param {(hidden: boolean) => void} notify @returns {() => void} stop listening */
export function whenHidden(notify) {
  const page = globalThis.document;
  if (typeof page?.addEventListener !== "function") return () => {};
  const listen = () => notify(page.visibilityState === "hidden");
  page.addEventListener("visibilitychange", listen);
  return () => page.removeEventListener("visibilitychange", listen);
}
