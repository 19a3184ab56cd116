"""Compare all cases, or those whose names begin so, with what was kept of them.

python -m golden [--exact|--update] [CASE...]
"""

import sys
import time

from golden.running import load_cases, run_case, write_case
from golden.test_golden import differences


def main(arguments: list[str]) -> int:
    """Return 1 if a case isn't as it was kept, and can't be kept as it is now."""
    update, exact = "--update" in arguments, "--exact" in arguments
    starts = tuple(word for word in arguments if not word.startswith("--")) or ("",)
    differ = 0
    for case in load_cases().values():
        if not case.name.startswith(starts):
            continue
        began = time.process_time()
        found = run_case(case)
        seconds = time.process_time() - began
        wrong = differences(case, found, 0.0 if exact or update else None)
        differ += bool(wrong)
        state = "as it was" if not wrong else "updated" if update else "differs"
        print(f"{case.name}: {state}, {seconds:.1f} s")
        if wrong and update:
            write_case(case, found)
        elif wrong:
            print(wrong)
    return 1 if differ and not update else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
