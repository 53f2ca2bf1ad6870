"""``halley plan`` of a model with a state space: the answer, its check, its ops, and commands that refuse such a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.running import halley

MODEL = """
format: halley.model/1
name: little
source: made up
layers: 4
model: 256
heads: 8
kv_heads: 2
head_dim: 64
hidden: 512
vocabulary: 4096
sequence: 512
gated: true
rms: true
positions: false
tied: true
dropout: 0.0
state_space: {state: 32, chunk: 128}
published: 4.0e6
"""
SYSTEM = ("--system", "4 x h100, nvlink 4", "--batch", "8")


@pytest.fixture
def folder(empty_folder: Path) -> Path:
    (empty_folder / "little.yaml").write_text(MODEL)
    return empty_folder


@pytest.mark.parametrize("fix", ["dp=2,tp=2", "dp=2,pp=2,attention=unfused"])
def test_a_plan_and_its_check(fix: str, folder: Path) -> None:
    found = halley("plan", "little.yaml", "--train", *SYSTEM, "--fix", fix, "-o", "plan.json", width=100)
    assert found.code == 0, found.err
    assert found.out.startswith("little on 4 x h100 (nvlink 4), 8 sequences of 512 tokens an iteration")
    assert ("attention or scans not fused" in found.out) is ("unfused" in fix)
    checked = halley("check", "plan.json", width=200)
    assert checked.code == 0, checked.out
    assert "little layer: execution: " in checked.out
    assert "little layer: gradients: " in checked.out
    shown = halley("show", "plan.json", "--op", "across", width=200)
    assert shown.code == 0, shown.err
    assert ("one kernel with step, drive, rates" in shown.out) is ("unfused" not in fix)
    assert "scan" in shown.out or "unfused" in fix
    detailed = halley("show", "plan.json", "--details", width=120).out
    assert "chunks" in detailed or "pp=2" in fix
    assert "tokens of an expert" not in detailed


def test_models_that_ship() -> None:
    listed = {item["name"]: item["parameters"] for item in halley("models", "--json").json}
    assert listed["mamba2-2.7b"] == 2_702_599_680
    one = halley("models", "mamba2-2.7b", width=140)
    assert "projections of the mixers" in one.out
    assert "mamba-2" in one.out


def test_a_configuration_is_planned(folder: Path) -> None:
    given = {"model_type": "mamba2", "hidden_size": 256, "num_hidden_layers": 2, "num_heads": 8, "head_dim": 64, "n_groups": 2}
    text = json.dumps(given | {"state_size": 32, "vocab_size": 4096, "chunk_size": 128, "use_conv_bias": False})
    found = halley("plan", text, *SYSTEM, "--sequence", "512", "--fix", "tp=4", width=100)
    assert found.code == 0, found.err
    assert "the convolutions of the file have no bias" in found.err
    assert "not in the file, taken from the architecture" in found.err
    wrong = halley("plan", json.dumps({**given, "n_groups": 3, "vocab_size": 4096}), *SYSTEM)
    assert wrong.code == 1
    assert "n_groups: expected a divisor of num_heads" in wrong.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("plan", "little.yaml", *SYSTEM, "--sequence", "500"),
            "sequence: expected a multiple of a chunk of 128 tokens; got 500",
        ),
        (("plan", "little.yaml", *SYSTEM, "--emit", "megatron"), "expected a plan of a transformer for launch flags"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], said: str, folder: Path) -> None:
    found = halley(*words, width=200)
    assert found.code == 1
    assert said in found.err


def test_the_same_file_is_served(folder: Path) -> None:
    found = halley("serve", "little.yaml", "--system", "1 x h100", "--input", "64", "--output", "8", "--rate", "2", width=200)
    assert found.code == 0, found.err
    assert "keep" in found.out
    assert "of state of a sequence, whatever its context" in found.out
