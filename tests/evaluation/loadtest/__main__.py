"""Run a scenario: python -m evaluation.loadtest SCENARIO [options]; fails if it finds a fault."""

from __future__ import annotations

import sys

from evaluation.loadtest import fortnight, growth, mixing, soak

SCENARIOS = {
    "fortnight": fortnight.main,
    "growth": growth.main,
    "mixing": mixing.main,
    "soak": soak.main,
}


def main() -> int:
    """Run the scenario that is named first, with all other arguments; return the exit code."""
    if len(sys.argv) < 2 or sys.argv[1] not in SCENARIOS:
        print(f"expected a scenario: {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    return SCENARIOS[sys.argv[1]](sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
