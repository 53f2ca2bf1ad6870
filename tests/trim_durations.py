"""``python tests/trim_durations.py``: leaves in tests/durations.json what took half a second or more, rounded and in order."""

import json
from pathlib import Path

SHORTEST = 0.5
"""Least time that is kept [s]: the others are quick on any machine."""

FILE = Path(__file__).with_name("durations.json")

if __name__ == "__main__":
    found = json.loads(FILE.read_text(encoding="utf-8"))
    kept = {name: round(seconds, 1) for name, seconds in sorted(found.items()) if seconds >= SHORTEST}
    FILE.write_text(json.dumps(kept, indent=0) + "\n", encoding="utf-8")
    print(f"{len(found)} tests take {sum(found.values()):.0f} s; {FILE.name} has {len(kept)}, of {sum(kept.values()):.0f} s")
