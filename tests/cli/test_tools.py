"""The tools of an agent: short, versioned answers that equal those of the products; faults in words; and the server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.cli.running import halley

from halley import Problem, build, collective, load_chip, optimise, plan
from halley.cli.mcp import server
from halley.errors import BadInput
from halley.products.tools import ANSWERS_KEPT, SCHEMA, Tools

GEMM = {"m": 24, "n": 40, "k": 16}


def test_answers_equal_those_of_the_products() -> None:
    tools = Tools()
    mapped = tools.optimise("gemm", GEMM, "edge", gap=0.0)
    best = optimise(Problem(build("gemm", GEMM), load_chip("edge"), baselines=False)).best
    assert mapped["value"] == pytest.approx(best.certificate.value, rel=1e-3)
    assert (mapped["unit"], mapped["status"], mapped["proven_within"]) == ("s", "optimal", 0.0)
    assert "compute gemm" in mapped["mapping"]
    told = tools.collective("all-reduce", "64 MiB", "dgx-h100")
    single = collective("all-reduce", "64 MiB", "dgx-h100").single
    assert single is not None
    assert (told["id"], told["algorithm"]) == ("a2", single.cost.algorithm)
    planned = tools.plan("gpt2-xl", "8 x h100, nvlink 8", 8)
    result = plan("gpt2-xl", "8 x h100, nvlink 8", 8)
    assert planned["value"] == pytest.approx(result.certificate.value, rel=1e-3)
    assert planned["decisions"]["data"] * planned["decisions"]["pipeline"] * planned["decisions"]["model"] == 8
    timed = tools.time("gemm", {"m": 4096, "n": 4096, "k": 4096}, "h100")
    assert timed["bound_s"] <= timed["time_s"]
    assert timed["low_s"] <= timed["time_s"] <= timed["high_s"]
    assert {answer["schema"] for answer in (mapped, told, planned, timed)} == {SCHEMA}


def test_answers_are_short_and_plain() -> None:
    tools = Tools()
    for told in (tools.optimise("gemm", GEMM, "edge"), tools.collective("all-reduce", "64 MiB", "dgx-h100")):
        assert len(json.dumps(told)) < 2_000
        explained = tools.explain(told["id"])
        assert explained["tables"]
        assert len(json.dumps(explained)) < 12_000


def test_old_answers_are_forgotten() -> None:
    tools = Tools()
    for _ in range(ANSWERS_KEPT + 1):
        tools.collective("all-reduce", "1 MiB", "8 x h100, nvlink 8")
    assert len(tools.answers) == ANSWERS_KEPT
    with pytest.raises(BadInput, match="id: expected one of: a2, a3"):
        tools.explain("a1")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda tools: tools.optimise("gem", GEMM, "edge"), "gemm"),
        (lambda tools: tools.optimise("gemm", {"m": 4, "n": 4}, "edge"), "k"),
        (lambda tools: tools.optimise("gemm", GEMM, "edg"), "did you mean 'edge'"),
        (lambda tools: tools.optimise("gemm", GEMM, "edge", "speed"), "objective"),
        (lambda tools: tools.plan("llama9", "8 x h100, nvlink 8", 8), "llama9"),
        (lambda tools: tools.collective("all-reduse", "1 MiB", "dgx-h100"), "all-reduce"),
        (lambda tools: tools.time("gemm", {"m": 1, "q": 2}, "h100"), "expected its sizes; got 'q'"),
        (lambda tools: tools.explain("a9"), "none yet"),
    ],
)
def test_faults(call: Any, told: str) -> None:
    with pytest.raises(BadInput) as error:
        call(Tools())
    assert told in str(error.value)


def test_the_server_lists_and_calls_the_tools() -> None:
    pytest.importorskip("mcp")
    tools = Tools()
    made = server(tools)
    listed = {tool.name: tool for tool in asyncio.run(made.list_tools())}
    assert list(listed) == ["optimise", "plan", "collective", "time", "explain"]
    assert set(listed["time"].input_schema["required"]) == {"kernel", "sizes", "chip"}
    assert len(json.dumps([tool.model_dump(mode="json") for tool in listed.values()])) < 16_000
    found = asyncio.run(made.call_tool("collective", {"kind": "all-reduce", "size": "1 MiB", "system": "dgx-h100"}))
    assert '"id": "a1"' in str(found).replace("'", '"')
    assert list(tools.answers) == ["a1"]


def test_without_the_package() -> None:
    try:
        import mcp  # noqa: F401
    except ImportError:
        found = halley("mcp")
        assert (found.code, "pip install 'halley[mcp]'" in found.err) == (1, True)
