"""Chip and problem files: what is right loads, and each thing that is wrong is one line that names place and remedy."""

# ruff: noqa: E501 - a message and what causes it read best on one line

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.errors import BadInput, Fault, HalleyError
from halley.io.chips.load import ProblemFile, load_chip, load_problem, parse_chip, parse_problem, read_text_bounded
from halley.io.chips.save import chip_document
from halley.io.chips.software import load_software
from halley.io.files.text import read_yaml
from halley.io.networks.network import parse_network
from halley.io.systems.system import parse_system
from halley.io.transformers import parse_model
from halley.ir.hardware import NO_LINK, Dataflow, Topology
from halley.library import CHIPS

CHIP = """\
name: tiny
clock: 2 GHz
static_power: 1 W
source: data sheet
levels:
  - name: dram
    memories:
      dram:
        capacity: 1 GiB
        read_bandwidth: {value: 10 GB/s, source: table 2}
        write_bandwidth: {value: 5 GB/s, assumed: half of reads}
        latency: 100 ns
        read_energy: {row: dram-hbm2}
        write_energy: 4 pJ/bit
  - name: core
    assumed: as others of its kind
    network:
      axes:
        x: {size: 4, topology: ring, link: {bandwidth: 16 B/cycle, latency: 3 cycles, energy: 1 pJ/B}}
      port: {bandwidth: 32 B/cycle, latency: 0 ns, energy: 0 pJ/B}
      multicast: true
      reduction: false
    memories:
      buf: {capacity: 64 KiB, read_bandwidth: unlimited, write_bandwidth: 1 TB/s, latency: 0 ns, read_energy: 0 pJ/B, write_energy: 0 pJ/B}
engines:
  matrix:
    rows: 8
    cols: 16
    clock: 1 GHz
    dataflow: output-stationary
    prefetch: true
    rate: {bf16: 1, int8: 2}
    energy: {bf16: 0.5 pJ, int8: 0.1 pJ}
    reads: {weight: [buf]}
  vector:
    lanes: 32
    rate: {add: 1, mul: 1, max: 1, exp: 0.25, div: 0.25, rsqrt: 0.25}
    energy: {add: 1 pJ, mul: 1 pJ, max: 1 pJ, exp: 2 pJ, div: 2 pJ, rsqrt: 2 pJ}
    reads: [buf]
"""
PROBLEM = "workload: {kind: gemm-softmax, m: 2048, n: 4096, k: 512, dtype: bf16, causal: true}\nchip: edge\ntime_limit: 60 s\n"


def complaint(load: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as caught:
        load()
    return str(caught.value)


def chip_complaint(old: str, new: str) -> str:
    """What is said of the chip above with one text replaced."""
    assert CHIP.count(old) == 1
    return complaint(lambda: parse_chip(CHIP.replace(old, new), "c.yaml"))


def test_a_chip_file_becomes_numbers_in_si() -> None:
    chip = parse_chip(CHIP)
    dram, buf = chip.memories
    assert (chip.name, chip.static_power, dram.capacity, dram.read_bandwidth, dram.write_bandwidth) == (
        "tiny",
        1,
        2**30,
        10e9,
        5e9,
    )
    assert (dram.latency, dram.read_energy, dram.write_energy) == (100e-9, 31.2e-12, 32e-12)
    assert (buf.capacity, buf.read_bandwidth, buf.write_bandwidth) == (65536, 1e18, 1e12)
    axis = chip.axis("core", "x")
    assert (axis.size, axis.topology, axis.link.bandwidth, axis.link.latency, axis.link.energy) == (
        4,
        Topology.RING,
        32e9,
        1.5e-9,
        1e-12,
    )
    network = chip.level("core").network
    assert network is not None
    assert network.port is not None
    assert (network.port.bandwidth, network.multicast, network.reduction) == (64e9, True, False)
    assert chip.matrix is not None
    assert (chip.matrix.rows, chip.matrix.cols, chip.matrix.clock, chip.matrix.dataflow) == (8, 16, 1e9, Dataflow.OUTPUT)
    assert (chip.matrix.rate, chip.matrix.energy) == ({"bf16": 1.0, "int8": 2.0}, {"bf16": 0.5e-12, "int8": 0.1e-12})
    assert chip.matrix.reads == {"weight": ("buf",)}
    assert chip.vector is not None
    assert (chip.vector.lanes, chip.vector.clock, chip.vector.rate["exp"], chip.vector.reads) == (32, 2e9, 0.25, ("buf",))


LINK = ", link: {bandwidth: 16 B/cycle, latency: 3 cycles, energy: 1 pJ/B}"


def test_an_axis_has_a_link_or_says_that_there_is_none() -> None:
    axis = parse_chip(CHIP.replace(LINK, "").replace("topology: ring", "topology: none")).axis("core", "x")
    assert (axis.topology, axis.link) == (Topology.NONE, NO_LINK)
    told = "c.yaml:19: levels.core.network.axes.x.link: expected the link between neighbours; got nothing"
    assert chip_complaint(LINK, "") == f"{told}; add it, or set topology to none"
    assert "levels.core.network.axes.x.link: expected no link where the topology is none" in chip_complaint(
        "topology: ring", "topology: none"
    )


@pytest.mark.parametrize(("given", "most"), [("", 2), ("buffers: 1, ", 1), ("buffers: 8, ", 8), ("buffers: up to 4, ", 4)])
def test_a_memory_says_how_many_buffers_a_search_may_give(given: str, most: int) -> None:
    chip = parse_chip(CHIP.replace("buf: {", "buf: {" + given))
    assert chip.memory("buf").buffers == most
    assert parse_chip(json.dumps(chip_document(chip))).memory("buf").buffers == most


@pytest.mark.parametrize(("given", "burst"), [("", 0), ("        burst: 64 B\n", 64), ("        burst: 1 KiB\n", 1024)])
def test_an_outermost_memory_may_have_a_burst_length(given: str, burst: int) -> None:
    chip = parse_chip(CHIP.replace("        latency: 100 ns\n", "        latency: 100 ns\n" + given))
    assert chip.memory("dram").burst == burst
    assert parse_chip(json.dumps(chip_document(chip))).memory("dram").burst == burst


def test_a_chip_refuses_bursts_of_an_inner_memory() -> None:
    chip = parse_chip(CHIP)
    inner = replace(chip.levels[1], memories=(replace(chip.memory("buf"), burst=64),))
    with pytest.raises(BadInput, match="memory buf: expected a burst length in the outermost level only; got 64 B; remove it"):
        replace(chip, levels=(chip.levels[0], inner))


def test_a_number_names_the_nearest_source() -> None:
    sources = parse_chip(CHIP).sources
    assert sources["clock"] == "data sheet"
    assert sources["levels.dram.memories.dram.capacity"] == "data sheet"
    assert sources["levels.dram.memories.dram.read_bandwidth"] == "table 2"
    assert sources["levels.dram.memories.dram.write_bandwidth"] == "assumed: half of reads"
    assert sources["levels.dram.memories.dram.read_energy"].startswith("energy table of ")
    assert "row dram-hbm2: " in sources["levels.dram.memories.dram.read_energy"]
    assert sources["levels.core.network.axes.x.link.latency"] == "assumed: as others of its kind"
    assert sources["engines.vector.rate.exp"] == "data sheet"
    assert not parse_chip(CHIP.replace("source: data sheet\n", "")).sources.get("clock")


def test_where_sources_are_demanded_each_number_without_one_is_named() -> None:
    text = complaint(lambda: parse_chip(CHIP.replace("source: data sheet\n", ""), "c.yaml", sourced=True))
    assert "c.yaml:2: clock: expected a source, or assumed: and why; got neither; add one here or around it\n" in text
    assert "levels.dram.memories.dram.capacity" in text
    assert "levels.dram.memories.dram.read_bandwidth" not in text
    assert "levels.core" not in text


ONE_FAULT = [
    ("capacity: 1 GiB", "capacity: 0 GiB", "c.yaml:9: levels.dram.memories.dram.capacity: expected a size above zero; got '0 GiB'; write for example '64 KiB'"),
    ("capacity: 1 GiB", "capacity: -1 GiB", "c.yaml:9: levels.dram.memories.dram.capacity: expected a size that is not negative; got '-1 GiB'; write for example '64 KiB'"),
    ("capacity: 1 GiB", "capacity: .nan", "c.yaml:9: levels.dram.memories.dram.capacity: expected a size; got '.nan'; write for example '64 KiB'"),
    ("capacity: 1 GiB", "capacity: 1073741824", "c.yaml:9: levels.dram.memories.dram.capacity: expected a size; got 1073741824, without a unit; write for example '64 KiB'"),
    ("capacity: 1 GiB", "capacity: [1 GiB]", "c.yaml:9: levels.dram.memories.dram.capacity: expected a size; got a list; write for example '64 KiB'"),
    ("capacity: 1 GiB", "capacity:", "c.yaml:9: levels.dram.memories.dram.capacity: expected a size; got nothing; write for example '64 KiB'"),
    ("capacity: 1 GiB", "capacity: {}", "c.yaml:9: levels.dram.memories.dram.capacity: expected the key value; got nothing"),
    ("value: 10 GB/s, ", "value: 10 GB, ", "c.yaml:10: levels.dram.memories.dram.read_bandwidth.value: expected a bandwidth; got '10 GB', a size; write for example '25.6 GB/s'"),
    ("source: table 2", "sauce: table 2", "c.yaml:10: levels.dram.memories.dram.read_bandwidth.sauce: expected a known key; got 'sauce'; did you mean 'source'?"),
    ("source: table 2", "source: ''", "c.yaml:10: levels.dram.memories.dram.read_bandwidth.source: expected text; got ''"),
    ("row: dram-hbm2", "row: dram-hbm22", "c.yaml:13: levels.dram.memories.dram.read_energy.row: expected a row of the energy table; got 'dram-hbm22'; did you mean 'dram-hbm2'?"),
    ("row: dram-hbm2", "row: mac-8b", "c.yaml:13: levels.dram.memories.dram.read_energy.row: expected an energy per byte; got '0.04 pJ', an energy; write for example '8 pJ/bit'"),
    ("row: dram-hbm2", "row: dram-hbm2, value: 1 pJ/B", "c.yaml:13: levels.dram.memories.dram.read_energy.row: expected a row alone, as it brings its value and its source; got a value or a source beside it; remove one"),
    ("        latency: 100 ns\n", "", "c.yaml:8: levels.dram.memories.dram.latency: expected this key (time before the first byte of a fill or drain); got nothing; add it"),
    ("clock: 2 GHz\n", "", "c.yaml:1: clock: expected this key (clock that units such as B/cycle count); got nothing; add it"),
    ("clock: 2 GHz", "clock: fast", "c.yaml:2: clock: expected a frequency; got 'fast'; write for example '1.05 GHz'"),
    ("name: tiny", "name: 7", "c.yaml:1: name: expected text; got 7; put it in quotes"),
    ("size: 4", "size: 0", "c.yaml:19: levels.core.network.axes.x.size: expected a whole number from 1 to 1048576; got 0"),
    ("size: 4", "size: 4.0", "c.yaml:19: levels.core.network.axes.x.size: expected a whole number from 1 to 1048576; got 4.0"),
    ("buf: {", "buf: {buffers: up to 9, ", "c.yaml:24: levels.core.memories.buf.buffers: expected a whole number from 1 to 8, or e.g. 'up to 4'; got 'up to 9'"),
    ("buf: {", "buf: {buffers: 1.5, ", "c.yaml:24: levels.core.memories.buf.buffers: expected a whole number from 1 to 8, or e.g. 'up to 4'; got 1.5"),
    ("buf: {", "buf: {buffers: '4', ", "c.yaml:24: levels.core.memories.buf.buffers: expected a whole number from 1 to 8, or e.g. 'up to 4'; got '4'"),
    ("buf: {", "buf: {burst: 64 B, ", "c.yaml:24: levels.core.memories.buf.burst: expected a burst length in the outermost level only; got '64 B'; remove it"),
    ("        latency: 100 ns\n", "        latency: 100 ns\n        burst: 64\n", "c.yaml:13: levels.dram.memories.dram.burst: expected a size; got 64, without a unit; write for example '64 B'"),
    ("        latency: 100 ns\n", "        latency: 100 ns\n        burst: 2.5 B\n", "c.yaml:13: levels.dram.memories.dram.burst: expected a whole number of bytes; got '2.5 B'; write for example '64 B'"),
    ("topology: ring", "topology: rign", "c.yaml:19: levels.core.network.axes.x.topology: expected one of line, ring, full, none; got 'rign'; did you mean 'ring'?"),
    ("multicast: true", "multicast: yes", "c.yaml:21: levels.core.network.multicast: expected true or false; got 'yes'"),
    ("rows: 8", "rows: 8 PEs", "c.yaml:27: engines.matrix.rows: expected a whole number from 1 to 1048576; got '8 PEs'"),
    ("dataflow: output-stationary", "dataflow: [1]", "c.yaml:30: engines.matrix.dataflow: expected one of weight-stationary, input-stationary, output-stationary, none; got a list"),
    ("rate: {bf16: 1, int8: 2}", "rate: {bf16: 0, int8: 2}", "c.yaml:32: engines.matrix.rate.bf16: expected a number above 0, at most 1048576, without a unit; got 0"),
    ("rate: {bf16: 1, int8: 2}", "rate: {bf16: 1}", "c.yaml:32: engines.matrix.rate.int8: expected an entry for int8; got nothing; add it"),
    ("reads: {weight: [buf]}", "reads: {weight: [bfu]}", "c.yaml:34: engines.matrix.reads.weight.0: expected the name of a memory; got 'bfu'; did you mean 'buf'?"),
    ("reads: {weight: [buf]}", "reads: {weights: [buf]}", "c.yaml:34: engines.matrix.reads.weights: expected a known key; got 'weights'; did you mean 'weight'?"),
    ("    reads: [buf]\n", "    reads: buf\n", "c.yaml:39: engines.vector.reads: expected a list; got 'buf'"),
    ("div: 0.25, ", "", "c.yaml:37: engines.vector.rate.div: expected an entry for div; got nothing; add it"),
    ("name: core", "name: dram", "c.yaml:15: levels.dram.name: expected a level with a name of its own; got 'dram' twice; rename one"),
    ("name: core", "name: my core", "c.yaml:15: levels.my core.name: expected a name of letters, digits and _, at most 64; got 'my core'"),
    ("      buf: {capacity", "      dram: {capacity", None),
    ("name: tiny\n", "name: tiny\nname: tiny\n", "c.yaml:2: name: expected each key once; got it again, first on line 1; remove one"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "message"), [case for case in ONE_FAULT if case[2]])
def test_one_fault_is_one_line(old: str, new: str, message: str) -> None:
    assert chip_complaint(old, new) == message


def test_a_mistyped_key_is_both_unknown_and_missing() -> None:
    unknown, missing = chip_complaint("size: 4", "szie: 4").splitlines()[::-1]
    assert unknown == "c.yaml:19: levels.core.network.axes.x.szie: expected a known key; got 'szie'; did you mean 'size'?"
    assert (
        missing
        == "c.yaml:19: levels.core.network.axes.x.size: expected this key (number of siblings along the axis); got nothing; add it"
    )


def test_a_mistyped_kind_of_workload_is_named(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text("workload:\n  knd: gemm\n  m: 64\nchip: edge\n")
    with pytest.raises(BadInput, match=r"p.yaml:1: workload.kind: expected this key \(.*\); got 'knd'; write kind$"):
        load_problem(file)


def test_two_memories_of_one_name() -> None:
    text = chip_complaint("      buf: {capacity", "      dram: {capacity")
    assert "c.yaml:24: levels.core.memories.dram: expected a memory with a name of its own; got 'dram' twice; rename one" in text


def test_all_faults_come_at_once_in_the_order_of_the_lines() -> None:
    text = CHIP.replace("clock: 2 GHz", "clcok: 2 GHz").replace("size: 4", "size: -4").replace("exp: 0.25", "epx: 0.25")
    text = text.replace("10 GB/s", "10 GiB").replace("reads: [buf]", "reads: [nowhere]")
    lines = complaint(lambda: parse_chip(text, "c.yaml")).splitlines()
    numbers = [int(line.split(":")[1]) for line in lines]
    assert numbers == sorted(numbers)
    for part in (
        "'clcok'; did you mean 'clock'?",
        ": clock: expected this key",
        "got '10 GiB', a size",
        "got -4",
        "'epx'",
        "'nowhere'",
    ):
        assert sum(part in line for line in lines) == 1, part
    assert "rate.exp: expected an entry for exp" in "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.yaml: expected YAML with at least one key; got an empty file"),
        ("# nothing\n", "f.yaml: expected YAML with at least one key; got an empty file"),
        ("- edge\n- cloud\n", "f.yaml:1: expected a map of keys; got a list"),
        ("edge", "f.yaml:1: expected a map of keys; got 'edge'"),
        ("name:\n\tx: 1", "f.yaml:2: expected spaces; got a tab; indent with spaces"),
        ("name: [1, 2", "f.yaml:1: expected ',' or ']'; got the end of the file; look at column 12"),
        (
            "name: a: b",
            "f.yaml:1: expected one key on a line, and its value; got another ': '; look at column 8, and put such text in quotes",
        ),
        ("a: &x [1]\nb: *x", "f.yaml:1: expected plain YAML; got the anchor or alias &x; write the value out"),
        ("a: *x", "f.yaml:1: expected plain YAML; got the anchor or alias *x; write the value out"),
        ("a: 1\n---\nb: 1", "f.yaml:2: expected one document; got a second one; remove the line ---"),
        ("a: !!python/object/apply:os.getcwd []", None),
        ("[" * 100_000, "f.yaml:1: expected at most 20 levels of nesting; got more"),
        ("a: [" + "1," * 30_000 + "1]", "f.yaml:1: expected at most 20000 keys and values; got more"),
        ("a: \x00", "f.yaml:1: expected printable text; got the character U+0000"),
        ("? [a]\n: b", "f.yaml:1: expected a key that is text; got a map, a list, an anchor or a tag as a key"),
    ],
)
def test_what_is_no_plain_yaml_is_one_line(text: str, message: str | None) -> None:
    said = complaint(lambda: parse_chip(text, "f.yaml"))
    if message is None:
        message = "f.yaml:1: expected plain YAML; got the tag tag:yaml.org,2002:python/object/apply:os.getcwd; remove it"
    assert said == message


def test_a_yaml_bomb_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    start = time.perf_counter()
    assert complaint(lambda: parse_chip("\n".join(lines), "f.yaml")).startswith("f.yaml:1: expected plain YAML; got the anchor")
    assert time.perf_counter() - start < 1


def test_scalars_are_those_of_json_and_nothing_is_octal_or_a_date() -> None:
    text = "[1, -2, 0.5, 1e3, true, null, ~, yes, on, 0777, 0x10, 1_000, 12:30, 2001-01-01, .inf, 1e999, '1', \"true\"]"
    expected = [
        1,
        -2,
        0.5,
        1000.0,
        True,
        None,
        None,
        "yes",
        "on",
        "0777",
        "0x10",
        "1_000",
        "12:30",
        "2001-01-01",
        ".inf",
        "1e999",
        "1",
        "true",
    ]
    assert read_yaml(text, "f").data == expected


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from(list("ab:{}[],-?!&*|>'\"#%@`\n\t 01.~")), max_size=60))
def test_any_text_loads_or_is_refused(text: str) -> None:
    for parse in (parse_chip, parse_problem):
        with pytest.raises(BadInput) as caught:
            parse(text)
        assert all(fault.expected and fault.got for fault in caught.value.faults)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_value_in_any_place_loads_or_is_refused(data: st.DataObject) -> None:
    line = data.draw(st.sampled_from([number for number, text in enumerate(CHIP.splitlines()) if ": " in text]))
    value = data.draw(
        st.sampled_from(
            [
                "",
                "[]",
                "{}",
                "0",
                "-1",
                "x",
                "1 GB/s",
                "true",
                "{value: 1}",
                "{row: 1}",
                "{row: [1]}",
                "[[]]",
                "{1: 2}",
                "1e300 GHz",
            ]
        )
    )
    lines = CHIP.splitlines()
    lines[line] = f"{lines[line].split(': ')[0]}: {value}"
    faults: tuple[Fault, ...] = ()
    try:
        parse_chip("\n".join(lines), "c.yaml")
    except HalleyError as error:
        faults = error.faults
    assert all(str(fault).startswith("c.yaml:") for fault in faults)


def test_files_are_bounded_before_they_are_read(tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    with open(big, "wb") as stream:
        stream.truncate(100 * 2**20)
    start = time.perf_counter()
    assert complaint(lambda: load_chip(big)) == f"{big}: expected a file of at most 1048576 bytes; got 104857600 bytes"
    assert time.perf_counter() - start < 0.5


def test_what_is_no_readable_text_file_is_refused(tmp_path: Path) -> None:
    binary, pipe = tmp_path / "binary.yaml", tmp_path / "pipe.yaml"
    binary.write_bytes(b"name: x\n\xff\xfe\x00")
    os.mkfifo(pipe)
    assert complaint(lambda: load_chip(binary)) == f"{binary}:2: expected UTF-8 text; got the byte 0xff; save the file as UTF-8"
    assert complaint(lambda: load_chip(tmp_path)) == f"{tmp_path}: expected a file; got a folder"
    assert complaint(lambda: load_chip(pipe)) == f"{pipe}: expected a file; got a device, pipe or socket"
    assert (
        complaint(lambda: load_chip(tmp_path / "no.yaml"))
        == f"{tmp_path}/no.yaml: expected a file; got no such file; check the path"
    )
    assert "expected a file that can be read" in complaint(lambda: read_text_bounded("a\0b"))
    assert "expected a file that can be read" in complaint(lambda: read_text_bounded("x" * 5000))


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "bom.yaml"
    file.write_bytes(b"\xef\xbb\xbf" + CHIP.encode())
    assert load_chip(file) == parse_chip(CHIP)


def test_an_unknown_chip_is_answered_with_the_known_ones() -> None:
    ships = f"chip: expected the name of a shipped chip ({', '.join(CHIPS.names())}) or a path to a file"
    assert complaint(lambda: load_chip("egde")) == f"{ships}; got 'egde'; did you mean 'edge'?"
    assert complaint(lambda: load_chip("zzz")) == f"{ships}; got 'zzz'; a path contains / or ends in .yaml"


def test_a_problem_file() -> None:
    problem = parse_problem(PROBLEM + "objective: energy\ngap: 0.01\n")
    parameters = {"m": 2048, "n": 4096, "k": 512, "dtype": "bf16", "causal": True}
    assert problem == ProblemFile("gemm-softmax", parameters, load_chip("edge"), "energy", {"time_limit": 60.0}, 0.01)
    assert (parse_problem(PROBLEM).objective, parse_problem(PROBLEM).gap) == ("time", 0.0)
    assert parse_problem(PROBLEM.replace("time_limit: 60 s\n", "")).limits == {}


def test_a_chip_in_a_problem_by_path_or_inline(tmp_path: Path) -> None:
    (tmp_path / "chips").mkdir()
    (tmp_path / "chips" / "tiny.yaml").write_text(CHIP)
    by_path, inline = tmp_path / "path.yaml", tmp_path / "inline.yaml"
    by_path.write_text(PROBLEM.replace("edge", "chips/tiny.yaml"))
    indented = "\n".join(f"  {line}" for line in CHIP.splitlines())
    inline.write_text(PROBLEM.replace("chip: edge", f"chip:\n{indented}"))
    assert load_problem(by_path).chip == load_problem(inline).chip == parse_chip(CHIP)


def test_faults_of_an_inline_chip_carry_the_line_of_the_problem() -> None:
    indented = "\n".join(f"  {line}" for line in CHIP.replace("rows: 8", "rows: no").splitlines())
    text = complaint(lambda: parse_problem(PROBLEM.replace("chip: edge", f"chip:\n{indented}"), "p.yaml"))
    assert text == "p.yaml:29: chip.engines.matrix.rows: expected a whole number from 1 to 1048576; got 'no'"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("chip: edge\n", "", "p.yaml:1: chip: expected this key (name of a shipped chip, path to a chip file (from this file's folder), or the chip itself); got nothing; add it"),
        ("chip: edge", "chip: [edge]", "p.yaml:2: chip: expected the name of a chip, a path to its file, or a map; got a list"),
        ("chip: edge", "chip: ''", "p.yaml:2: chip: expected the name of a chip, a path to its file, or a map; got ''"),
        ("chip: edge", "chip: edg", f"p.yaml:2: chip: expected the name of a shipped chip ({', '.join(CHIPS.names())}) or a path to a file; got 'edg'; did you mean 'edge'?"),
        ("chip: edge", "chip: ./no.yaml", "p.yaml:2: chip: no.yaml: expected a file; got no such file; check the path"),
        ("kind: gemm-softmax, ", "", "p.yaml:1: workload.kind: expected this key (kind of workload, e.g. gemm-softmax); got nothing; add it"),
        ("m: 2048", "m: 20.48", "p.yaml:1: workload.m: expected a whole number, a word, true or false; got 20.48"),
        ("m: 2048", "m: {value: 1}", "p.yaml:1: workload.m: expected a whole number, a word, true or false; got a map"),
        ("time_limit: 60 s", "time_limit: 60", "p.yaml:3: time_limit: expected a time; got 60, without a unit; write for example '60 s'"),
        ("time_limit: 60 s", "time_limit: 60 cycles", "p.yaml:3: time_limit: expected a time in seconds, as there is no clock to count cycles of; got '60 cycles'; write for example '60 s'"),
        ("time_limit: 60 s", "time_limt: 60 s", "p.yaml:3: time_limt: expected a known key; got 'time_limt'; did you mean 'time_limit'?"),
        ("time_limit: 60 s", "gap: 1.5", "p.yaml:3: gap: expected a number from 0 (proven optimal) to below 1, without a unit; got 1.5"),
        ("time_limit: 60 s", "objective: tiem", "p.yaml:3: objective: expected one of time, energy, edp; got 'tiem'; did you mean 'time'?"),
    ],
)  # fmt: skip
def test_one_fault_of_a_problem_is_one_line(old: str, new: str, message: str) -> None:
    assert PROBLEM.count(old) == 1
    assert complaint(lambda: parse_problem(PROBLEM.replace(old, new), "p.yaml")) == message


def test_faults_of_the_problem_and_of_its_chip_file_come_together(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CHIP.replace("rows: 8", "rows: 0"))
    text = complaint(lambda: parse_problem(PROBLEM.replace("edge", "c.yaml") + "gap: 2\n", "p.yaml", tmp_path))
    assert "p.yaml:4: gap: expected" in text
    assert f"p.yaml:2: chip: {tmp_path}/c.yaml:27: engines.matrix.rows: expected a whole number" in text


DOCS = Path(__file__).parents[2] / "docs" / "reference" / "files.md"


def test_the_examples_of_the_reference_load(tmp_path: Path) -> None:
    chip, problem, software = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), flags=re.S)
    (tmp_path / "my-chip.yaml").write_text(chip)
    assert load_chip(tmp_path / "my-chip.yaml").matrix
    assert parse_problem(problem, "p.yaml", tmp_path).chip == parse_chip(chip, sourced=True)
    (tmp_path / "mine.yaml").write_text(software)
    assert load_software(tmp_path / "mine.yaml").name == "mine"


MODEL = """\
format: halley.model/1
name: m
source: s
layers: 4
model: x
heads: 8
kv_heads: 3
head_dim: 64
hidden: 128
vocabulary: 1000
sequence: 128
gated: true
rms: 1
positions: false
tied: false
dropout: 2
experts: {experts: 4, top_k: 5, hidden: 8, dense_layers: 4, foo: 1}
window: {keys: 4, layers: 5}
published: 1
"""
SYSTEM = """\
name: s
chip: edge
foo: 1
memories: [hbm9]
axes:
- name: a
  size: 8
  topology: switch
  link: {bandwidth: 10 GB/s, latency: 1 us, energy: 10 pJ/bit, share: 2, bar: 3}
- {name: a, size: 2, topology: switch, link: {bandwidth: 10 GB/s, latency: 1 us, energy: 1 pJ/bit}}
host: {capacity: 1 TB, bandwidth: 10 GB/s, link: {bandwidth: 10 GB/s, latency: 1 us, energy: 1 pJ/bit, share: 3}, baz: 1}
"""
NETWORK = """\
name: s
foo: 1
ranks: 3
switches: [{name: s, bar: 1}, {name: s}]
links:
- {bandwidth: 10 GB/s, latency: 1 us, energy: 1 pJ/bit, between: [[0, s], [1, t], [2, 2]], baz: 4}
"""


@pytest.mark.parametrize(
    ("parse_file", "text", "expected"),
    [
        (
            parse_model,
            MODEL,
            "5: model, 7: kv_heads, 13: rms, 16: dropout, 17: experts.foo, 17: experts.top_k, 17: experts.dense_layers, "
            "18: window.layers",
        ),
        (
            parse_system,
            SYSTEM,
            "3: foo, 4: memories.0, 9: axes.a.link.bar, 9: axes.a.link.share, 10: axes.a.name, 11: host.baz, 11: host.link.share",
        ),
        (
            parse_network,
            NETWORK,
            "2: foo, 4: switches.s.bar, 4: switches.s.name, 6: links.0.baz, 6: links.0.between.1, 6: links.0.between.2",
        ),
    ],
)
def test_faults_of_keys_and_between_keys_are_raised_together(
    parse_file: Callable[[str, str], object], text: str, expected: str
) -> None:
    with pytest.raises(BadInput) as raised:
        parse_file(text, "file")
    assert sorted(fault.where.removeprefix("file:") for fault in raised.value.faults) == sorted(expected.split(", "))
