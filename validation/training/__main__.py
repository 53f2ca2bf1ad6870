"""``python -m validation.training FOLDER``: errors by source and setting, with baselines, from the folder of data."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from validation.table import markdown, told
from validation.training.compare import SOFTWARE, compare, iteration
from validation.training.runs import runs

from halley.io.chips.software import load_software


def by_setting(folder: Path) -> str:
    """Of the rows held out: mean and mean absolute error by ranks, stages, microbatch and recomputation."""
    rows = []
    for source, name in SOFTWARE.items():
        errors: dict[tuple[str, object], list[float]] = defaultdict(list)
        for run in runs(folder, source):
            if run.fitted:
                continue
            error = iteration(run, load_software(name)) / run.seconds - 1
            chosen = ("tensor", run.tensor), ("stages", run.stages), ("microbatch", run.microbatch), ("recompute", run.recompute)
            for key in chosen:
                errors[key].append(error)
        for (what, value), found in sorted(errors.items(), key=lambda item: (item[0][0], str(item[0][1]))):
            mean, bias = (sum(map(change, found)) / len(found) for change in (abs, float))
            rows.append((source, what, str(value), str(len(found)), f"{100 * mean:.1f} %", f"{100 * bias:+.1f} %"))
    return markdown(("source", "choice", "value", "rows", "mean error", "bias"), rows)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m validation.training FOLDER", file=sys.stderr)
        return 1
    folder = Path(arguments[0])
    return told(lambda: "\n\n".join((*compare(folder).notes, by_setting(folder))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
