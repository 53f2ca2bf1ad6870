"""Study files: values, expressions, places of the chip file, and all that may be wrong with them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.sweep_studies import CHIP, SMALL, TWO

from halley.errors import BadInput
from halley.sweeps.expressions import expression
from halley.sweeps.load import load_study, parse_study
from halley.sweeps.study import problem_key
from halley.sweeps.values import axis_values

ROOT = Path(__file__).parents[2]
HEAD = "workloads: {g: {kind: gemm, m: 64, n: 64, k: 64}}\nchip: edge\n"


def faults(text: str) -> str:
    with pytest.raises(BadInput) as error:
        parse_study(text).designs()
    return str(error.value)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("0.5, 1 MiB", ("0.5 MiB", "1 MiB")),
        ("pow2(8..64) KiB", ("8 KiB", "16 KiB", "32 KiB", "64 KiB")),
        ("range(1..2, 0.5) GHz", ("1 GHz", "1.5 GHz", "2 GHz")),
        ([True, False], (True, False)),
        (["line", "ring"], ("line", "ring")),
        (7, (7,)),
        ("3", (3,)),
    ],
)
def test_values(given: object, values: tuple[object, ...]) -> None:
    assert axis_values(given) == values


@pytest.mark.parametrize(
    "given",
    [
        [],
        "",
        "1 MiB, 2 MiB",
        "pow2(8..4)",
        "pow2(0..4)",
        "range(4..1)",
        [1, 1],
        "1e400",
        "range(1..1e999)",
        "pow2(1..1e999)",
        {"a": 1},
        [None],
    ],
)
def test_wrong_values(given: object) -> None:
    with pytest.raises(BadInput):
        axis_values(given)


def test_a_long_range_is_counted_not_made() -> None:
    with pytest.raises(BadInput, match=r"100,000 values of an axis.*; got 1,000,000,000; take steps of 1e\+04 or more"):
        axis_values("range(1..1000000000)")
    assert len(axis_values("range(1..1000000000, 1e4)")) == 100_000
    with pytest.raises(BadInput, match=r"got some 1e\+300; take"):
        axis_values("range(1..1e300)")


@pytest.mark.parametrize(
    "rule",
    [
        "die_area > 0",
        "sram / 1 MiB + macs <= 1e9",
        "min(sram, 4 MiB) <= 1 GiB and macs ** 2 > 1",
        "sram <= 9 * glb.capacity",
        "peak_power / die_area <= 1 W / 1 mm2",
        "glb.capacity * 1 GHz >= 1 GB/s or log2(macs) > 1",
    ],
)
def test_units_that_fit(rule: str) -> None:
    assert len(parse_study(f"{HEAD}axes: {{glb.capacity: '1, 2 MiB'}}\nwhere: [\"{rule}\"]").designs()) == 2


def test_designs_are_the_product_of_the_axes_that_keeps_the_constraints() -> None:
    designs = parse_study(TWO).designs()
    found = {(int(d.figures["engines.matrix.rows"]), d.figures["buf.capacity"], d.figures["dram"]) for d in designs}
    every = {(rows, size, rate) for rows in (2, 4, 8) for size in (256.0, 512.0, 1024.0) for rate in (4e9, 8e9)}
    assert found == {(rows, size, rate) for rows, size, rate in every if rows * 4 <= 16 or size >= 512}
    assert len(designs) == len(found) == 16
    for design in designs:
        chip = design.chip
        assert chip.matrix is not None
        assert (chip.matrix.rows, chip.memory("buf").capacity) == (
            design.figures["engines.matrix.rows"],
            design.figures["buf.capacity"],
        )
        assert chip.memory("dram").read_bandwidth == chip.memory("dram").write_bandwidth == design.figures["dram"]
        assert chip.sources["engines.matrix.rows"] == "assumed: an axis of the sweep"


def test_a_list_with_a_unit_behind_it_needs_no_quotes() -> None:
    study = parse_study(HEAD + "axes:\n  glb.capacity: [1, 2] MiB  # as one would write it\n")
    assert [design.setting["glb.capacity"] for design in study.designs()] == ["1 MiB", "2 MiB"]


def test_axes_lead_into_every_part_of_a_chip() -> None:
    axes = "axes: {clock: 1 GHz, cluster.x.size: 2, cluster.port.bandwidth: 32 B/cycle, cluster.x.link.latency: 1 ns, "
    axes += "engines.vector.rate.exp: 0.5, engines.matrix.dataflow: [output-stationary], dram.burst: 64 B}"
    (design,) = parse_study(HEAD + axes).designs()
    chip = design.chip
    assert chip.vector is not None
    assert chip.vector.rate["exp"] == 0.5
    assert chip.memory("dram").burst == 64
    assert chip.axis("cluster", "x").link.latency == 1e-9


def test_keys_depend_on_what_is_searched_alone() -> None:
    """Names, comments and how a number is written do not matter; each figure of the chip does."""
    one, other = (
        parse_study(SMALL),
        parse_study(SMALL.replace("name: mini", "name: other").replace("128, 512 B", "0.125, 0.5 KiB")),
    )
    keys = [[problem_key(study.problem(design, 0)) for design in study.designs()] for study in (one, other)]
    assert keys[0] == keys[1]
    assert len(set(keys[0])) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("axes: {glb.capcity: '1, 2 MiB'}", "axes.glb.capcity: expected an axis that leads to a single value of the chip; got"),
        ("axes: {glb.capcity: '1, 2 MiB'}", "did you mean 'glb.capacity'?"),
        ("axes: {cluster.x.link: 3}", "did you mean 'cluster.x.link."),
        ("axes: {levels: 3}", "leads to a single value"),
        ("axes: {glb.capacity: []}", "axes.glb.capacity: expected at least one value; got none"),
        ("axes: {glb.capacity: '1, 2 GHz'}", "axes.glb.capacity: expected a size; got '2 GHz', a frequency"),
        ("axes: {engines.matrix.rows: '0, 2'}", "axes.engines.matrix.rows: expected a whole number from 1 to 1048576; got 0"),
        ("axes: {glb.burst: 64 B}", "axes.glb.burst: expected a burst length in the outermost level only; got '64 B'"),
        ("axes: {glb.capacity: 1 MiB, a: {set: [glb.capacity], values: 2 MiB}}", "an axis of its own for each number"),
        ("axes: {a: {set: {glb.capacity: '1, 2 MiB', clock: 1 GHz}}}", "as many values for each path of linked axes; got 2, 1"),
        ("axes: {macs: {set: [glb.capacity], values: 2 MiB}}", "a name that no figure has"),
        ("axes: {}", "axes"),
        ("axes: {glb.capacity: '1, 2 MiB'}\nwhere: [glb.capacity > 3 MiB]", "a design that keeps all constraints; got none of 2"),
        ("axes: {glb.capacity: '1, 2 MiB'}\nwhere: [glb.capacity > 3 MiB]", "which have glb.capacity from 1 MiB to 2 MiB"),
        ("axes: {glb.capacity: '1, 2 MiB'}\nwhere: [peak_power <= 1 W]", "got none of 2, which have peak_power 5.74 W"),
        (
            "axes: {glb.capacity: 1 MiB}\nwhere: [die_area <= 100 W]",
            "where.0: expected quantities of one unit; got an area and a power",
        ),
        ("axes: {glb.capacity: 1 MiB}\nwhere: [die_area <= 100]", "got an area and a number without a unit in 'die_area <= 100'"),
        ("axes: {glb.capacity: 1 MiB}\nwhere: [peak_power <= 5 mm2]", "got a power and an area in 'peak_power <= 5 mm2'"),
        ("axes: {glb.capacity: 1 MiB}\nwhere: [glb.capacity <= 5 GB/s]", "got a size and a bandwidth"),
        (
            "axes: {glb.capacity: 1 MiB}\nfigures: {a: 2 * die_area}\nwhere: [a <= 3 W]",
            "where.0: expected quantities of one unit",
        ),
        ("axes: {glb.capacity: 1 MiB}\nfigures: {a: sram + macs}", "figures.a: expected quantities of one unit; got a size and"),
        (
            "axes: {glb.capacity: 1 MiB}\nwhere: ['log2(sram) <= 9']",
            "a number without a unit in a function or an exponent; got a size",
        ),
        ("axes: {glb.capacity: 1 MiB}\nwhere: [macs <= foo]", "a figure or an axis; got 'foo'"),
        ("axes: {glb.capacity: 1 MiB}\nwhere: [macs + 1]", "a comparison"),
        ("axes: {glb.capacity: 1 MiB}\nminimise: [macs]", "one of time, energy and edp"),
        ("axes: {glb.capacity: 1 MiB}\nminimise: [time, energy]", "one of time, energy and edp"),
        ("axes: {glb.capacity: 1 MiB}\nminimise: [time, are]", "minimise.1: expected a figure or an axis; got 'are'"),
        ("axes: {glb.capacity: 1 MiB}\nminimise: [edp]\ngap: 0.1", "no gap where edp is minimised"),
        ("axes: {glb.capacity: 1 MiB}\nfigures: {a: 1 / (macs - macs)}", "expected a number for every design"),
        ("axes: {glb.capacity: 1 MiB}\nfigures: {time: macs}", "a name of its own"),
        ("axes: {glb.capacity: 1 MiB}\nweights: {h: 2}", "the name of a workload; got 'h'; use one of: g"),
        ("axes: {glb.capacity: 1 MiB}\nfoo: 1", "expected a known key; got 'foo'"),
        ("axes: {engines.matrix.dataflow: [weight-stationary]}\nwhere: [engines.matrix.dataflow > 1]", "whose values are words"),
    ],
)
def test_faults_name_the_place(text: str, said: str) -> None:
    assert said in faults(HEAD + text)
    assert faults(HEAD + text).startswith("study")


def test_all_faults_at_once() -> None:
    text = "workloads: {g: {kind: gemm, m: 0}}\nchip: edg\naxes: {glb.capacity: 3}\nwhere: [x < 1]\n"
    said = faults(text)
    assert all(part in said for part in ("workloads.g", "'edge'", "where.0"))


def test_a_billion_points_are_refused_with_their_count() -> None:
    axes = ", ".join(f"{name}: range(1..1000)" for name in ("engines.matrix.rows", "engines.matrix.cols", "engines.vector.lanes"))
    axes = axes.replace("range(1..1000)", "'range(1..1000)'")
    assert "at most 100,000 designs; got 1,000,000,000 (1,000 x 1,000 x 1,000)" in faults(HEAD + f"axes: {{{axes}}}")


@pytest.mark.parametrize(
    ("text", "value"),
    [("2 + 3 * macs", 14.0), ("-macs ** 2", -16.0), ("min(macs, 3) % 2", 1.0), ("sram / 1 KiB", 2.0), ("1 <= macs < 4", 0.0),
     ("macs > 5 or sram >= 2 KiB and a.b == 1", 1.0)],
)  # fmt: skip
def test_expressions(text: str, value: float) -> None:
    assert expression(text, ["macs", "sram", "a.b"]).value({"macs": 4.0, "sram": 2048.0, "a.b": 1.0}) == value


@pytest.mark.parametrize("text", ["__import__('os')", "macs.__class__", "(lambda: 1)()", "[1]", "'a'", "1 if 1 else 2", "1e999",
                                  "exp(1)", "min()", "x := 1", "", "(" * 200, "1;2"])  # fmt: skip
def test_expressions_run_no_code(text: str) -> None:
    with pytest.raises(BadInput):
        expression(text, ["macs"])


@settings(max_examples=200, deadline=None, database=None)
@given(st.text(alphabet="macs.x0123 +-*/%()<>=!&|[]{}'\"\n:,eE_", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(BadInput):
        expression(text, ["macs"]).value({"macs": 2.0})


@pytest.mark.parametrize(
    ("path", "count"),
    [("examples/sweep.yaml", 18), pytest.param("studies/sweeps/edge-chips.yaml", 1000, marks=pytest.mark.medium)],
)
def test_shipped_studies(path: str, count: int) -> None:
    assert len(load_study(ROOT / path).designs()) == count


def test_the_chip_may_stand_in_the_study() -> None:
    assert "buf.capacity: expected a size" in faults(
        CHIP + "workloads: {g: {kind: gemm, m: 4, n: 4, k: 4}}\naxes: {buf.capacity: 3 s}"
    )
