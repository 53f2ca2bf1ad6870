"""Measured operators: reading them, fitting a chip to them, and keeping the fit."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from validation.operators.folds import cross_validated

from halley.errors import BadInput
from halley.io.chips.fits import chip_fit_document, load_chip_fit, parse_chip_fit
from halley.io.chips.load import load_chip
from halley.io.chips.operators import OPERATORS, read_operators
from halley.kernels.calibrate import (
    PARAMETER_BOUNDS,
    TYPICAL_EFFICIENCY,
    Judgement,
    KernelMeasurement,
    chip_fit,
    errors,
    fit,
    halves,
    judge,
    predictions,
    roofline,
)
from halley.kernels.machine import Efficiency, HostTime, machine
from halley.kernels.times import Attention, Gemm, Kernel, call_time, elementwise, kernel_time, layer_norm, softmax
from halley.library import CHIP_FITS
from halley.optim.descent import descend

CHIP = machine(load_chip("a100"))
TRUE = Efficiency(
    matrix=0.85,
    vector=0.45,
    memory=0.78,
    cache=0.8,
    overlap=0.1,
    latency=1.5e-6,
    launch=3e-6,
    hosts={"gemm": HostTime(2e-5), "softmax": HostTime(8e-6), "gelu": HostTime(1e-5, 1.2e-5)},
)


def synthetic(noise: float = 0.0) -> list[KernelMeasurement]:
    """What a machine with these efficiencies would have measured."""
    draw = random.Random(5)
    shapes: list[tuple[str, Kernel]] = [("gemm", Gemm(2**m, 2**n, 2**k)) for m in range(6, 14) for n, k in ((12, 12), (10, 13))]
    shapes += [("softmax", softmax(2**m, 2**n)) for m in range(6, 15, 2) for n in (8, 10, 12, 14)]
    shapes += [("gelu", elementwise(2**size, "gelu")) for size in range(10, 29)]
    return [
        KernelMeasurement(name, kernel, float(call_time(name, kernel, CHIP, TRUE)) * (1 + draw.uniform(-noise, noise)))
        for name, kernel in shapes
    ]


# --- fit ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judged() -> Judgement:
    return judge(synthetic(), CHIP)


def test_a_fit_finds_what_the_rows_were_made_of(judged: Judgement) -> None:
    found = judged.efficiency
    assert (found.matrix, found.vector, found.memory) == pytest.approx((TRUE.matrix, TRUE.vector, TRUE.memory), rel=0.03)
    assert found.hosts["gelu"].call + found.hosts["gelu"].hidden == pytest.approx(2.2e-5, rel=0.05)
    assert max(errors(judged.held).values()) < 0.02
    assert "overlap" not in judged.identified
    assert found.overlap == TYPICAL_EFFICIENCY.overlap
    assert {"matrix", "vector", "memory"} <= judged.identified


def test_tiles_below_the_largest_are_slower_and_waves_show() -> None:
    plain, slower = replace(TRUE, smaller=1.0), replace(TRUE, smaller=0.9)
    # 768 tiles of 128 x 256 fill 7.1 waves of 108 cores; many more fill theirs; smaller tiles would fill them, were they as fast
    few, many = Gemm(2048, 12288, 12288), Gemm(32768, 12288, 12288)
    waves = [float(kernel_time(few, CHIP, share) / kernel_time(many, CHIP, share)) for share in (plain, slower)]
    assert waves[1] > waves[0] >= 1 / 16
    assert float(kernel_time(many, CHIP, slower)) == pytest.approx(float(kernel_time(many, CHIP, plain)), rel=0.02)
    for kernel in (Gemm(64, 64, 4096), Gemm(512, 512, 512, 32), few):
        assert kernel_time(kernel, CHIP, slower) >= kernel_time(kernel, CHIP, plain)


def test_noise_is_averaged_and_a_spike_does_not_matter() -> None:
    rows = synthetic(0.04)
    rows[20] = replace(rows[20], time=5 * rows[20].time)
    found = fit(rows, CHIP)
    assert (found.matrix, found.memory) == pytest.approx((TRUE.matrix, TRUE.memory), rel=0.08)


def test_the_order_of_the_rows_does_not_matter() -> None:
    rows = synthetic(0.03)[::3]
    shuffled = random.Random(2).sample(rows, len(rows))
    assert {row.time for row in halves(rows)[0]} == {row.time for row in halves(shuffled)[0]}
    assert fit(rows, CHIP).matrix == pytest.approx(fit(shuffled, CHIP).matrix, rel=1e-3)


def test_simpler_models_are_judged_on_the_same_rows(judged: Judgement) -> None:
    own = errors(judged.held)
    for name, found in judged.baselines.items():
        assert [item.row for item in found] == [item.row for item in judged.held], name
        assert errors(found)["softmax"] > 3 * own["softmax"], name
    assert set(judged.baselines) == {"constant", "roofline", "roofline, fitted"}


def test_every_row_is_cross_validated_once() -> None:
    rows = synthetic()[::4]
    found = cross_validated(rows, CHIP, 3)
    assert sorted(item.row.time for item in found) == sorted(row.time for row in rows)


def test_a_roofline_by_hand() -> None:
    row = KernelMeasurement("gemm", Gemm(1024, 1024, 1024), 1.0)
    (found,) = predictions([row], roofline(CHIP))
    assert found.predicted == pytest.approx(max(1024**3 / 155.93472e12, 3 * 2 * 1024**2 / 2.039e12), rel=1e-9)
    assert found.error == pytest.approx(found.predicted - 1)


def test_no_rows_are_refused() -> None:
    with pytest.raises(BadInput, match="calibration: expected measurements; got none"):
        fit([], CHIP)


def test_a_descent_stays_in_its_bounds_and_keeps_what_it_does_not_see() -> None:
    found, least = descend(lambda x: abs(x[0] - 5), [1.0, 0.3], [(0.1, 2.0), (0.1, 1.0)])
    assert found == (2.0, 0.3)
    assert least == 3.0


def test_a_descent_follows_a_valley_that_lies_across() -> None:
    found, _ = descend(lambda x: np.log(x[0] * x[1] / 6) ** 2 + 0.1 * np.log(x[0] / 2) ** 2, [1, 1], [(0.01, 99), (0.01, 99)])
    assert found == pytest.approx((2, 3), rel=0.01)


# --- files --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHIP_FITS.names())
def test_a_shipped_fit_is_plausible(name: str) -> None:
    shipped = load_chip_fit(name)
    assert shipped.chip == name == load_chip(name).name
    for parameter, (least, most) in PARAMETER_BOUNDS.items():
        assert least <= getattr(shipped.efficiency, parameter) <= most, parameter
    assert "github.com" in shipped.source or "validation/machines/" in shipped.source
    assert parse_chip_fit(chip_fit_document(shipped)) == shipped
    assert chip_fit_document(shipped) == CHIP_FITS.text(name)


def test_a_fit_is_saved_and_read(judged: Judgement) -> None:
    kept = chip_fit(judged, CHIP, 'a "quoted": source', "2026-01-02")
    back = parse_chip_fit(chip_fit_document(kept))
    assert (back.chip, back.source, back.dated, back.assumed) == (kept.chip, kept.source, kept.dated, kept.assumed)
    assert back.efficiency.matrix == pytest.approx(kept.efficiency.matrix, rel=1e-5)
    assert back.efficiency.hosts["gelu"].call == pytest.approx(kept.efficiency.hosts["gelu"].call, rel=1e-5)
    assert [item.operator for item in back.series] == ["gemm", "softmax", "gelu"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("matrix: 0.", "matrix: 1.", "efficiency.matrix: expected"),
        ("latency:", "latncy:", "did you mean 'latency'"),
        ('operator: "softmax"', 'operator: "gemm"', "expected each operator once; got 'gemm' twice"),
        ("halley.chip-fit/1", "halley.chip-fit/2", "format"),
        ("launch: 3 us", "launch: 3 parsecs", "launch"),
    ],
)
def test_a_wrong_file_is_refused(old: str, new: str, message: str) -> None:
    text = CHIP_FITS.text("a100")
    assert old in text
    with pytest.raises(BadInput) as caught:
        parse_chip_fit(text.replace(old, new, 1))
    assert message in str(caught.value)


def test_an_unknown_fit_is_refused() -> None:
    with pytest.raises(BadInput, match=r"the name of a shipped chip fit \(.*a100.*\).*got 'a10'; did you mean 'a100'"):
        load_chip_fit("a10")


def test_shares_above_the_data_sheet_are_refused() -> None:
    with pytest.raises(ValueError, match="memory"):
        replace(TYPICAL_EFFICIENCY, memory=1.1)


# --- CSV ----------------------------------------------------------------------------------------------------------------


def test_a_table_becomes_kernels() -> None:
    text = """operator, dtype, time, m, n, k, batch, rows, columns, elements, queries, keys, heads, kv_heads, head_dim, causal
# a comment
gemm, bf16, 12.5 us, 64, 128, 256,,,,,,,,,,
softmax, fp16, 3 us,,,,, 32, 4096,,,,,,,
gelu, fp32, 1 ms,,,,,,, 65536,,,,,,
attention, bf16, 0.5 ms,,,, 2,,,, 512, 1024, 32, 8, 128, 1
"""
    found = read_operators(text, "mine.csv")
    assert [row.kernel for row in found] == [
        Gemm(64, 128, 256, 1, "bf16", "bf16"),
        softmax(32, 4096, "fp16"),
        elementwise(65536, "gelu", "fp32"),
        Attention(2, 512, 1024, 32, 8, 128, causal=True),
    ]
    assert [row.time for row in found] == pytest.approx([1.25e-5, 3e-6, 1e-3, 5e-4])


def test_all_faults_at_once_with_their_lines() -> None:
    rows = ("gem,bf16,1 us,1,1,1", "# fine", "gemm,bf61,12.5,0,,7", "gemm,bf16,1 us,1,1", "gemm,bf16,-1 us,1,1,1")
    text = "\n".join(["operator,dtype,time,m,n,k", *rows])
    with pytest.raises(BadInput) as caught:
        read_operators(text, "x.csv")
    assert str(caught.value).splitlines() == [
        "x.csv:2: operator: expected a known operator; got 'gem'; did you mean 'gemm'?",
        "x.csv:4: dtype: expected an element type; got 'bf61'; did you mean 'bf16'?",
        "x.csv:4: time: expected a time above 0 with its unit, like 12.5 us; got '12.5'",
        f"x.csv:4: m: expected a whole number from 1 to {2**40}; got '0'",
        f"x.csv:4: n: expected a whole number from 1 to {2**40}; got ''",
        "x.csv:5: expected 6 cells, as the head has columns; got 5",
        "x.csv:6: time: expected a time above 0 with its unit, like 12.5 us; got '-1 us'",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.csv:1: expected the column operator; got nothing"),
        ("operator,dtype,time,m\n", "x.csv: expected rows of measured operators; got none"),
        ("# mine\n\noperator,dtype\n", "x.csv:3: expected the column time; got operator, dtype"),
        ("operator,dtype,time,row\n", "x.csv:1: expected columns that an operator has; got 'row'; did you mean 'rows'?"),
        ("operator,dtype,time,m,m\n", "x.csv:1: expected each column once; got m twice"),
        ("operator,dtype,time,m,n,k,rows\ngemm,bf16,1 us,1,1,1,4", "x.csv:2: rows: expected nothing, as gemm has none; got '4'"),
        (
            "operator,dtype,time,batch,queries,keys,heads,kv_heads,head_dim\nattention,bf16,1 us,1,1,1,6,4,8\n",
            "x.csv:2: kv_heads: expected a divisor of 6 heads; got 4",
        ),
        ('operator,dtype,time,elements\ngelu,bf16,1 us,"' + "9" * 200_000 + '"\n', "expected"),
    ],
)
def test_a_wrong_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_operators(text, "x.csv")
    assert message in str(caught.value)


def test_every_operator_can_be_timed() -> None:
    small = {name: 2 for item in OPERATORS.values() for name in (*item.needed, *item.optional)} | {"causal": 1, "latent": 0}
    for name, operator in OPERATORS.items():
        given = {column: small[column] for column in (*operator.needed, *operator.optional)}
        assert float(kernel_time(operator.kernel(given, "bf16"), CHIP, TYPICAL_EFFICIENCY)) > 0, name
    assert OPERATORS["layernorm"].kernel({"rows": 3, "columns": 5}, "fp16") == layer_norm(3, 5, "fp16")
