"""Shipped hybrids against their published configurations and counts, by hand."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from tests.importers.published import CONFIGS

from halley.errors import BadInput
from halley.importers.config import import_config
from halley.importers.serving import served_model
from halley.importers.source import find_model
from halley.io.transformers import load_description, load_model, model_text, parse_description
from halley.library import MODELS

REPOSITORIES = {
    "granite-4.0-h-small": "ibm-granite/granite-4.0-h-small",
    "jamba-v0.1": "ai21labs/Jamba-v0.1",
    "nemotron-h-8b": "nvidia/Nemotron-H-8B-Base-8K",
    "qwen3-next-80b-a3b": "Qwen/Qwen3-Next-80B-A3B-Instruct",
}


@pytest.mark.parametrize("name", REPOSITORIES)
def test_parameters_are_the_published_ones(name: str) -> None:
    """Within 1 %: all of them, and the matrices that serving reads."""
    shape = load_description(name).shape
    assert find_model(name).parameters == pytest.approx(shape.published, rel=0.01)
    model = served_model(name)
    assert model.weight_bytes / 2 == pytest.approx(shape.published, rel=0.01)


@pytest.mark.parametrize("name", REPOSITORIES)
def test_files_have_the_extents_of_the_configurations(name: str) -> None:
    config, file = served_model(json.dumps(CONFIGS[REPOSITORIES[name]])), served_model(name)
    assert config.hybrid == file.hybrid
    left_out = {"name", "source", "published", "hidden", "sequence"}
    for item in fields(file.shape):
        if item.name not in left_out:
            assert getattr(config.shape, item.name) == getattr(file.shape, item.name), item.name
    assert config.weight_bytes == file.weight_bytes


def test_all_hybrids_are_here() -> None:
    assert sorted(REPOSITORIES) == [name for name in MODELS.names() if find_model(name).hybrid is not None]


def test_nemotron_by_hand() -> None:
    """The published configuration: 24 layers of Mamba-2, 4 with attention, 24 feed-forward ones."""
    config = CONFIGS["nvidia/Nemotron-H-8B-Base-8K"]
    pattern = config["hybrid_override_pattern"]
    inner = config["mamba_num_heads"] * config["mamba_head_dim"]
    bc = 2 * config["n_groups"] * config["ssm_state_size"]
    entry = config["hidden_size"] * (2 * inner + bc + config["mamba_num_heads"])
    mamba = entry + inner * config["hidden_size"]
    attention = (
        config["hidden_size"] * config["head_dim"] * (2 * config["num_attention_heads"] + 2 * config["num_key_value_heads"])
    )
    block = 2 * config["hidden_size"] * config["intermediate_size"]
    table = config["vocab_size"] * config["hidden_size"]
    model = served_model("nemotron-h-8b", state="fp32")
    total = pattern.count("M") * mamba + pattern.count("*") * attention + pattern.count("-") * block
    assert model.weight_bytes == 2 * (total + 2 * table)
    assert model.active_parameters == total + table
    state = inner * config["ssm_state_size"] * 4 + (inner + bc) * (config["conv_kernel"] - 1) * 2
    assert model.state_bytes_per_sequence == pattern.count("M") * state == 24 * 4_255_744
    assert model.cache_bytes_per_token == 4 * 2 * 8 * 128 * 2


def test_jamba_by_hand() -> None:
    """4 of 32 layers have attention, 16 have experts; a state of 16 for each of 8,192 channels."""
    model = served_model("jamba-v0.1", state="fp32")
    assert (model.attention_layers, model.recurrent_layers, model.dense_layers, model.expert_layers) == (4, 28, 16, 16)
    assert model.state_bytes_per_sequence == 28 * (8192 * 16 * 4 + 8192 * 3 * 2)
    assert model.recurrent_parameters == 4096 * 2 * 8192 + 8192 * (256 + 32) + 256 * 8192 + 8192 * 4096
    # the KV cache of 256K tokens in 16 bits: 4 GB (Lieber et al. 2024, table 1)
    assert model.cache_bytes_per_token * 256 * 1024 == 4 * 2**30


def test_qwen_by_hand() -> None:
    """12 of 48 layers have attention with a gate, the others 32 states of 128 by 128; 3.9 of 79.7 billion parameters a token."""
    model = served_model("qwen3-next-80b-a3b")
    assert (model.attention_layers, model.recurrent_layers) == (12, 36)
    assert model.attention_parameters == 2048 * 256 * (3 * 16 + 2 * 2)
    assert model.recurrent_parameters == 2048 * (2 * 2048 + 2 * 4096 + 2 * 32) + 4096 * 2048
    assert model.state_bytes_per_sequence == 36 * (32 * 128 * 128 * 2 + (4096 + 2 * 2048) * 3 * 2)
    table = 151936 * 2048
    assert model.active_parameters + table == pytest.approx(3.9e9, rel=0.02)  # the name says 3 billion, without tables


def test_granite_by_hand() -> None:
    """36 of 40 layers are Mamba-2; 9 of 32 billion parameters a token."""
    model = served_model("granite-4.0-h-small")
    assert (model.attention_layers, model.recurrent_layers) == (4, 36)
    assert model.recurrent_parameters == 4096 * (2 * 8192 + 2 * 128 + 128) + 8192 * 4096
    assert model.active_parameters == pytest.approx(9e9, rel=0.05)


@pytest.mark.parametrize("name", REPOSITORIES)
def test_files_are_read_again(name: str) -> None:
    found = load_description(name)
    again = parse_description(model_text(found, "a remark"))
    assert again == found


@pytest.mark.parametrize("name", REPOSITORIES)
def test_plans_of_training_refuse_them(name: str) -> None:
    with pytest.raises(
        BadInput, match=f"model {name}: expected a transformer; got .* recurrent layers of .*; 'halley serve' takes"
    ):
        load_model(name)


def test_faults_of_a_file_come_together() -> None:
    text = MODELS.text("nemotron-h-8b").replace("groups: 8", "groups: 3").replace("layers: 24", "layers: 40")
    with pytest.raises(BadInput) as caught:
        parse_description(text, "mine.yaml")
    told = [str(fault) for fault in caught.value.faults]
    assert len(told) == 2
    assert any("mine.yaml:" in fault and "groups: expected a divisor of heads (128); got 3" in fault for fault in told)
    assert any("hybrid.layers: expected at most 28 layers; got 40" in fault for fault in told)
    with pytest.raises(BadInput, match="kind"):
        parse_description(MODELS.text("nemotron-h-8b").replace("kind: mamba-2", "kind: mamba-3"))


def test_configurations_that_contradict_themselves() -> None:
    good = CONFIGS["nvidia/Nemotron-H-8B-Base-8K"]
    wrong = {
        "hybrid_override_pattern": ("M-M", "hybrid_override_pattern: expected 52 letters"),
        "n_groups": (3, "n_groups: expected a divisor of mamba_num_heads"),
    }
    for key, (value, said) in wrong.items():
        with pytest.raises(BadInput, match=said):
            import_config(json.dumps(good | {key: value}), "config.json")
    granite = CONFIGS["ibm-granite/granite-4.0-h-small"]
    with pytest.raises(BadInput, match="layer_types: expected 40 words, mamba or attention"):
        import_config(json.dumps(granite | {"layer_types": ["mamba"] * 39 + ["conv"]}), "config.json")


def test_variants_of_the_architectures() -> None:
    """Granite without experts or without recurrent layers, Nemotron with experts."""
    granite = CONFIGS["ibm-granite/granite-4.0-h-small"]
    dense = served_model(json.dumps(granite | {"num_local_experts": 0}))
    assert dense.shape.experts is None
    assert (dense.feed_forward_parameters, dense.dense_layers) == (3 * 4096 * 1536, 40)
    plain = import_config(json.dumps(granite | {"layer_types": ["attention"] * 40}), "config.json")
    assert plain.hybrid is None
    assert served_model(json.dumps(granite | {"layer_types": ["attention"] * 40})).attention_layers == 40
    good = CONFIGS["nvidia/Nemotron-H-8B-Base-8K"]
    routed = {"n_routed_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 1024, "n_shared_experts": 1}
    pattern = good["hybrid_override_pattern"].replace("-", "E", 20)
    made = served_model(
        json.dumps(good | routed | {"moe_shared_expert_intermediate_size": 2048, "hybrid_override_pattern": pattern})
    )
    assert (made.dense_layers, made.expert_layers, made.expert_parameters) == (4, 20, 2 * 4096 * 1024)
    assert made.shared_parameters == 4096 * (2 * 2048 + 16)


def test_a_state_has_its_dtype() -> None:
    model = served_model("nemotron-h-8b")
    assert model.state == "bf16"
    halves = [replace(model, state=state).state_bytes - 10240 * 3 * 2 for state in ("bf16", "fp16", "fp32")]
    assert halves[0] == halves[1] == halves[2] / 2


def test_models_of_mamba_2_are_served_too() -> None:
    """Serving reads all but taps, rates and norms from the matrices of the same layers that a plan trains."""
    for name, parameters in (("mamba2-2.7b", 2_702_599_680), ("mamba-codestral-7b", 7_285_403_648)):
        model = served_model(name)
        assert find_model(name).parameters == parameters
        assert model.attention_layers == model.cache_bytes_per_token == 0
        assert parameters * 0.999 < model.weight_bytes / 2 < parameters
