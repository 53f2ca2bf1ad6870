"""``python -m validation.timeloop [FOLDER]``: every case under the folder, Halley against Timeloop. Exit code 1 if
a figure differs.

``--trees FOLDER`` writes the trees there, one file per case.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from validation.timeloop.compare import Row, compare
from validation.timeloop.convert import HERE, from_timeloop
from validation.timeloop.files import case_folders, read_case

from halley.errors import HalleyError
from halley.ir.text import to_text


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m validation.timeloop", description="Halley against Timeloop, case by case.")
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "cases", help="folder of case folders")
    parser.add_argument("--trees", type=Path, help="write the trees of the mappings into this folder")
    options = parser.parse_args(arguments)
    folders = list(case_folders(options.folder))
    if not folders:
        print(f"{options.folder}: expected folders with a map.yaml; got none", file=sys.stderr)
        return 1
    differing: list[Row] = []
    print(f"{'case':<24}{'figures':>9}{'differ':>9}")
    for folder in folders:
        rows = compare(folder)
        wrong = [row for row in rows if not row.agrees]
        differing += wrong
        print(f"{folder.name:<24}{len(rows):>9}{len(wrong):>9}")
        if options.trees:
            case = read_case(folder)
            tree = from_timeloop(case.blocks, case.architecture, case.problem)
            (options.trees / f"{case.name}.tree").write_text(to_text(tree) + "\n")
    for row in differing:
        where = " ".join(word for word in (row.case, row.level, row.tensor, row.quantity) if word)
        print(f"{where}: Timeloop {row.timeloop:.17g}, Halley {row.halley:.17g}")
    return 1 if differing else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HalleyError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
