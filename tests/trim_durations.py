"""``python tests/trim_durations.py [LOG ...]``: leaves in tests/durations.json what took half a second or more, in order.

LOGs are what pytest printed with ``--durations=0``; their times replace those of the same tests. So runs of single files give the
times of the slow tests, by which ``make test-slow PARTS=12 PART=3`` makes equal parts.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

SHORTEST = 0.5
"""Least time that is kept [s]: the others are quick on any machine."""

FILE = Path(__file__).with_name("durations.json")
LINE = re.compile(r"^ *([\d.]+)s (?:call|setup|teardown) +(\S.*?)\s*$", re.MULTILINE)


def logged(texts: Iterable[str]) -> dict[str, float]:
    """Seconds of each test in logs of pytest: its call with what is made for it. Of a test in several logs, those of the last.

    >>> logged(["12.50s call     tests/a.py::test_b[x y]\\n0.25s setup    tests/a.py::test_b[x y]\\n"])
    {'tests/a.py::test_b[x y]': 12.75}
    """
    found: dict[str, float] = {}
    for text in texts:
        mine: dict[str, float] = {}
        for seconds, name in LINE.findall(text):
            mine[name] = mine.get(name, 0.0) + float(seconds)
        found |= mine
    return found


if __name__ == "__main__":
    found = json.loads(FILE.read_text(encoding="utf-8"))
    found |= logged(Path(name).read_text(encoding="utf-8") for name in sys.argv[1:])
    there = {name: seconds for name, seconds in sorted(found.items()) if (FILE.parents[1] / name.split("::")[0]).exists()}
    kept = {name: round(seconds, 1) for name, seconds in there.items() if seconds >= SHORTEST}
    FILE.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")
    print(f"{len(found)} tests take {sum(found.values()):.0f} s; {FILE.name} has {len(kept)}, of {sum(kept.values()):.0f} s")
