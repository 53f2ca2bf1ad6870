"""``halley time``, and ``halley calibrate chip`` of tables of kernels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import halley

from halley.io.chips.kernel_fits import load_kernel_fits
from halley.kernels.library.times import kernel_time

GEMM = ("time", "gemm", "--m", "4096", "--n=12288", "--k", "12288")


def test_one_line_has_time_interval_bound_and_share() -> None:
    made = halley(*GEMM, "--chip", "h100", "--framework", "trtllm")
    assert made.code == 0, made.err
    for word in ("gemm m=4096 n=12288 k=12288, bf16 on h100", "80 % of times", "(products)", "%", "held-out error"):
        assert word in " ".join(made.out.split())


def test_json_is_what_python_says() -> None:
    made = halley(*GEMM, "--chip", "h200", "--dtype", "fp8", "--cold", "--json")
    found = kernel_time(load_kernel_fits("h200"), "gemm", {"m": 4096, "n": 12288, "k": 12288}, dtype="fp8", cold=True)
    said = json.loads(made.out)
    assert said["time_s"] == pytest.approx(float(found.time))
    assert said["low_s"] < said["time_s"] < said["high_s"]
    assert said["source"] == found.source


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("time", "gem", "--chip", "h100"), "kernel: expected one of gemm"),
        (("time", "gemm", "--m", "4", "--n", "4", "--chip", "h100"), "kernel gemm: expected the size --k; got none"),
        (("time", "gemm", "--m", "x", "--n", "4", "--k", "4", "--chip", "h100"), "kernel gemm, option --m: expected a number"),
        (("time", "gemm", "--m", "4", "--m", "4", "--n", "4", "--k", "4", "--chip", "h100"), "each size once"),
        (("time", "gemm", "--q", "4", "--chip", "h100"), "expected its sizes as options; got '--q'"),
        ((*GEMM, "--chip", "./mine.yaml"), "--fit: expected the fit of measured kernels to apply to a chip file"),
        ((*GEMM, "--chip", "edge"), "kernel fit: expected a chip with measured kernels: a100, b200"),
        ((*GEMM, "--chip", "h100", "--dtype", "fp7"), "dtype: expected a number format"),
        ((*GEMM, "--chip", "h100", "--framework", "torch"), "framework: expected one that was measured"),
    ],
)
def test_bad_input_is_refused(words: tuple[str, ...], message: str) -> None:
    made = halley(*words)
    assert made.code == 1
    assert message in made.err


@pytest.fixture
def table(empty_folder: Path) -> str:
    """GEMMs that one roofline with a launch would have, on two GPUs."""
    lines = ["gpu,op,framework,version,kernel_source,gemm_dtype,m,n,k,latency_us,origin"]
    for m in (1, 64, 1024, 8192):
        for n in (1024, 8192):
            for k in (512, 4096, 16384):
                took = 5 + 1e6 * np.maximum(m * n * k / (0.7 * 495e12), 2 * (m * k + n * k + m * n) / (0.8 * 3.35e12))
                lines.append(f"H100 SXM,gemm,mine,1,linear,bfloat16,{m},{n},{k},{took:.4f},here")
                lines.append(f"L40S,gemm,mine,1,linear,bfloat16,{m},{n},{k},{9 * took:.4f},here")
    (empty_folder / "gemm.csv").write_text("\n".join(lines) + "\n")
    return "gemm.csv"


@pytest.mark.medium
def test_a_table_of_kernels_becomes_a_fit(table: str, empty_folder: Path) -> None:
    made = halley("calibrate", "chip", table, "--chip", "h100", "-o", "mine.yaml", "--source", "my node")
    assert made.code == 0, made.err
    assert "written to mine.yaml" in made.err
    assert "h100: mean error of rows held out" in made.out
    fits = load_kernel_fits(empty_folder / "mine.yaml")
    assert (fits.measured, fits.source, fits.fits[0].rows) == ("h100", "my node", 24)
    said = json.loads(halley(*GEMM, "--chip", "h100", "--fit", "mine.yaml", "--json").out)
    assert said["time_s"] == pytest.approx(5e-6 + 4096 * 12288 * 12288 / (0.7 * 495e12), rel=0.15)


def test_rows_of_other_gpus_are_not_taken(table: str, empty_folder: Path) -> None:
    (empty_folder / "h200.csv").write_text((empty_folder / table).read_text().replace("H100 SXM", "NVIDIA H200 SXM"))
    assert "expected a GPU of the tables" in halley("calibrate", "chip", "h200.csv", "--chip", "h20").err
    made = halley("calibrate", "chip", table, "--chip", "b200")
    assert made.code == 1
    assert "expected a GPU of the tables (H100 SXM, L40S); got b200; name it with --gpu" in made.err
    assert "got 'V100'" in halley("calibrate", "chip", table, "--chip", "b200", "--gpu", "V100").err
    assert "--plot: expected a table of operators" in halley("calibrate", "chip", table, "--chip", "h100", "--plot", "x.svg").err
