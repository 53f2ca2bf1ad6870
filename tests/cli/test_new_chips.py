"""Files of new chips: copies of others, and GPUs from the line of a data sheet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.running import halley

from halley.errors import BadInput
from halley.io.chips.datasheet import copy_of, gpu_from
from halley.io.chips.load import load_chip, parse_chip
from halley.io.chips.save import chip_document
from halley.ir.hardware import Chip
from halley.library import CHIPS
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.report.hardware import chip_facts, source
from halley.workloads import build


def peak(chip: Chip, dtype: str) -> float:
    """Operations a second, two for each multiply-accumulate."""
    assert chip.matrix is not None
    members = 1
    for level in chip.levels:
        members *= level.count
    return 2 * members * chip.matrix.rows * chip.matrix.cols * chip.matrix.rate[dtype] * chip.matrix.clock


@pytest.mark.parametrize("name", CHIPS.names())
def test_a_copy_is_the_chip_under_another_name(name: str) -> None:
    chip, copy = load_chip(name), parse_chip(copy_of("mine", name))
    assert copy.name == "mine"
    assert list(chip_facts(copy)) == list(chip_facts(chip))
    assert copy.sources == chip.sources


def test_a_copy_of_a_file_in_one_line(empty_folder: Path) -> None:
    (empty_folder / "one.json.yaml").write_text(
        "{" + ", ".join(f'"{key}": {json.dumps(value)}' for key, value in chip_document(load_chip("edge")).items()) + "}"
    )
    assert parse_chip(copy_of("mine", "./one.json.yaml")).name == "mine"


RATES = st.dictionaries(st.sampled_from(["fp64", "fp32", "fp16", "bf16", "fp8", "int8"]), st.integers(1, 4000), min_size=1)


@settings(max_examples=20, deadline=None)
@given(RATES, st.integers(1, 9000), st.integers(1, 999), st.none() | st.integers(1, 400), st.none() | st.integers(500, 3000))
def test_a_data_sheet_is_kept_exactly(
    rates: dict[str, int], bandwidth: int, capacity: int, cores: int | None, clock: int | None
) -> None:
    parts = [f"{rate} TFLOPS {dtype}" for dtype, rate in rates.items()] + [f"{bandwidth} GB/s", f"{capacity} GB"]
    parts += [f"{cores} cores"] * bool(cores) + [f"{clock} MHz"] * bool(clock)
    chip = parse_chip(gpu_from("mine", ", ".join(parts)), sourced=True)
    for dtype, rate in rates.items():
        assert peak(chip, dtype) == pytest.approx(rate * 1e12, rel=1e-12)
    assert chip.memory("dram").read_bandwidth == bandwidth * 1e9
    assert chip.memory("dram").capacity == capacity * 1e9
    assert cores is None or chip.levels[-1].count == cores
    assert clock is None or (chip.matrix is not None and chip.matrix.clock == clock * 1e6)


def test_what_the_data_sheet_does_not_say_is_marked() -> None:
    chip = parse_chip(gpu_from("mine", "181 TFLOPS fp16, 1.6 TB/s, 64 GB"))
    stated = {path for path, _ in chip_facts(chip) if source(chip, path).startswith("data sheet")}
    memory = "levels.dram.memories.dram"
    assert stated == {f"{memory}.capacity", f"{memory}.read_bandwidth", f"{memory}.write_bandwidth", "engines.matrix.rate.fp16"}
    assert all("assumed" in source(chip, path) for path, _ in chip_facts(chip) if path not in stated)


@pytest.mark.medium
def test_the_data_sheet_of_a_known_chip_gives_its_times() -> None:
    line = "312 TFLOPS fp16/bf16, 2039 GB/s, 80 GB HBM2e, 108 SMs, 1410 MHz, 40 MiB L2"
    made, known = parse_chip(gpu_from("mine", line)), load_chip("a100")
    for sizes in ({"m": 2048, "n": 2048, "k": 2048}, {"m": 16, "n": 4096, "k": 4096}):
        times = [
            optimise(Problem(build("gemm", sizes), chip, time_limit=60.0, gap=0.01, baselines=False)).best.estimate.time
            for chip in (made, known)
        ]
        assert times[0] == pytest.approx(times[1], rel=0.02)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "expected a rate such as 181 TFLOPS fp16; got none"),
        ("1 TB/s, 64 GB", "expected a rate such as 181 TFLOPS fp16; got none"),
        ("181 TFLOPS fp16, 64 GB", "expected a bandwidth such as 1.6 TB/s; got none"),
        ("181 TFLOPS fp16, 1 TB/s", "expected a capacity such as 64 GB; got none"),
        ("181 TFLOPS fp61, 1 TB/s, 64 GB", "expected an element type; got 'fp61'; did you mean 'fp64'?"),
        ("181 TFLOPS, 1 TB/s, 64 GB", "got '181 TFLOPS'; leave the part out"),
        ("181 TFLOPS fp16, 1 TB/s, 64 GB, 300 W", "got '300 W'; leave the part out"),
        ("181 TFLOPS fp16, 1 TB/s, 64 GB, 80 GB", "expected each figure once; got '80 GB' besides another one"),
        ("1.2.3 TFLOPS fp16, 1 TB/s, 64 GB", "expected a number above 0; got '1.2.3 TFLOPS fp16'"),
        ("0 TFLOPS fp16, 1 TB/s, 64 GB", "expected a number above 0"),
        ("181 TFLOPS fp16, 1 TB/s, 64 GB, 0 cores", "expected a number of cores above 0"),
        ("181 TFLOPS fp16, 1 TB/s, 64 GB, 99999 cores", "expected a chip of at most 10,000 cores; got 99,999 cores"),
        ("99999 EFLOPS fp16, 1 TB/s, 64 GB", "expected a chip of at most 10,000 cores; got a rate for"),
        ("181 TFLOPS fp16, 1 TB/s, 64 GB: {a}\n- x", "leave the part out"),
        ("181 TFLOPS fp16, 64 B/cycle, 64 GB", "leave the part out"),
    ],
)
def test_lines_that_are_no_data_sheet(line: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        gpu_from("mine", line)
    assert said in str(caught.value)


def test_new_chips_from_the_command_line(empty_folder: Path) -> None:
    made = halley("chips", "new", "my-npu", "--like", "edge")
    assert (made.code, "written to my-npu.yaml" in made.err) == (0, True)
    assert halley("chips", "my-npu.yaml").out.startswith("my-npu: ")
    again = halley("chips", "new", "my-npu", "--like", "edge")
    assert (again.code, "--force" in again.err) == (1, True)
    assert halley("chips", "new", "other", "--like", "my-npu.yaml", "-o", "sub.yaml").code == 0
    assert load_chip("./sub.yaml").name == "other"
    for words, said in (
        (("edge", "--like", "edge"), "got 'edge', which ships with Halley"),
        (("a/b", "--like", "edge"), "expected a name of letters"),
        (("mine",), "expected --like CHIP or --from-datasheet TEXT; got neither"),
        (("mine", "--like", "edge", "--from-datasheet", "x"), "got both"),
        (("mine", "--like", "egde"), "did you mean 'edge'?"),
    ):
        outcome = halley("chips", "new", *words)
        assert (outcome.code, said in outcome.err) == (1, True), outcome.err
    assert sorted(path.name for path in empty_folder.iterdir()) == ["my-npu.yaml", "sub.yaml"]


def test_the_energy_table() -> None:
    rows = halley("energies", "--json").json
    assert rows["dram-lpddr4"]["value"] == "8 pJ/bit"
    assert set(halley("energies", "SRAM", "--json").json) == {name for name in rows if "sram" in name.lower()}
    assert "expected a word of a row; got 'nothing'" in halley("energies", "nothing").err


@pytest.mark.parametrize("words", [(), ("--json",), ("edge", "--json"), ("show", "edge")])
def test_chips_are_shown_without_a_command(words: tuple[str, ...]) -> None:
    assert halley("chips", *words).code == 0
