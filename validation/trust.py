"""``python -m validation.trust FOLDER``: by chip, how far Halley's times are from measured ones; the pages in docs/machines.

The errors are those of rows that no fit saw, collected from the comparisons of this folder and written to ``trust.json``; the
pages are made from that file. Where a comparison has a simpler model beside it, so has the page.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from validation.collectives import compare as collectives
from validation.kernels import compare as kernels
from validation.kernels.compare import rank_correlation
from validation.machines import compare as machines
from validation.megatron import compare as megatron
from validation.operators import compare as operators
from validation.outcome import Case, Line
from validation.serving import compare as serving
from validation.table import markdown, told
from validation.training import bridge
from validation.training import compare as training

from halley.io.chips.kernel_fits import load_kernel_fits
from halley.io.chips.kin import KIN, SAME_ARCHITECTURE

FIGURES = Path(__file__).parent / "trust.json"
PAGES = Path(__file__).parents[1] / "docs" / "machines"
"""One page for each chip."""

TITLES = {
    "a100": "A100",
    "h100": "H100",
    "h200": "H200",
    "b200": "B200",
    "b300": "B300",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "h20": "H20",
    "rtx-pro-6000": "RTX PRO 6000",
}
"""Chips with any measurement, and their names."""

LIBRARIES = {
    "a100_sxm": "a100",
    "A100": "a100",
    "h100_sxm": "h100",
    "h200_sxm": "h200",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
"""Chips of the machines whose collectives were measured."""

KERNELS, OPERATORS, COLLECTIVES, TRAINING, SERVING = "kernels", "operators", "collectives", "training", "serving"
SUBJECTS = {
    KERNELS: "single kernels of libraries (`halley time`)",
    OPERATORS: "operators by the chip's one efficiency, which plans take",
    COLLECTIVES: "collectives within a node",
    TRAINING: "training",
    SERVING: "serving",
}
"""What a page has rows of, in its order."""


@dataclass(frozen=True, slots=True)
class Trusted:
    """One row of a page. ``what`` was measured; ``rows``; ``mean`` and ``median`` absolute relative error, ``bias`` the median
    signed one; ``covered``: share of rows in the interval of 80 %; ``kendall``: rank correlation; ``baseline``: error of the
    simpler model that ``beside`` names; ``fitted``: to what, "" if to nothing of this chip."""

    chip: str
    subject: str
    what: str
    rows: int
    mean: float
    median: float
    bias: float
    kendall: float | None = None
    covered: float | None = None
    baseline: float | None = None
    beside: str = ""
    fitted: str = ""


def of_cases(chip: str, subject: str, what: str, cases: Sequence[Case], fitted: str = "") -> Trusted:
    """The row of some cases."""
    errors = np.array([case.error for case in cases])
    found, figures = (np.array([getattr(case, name) for case in cases]) for name in ("halley", "figure"))
    kendall = rank_correlation(found, figures) if len(cases) > 9 else None
    spread = np.abs(errors)
    return Trusted(
        chip,
        subject,
        what,
        len(cases),
        float(spread.mean()),
        float(np.median(spread)),
        float(np.median(errors)),
        kendall,
        fitted=fitted,
    )


def with_baseline(row: Trusted, cases: Sequence[Case], beside: str) -> Trusted:
    """The row with the error of a simpler model of the same cases."""
    return replace(row, baseline=float(np.mean([abs(case.error) for case in cases])), beside=beside)


def kernel_rows(folder: Path) -> Iterator[Trusted]:
    """Rows held out of each family and chip."""
    for chip in kernels.DEVICES.values():
        for table in kernels.TABLES:
            found = kernels.judged(folder, table, chip)
            if found:
                made = kernels.score(found)
                bias = float(np.median(np.concatenate([item.predicted / item.measured - 1 for item in found])))
                yield Trusted(
                    chip, KERNELS, table, made.rows, made.mean, made.median, bias, made.kendall, made.covered, made.baseline,
                    "roofline, fitted", "every second row",
                )  # fmt: skip


def own_rows() -> Iterator[Trusted]:
    """Kernels and passes that were timed for Halley."""
    lines = {line.quantity: line.cases for line in machines.compare().lines}
    for name, cases in lines.items():
        first, _, rest = name.partition(", ")
        if first in ("kernels of PyTorch", "operators"):
            what, subject = rest.removesuffix(", held out"), OPERATORS if first == "operators" else KERNELS
            yield of_cases("h100", subject, what if first == "operators" else f"{what} of PyTorch", cases, "every second row")
        elif first == "products":
            yield of_cases("h100", KERNELS, "gemm of PyTorch, by the fit of vLLM's tables", cases)
        elif first.endswith(("passes", "under load")):
            chip, _, other = rest.lower().partition(", ")
            if not other:
                fitted = "the software, to these passes" if (chip, first) == ("h100", "plain passes") else ""
                row = of_cases(chip, TRAINING, f"{first} of models on one GPU", cases, fitted)
                yield with_baseline(row, lines[f"{name}, one utilisation"], "one utilisation")
    for family in machines.KIN:
        cases, inside = machines.timed([row for row in machines.kernel_rows("h200") if row.family == family], "h200", "pytorch")
        yield replace(of_cases("h200", KERNELS, f"{family} of PyTorch", cases), covered=inside)


def operator_rows(lines: Iterable[Line]) -> Iterator[Trusted]:
    """Operators of A100 and H20."""
    for line in lines:
        for chip in ("a100", "h20"):
            if f" on {TITLES[chip]}" in line.quantity:
                what, _, fitted = line.quantity.partition(f" on {TITLES[chip]}, ")
                said = {"held out": "every second row", "none fitted": ""}.get(fitted)
                if said is not None:
                    yield of_cases(chip, OPERATORS, what, line.cases, said)


def collective_rows(lines: Iterable[Line]) -> Iterator[Trusted]:
    """Collectives by chip: sizes between those that were fitted, and numbers of ranks that were not."""
    for line in lines:
        by: dict[str, list[Case]] = {}
        for case in line.cases:
            chip = LIBRARIES.get(case.name.split(",")[0])
            if chip is not None:
                by.setdefault(chip, []).append(case)
        what, _, kind = line.quantity.partition(", ")
        fitted = "every second size" if kind == "held-out sizes" else "fewer ranks"
        what = what if kind == "held-out sizes" else f"{what} on more ranks than were fitted"
        for chip, cases in by.items():
            yield of_cases(chip, COLLECTIVES, what, cases, fitted)


def training_rows(lines: Mapping[str, Sequence[Case]], points: Sequence[Case]) -> Iterator[Trusted]:
    """Iterations on A100."""
    for source, what in (("vtrain", "small GPT models on 2 to 8 GPUs"), ("llm-foundry", "MPT models with FSDP on 8 GPUs")):
        row = of_cases("a100", TRAINING, what, lines[f"{source}, held out"], "the software, to every second row")
        yield with_baseline(row, lines[f"{source}, one utilisation"], "one utilisation")
    yield of_cases("a100", TRAINING, "Megatron-LM, 145 to 1,008 billion parameters", points)


def bridge_rows(folder: Path) -> Iterator[Trusted]:
    """Published throughput on B200."""
    found: dict[bool, list[Case]] = {False: [], True: []}
    for row in bridge.rows(folder):
        found[row.shape.experts is not None].append(Case(row.name, bridge.iteration(replace(row, container="")), row.seconds))
    yield of_cases("b200", TRAINING, "Megatron-Bridge, Llama 3 in FP8, 8 and 128 GPUs", found[False])
    yield of_cases("b200", TRAINING, "Megatron-Bridge, mixtures of experts, 8 to 256 GPUs", found[True])


def serving_rows(folder: Path) -> Iterator[Trusted]:
    """Static batches and closed loops by GPU."""
    made = serving.static_predictor()
    judged: dict[tuple[str, str], list[Case]] = {}
    for row in serving.static_rows(folder)[1]:
        what = f"static batches, {row.framework}"
        judged.setdefault((row.gpu, what), []).append(Case(row.where, made.static(row), row.latency or 0.0))
    for row in serving.closed_rows(folder)[1]:
        loop = serving.closed_loop_of(row, serving.closed_predictor_of(row))
        kind = "mixtures of experts" if row.experts else "dense models"
        judged.setdefault((row.gpu, f"closed loops, TPOT, {kind}"), []).append(Case(row.where, loop.tpot, row.tpot or 0.0))
        if row.ttft:
            judged.setdefault((row.gpu, "closed loops, TTFT by events"), []).append(
                Case(row.where, loop.simulated.ttft.mean, row.ttft)
            )
    for (gpu, what), cases in sorted(judged.items()):
        if gpu.lower() in TITLES:
            yield of_cases(gpu.lower(), SERVING, what, cases, "the software, to other pairs of GPU and model")


def collect(folder: Path) -> list[Trusted]:
    """All rows of all pages."""
    found = [*kernel_rows(folder), *own_rows(), *operator_rows(operators.compare(folder).lines)]
    found += collective_rows(collectives.compare(folder).lines)
    lines = {line.quantity: line.cases for line in training.compare(folder).lines}
    found += training_rows(lines, megatron.compare().lines[0].cases)
    found += [*bridge_rows(folder), *serving_rows(folder)]
    return sorted(found, key=_order)


def _order(row: Trusted) -> tuple[int, int]:
    return list(TITLES).index(row.chip), list(SUBJECTS).index(row.subject)


def load() -> list[Trusted]:
    """The rows that were collected last."""
    return [Trusted(**row) for row in json.loads(FIGURES.read_text(encoding="utf-8"))]


def write(rows: Sequence[Trusted]) -> None:
    """Keep the rows, and make the pages."""
    FIGURES.write_text("[\n" + ",\n".join(json.dumps(_rounded(row)) for row in rows) + "\n]\n", encoding="utf-8")
    PAGES.mkdir(exist_ok=True)
    for name, text in pages(load()).items():
        (PAGES / name).write_text(text, encoding="utf-8")


def _rounded(row: Trusted) -> dict[str, object]:
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in asdict(row).items()}


# --- pages --------------------------------------------------------------------------------------------------------------


def pages(rows: Sequence[Trusted]) -> dict[str, str]:
    """Text of every page by the name of its file, the list of them among these."""
    by_chip = {chip: [row for row in rows if row.chip == chip] for chip in TITLES}
    made = {f"{chip}.md": page(chip, mine) for chip, mine in by_chip.items() if mine}
    return made | {"README.md": contents({chip: mine for chip, mine in by_chip.items() if mine})}


def contents(by_chip: Mapping[str, Sequence[Trusted]]) -> str:
    """The page that lists the others: by chip and subject, the range of mean errors."""
    head = ("chip", *(subject for subject in SUBJECTS))
    rows = []
    for chip, mine in by_chip.items():
        cells = [f"[{TITLES[chip]}]({chip}.md)"]
        for subject in SUBJECTS:
            means = [row.mean for row in mine if row.subject == subject]
            cells.append(_range(means) if means else "not measured")
        rows.append(cells)
    return f"""# How far to trust a time, by machine

{MADE}
Mean absolute errors; the pages say what was fitted to what. Energy was not measured on any machine, and chips that are not
listed have no measurements: their times come from the data sheet alone ([what is validated](../validation.md)).

{markdown(head, rows)}
"""


MADE = "Written by `python -m validation.trust`; do not edit.\n"


def page(chip: str, rows: Sequence[Trusted]) -> str:
    """The page of a chip."""
    title = TITLES[chip]
    parts = [f"# How far to trust Halley on {_article(title)} {title}\n\n{MADE}"]
    parts.append(
        "Errors are relative to measured times; the last column says what a fit saw. `bias` is the median signed error: below\n"
        "0, predicted times are too short. `in the interval`: rows in the interval of 80 % that `halley time` prints. `simpler\n"
        "model`: a fitted roofline, or one utilisation, judged on the same rows. `order` is Kendall's rank correlation of\n"
        "predicted and measured times.\n"
    )
    parts.append(_words(chip, rows))
    for subject, said in SUBJECTS.items():
        mine = [row for row in rows if row.subject == subject]
        if mine:
            parts.append(f"## {said[0].upper()}{said[1:]}\n\n{table(mine)}\n")
    missing = [said for subject, said in SUBJECTS.items() if not any(row.subject == subject for row in rows)]
    parts.append(f"## Not measured\n\n{_missing(chip, missing)}\n")
    return "\n".join(parts)


def table(rows: Sequence[Trusted]) -> str:
    """Rows of one subject; columns that none of them has are left out."""
    columns: dict[str, Callable[[Trusted], str]] = {
        "measured": lambda row: row.what,
        "rows": lambda row: str(row.rows),
        "mean error": lambda row: _percent(row.mean),
        "median": lambda row: _percent(row.median),
        "bias": lambda row: f"{round(100 * row.bias) or 0:+d} %",
        "in the interval": lambda row: "" if row.covered is None else f"{100 * row.covered:.0f} %",
        "simpler model": lambda row: "" if row.baseline is None else f"{_percent(row.baseline)} ({row.beside})",
        "order": lambda row: "" if row.kendall is None else f"{row.kendall:.2f}",
        "fitted to": lambda row: row.fitted or "nothing",
    }
    kept = {name: cell for name, cell in columns.items() if any(cell(row) for row in rows)}
    return markdown(tuple(kept), [[cell(row) for cell in kept.values()] for row in rows])


def _words(chip: str, rows: Sequence[Trusted]) -> str:
    """The page in sentences."""
    said = []
    for subject, name in SUBJECTS.items():
        mine = [row for row in rows if row.subject == subject]
        if mine:
            worst = max(mine, key=lambda row: row.mean)
            most = f"; the worst are {worst.what} with {_percent(worst.mean)}" if len(mine) > 1 else ""
            said.append(f"- {name}: mean errors of {_range([row.mean for row in mine])}{most}.")
    if chip in KIN:  # what was measured on it judges, and was not fitted
        shares = (
            "the shares of its data sheet and the corrections" if chip in SAME_ARCHITECTURE else "the shares of its data sheet"
        )
        kin = f"Its times take over {shares} from the {TITLES[KIN[chip]]}; intervals are wider."
        said.append(f"- No kernel of this chip was fitted. {kin}")
    return "\n".join(said) + "\n"


def _missing(chip: str, missing: Sequence[str]) -> str:
    lines = [f"- {said}" for said in missing]
    lines += ["- collectives between nodes, and collectives beside kernels", "- energy and power"]
    if chip not in KIN and chip in ("a100", "h100", "b200", "l40s"):
        rows = sum(item.rows for item in load_kernel_fits(chip).fits)
        lines.append(f"- kernels and formats beyond the {rows:,} rows that `halley time` lists by kernel")
    return "\n".join(lines)


def _article(title: str) -> str:
    return "an" if title[0] in "AHLR" else "a"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return _percent(low) if low == high else f"{100 * low:.1f} to {100 * high:.1f} %"


def main(arguments: Sequence[str]) -> int:
    """Collect and write; without a folder, only make the pages again."""

    def made() -> str:
        rows = collect(Path(arguments[0])) if arguments else load()
        write(rows)
        return f"{len(rows)} rows, {len(list(PAGES.glob('*.md')))} pages"

    return told(made)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
