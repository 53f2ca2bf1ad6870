"""Launch flags of serving engines: names as the engines have them, deployment -> flags -> deployment, from the command line."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.running import halley

from halley.errors import BadInput
from halley.importers.serving import served_model
from halley.io.transformers import load_model
from halley.launch.serving import SERVING_ENGINES, ServerDecisions, read_serving_flags
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel

TABLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "launch_flags.csv"
IN_TABLE = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
LONG_STANDING = {
    "vllm": {"--max-model-len", "--gpu-memory-utilization", "--block-size", "--quantization", "--kv-cache-dtype"},
    "sglang": {"--context-length", "--page-size"},
    "trtllm": set[str](),
}
"""Names that the table does not have."""

MODELS = {name: load_model(name) for name in ("llama3-8b", "mixtral-8x7b")}


@st.composite
def servers(draw: st.DrawFn) -> ServerDecisions:
    power = st.integers(0, 3).map(lambda exponent: 2**exponent)
    name = draw(st.sampled_from(sorted(MODELS)))
    tp, pp = draw(power), draw(power)
    dp, ep = (draw(power), draw(power)) if name == "mixtral-8x7b" else (1, 1)
    eight = draw(st.booleans())
    model = ServedModel(MODELS[name], "fp8" if eight else "bf16", draw(st.sampled_from(["bf16", "fp8"])))
    users, budget = draw(st.integers(1, 512)), draw(st.integers(1, 16384))
    return ServerDecisions(model, ReplicaLayout(tp, pp, math.gcd(ep, tp * dp), dp), draw(power), "", users, budget, 4096, 0.9, 16)


@pytest.mark.parametrize("engine", SERVING_ENGINES)
@given(server=servers())
def test_flags_read_again_give_the_same_deployment(engine: str, server: ServerDecisions) -> None:
    """What the flags cannot say is in the remarks."""
    made = SERVING_ENGINES[engine](server)
    text = made.text + "".join(f"\n# {remark}" for remark in made.remarks)
    found, layout = read_serving_flags(text), server.layout
    assert found.engine == engine
    assert found.layout.chips == layout.chips
    assert found.layout.pp == layout.pp
    assert (found.users, found.budget) == (server.users, server.budget)
    if found.layout != layout:
        assert re.search("distributes the experts over all|attention ranks are all", " ".join(made.remarks))
    if engine != "trtllm":
        assert (found.weights or "bf16", found.cache or "bf16") == (server.model.weights, server.model.cache)
    else:
        assert ("quantised" in " ".join(made.remarks)) == (server.model.weights == "fp8")


@pytest.mark.parametrize("state", ["bf16", "fp16", "fp32"])
def test_flags_of_a_hybrid(state: str) -> None:
    """vLLM is given the dtype of the states, the others in words."""
    model = served_model("nemotron-h-8b", state=state)
    server = ServerDecisions(model, ReplicaLayout(2), 1, "", 32, 512, 4096, 0.9, 16)
    for engine, make in SERVING_ENGINES.items():
        made = make(server)
        assert f"states of its recurrent layers are in {state}" in " ".join(made.remarks)
        found = read_serving_flags(made.text)
        assert (found.layout, found.state) == (server.layout, state if engine == "vllm" else None)


@pytest.mark.parametrize("engine", SERVING_ENGINES)
@given(server=servers())
def test_names_are_those_of_the_engine(engine: str, server: ServerDecisions) -> None:
    if not TABLE.exists():
        pytest.skip("no data")
    with TABLE.open(newline="", encoding="utf-8") as file:
        words = " ".join(" ".join(row.values()) for row in csv.DictReader(file) if row["framework"] == IN_TABLE[engine])
    known = set(re.findall(r"--[\w-]+", words)) | LONG_STANDING[engine]
    assert set(SERVING_ENGINES[engine](server).settings) <= known


def test_other_names_of_a_setting() -> None:
    found = read_serving_flags("python -m sglang.launch_server --model-path x --tp 8 --dp 2 --enable-dp-attention --ep-size 8")
    assert found.layout == ReplicaLayout(tp=4, dp=2, ep=8)
    assert read_serving_flags("vllm serve x").layout == ReplicaLayout()
    short = read_serving_flags("vllm serve x -tp 2 -pp 2 --max-num-seqs 64 -dp=2")
    assert (short.layout, short.users) == (ReplicaLayout(2, pp=2, dp=2), 64)


@pytest.mark.parametrize(
    ("flags", "weights"),
    [("--quantization awq_marlin", "int4"), ("-q mxfp4", "mxfp4"), ("--quantization=modelopt_fp4", "nvfp4"), ("", None)],
)
def test_formats_of_weights(flags: str, weights: str | None) -> None:
    assert read_serving_flags(f"vllm serve x {flags}").weights == weights


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "vllm serve x -q gguf",
            "--quantization: expected a known format of weights; got 'gguf'; leave it out and give --weights, or use one of: awq",
        ),
        ("vllm serve x -q gptq_marlim", "or did you mean 'gptq_marlin'"),
        ("--tensor-parallel-size 8", "expected a command with one of vllm serve"),
        ("vllm serve x --tensor-parallel-size eight --max-num-seqs 0", "expected a whole number from 1; got 'eight'"),
        ("python -m sglang.launch_server --tp 4 --dp 3", "expected a divisor of the 4 tensor-parallel ranks; got 3"),
        ("vllm serve " + "x" * 70000, "expected at most 65536 characters"),
    ],
)
def test_faults(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        read_serving_flags(text)


@pytest.mark.medium
def test_from_the_command_line(tmp_path: Path) -> None:
    """A deployment, its flags, and the deployment of these flags: the same figures."""
    answer, flags = tmp_path / "served.json", tmp_path / "flags.txt"
    sizes = ("--input", "512", "--output", "64")
    options = ("--system", "2 x h100, nvlink 2", *sizes, "--concurrency", "16", "--weights", "fp8")
    first = halley("serve", "llama3-8b", *options, "--tp", "2", "--output-file", str(answer))
    assert first.code == 0, first.err
    flags.write_text(halley("show", str(answer), "--emit", "vllm").out, encoding="utf-8")
    assert "--tensor-parallel-size 2" in flags.read_text(encoding="utf-8")
    second = halley("serve", "llama3-8b", *options, "--from-flags", str(flags))
    assert second.out.splitlines()[1] == first.out.splitlines()[1]
    both = halley("serve", "llama3-8b", *options, "--tp", "2", "--from-flags", str(flags))
    assert (both.code, "expected no --tp beside it" in both.err) == (1, True)
    wrong = halley("show", str(answer), "--emit", "megatron")
    assert (wrong.code, "expected one of vllm, sglang, trtllm" in wrong.err) == (1, True)
    plan = halley("plan", "llama3-8b", "--serve", *options[:6], "--emit", "sglang")
    assert (plan.code, "sglang.launch_server" in plan.out) == (0, True)
