"""Co-design against brute force: drawn studies, every design searched by itself, and all of those under the budgets compared."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from tests.cli.running import halley
from tests.unit.sweep_studies import CHIP

from halley import Infeasible, Problem, build, codesign, optimise
from halley.errors import BadInput
from halley.sweeps.load import parse_study
from halley.sweeps.study import Study

ROOT = Path(__file__).parents[2]
DIE = CHIP.replace("  engines:", "  die: {process: 16 nm, dram: ddr}\n  engines:")


def drawn(dice: random.Random) -> str:
    """A study of up to twelve designs and two workloads."""

    def sizes() -> str:
        m, n, k = (dice.choice([2, 4, 6, 8, 12]) for _ in range(3))
        return f"{{kind: gemm, m: {m}, n: {n}, k: {k}}}"

    def some(*values: object) -> str:
        kept = sorted(dice.sample(range(len(values)), dice.randint(1, len(values))))
        return ", ".join(str(values[place]) for place in kept)

    objective = dice.choice(["time", "energy", "edp"])
    return (
        DIE
        + f"workloads:\n  g: {sizes()}\n  h: {sizes()}\nweights: {{h: {dice.choice([1, 3])}}}\n"
        + f"axes:\n  buf.capacity: {some(96, 256, 1024)} B\n  engines.matrix.rows: [{some(2, 4, 8)}]\n"
        + f"  die.process: [{some('16 nm', '7 nm')}]\nminimise: [{objective}]\n"
    )


def optima(study: Study) -> dict[int, float]:
    """The weighted sum of the optima of the workloads on each design; infinite if one has none."""
    found = {}
    for design in study.designs():
        total = 0.0
        for part in study.workloads:
            work = build(str(part.given["kind"]), {key: each for key, each in part.given.items() if key != "kind"})
            try:
                best = optimise(Problem(work, design.chip, study.objective, baselines=False)).best
                total += part.weight * float(best.certificate.value)
            except Infeasible:
                total = math.inf
        found[design.number] = total
    return found


def least(study: Study, of: dict[int, float], budgets: dict[str, float]) -> float:
    """The least value of a design under the budgets; infinite if there is none."""
    able = (each for each in study.designs() if all(each.figures[name] <= most for name, most in budgets.items()))
    return min((of[each.number] for each in able), default=math.inf)


@pytest.mark.medium
@pytest.mark.parametrize("seed", range(8))
def test_optimum_of_drawn_studies(seed: int) -> None:
    dice = random.Random(seed)
    study = parse_study(drawn(dice))
    designs = study.designs()
    budgets: dict[str, float] = {}
    for name in ("die_area", "peak_power", "buf.capacity"):
        values = sorted(design.figures[name] for design in designs)
        budgets[name] = dice.choice(values[len(values) // 3 :])
    every = optima(study)
    expected = least(study, every, budgets)
    try:
        found = codesign(study, budgets, workers=0)
    except BadInput:
        assert math.isinf(expected)
        return
    value = found.best.value if found.best is not None else math.inf
    assert math.isclose(value, expected, rel_tol=1e-8)
    for each in found.relaxed:
        wider = {**budgets, each.figure: budgets[each.figure] * each.factor}
        assert math.isclose(each.value, least(study, every, wider), rel_tol=1e-8)


@pytest.mark.slow
def test_the_larger_example_of_the_page(tmp_path: Path) -> None:
    """An NPU within 100 mm2 and 5 W: the command prints what the page says."""
    page = (ROOT / "docs/how-to/design-under-budgets.md").read_text(encoding="utf-8")
    command = "halley codesign examples/codesign.yaml --area 100mm2 --power 5W -j 2"
    block = page.split(f"$ {command}\n")[1].split("```")[0]
    study = str(ROOT / "examples/codesign.yaml")
    words = [study if word.startswith("examples/") else word for word in command.split()[1:]]
    made = halley(*words, "--store", str(tmp_path / "store.db"), width=80)
    assert made.code == 0, made.err
    printed = [line.rstrip() for line in made.out.splitlines()]
    assert [line for line in block.splitlines() if line.rstrip() not in printed] == []
