"""Write tests/slow.txt, what `make test-quick` leaves out and, from 7 s on, `make test`, from what each test cost.

    LEVELHEAD_SECONDS=seconds.txt make test
    python tools/slow_tests.py seconds.txt

A line is a test function and the seconds of a processor of all its cases; those of 0.25 s and more are slow. A
function that was not measured keeps its line.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

MOST = 0.25
FILE = Path(__file__).parents[1] / "tests" / "slow.txt"


def main(measured: Path) -> None:
    """Add up the cases of each function."""
    seconds: Counter[str] = Counter()
    for line in measured.read_text(encoding="utf-8").splitlines():
        taken, test = line.split(maxsplit=1)
        seconds[test.partition("[")[0]] += float(taken)  # type: ignore[assignment]
    for line in FILE.read_text(encoding="utf-8").splitlines():
        seconds.setdefault(line.split()[1], float(line.split()[0]))  # type: ignore[arg-type]
    slow = sorted(test for test, taken in seconds.items() if taken >= MOST)
    FILE.write_text("".join(f"{seconds[test]:.1f} {test}\n" for test in slow), encoding="utf-8")
    left = sum(taken for taken in seconds.values() if taken < MOST)
    print(f"{sum(seconds.values()):,.0f} s in all, {left:,.0f} s without {len(slow)} slow functions")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
