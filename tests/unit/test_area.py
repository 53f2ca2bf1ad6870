"""Area and peak power: of parts by hand, of published dies, and in the order that more takes more."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from validation.area.compare import NAMED
from validation.area.fit import area, dies, fitted, held_out

from halley import load_chip
from halley.errors import BadInput
from halley.io.chips.load import parse_chip
from halley.io.chips.save import chip_text
from halley.library import CHIPS
from halley.silicon.area import Silicon, area_parts, die_area, multiplier_area, silicon
from halley.silicon.power import peak_power
from halley.silicon.processes import ARITHMETIC, FACTORS, KNOWN_DENSITY, PROCESSES


def test_parts_by_hand() -> None:
    built = silicon(load_chip("edge"))
    assert built is not None
    parts = area_parts(built)
    cell = PROCESSES["7 nm"].bit
    assert math.isclose(parts["shared memories"], cell * (FACTORS.shared * 8 * 4 * 2**20 + FACTORS.fixed))
    assert math.isclose(parts["local memories"], 12 * cell * (FACTORS.local * 8 * 64 * 1024 + FACTORS.fixed))
    multiplier = ARITHMETIC["fp16"] * KNOWN_DENSITY / PROCESSES["7 nm"].density
    assert math.isclose(parts["multipliers"], 4096 * FACTORS.multiplier * multiplier)
    assert math.isclose(parts["interfaces to memory"], 25.6e9 * FACTORS.pins)
    assert die_area(load_chip("edge")) == sum(parts.values())


def test_dies_as_built() -> None:
    """Units that a product switches off take area too; fp8 is part of fp16, fp64 is not."""
    built = silicon(load_chip("h100"))
    assert built is not None
    assert built.multipliers == {"fp16": 144 * 4096 / 2, "fp64": pytest.approx(144 * 4 * 256 * 0.135, rel=0.01)}
    assert [blocks.copies for blocks in built.memories if blocks.kind == "registers"] == [144]
    assert silicon(load_chip("l40s")) is None
    assert die_area(load_chip("l40s")) is None


def test_products_that_are_added_before_rounding_share_an_adder() -> None:
    """A float adder for all of them, an integer adder for all but one; integers have none to share."""
    product, adder, aligned = 1640e-12, 4184e-12, 137e-12
    for summed in (1, 4, 16):
        whole = summed * product + adder + (summed - 1) * aligned
        assert math.isclose(multiplier_area("fp16", summed), whole / summed)
    assert multiplier_area("int8", 16) == ARITHMETIC["int8"]
    built = silicon(load_chip("h100"))
    assert built is not None
    assert built.summed == 16
    assert area_parts(replace(built, summed=1))["multipliers"] > 1.5 * area_parts(built)["multipliers"]


def test_factors_are_those_of_the_fit() -> None:
    known = dies()
    found = fitted(known)
    for name in FACTORS.__slots__:
        assert math.isclose(getattr(found, name), getattr(FACTORS, name), rel_tol=0.01), name


def test_published_dies() -> None:
    known, unseen = dies(), held_out(dies())
    errors = {die.name: area(die.built, FACTORS) / die.area - 1 for die in known}
    assert sum(map(abs, errors.values())) / len(errors) < 0.10
    assert sum(abs(unseen[die.name] / die.area - 1) for die in known) / len(known) < 0.15
    assert max(abs(errors[name]) for name in NAMED) < 0.12
    assert abs(unseen["GH100 (H100)"] / 814e-6 - 1) < 0.05


@pytest.mark.parametrize("name", [name for name in CHIPS.names() if load_chip(name).die is not None and load_chip(name).die.area])
def test_chip_files_agree_with_the_dies(name: str) -> None:
    chip = load_chip(name)
    assert chip.die is not None
    found = die_area(chip)
    assert found is not None
    assert abs(found / chip.die.area - 1) < 0.25


def test_more_takes_more() -> None:
    built = silicon(load_chip("cloud"))
    assert built is not None
    before = sum(area_parts(built).values())
    changes: list[Silicon] = [
        replace(built, lanes=2 * built.lanes),
        replace(built, stacks=built.stacks + 1),
        replace(built, links=1e12),
        replace(built, process="16 nm"),
        replace(built, multipliers={"fp16": 1.1 * built.multipliers["fp16"]}),
        replace(built, memories=tuple(replace(each, bits=2 * each.bits) for each in built.memories)),
    ]
    for change in changes:
        assert sum(area_parts(change).values()) > before
    assert sum(area_parts(replace(built, process="5 nm")).values()) < before


def test_files() -> None:
    chip = load_chip("a100")
    assert parse_chip(chip_text(chip)) == chip
    text = chip_text(load_chip("edge")).replace("7 nm", "8 nm")
    with pytest.raises(BadInput, match=r"die.process.value: expected one of 65 nm, .*; got '8 nm'"):
        parse_chip(text)
    wrong = chip_text(chip).replace("- rf\n  area", "- rg\n  area").replace("registers:\n  - rf", "registers:\n  - rg")
    with pytest.raises(BadInput, match=r"die\.registers\.0: expected the name of a memory on the chip; got 'rg'"):
        parse_chip(wrong)


def test_peak_power_by_hand() -> None:
    edge = load_chip("edge")
    engines = 4 * 1024 * 1e9 * 0.5e-12 + 4 * 32 * 1e9 * 0.5e-12
    memories = 25.6e9 * 64e-12 + 128e9 * 8 * (0.249e-12 + 0.293e-12) + 12 * 2 * 64e9 * 8 * 0.06e-12
    network = 4 * 32e9 * 8 * 0.081e-12 * (2 + 2 + 2)
    assert math.isclose(peak_power(edge), 0.2 + engines + memories + network)
    assert math.isinf(peak_power(load_chip("tpu-v4i-like")))
