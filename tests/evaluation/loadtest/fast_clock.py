"""`fast_clock.py BEGIN SPEED serve ...`: hubbub-collector under a clock that runs fast.

The clock shows BEGIN, in seconds since 1970, when the program that starts it was at BEGIN, too, and
runs SPEED times as fast. Only the date and time of day are others; what is waited for, measured or
timed out goes by the machine's own clock.
"""

from __future__ import annotations

import datetime
import sys
import time

_real = datetime.datetime
_begin, _speed = float(sys.argv[1]), float(sys.argv[2])


class _Fast(_real):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> _Fast:
        return cls.fromtimestamp(_begin + (time.time() - _begin) * _speed, tz)


def main() -> None:
    """Replace the clock before anything of hubbub's is imported, and run the command."""
    datetime.datetime = _Fast  # type: ignore[misc]
    from hubbub.collector import main as collector

    sys.argv = ["hubbub-collector", *sys.argv[3:]]
    collector()


if __name__ == "__main__":
    main()
