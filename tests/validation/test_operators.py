"""Fitted chips against measured operators, where the measurements are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from validation.operators.__main__ import DEVICES, fitted, main
from validation.operators.compare import COLUMNS, OPERATORS, TABLE, compare, fit_rows, measured

from halley.cli.validate import DATA
from halley.errors import BadInput
from halley.io.chips.fits import load_chip_fit, parse_chip_fit
from halley.kernels.calibrate import halves
from halley.kernels.times import Attention, Gemm

FOLDER = Path(os.environ[DATA]) if os.environ.get(DATA) else None
needs_data = pytest.mark.skipif(FOLDER is None, reason=f"no data: set {DATA} to their folder")

ROWS = (
    "NVIDIA A100-SXM4-80GB,matmul,M=64;N=128;K=256,bf16,3e-5",
    "NVIDIA H20,mla_decode,heads=128;d_kv_or_nope=512;d_rope=64;batch_size=4;kv_len=1024,bf16/kv_bf16,4e-5",
    "NVIDIA A100 80GB SXM4,attention_fwd+bwd_xformers,batch=1;heads=2;seq=512;head_dim=64;causal=0,fp16,1e-3",
)


def table(folder: Path, *rows: str) -> Path:
    (folder / TABLE).write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    return folder / TABLE


def test_no_data_is_said(tmp_path: Path) -> None:
    assert compare(None).skipped == compare(tmp_path).skipped == f"no data: {TABLE}"


def test_rows_become_kernels(tmp_path: Path) -> None:
    path = table(tmp_path, *ROWS)
    (first,) = measured(path, "A100")
    assert (first.operator, first.kernel, first.time) == ("gemm", Gemm(64, 128, 256), 3e-5)
    (second,) = measured(path, "H20")
    assert second.kernel == Attention(4, 1, 1024, 128, 1, 576, 512, latent=True)
    assert fit_rows(path, "H20") == ()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("A100,matmul,M=64;N=128,bf16,3e-5", "row 1, shape: expected a size K; got M, N"),
        ("A100,matmul,M=64;N=128;K=x,bf16,3e-5", "expected a whole number"),
        ("A100,matmul,M=64;N=128;K=4,bf16,0", "expected a number above 0"),
    ],
)
def test_a_broken_row_is_refused(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        measured(table(tmp_path, row), "A100")


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["x", "--draw"]) == 1
    assert "usage: python -m validation.operators FOLDER" in capsys.readouterr().err


@needs_data
def test_every_tolerance_holds() -> None:
    outcome = compare(FOLDER)
    assert [line.quantity for line in outcome.lines if not line.holds] == []
    assert len(outcome.lines) == 17


@needs_data
def test_no_row_is_both_fitted_and_judged() -> None:
    assert FOLDER is not None
    for device, _ in DEVICES.values():
        kept, held = halves(fit_rows(FOLDER / TABLE, device))
        assert not {id(row) for row in kept} & {id(row) for row in held}
        assert abs(len(kept) - len(held)) <= len(OPERATORS)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", DEVICES)
def test_the_shipped_fit_is_that_of_the_rows(name: str) -> None:
    assert FOLDER is not None
    again, shipped = parse_chip_fit(fitted(FOLDER / TABLE, name)), load_chip_fit(name)
    assert again.efficiency.matrix == pytest.approx(shipped.efficiency.matrix, rel=0.01)
    assert again.efficiency.memory == pytest.approx(shipped.efficiency.memory, rel=0.02)
    for mine, theirs in zip(again.series, shipped.series, strict=True):
        assert (mine.operator, mine.rows) == (theirs.operator, theirs.rows)
        assert mine.held_out == pytest.approx(theirs.held_out, abs=0.005)
