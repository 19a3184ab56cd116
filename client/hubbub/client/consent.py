"""Whether anything may be recorded at all."""

from __future__ import annotations

from collections.abc import Mapping

WITHDRAWN = "consent withdrawn"
"""Why reports are dropped that weren't sent when the user changed their mind."""

_SWITCHES = ("DO_NOT_TRACK", "HUBBUB_DISABLED")
_OFF = frozenset({"", "0", "false", "no"})


def refusal(consent: bool, environment: Mapping[str, str]) -> str | None:
    """Return why nothing may be recorded; None if it may.

    Parameters
    ----------
    consent : bool
        The user's answer to the app.
    environment : mapping
        DO_NOT_TRACK or HUBBUB_DISABLED, set to anything but 0, no or false, refuse for the user.
    """
    if not consent:
        return "no consent"
    for switch in _SWITCHES:
        if environment.get(switch, "").strip().lower() not in _OFF:
            return f"{switch} is set"
    return None
