"""Configurations of Hugging Face: parameters against the released checkpoints, plans, layers, and files that are wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cli.running import halley
from tests.importers.published import CHECKPOINTS, CONFIGS, ROUNDED

from halley.cli.parameters import workload_from
from halley.errors import BadInput, Fault
from halley.importers.config import MEDIA, import_config
from halley.importers.decoders import DECODERS
from halley.importers.model import ImportedModel
from halley.importers.others import OTHERS
from halley.importers.serving import served_model
from halley.importers.source import description, find_model, of_description, plan_remarks
from halley.io.files.json_text import read_json
from halley.io.files.text import DEPTH_LIMIT, KeyPath
from halley.io.transformers import load_description, model_text, parse_description
from halley.workloads import build
from halley.workloads.training import training_model

SHIPPED = {
    "llama2-7b": "meta-llama/Llama-2-7b-hf",
    "llama3-8b": "meta-llama/Llama-3.1-8B",
    "llama3-405b": "meta-llama/Llama-3.1-405B",
    "llama3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama4-scout": "meta-llama/Llama-4-Scout-17B-16E",
    "mistral-7b": "mistralai/Mistral-7B-v0.1",
    "mixtral-8x7b": "mistralai/Mixtral-8x7B-v0.1",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-30b-a3b": "Qwen/Qwen3-30B-A3B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "glm-4.5": "zai-org/GLM-4.5",
    "kimi-k2": "moonshotai/Kimi-K2-Instruct",
    "deepseek-v3": "deepseek-ai/DeepSeek-V3",
}
"""Transformers that ship with Halley, and the repositories of their configurations."""


def imported(repository: str) -> ImportedModel:
    return import_config(json.dumps(CONFIGS[repository]), "config.json", repository)


@pytest.mark.parametrize("repository", CHECKPOINTS)
def test_parameters_equal_those_of_the_checkpoint(repository: str) -> None:
    assert imported(repository).parameters == CHECKPOINTS[repository]


@pytest.mark.parametrize("repository", ROUNDED)
def test_parameters_round_to_those_of_the_publication(repository: str) -> None:
    published, _ = ROUNDED[repository]
    assert imported(repository).parameters == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize("repository", CONFIGS)
def test_a_plan_has_what_the_import_says(repository: str) -> None:
    """The graphs that a plan trains have their parameters from their tensors, the import from the fields."""
    made = imported(repository)
    if made.shape is None:
        assert made.missing
        assert made.planned_parameters == 0
    else:
        assert training_model(made.shape, 1).parameters == made.planned_parameters
        assert made.shape.published == made.parameters


@pytest.mark.parametrize("repository", CONFIGS)
def test_layers_are_workloads(repository: str) -> None:
    made = imported(repository)
    for layer in made.layers.values():
        tokens = 2 if layer.unit > 1 else 4
        counted = dict.fromkeys((*layer.tokens, *layer.keys), tokens)
        assert build(layer.kind, {**layer.parameters, **counted}).macs() > 0


def test_products_of_layers_multiply_by_the_parameters() -> None:
    """One token meets each parameter of a layer's products once."""
    made = imported("Qwen/Qwen2.5-7B")
    groups = {group.what: group for group in made.groups}

    def work(name: str) -> int:
        layer = made.layers[name]
        return build(layer.kind, {**layer.parameters, **dict.fromkeys(layer.tokens, 1)}).macs()

    assert work("queries") + 2 * work("keys") + work("output") == groups["attention"].each
    assert work("mlp") == 2 * work("up") + work("down") == groups["feed-forward blocks"].each
    assert work("logits") == groups["head"].each
    assert 2 * 28 * (groups["attention"].each + work("mlp")) + 2 * work("logits") == made.work


@pytest.mark.parametrize("repository", [name for name in CONFIGS if imported(name).extents is not None])
def test_model_files_are_read_again(repository: str) -> None:
    """With windows and recurrent layers, which serving has."""
    model = imported(repository)
    text = model_text(description(model), "a remark")
    again = of_description(parse_description(text), "model.yaml")
    assert description(again) == description(model)
    assert again.extents == model.extents
    assert (again.windowed, again.hybrid) == (model.windowed, model.hybrid)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models_have_the_extents_of_their_configurations(name: str) -> None:
    file, config = load_description(name), description(imported(SHIPPED[name]))
    own = {"name": name, "source": "", "sequence": 1, "published": 1.0}  # that of the training, and what is counted or stated
    assert replace(file.shape, **own) == replace(config.shape, **own)
    assert (file.keys, file.windowed) == (config.keys, config.windowed)


def test_what_a_plan_leaves_out_is_said() -> None:
    remarks = halley("import", json.dumps(CONFIGS["Qwen/Qwen2.5-7B"]), width=200).out
    assert "leaves out biases of queries, keys and values: 129,024 of 7,615,616,512 parameters (0.0017 %)" in remarks
    text = "\n".join(plan_remarks(imported("google/gemma-3-4b-pt")))
    assert "the text model of gemma3 alone" in text
    assert "num_attention_heads = 8, num_key_value_heads = 4, vocab_size = 262208" in text
    assert "29 of 34 layers see 1024 keys" in text
    assert "gate of the feed-forward block is 'gelu'" in text
    assert "24 layers without experts are between" in "\n".join(imported("meta-llama/Llama-4-Maverick-17B-128E").remarks)


@pytest.mark.parametrize(
    ("given", "format_"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 3}, ""),
        ({"quant_method": ["awq"]}, ""),
        ("fp8", ""),
    ],
)
def test_formats_of_weights_are_named(given: object, format_: str) -> None:
    fields = CONFIGS["Qwen/Qwen3-8B"] | {"quantization_config": given}
    model = import_config(json.dumps(fields), "config.json")
    assert model.formats.get("--weights", "") == format_
    told = "\n".join(plan_remarks(model))
    assert ("are quantised; commands take the element type" in told) == (not format_)
    assert (f"its file has weights in {format_}: '--weights {format_}' serves it so" in told) == bool(format_)


@pytest.mark.parametrize(("given", "format_"), [("float32", "fp32"), ("bfloat16", ""), (["float32"], "")])
def test_dtypes_of_states_are_named(given: object, format_: str) -> None:
    fields = CONFIGS["nvidia/Nemotron-H-8B-Base-8K"] | {"mamba_ssm_cache_dtype": given}
    assert import_config(json.dumps(fields), "config.json").formats.get("--state", "") == format_


def test_serving_says_what_the_file_has() -> None:
    """On stderr, unless it is asked for."""
    fields = CONFIGS["nvidia/Nemotron-H-8B-Base-8K"] | {
        "mamba_ssm_cache_dtype": "float32",
        "quantization_config": {"quant_method": "fp8"},
    }
    words = ("--system", "1 x h100", "--input", "512", "--output", "64")
    plain = halley("serve", json.dumps(fields), *words, "--concurrency", "4", width=200)
    assert "its file has weights in fp8: '--weights fp8' serves it so" in plain.err
    assert "its file has recurrent states in fp32: '--state fp32' serves it so" in plain.err
    asked = halley("plan", json.dumps(fields), "--serve", *words, "--weights", "bf16,fp8", "--state", "fp32", width=200)
    assert "its file has" not in asked.err


def test_windows_that_are_longer_than_the_sequence_cost_nothing() -> None:
    within = imported("mistralai/Mistral-7B-v0.1")
    scores = 32 * 4 * 4096 * 32768  # both products of a token with 32768 keys, in 32 layers
    products = 2 * (7_241_732_096 - 32000 * 4096 - 65 * 4096)  # all parameters but the embedding and the norms
    share = scores * (1 - 4096 / 32768) / (scores + products)
    assert f"32 of 32 layers see 4096 keys; a plan attends to all keys: {share:.1%} of its forward" in plan_remarks(within)[0]
    assert "all of them in sequences of 4096 tokens" in plan_remarks(within, 4096)[0]


# --- the command line -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(empty_folder: Path) -> Path:
    made = empty_folder / "gpt2"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIGS["openai-community/gpt2"], indent=2))
    return made


def test_a_layer_of_a_model_is_a_workload(folder: Path) -> None:
    given = {"batch": 1, "heads": 12, "kv_heads": 12, "head_dim": 64, "causal": True}
    prefill = build("attention", {**given, "queries": 512, "keys": 512})
    assert workload_from("gpt2/config.json", ["--layer", "attention"]) == prefill
    decode = build("attention", {**given, "queries": 1, "keys": 64, "heads": 4, "kv_heads": 2})
    words = ["--kv-heads=2", "--layer=attention", "--tokens", "1", "--keys", "64", "--heads", "4"]
    assert workload_from("./gpt2", words) == decode
    assert workload_from("gpt2", ["--queries", "7", "--layer", "attention"]).parameters["keys"] == 7
    mixer = json.dumps(CONFIGS["mistralai/Mamba-Codestral-7B-v0.1"])
    assert workload_from(mixer, ["--layer", "mixer", "--tokens", "1024"]).parameters["chunks"] == 4
    with pytest.raises(BadInput, match="a multiple of 256; got 100"):
        workload_from(mixer, ["--layer", "mixer", "--tokens", "100"])


def test_the_best_mapping_of_a_layer(folder: Path) -> None:
    words = ("--chip", "edge", "--no-baselines", "--no-save", "--json")
    found = halley("optimise", "gpt2/config.json", "--layer", "queries", "--tokens", "4", "--n", "16", "--k", "8", *words)
    own = halley("optimise", "gemm", "--m", "4", "--n", "16", "--k", "8", *words)
    assert found.code == own.code == 0, found.err
    assert found.json["answer"]["best"]["plan"] == own.json["answer"]["best"]["plan"]


@pytest.mark.medium
def test_plans_take_configurations(folder: Path) -> None:
    fixed = ("--fix", "dp=2,microbatch=1,recompute=none,zero=0")
    words = ("--system", "2 x h100, nvlink 2", "--batch", "2", "--sequence", "64", "--json", *fixed)
    found = halley("plan", "./gpt2", "--train", *words)
    assert found.code == 0, found.err
    assert found.json["question"]["model"]["name"] == "gpt2"
    assert "gpt2: a plan leaves out biases" in found.err
    assert halley("import", "gpt2", "-o", "gpt2.yaml").code == 0
    again = halley("plan", "gpt2.yaml", *words)
    assert again.code == 0, again.err
    assert again.json["answer"] == found.json["answer"]


def test_files_are_not_replaced(folder: Path) -> None:
    assert halley("import", "gpt2", "-o", "gpt2.yaml").code == 0
    before = Path("gpt2.yaml").read_text()
    assert halley("import", "gpt2", "-o", "gpt2.yaml").code == 1
    assert Path("gpt2.yaml").read_text() == before


@pytest.mark.parametrize("repository", [name for name in CONFIGS if imported(name).shape is None])
def test_models_without_a_plan_say_why(empty_folder: Path, repository: str) -> None:
    text = json.dumps(CONFIGS[repository])
    found = halley("plan", text, "--system", "2 x h100, nvlink 2", "--batch", "2")
    assert found.code == 1
    assert "expected a decoder transformer; got " in found.err
    assert halley("import", text).code == 0
    written = halley("import", text, "-o", "model.yaml")
    served = imported(repository).served
    assert written.code == (served is None)
    if served is not None:
        assert "see 'halley serve model.yaml'" in written.err
        assert "'halley serve' and 'halley plan --serve' take it" in found.err
        config, file = served_model(text), served_model(str(empty_folder / "model.yaml"))
        assert (config.hybrid, config.weight_bytes) == (file.hybrid, file.weight_bytes)


def test_models_are_listed() -> None:
    listed = halley("models", "--json").json
    assert {item["name"]: item["parameters"] for item in listed}["llama3-8b"] == 8_030_261_248
    one = halley("models", "llama3-8b", width=140)
    assert "8,030,261,248 parameters" in one.out
    assert halley("models", "llama3-9b").code == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpt2",), "option --layer: expected the name of a layer; got nothing"),
        (("gpt2", "--layer"), "option --layer: expected the name of a layer; got nothing"),
        (("gpt2", "--layer", "atention"), "did you mean 'attention'?"),
        (("gpt2", "--layer", "mlp", "--token", "4"), "did you mean '--tokens'?"),
        (("gpt2", "--layer", "mlp", "--tokens", "0"), "parameter tokens: expected a whole number from 1"),
        (("gpt2", "--layer", "attention", "--kv-heads", "5"), "parameter kv_heads: expected a divisor of heads (12)"),
        (("none.json", "--layer", "mlp"), "none.json: expected a file; got no such file"),
    ],
)
def test_faults_of_layers(folder: Path, words: tuple[str, ...], said: str) -> None:
    found = halley("optimise", *words, "--chip", "edge")
    assert found.code == 1
    assert said in found.err


# --- files that are wrong ---------------------------------------------------------------------------------------------------

GOOD = CONFIGS["Qwen/Qwen2.5-7B"]

WRONG: dict[str, tuple[str, str]] = {
    "empty": ("", "config.json:1: expected JSON"),
    "no JSON": ("{'model_type': 'llama'}", "config.json:1: expected JSON"),
    "a list": ("[1, 2]", "expected a map of keys; got a list"),
    "a number": ("7", "expected a map of keys; got 7"),
    "null": ("null", "expected a map of keys; got null"),
    "nothing in it": ("{}", "model_type: expected the architecture"),
    "deep": ("[" * 100_000, f"at most {DEPTH_LIMIT} levels of nesting"),
    "deep in a field": ('{"model_type": ' + "[" * 50 + "]" * 50 + "}", f"at most {DEPTH_LIMIT} levels of nesting"),
    "twice": ('{"model_type": "llama",\n "vocab_size": 1,\n "vocab_size": 2}', "config.json:3: vocab_size: expected each key"),
    "unknown": ('{"model_type": "lama"}', "did you mean 'llama'?"),
    "type is a number": ('{"model_type": 3}', "model_type: expected text; got 3"),
    "unknown text model": ('{"model_type": "x", "text_config": {"model_type": "y"}}', "text_config.model_type: expected a known"),
    "text model without a type": ('{"model_type": "x", "text_config": {}}', "text_config.model_type: expected the architecture"),
    "cut off": (json.dumps(GOOD)[:-20], "expected JSON"),
    "surrogate": ('{"model_type": "\\ud800"}', "model_type: expected a known architecture"),
    "NUL": ('{"model_type": "llama\\u0000"}', "model_type: expected a known architecture"),
}


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_no_configuration(case: str) -> None:
    text, said = WRONG[case]
    with pytest.raises(BadInput) as caught:
        import_config(text, "config.json")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 2000


def faults_of(text: str) -> tuple[Fault, ...]:
    try:
        import_config(text, "config.json")
    except BadInput as error:
        return error.faults
    return ()


VALUES = [None, True, -1, 0, 1.5, 10**400, "12", [], {}, float("nan"), float("inf"), "x" * 5000, 2**62]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:12])
def test_wrong_values_are_faults_with_their_place(value: Any) -> None:
    """Each size of each architecture, with a value of another kind: a fault at its line, or a model; never another exception."""
    for repository, config in CONFIGS.items():
        for key, good in config.items():
            if isinstance(good, dict) or key in ("model_type", "id2label"):
                continue
            text = json.dumps(config | {key: value}, indent=1)
            faults = faults_of(text)
            assert all(len(str(fault)) < 400 for fault in faults), repository
            assert all("config.json:" in str(fault) for fault in faults), (repository, key)


def test_all_faults_are_reported_at_once() -> None:
    text = json.dumps(GOOD | {"hidden_size": "wide", "vocab_size": -3, "num_attention_heads": None}, indent=1)
    with pytest.raises(BadInput) as caught:
        import_config(text, "config.json")
    line = {key: 2 + place for place, key in enumerate(GOOD)}  # one key a line, after the brace
    said = str(caught.value).splitlines()
    assert f"config.json:{line['hidden_size']}: hidden_size: expected a whole number from 1 to 1099511627776; got 'wide'" in said
    assert f"config.json:{line['vocab_size']}: vocab_size: expected a whole number from 1 to 1099511627776; got -3" in said
    assert f"config.json:{line['num_attention_heads']}: num_attention_heads" in str(caught.value)
    assert len(said) == 3


def test_missing_fields_are_all_named() -> None:
    with pytest.raises(BadInput) as caught:
        import_config('{"model_type": "llama"}', "config.json")
    for key in ("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size", "vocab_size"):
        assert f"{key}: expected a whole number" in str(caught.value)


def test_sizes_that_contradict_each_other() -> None:
    for key, value in (("num_key_value_heads", 5), ("num_attention_heads", 27)):
        with pytest.raises(BadInput, match=f"{key}: expected a divisor of"):
            import_config(json.dumps(GOOD | {key: value}), "config.json")


def test_paths_that_are_wrong(empty_folder: Path) -> None:
    for words in ("./none", "none/config.json", "\0.json", "x" * 5000 + ".json", ".", "{"):
        with pytest.raises(BadInput):
            find_model(words)
    (empty_folder / "large.json").write_bytes(b" " * (2**20 + 1))
    with pytest.raises(BadInput, match="at most 1048576 bytes"):
        find_model("large.json")
    (empty_folder / "bytes.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(BadInput, match="UTF-8"):
        find_model("bytes.json")


def test_names_have_no_control_characters() -> None:
    config = CONFIGS["openai-community/gpt2"] | {"_name_or_path": "a/\x1b[31mred"}
    made = import_config(json.dumps(config), "config.json")
    assert made.name == "[31mred"


# --- the reader of JSON -----------------------------------------------------------------------------------------------------

KEYS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=4)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def placed(value: object, path: KeyPath, line: int, found: dict[KeyPath, int]) -> int:
    """Lines of values as `json.dumps` with an indent writes them: one a line. Returns the line of the value's end."""
    found[path] = line
    if not isinstance(value, dict | list) or not value:
        return line
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        line = placed(item, (*path, key), line + 1, found)
    return line + 1


@settings(max_examples=40)
@given(DATA)
def test_lines_of_json(data: object) -> None:
    document = read_json(json.dumps(data, indent=1), "a.json")
    assert document.data == data
    found: dict[KeyPath, int] = {}
    placed(data, (), 1, found)
    for path, line in found.items():
        if path and isinstance(path[-1], str):
            assert document.line(path) == line, path


def test_the_page_lists_the_architectures() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/bring-your-own-model.md").read_text(encoding="utf-8")
    table = page.partition("| model type of the file |")[2].partition("\n\n")[0]
    listed = {word for row in table.splitlines() for word in re.findall(r"`(\w+)`", row.split("|")[1] if "|" in row else "")}
    assert listed == {*DECODERS, *OTHERS, *MEDIA}
