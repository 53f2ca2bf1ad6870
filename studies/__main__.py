"""``python -m studies``: brings the published studies up to date, and writes docs/studies."""

from __future__ import annotations

import argparse
import sys

from studies import serving, training
from studies import systems80_page as systems
from studies.cases import solve
from studies.index import KEPT, NAMES, STUDIES, contents
from studies.store import DOCS, fingerprint, replace_text, source
from studies.study import told


def main() -> int:
    """Results of the present source are not searched again. The run may be stopped at any time."""
    options = argparse.ArgumentParser(prog="python -m studies", description="Test published claims; writes docs/studies.")
    names = ", ".join(NAMES)
    options.add_argument("names", nargs="*", metavar="STUDY", help=f"{names}; all if left out")
    options.add_argument("--limit", type=float, default=300.0, metavar="SECONDS", help="of each search; 300 if left out")
    options.add_argument("--again", action="store_true", help="search every case again")
    options.add_argument("--quick", action="store_true", help="search a few small cases, print them, write nothing")
    options.add_argument("--pages", action="store_true", help="write figures and pages from the stored results, search nothing")
    asked = options.parse_args()
    if unknown := [name for name in asked.names if name not in NAMES]:
        options.error(f"STUDY: expected {names}; got {', '.join(unknown)}")
    wanted = asked.names or NAMES
    for study in (STUDIES[name] for name in wanted if name in STUDIES):
        if asked.quick:
            code = source()
            for case in filter(study.quick, study.cases()):
                print(told(solve(case, asked.limit, fingerprint(case, code))), flush=True)
        elif asked.pages:
            study.write()
        else:
            study.run(asked.limit, asked.again, lambda text: print(text, flush=True))
    if systems.NAME in wanted:
        _systems(asked.quick, asked.pages, asked.again)
    if training.NAME in wanted:
        _training(asked.quick, asked.pages, asked.again)
    whole = {serving.NAME: serving} | {study.NAME: study.STUDY for study in KEPT}
    for name, each in whole.items():
        if name in wanted and not asked.quick:
            if asked.pages:
                each.write()
            else:
                each.run(asked.again, lambda text: print(text, flush=True))
    if not asked.quick:
        replace_text(DOCS / "README.md", contents())
    return 0


def _systems(quick: bool, pages: bool, again: bool) -> None:
    """The 80 systems, whose cases are plans of whole systems."""
    if quick:
        for row in systems.quick():
            print(systems.told(row), flush=True)
    elif pages:
        systems.write()
    else:
        systems.run(again, lambda text: print(text, flush=True))


def _training(quick: bool, pages: bool, again: bool) -> None:
    """Plans of training, each in a process of its own."""
    if quick:
        print(training.told(training.solve(*training.cases()[0], training.source())), flush=True)
    elif pages:
        training.write()
    else:
        training.run(again, lambda text: print(text, flush=True))


if __name__ == "__main__":
    sys.exit(main())
