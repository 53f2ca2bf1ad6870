"""Logs of nccl-tests and tables of measurements: what is read, and what is said of lines that cannot be."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.nccl_logs import HEAD, log

from halley.errors import BadInput
from halley.io.networks.nccl_tests import KINDS, read_measurements
from halley.ir.mapping import CollectiveKind
from halley.network.fit.calibrate import Measurement

SIZES = (8, 1024, 2**20)


def time(size: int) -> float:
    return 10e-6 + size / 100e9


def complaints(text: str, **more: object) -> list[str]:
    with pytest.raises(BadInput) as caught:
        read_measurements(text, "a.log", **more)  # type: ignore[arg-type]
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_log_gives_its_rows(name: str, ranks: int) -> None:
    found = read_measurements(log(name, ranks, SIZES, time), "a.log")
    assert [(row.kind, row.ranks, row.size) for row in found] == [(KINDS[name], ranks, size) for size in SIZES]
    assert [row.time for row in found] == pytest.approx([time(size) for size in SIZES], abs=6e-9)
    inside = read_measurements(log(name, ranks, SIZES, time), "a.log", in_place=True)
    assert [row.time for row in inside] == pytest.approx([0.9 * time(size) for size in SIZES], abs=6e-9)


def test_runs_follow_each_other_among_other_lines() -> None:
    text = (
        "$ mpirun -np 8 ./build/all_reduce_perf -b 8 -e 1M\nWarning: 3 more processes have sent help\n"
        + log("all_reduce", 8, SIZES, time)
        + "node1:900:900 [0] NCCL INFO Using network IB\n2026-01-01 12:00:00 done\n"
        + log("alltoall", 2, SIZES, time).replace("\n     1048576", "\nnode1:900 [0] NCCL INFO ring\n     1048576")
    )
    found = read_measurements(text, "a.log")
    assert [(row.kind, row.ranks) for row in found] == [(CollectiveKind.ALL_REDUCE, 8)] * 3 + [(CollectiveKind.ALL_TO_ALL, 2)] * 3


def test_old_logs_name_their_collective_by_the_command_or_not_at_all() -> None:
    old = "\n".join(line for line in log("reduce", 4, SIZES, time).splitlines() if "starting" not in line)
    old = old.replace("   root ", "").replace("      -1", "").replace("#wrong", "error")
    assert {row.kind for row in read_measurements(f"./build/reduce_perf -g 4\n{old}", "a.log")} == {CollectiveKind.REDUCE}
    assert len(read_measurements(old, "a.log", kind=CollectiveKind.REDUCE)) == 3
    (fault,) = complaints(old)
    line = 1 + next(number for number, text in enumerate(old.splitlines()) if text.strip().startswith("8 "))
    remedy = "add --collective, or the line '# Collective test starting: all_reduce_perf'"
    assert fault == f"a.log:{line}: expected a run that says its collective; got none before this row; {remedy}"


def test_ranks_are_counted_or_given() -> None:
    alike = re.sub("Rank  [123]", "Rank  0", log("all_reduce", 4, SIZES, time))
    (fault,) = complaints(alike)
    assert "expected a run that lists at least 2 ranks; got 1 lines '# Rank' with different numbers" in fault
    bare = "\n".join(line for line in alike.splitlines() if "# Rank" not in line and "#  Rank" not in line)
    assert {row.ranks for row in read_measurements(bare, "a.log", ranks=4)} == {4}


def test_rows_that_cannot_be_read_are_all_reported_with_their_lines() -> None:
    lines = log("all_reduce", 2, (8, 16, 32, 64, 128), time).splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("8 "))
    lines[first] += " extra"
    lines[first + 1] = lines[first + 1].replace("  10.00", "    nan", 1)
    lines[first + 2] = lines[first + 2].replace("      0 ", "      7 ", 1)
    lines[first + 3] = lines[first + 3].replace(" 10.00", " -1.00", 1)
    faults = complaints("\n".join(lines))
    assert [fault.split(": ")[0] for fault in faults] == [f"a.log:{first + 1 + step}" for step in range(4)]
    assert "expected 13 columns (size count type redop root time" in faults[0]
    assert "got 16 and 'nan'" in faults[1]
    assert "expected 0 wrong values in the results; got '7'" in faults[2]
    assert "got 64 and '-1.00'" in faults[3]


def test_empty_messages_are_left_out() -> None:
    """nccl-tests rounds sizes down to whole elements per rank, and so prints rows of 0 bytes."""
    text = log("all_gather", 2, (8, 16), time).replace("           8             2", "           0             0")
    assert [row.size for row in read_measurements(text, "a.log")] == [16]


def test_a_table_is_read_in_any_order_of_columns() -> None:
    text = "note,size_bytes, time_us ,collective,n_ranks\nx,1024,12.5,all_reduce,4\n,2048, 13 ,All-To-All,8\n"
    assert read_measurements(text, "a.csv") == (
        Measurement(CollectiveKind.ALL_REDUCE, 4, 1024, 12.5e-6),
        Measurement(CollectiveKind.ALL_TO_ALL, 8, 2048, 13e-6),
    )


def test_faults_of_a_table() -> None:
    head = "collective,n_ranks,size_bytes,time_us\n"
    assert complaints(head + "all_reduec,1,0,zero\nall_reduce,2\n") == [
        "a.log:2: collective: expected a collective; got 'all_reduec'; did you mean 'all_reduce'?",
        "a.log:2: n_ranks: expected a whole number of at least 2; got '1'",
        "a.log:2: size_bytes: expected a whole number from 1 to 1125899906842624; got '0'",
        "a.log:2: time_us: expected a number above 0; got 'zero'",
        "a.log:3: size_bytes: expected a whole number from 1 to 1125899906842624; got ''",
        "a.log:3: time_us: expected a number above 0; got ''",
    ]
    assert complaints("collective,ranks,bytes\n") == [
        f"a.log:1: expected the column {column}; got collective, ranks, bytes" for column in ("n_ranks", "size_bytes", "time_us")
    ]
    (nothing,) = complaints("hello\nworld\n")
    assert nothing.startswith("a.log: expected a table of nccl-tests, or a CSV with a head; got neither")
    assert complaints(HEAD.format(name="reduce", ranks=2, least=8, most=8, devices=""))[0].endswith("n_ranks,size_bytes,time_us")


@given(st.text(max_size=300), st.booleans())
def test_any_text_is_read_or_refused(text: str, table: bool) -> None:
    start = "collective,n_ranks,size_bytes,time_us\n" if table else log("all_reduce", 2, (8,), time)
    with contextlib.suppress(BadInput):
        read_measurements(start + text, "a.log")
