"""The suite of ``halley measure``, its loop and its tables, with a device that only pretends to time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from halley.errors import BadInput
from halley.io.chips.kernel_tables import read_kernel_table
from halley.io.chips.operators import LOADED, read_operators
from halley.kernels.library.rows import MeasuredKernel
from halley.kernels.times import Attention, Gemm
from halley.measure import torch_calls
from halley.measure.run import SuiteRun, measure
from halley.measure.suite import CUDNN, FLASH, GROUPS, UNDER_LOAD, Case, operand_bytes, operations, suite
from halley.measure.tables import attention_share, fastest, kernel_table, operator_table, reached, read_rows, rows_document
from halley.measure.timing import NotSupported, TimedCase, Timing

EVERY = suite()
TIMED = tuple(TimedCase(case, Timing(1e-5 * (2 if case.kernel == FLASH else 1), 0.01, 9)) for case in EVERY)


class Pretended:
    """A device on which a kernel takes a second for 1e15 operations, without products in fp8; ``fails_at`` raises instead."""

    name, software, capacity, operations = "X1", "pretend 1.0", 1e9, 1e15

    def __init__(self, fails_at: int = -1) -> None:
        self.timed_cases: list[Case] = []
        self.fails_at = fails_at

    def timed(self, case: Case) -> Timing:
        if len(self.timed_cases) == self.fails_at:
            raise KeyboardInterrupt
        self.timed_cases.append(case)
        if case.dtype == "fp8_static":
            raise NotSupported("no fp8")
        return Timing(operations(case) / 1e15, 0.0, 9)


def test_the_suite_has_every_case_once_and_the_load_last() -> None:
    assert len({str(case) for case in EVERY}) == len(EVERY) > 500
    assert {case.op for case in EVERY} == set(torch_calls._MAKERS)
    assert EVERY[-1].op == UNDER_LOAD
    assert {case.op for case in EVERY[:200]} >= {"gemm", "attention_prefill", "attention_backward", "softmax"}, "spread over all"


@pytest.mark.parametrize("name", GROUPS)
def test_parts_of_the_suite(name: str) -> None:
    assert {str(case) for case in suite([name])} <= {str(case) for case in EVERY}


def test_cases_beyond_a_limit_are_left_out() -> None:
    small = suite(most_operations=1e9, most_bytes=1e7)
    assert 20 < len(small) < len(EVERY)
    assert all(operations(case) <= 1e9 and operand_bytes(case) <= 1e7 for case in small)
    with pytest.raises(BadInput, match="limit of operations"):
        suite(most_operations=1)
    with pytest.raises(BadInput, match=r"parts of the suite.*'gem'.*did you mean 'gemm'"):
        suite(["gem"])


def test_operations_by_hand() -> None:
    shape = {"batch": 2, "queries": 8, "heads": 4, "kv_heads": 2, "head_dim": 16}
    square = 4 * 2 * 4 * 16 * 8 * 8  # two products of 2 operations
    assert operations(Case("attention_encoder", shape)) == square
    assert operations(Case("attention_prefill", shape)) == square / 2
    assert operations(Case("attention_backward", shape)) == square / 2 * 2.5
    assert operand_bytes(Case("attention_prefill", shape)) == 2 * (2 * 2 * 4 * 8 * 16 + 2 * 2 * 2 * 8 * 16)
    assert operand_bytes(Case("add", {"rows": 2, "columns": 4})) == 3 * 2 * 8


def test_what_is_not_supported_is_tried_once() -> None:
    device, saved = Pretended(), list[int]()
    run = measure(EVERY, device, {}, 1e9, lambda run: saved.append(len(run.measured)))
    narrow = [case for case in EVERY if case.dtype == "fp8_static"]
    assert sum(case.dtype == "fp8_static" for case in device.timed_cases) == 1
    assert len(run.skipped) == len(narrow)
    assert set(run.skipped.values()) == {"no fp8"}
    assert len(run.measured) == len(EVERY) - len(narrow) == saved[-1]
    assert run.left == 0


def test_a_run_goes_on_where_another_was_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"

    def save(run: SuiteRun) -> None:
        path.write_text(rows_document("X1", "pretend 1.0", run.measured, run.skipped))

    cases = suite(["rows"])
    with pytest.raises(KeyboardInterrupt):
        measure(cases, Pretended(fails_at=7), {}, 1e9, save)
    before = read_rows(path, "X1", "pretend 1.0")
    assert len(before) == 7
    device = Pretended()
    run = measure(cases, device, before, 1e9, save)
    assert len(device.timed_cases) == len(cases) - 7
    assert len(run.measured) == len(cases) == len(read_rows(path, "X1", "pretend 1.0"))


def test_after_the_limit_no_case_is_begun() -> None:
    device = Pretended()
    run = measure(EVERY, device, {}, -1.0, lambda run: None)
    assert not device.timed_cases
    assert run.left == len(EVERY)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(rows_document("X1", "pretend 1.0", TIMED, {"a case": "a reason"}))
    assert tuple(read_rows(path, "X1", "pretend 1.0").values()) == TIMED
    assert json.loads(path.read_text())["skipped"] == {"a case": "a reason"}
    assert read_rows(tmp_path / "none.json", "X1", "") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "rows of an earlier run"),
        ("[1]", "rows of an earlier run"),
        ('{"format": "other/1"}', "the format halley.measured/1"),
        ('{"format": "halley.measured/1", "device": "X2", "software": "s", "rows": []}', "measurements with the device 'X1'"),
        ('{"format": "halley.measured/1", "device": "X1", "software": "t", "rows": []}', "measurements with the software 's'"),
        ('{"format": "halley.measured/1", "device": "X1", "software": "s", "rows": [{"op": 1}]}', "rows of an earlier run"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_rows(path, "X1", "s")


def test_the_table_of_kernels_is_read_by_the_fit() -> None:
    (found,) = read_kernel_table(kernel_table("X1", "pretend", TIMED, "two\nlines"), "kernels.csv").values()
    assert len(found) == sum(case.op not in ("grouped_gemm", "attention_backward", UNDER_LOAD) for case in EVERY)
    decode = next(row for row in found if row.family == "attention_decode" and row.sizes["cached"] == 131071)
    assert decode == MeasuredKernel(
        "attention_decode", {**decode.sizes, "batch": 1, "cached": 131071}, "bf16", "bf16", "pytorch", FLASH, pytest.approx(2e-5)
    )


def test_the_table_of_operators_is_read_by_the_fit() -> None:
    found = read_operators(operator_table(TIMED, "a remark"), "operators.csv")
    assert len(found) == sum(case.op != "attention_decode" and case.kernel != FLASH for case in EVERY)
    backward = [row.kernel for row in found if row.operator == "attention-backward"]
    assert all(isinstance(kernel, Attention) and kernel.backward and kernel.causal for kernel in backward)
    assert [row.kernel for row in found if row.operator == LOADED] == [Gemm(8192, 8192, 8192)]
    assert [row.time for row in found] == pytest.approx([1e-5] * len(found)), "of two kernels the faster"


def test_the_fastest_kernel_and_how_far_another_is_behind() -> None:
    shape = {"batch": 1, "queries": 4096, "heads": 8, "kv_heads": 8, "head_dim": 128}
    rows = [
        TimedCase(Case("attention_prefill", shape, kernel=kernel), Timing(time, 0.0, 9))
        for kernel, time in ((FLASH, 4e-4), (CUDNN, 1e-4))
    ]
    assert fastest(rows) == rows[1:]
    assert attention_share(rows) == (0.25, 1)
    short = [TimedCase(item.case, replace(item.timing, time=item.timing.time / 1e3)) for item in rows]
    assert attention_share(short) == (1.0, 0)


def test_the_highest_rates() -> None:
    rows = [
        TimedCase(Case("gemm", {"m": 1000, "n": 1000, "k": 1000}), Timing(1e-5, 0.0, 9)),
        TimedCase(Case("gemm", {"m": 1, "n": 1000, "k": 1000}), Timing(1e-5, 0.0, 9)),
        TimedCase(Case("copy", {"rows": 1000, "columns": 1000}), Timing(1e-5, 0.0, 9)),
    ]
    assert reached(rows) == pytest.approx({"products in bf16": 2e14, "copy": 4e11})
