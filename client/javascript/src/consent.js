/** Whether anything may be recorded at all: the user's answer to the app, and the platform's own switches. */

const SWITCHES = ["DO_NOT_TRACK", "HUBBUB_DISABLED"];
const OFF = new Set(["", "0", "false", "no"]);

export const NO_CONSENT = "no consent";

/** @typedef {Readonly<Record<string, string | undefined>>} Environment */

/**
 * Return why nothing may be recorded; null if it may.
 * @param {boolean} consent the user's answer to the app
 * @param {{environment?: Environment, globalPrivacyControl?: unknown}} [platform] DO_NOT_TRACK or HUBBUB_DISABLED, set
 *   to anything but 0, no or false, refuse for the user, and so does Global Privacy Control
 * @returns {string | null}
 */
export function refusal(consent, { environment = {}, globalPrivacyControl } = thisPlatform()) {
  if (!consent) return NO_CONSENT;
  const set = SWITCHES.find((name) => !OFF.has((environment[name] ?? "").trim().toLowerCase()));
  if (set) return `${set} is set`;
  return globalPrivacyControl === true ? "Global Privacy Control is set" : null;
}

/** Pages have no environment, and Node no Global Privacy Control. */
function thisPlatform() {
  const { process, navigator } = /** @type {any} */ (globalThis);
  return {
    environment: /** @type {Environment | undefined} */ (process?.env),
    globalPrivacyControl: /** @type {unknown} */ (navigator?.globalPrivacyControl),
  };
}
