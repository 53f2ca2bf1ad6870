"""Co-design: what may be wrong with budgets, and the best design beside brute force in small."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.running import halley
from tests.unit.sweep_studies import CHIP

from halley import codesign, load_chip, plan
from halley.errors import BadInput
from halley.report.sweeps.codesign import document, tables, title, verdict
from halley.sweeps.codesign import RELAXED
from halley.sweeps.load import parse_study
from halley.sweeps.run import DesignSweep

STUDY = (
    CHIP.replace("  engines:", "  die: {process: 16 nm}\n  engines:")
    + """
workloads:
  g: {kind: gemm, m: 4, n: 8, k: 8}
axes:
  buf.capacity: 256, 512 B
  engines.matrix.rows: 2, 4
"""
)


def faults(text: str, budgets: dict[str, float]) -> str:
    with pytest.raises(BadInput) as error:
        codesign(parse_study(text), budgets, workers=0)
    return str(error.value)


def test_budgets_are_checked() -> None:
    assert "codesign, budgets: expected at least one" in faults(STUDY, {})
    assert "did you mean 'die_area'" in faults(STUDY, {"diearea": 1.0})
    assert "a finite number of at least 0; got nan" in faults(STUDY, {"macs": math.nan})
    assert "which have macs from 8; raise a budget" in faults(STUDY, {"macs": 4.0})
    assert "expected one objective; got time, macs" in faults(STUDY + "minimise: [time, macs]\n", {"macs": 16.0})
    assert "add a die to the chip file" in faults(STUDY.replace("  die: {process: 16 nm}\n", ""), {"die_area": 1.0})


def test_best_under_budgets() -> None:
    """The least value among designs that keep the budgets; the smaller one of equals; the base beside it."""
    study = parse_study(STUDY + "where: [macs <= 12]\n")
    found = codesign(study, workers=0)
    every = DesignSweep(parse_study(STUDY), workers=0, everything=True).run()
    values = {outcome.design.number: outcome.value for outcome in every.outcomes}
    able = [o for o in every.outcomes if o.design.figures["macs"] <= 12]
    assert found.best is not None
    assert found.budgets == {"macs": 12.0}
    assert math.isclose(found.best.value, min(o.value for o in able))
    assert found.sweep.gap == 0
    assert found.sweep.done
    assert math.isclose(found.base_value, DesignSweep(_only(study), workers=0).run().outcomes[0].value)
    assert [each.factor for each in found.relaxed] == list(RELAXED)
    assert math.isclose(found.relaxed[-1].value, min(values.values()))
    assert found.relaxed[-1].designs == 4
    assert found.relaxed[0].designs == 2


def _only(study: object) -> object:
    """The base of the study alone."""
    return replace(study, axes=(), where=())  # type: ignore[type-var]


def test_words() -> None:
    found = codesign(parse_study(STUDY), {"macs": 12.0, "peak_power": 4.0}, workers=0)
    assert title(found) == "study: least time of g; macs at most 12, peak_power at most 4 W"
    assert verdict(found).startswith("exact: no design has less time than the best, of 2 that keep the budgets, of 4")
    names = [table.title for table in tables(found)]
    assert names == ["Best design", "Area of the die, estimated", "With one larger budget"]
    content = document(found)
    assert content["best"]["setting"]["engines.matrix.rows"] == "2"
    assert content["relaxed"][4]["factor"] is None
    json.dumps(content)


def test_command(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    chip, out = tmp_path / "best.yaml", tmp_path / "answer.json"
    outcome = halley("codesign", str(study), "--area", "1mm2", "--power", "4W", "--chip", str(chip), "-o", str(out))
    assert outcome.code == 0, outcome.err
    assert "Best design" in outcome.out
    assert "peak_power" in outcome.out
    assert load_chip(str(chip)).die is not None
    assert json.loads(out.read_text())["budgets"] == {"die_area": 1e-6, "peak_power": 4.0}
    for words, message in (
        (("--area", "1"), "--area: expected an area; got '1', without a unit"),
        (("--price", "5"), "--price: expected a study of systems"),
        (("--power", "1 mm2"), "--power: expected a power; got '1 mm2', an area"),
        (("--area", "1um2"), "raise a budget"),
    ):
        wrong = halley("codesign", str(study), *words)
        assert wrong.code == 1
        assert message in wrong.err


PLANS = """
plans:
  small: {model: gpt2-xl, batch: 16}
  large: {model: gpt2-xl, batch: 32}
weights: {large: 2}
system: "{chips} x {chip}, nvlink"
axes:
  chips: 2, 4, 8
  chip: [a100, h100]
"""


@pytest.mark.medium
def test_a_study_of_systems_against_every_plan() -> None:
    """The least weighted sum of `halley.plan` under a budget of price; no base, as the text of the system has none."""
    study = parse_study(PLANS)
    prices = sorted(design.figures["price"] for design in study.designs())
    found = codesign(study, {"price": prices[3]}, workers=0)
    values = {}
    for design in study.designs():
        system = f"{design.setting['chips']} x {design.setting['chip']}, nvlink"
        each = [plan("gpt2-xl", system, batch=batch).certificate.value for batch in (16, 32)]
        values[design.number] = each[0] + 2 * each[1]
    able = [design.number for design in study.designs() if design.figures["price"] <= prices[3]]
    assert found.best is not None
    assert found.best.value <= min(values[number] for number in able) * (1 + 0.01)
    assert found.best.value >= min(values[number] for number in able) * (1 - 0.01)
    assert values[found.best.design.number] <= min(values[number] for number in able) * (1 + 0.01)
    assert ("a search for a plan ends with a gap of its own" in verdict(found)) is (found.sweep.gap > 0)
    assert tables(found)[0].head == ("", "best", "")
