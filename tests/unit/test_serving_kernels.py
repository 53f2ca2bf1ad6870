"""Where the times of a server's kernels come from: formulas, and measured attention of sequences that decode."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halley.errors import BadInput
from halley.importers.serving import served_model
from halley.io.chips.kernel_fits import serving_fits
from halley.io.software import load_software
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.kernels.machine import PEAK
from halley.kernels.times import Attention
from halley.serving.deployment import Deployment, Load
from halley.serving.kernels import LibraryKernels, MeasuredDecode, library_kernels
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.served import served
from halley.serving.software import ServingSoftware
from halley.serving.steady import Lengths
from halley.serving.step import StepBatch
from halley.serving.step_bounds import schedule_bounds

USERS, KEYS = np.array([1.0, 16.0, 256.0])[:, None], np.array([128.0, 4096.0, 32768.0])[None, :]


def kernels(chip: str, software: str = "vllm") -> LibraryKernels | MeasuredDecode:
    made = library_kernels(load_system(f"1 x {chip}"), PEAK, load_software(software), serving_fits(chip))
    assert isinstance(made, LibraryKernels | MeasuredDecode)
    return made


@pytest.mark.parametrize("chip", ["a100", "h100", "h200", "b200", "b300", "l40s"])
def test_measured_attention_is_never_below_the_data_sheet(chip: str) -> None:
    made = kernels(chip)
    assert isinstance(made, MeasuredDecode)
    for heads, groups in ((32, 8), (8, 1), (32, 32)):
        found = made.attention(Attention(USERS, 1, KEYS, heads, groups, 128))
        assert (found >= USERS * KEYS * groups * 2 * 128 * 2 / made.formula.chip.memory * (1 - 1e-12)).all()


def test_the_formulas_answer_what_was_not_measured() -> None:
    made = kernels("h100")
    assert isinstance(made, MeasuredDecode)
    decode = Attention(USERS, 1, KEYS, 32, 8, 128)
    prompt, latent = Attention(1, 512, 512, 32, 8, 128, causal=True), Attention(USERS, 1, KEYS, 128, 1, 576, 512, latent=True)
    for kernel in (prompt, latent, replace(decode, cached="int8")):
        assert np.array_equal(made.attention(kernel), made.formula.attention(kernel))
    assert not np.array_equal(made.attention(decode), made.formula.attention(decode))
    assert np.array_equal(made.product(64, 4096, 4096), made.formula.product(64, 4096, 4096))
    assert np.array_equal(made.stream(1e6, 1e6), made.formula.stream(1e6, 1e6))


@pytest.mark.parametrize(
    ("chip", "software"), [("rtx-pro-6000", "vllm"), ("h20", "vllm"), ("h100", "ideal"), ("h100", "vllm-2024")]
)
def test_without_tables_of_the_framework_there_are_formulas_alone(chip: str, software: str) -> None:
    assert isinstance(kernels(chip, software), LibraryKernels)


def test_nvfp4_needs_a_chip_that_has_it() -> None:
    """About twice as fast as fp8 with many rows where it is; no rate at all on chips before it."""
    made = kernels("b200")
    assert float(made.product(8192, 8192, 8192, 1, "nvfp4")) < 0.7 * float(made.product(8192, 8192, 8192, 1, "fp8"))
    with pytest.raises(BadInput, match="matrix engine has; got nvfp4"):
        kernels("h100").product(64, 4096, 4096, 1, "nvfp4")


@pytest.mark.parametrize(("weights", "bits"), [("int4", 4 + 20 / 128), ("mxfp4", 4.25)])
def test_formats_of_weights_alone(weights: str, bits: float) -> None:
    """They are read in fewer bytes, and multiplied in bf16: few tokens take the time of their bytes, many at least that of bf16
    products. Any chip has them. No schedule is faster than the bound."""
    made = kernels("h100")
    assert isinstance(made, MeasuredDecode)
    few, many = ([float(made.product(rows, 8192, 8192, 1, name)) for name in (weights, "bf16")] for rows in (1, 32768))
    assert few[0] / few[1] == pytest.approx(bits / 16, rel=0.1)
    assert few[0] >= 8192 * 8192 * bits / 8 / 3.35e12
    assert 32768 * 8192 * 8192 / made.formula.chip.mac_rate("bf16") <= many[0] <= many[1]
    model = served_model("llama3-8b", weights)
    assert model.weight_bytes == pytest.approx((8_030_261_248 - 2 * 128256 * 4096) * bits / 8 + 2 * 128256 * 4096 * 2, rel=1e-3)
    deployment = Deployment(model, load_system("1 x a100"), ReplicaLayout(), load_software("vllm"), PEAK)
    for users in (1.0, 64.0):
        reached = served(deployment, Load(Lengths(512, 128), concurrency=users)).requests
        assert all(reached <= bound.rate for bound in schedule_bounds(deployment, Lengths(512, 128)))


def test_windows_of_a_configuration_are_served(tmp_path: Path) -> None:
    """At long contexts attention and cache are those of the window, and the bounds hold."""
    fields = {"model_type": "mistral", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
    fields |= {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32768, "rms_norm_eps": 1e-5}
    fields |= {"max_position_embeddings": 32768}
    made = {}
    for name, window in (("all", None), ("near", 1024)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(fields | {"sliding_window": window}))
        model = served_model(str(folder))
        assert (model.window, model.windowed) == ((1024, 32) if window else (0, 0))
        made[name] = Deployment(model, load_system("1 x h100"), ReplicaLayout(), ServingSoftware(), PEAK)
    batch, lengths = StepBatch(32, 16384), Lengths(16000, 500)
    times = {name: float(each.step.parts(batch)["attention"]) for name, each in made.items()}
    assert times["near"] < 0.15 * times["all"]
    assert made["near"].memory.users(16384) > 10 * made["all"].memory.users(16384)
    for each in made.values():
        reached = served(each, Load(lengths, concurrency=16)).requests
        assert reached <= schedule_bounds(each, lengths)[0].rate
    short = Lengths(300, 100)
    near, full = (served(each, Load(short, concurrency=16)).requests for each in made.values())
    assert near == pytest.approx(full, rel=1e-3)  # contexts within the window


def test_collectives_take_longer_at_a_share_of_the_bandwidth() -> None:
    layout = ReplicaLayout(8)
    system, model = load_system("8 x h100, nvlink 8"), ServedModel(load_model("llama3-8b"))
    made = [Deployment(model, system, layout, ServingSoftware(network=share), PEAK) for share in (1.0, 0.5)]
    full, half = (each.step.lines["collectives"](4096.0) for each in made)
    assert full < half < 2 * full


@pytest.mark.parametrize("tp", [1, 2])
def test_bounds_hold_with_measured_kernels(tp: int) -> None:
    model, lengths = ServedModel(load_model("llama3-8b")), Lengths(512, 256)
    system = load_system(f"{tp} x h100, nvlink {tp}" if tp > 1 else "1 x h100")
    made = Deployment(model, system, ReplicaLayout(tp), load_software("vllm"), PEAK, fits=serving_fits("h100"), longest=4096)
    for users in (1.0, 32.0, 256.0):
        reached = served(made, Load(lengths, concurrency=users)).requests
        assert reached <= schedule_bounds(made, lengths)[0].rate
