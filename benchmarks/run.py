"""All benchmarks: prints each measurement with its target and writes benchmarks/latest.json; of themes that are not run, the
file keeps what it has.

``python -m benchmarks.run [--install] [THEME ...]``; ``--install`` measures the install size too, in a new environment. Exit
code 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator

from benchmarks import (
    collectives,
    costing,
    dfmodel,
    flows,
    fusion,
    joint,
    limits,
    peers,
    planning,
    proofs,
    serving,
    sharding,
    startup,
)
from benchmarks.measure import ONE_THREAD, ROOT, Measurement, machine

THEMES: dict[str, Callable[[], Iterator[Measurement]]] = {
    "start": startup.measurements,
    "costing": costing.measurements,
    "collectives": collectives.measurements,
    "proof": proofs.measurements,
    "limits": limits.measurements,
    "peers": peers.measurements,
    "flows": flows.measurements,
    "fusion": fusion.measurements,
    "sharding": sharding.measurements,
    "planning": planning.measurements,
    "joint": joint.measurements,
    "dfmodel": dfmodel.measurements,
    "serving": serving.measurements,
}
INSTALL = "install"
LATEST = ROOT / "benchmarks" / "latest.json"


def main() -> int:
    options = argparse.ArgumentParser(description="Measure Halley; writes benchmarks/latest.json.")
    options.add_argument("themes", nargs="*", metavar="THEME", help=f"which: {', '.join(THEMES)}; all if none is given")
    options.add_argument("--install", action="store_true", help="measure the install size in a new environment")
    chosen = options.parse_args()
    for theme in chosen.themes:
        if theme not in THEMES:
            options.error(f"THEME: expected one of {', '.join(THEMES)}; got {theme!r}")
    print(machine())
    known = json.loads(LATEST.read_text(encoding="utf-8")) if LATEST.exists() else []
    rows = {theme: [row for row in known if row["theme"] == theme] for theme in (*THEMES, INSTALL)}
    met = True
    for theme in chosen.themes or THEMES:
        rows[theme] = []
        for measurement in THEMES[theme]():
            print(measurement, flush=True)
            rows[theme].append({"theme": theme, **measurement.row()})
            met &= measurement.met
    if chosen.install:
        size = startup.install_size()
        print(size)
        rows[INSTALL] = [{"theme": INSTALL, **size.row()}]
        met &= size.met
    LATEST.write_text(json.dumps([row for theme in rows.values() for row in theme], indent=1) + "\n", encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    if any(os.environ.get(name) != "1" for name in ONE_THREAD):
        # NumPy reads these when it is loaded: start again with them
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.run", *sys.argv[1:]], {**os.environ, **ONE_THREAD})
    sys.exit(main())
