"""Files of serving software: what a framework adds to the kernels of a step, as YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from halley.errors import BadInput
from halley.io.files.check import check
from halley.io.files.entries import Latency, Size, Text
from halley.io.files.models import Model
from halley.io.files.shelf import found
from halley.io.files.text import read_yaml
from halley.library import SERVING_SOFTWARE
from halley.serving.software import TIMES, ServingSoftware

Part = Annotated[float, Field(gt=0, le=1)]
Reach = Annotated[float, Field(ge=0, le=10)]
Count = Annotated[int, Field(ge=1, le=10**7)]


class ServingSoftwareFile(Model):
    """A serving framework (`halley.serving.software.ServingSoftware`)."""

    format: Literal["halley.serving-software/1"] = Field(description="version of the format")
    name: Text = Field(description="name of the framework, with its version where it matters")
    source: Text = Field(description="measurements that the numbers were fitted to")
    remark: Text | None = Field(None, description="what the numbers do not hold for")
    step: Latency = Field(description="host time of a step that does not overlap the chip")
    user: Latency = Field(description="host time of a step for each sequence of the batch")
    layer: Latency = Field(description="time to launch one layer without a graph: a layer takes at least that")
    gap: Latency = Field(description="time between two kernels")
    collective: Latency = Field(description="start-up of a collective of the framework's own")
    request: Latency = Field(description="time of a request in the front end, before its prompt is scheduled")
    request_user: Latency = Field(description="more of that for each request in flight of a replica")
    request_experts: Latency | None = Field(None, description="more of that for models with experts")
    graphs: Annotated[int, Field(ge=0, le=10**7)] = Field(description="tokens of the largest step replayed as a graph; 0: none")
    memory: Part = Field(description="share of the kernels' memory bandwidth that is reached in a server")
    matrix: Part = Field(description="share of the kernels' matrix rate that is reached in a server")
    network: Part = Field(1.0, description="share of the links' bandwidth that the framework's own collectives reach")
    kernels: Literal["", "vllm", "trtllm", "sglang"] = Field("", description="framework in whose measured tables its kernels are")
    budget: Count = Field(description="tokens of a step at most (chunked prefill)")
    users: Count = Field(description="sequences of a step at most")
    page: Count = Field(description="tokens of a page of the cache")
    preempt: Literal["recompute", "swap"] = Field(
        "recompute", description="what happens to the cache of a sequence that is preempted: recomputed, or kept by the host"
    )
    receive: Count = Field(1, description="steps between two receipts of requests; steps with prompts are followed by one")
    wait_steps: Annotated[int, Field(ge=0, le=10**7)] = Field(0, description="steps that a new prompt waits for others at most")
    wait_share: Part = Field(0.9, description="share of the tokens of a step from which new prompts do not wait for others")
    tpot_reach: Reach | None = Field(None, description="largest |log(measured / predicted)| of TPOT, of 80 % of loops held out")
    ttft_reach: Reach | None = Field(None, description="the same of TTFT")
    share: Part = Field(description="part of a chip's memory that the server takes")
    reserve: Size | None = Field(None, description="bytes of it for workspaces and graphs")


PLAIN: tuple[str, ...] = (
    "name",
    "source",
    "graphs",
    "memory",
    "matrix",
    "network",
    "kernels",
    "budget",
    "users",
    "page",
    "share",
)
PLAIN += ("preempt", "receive", "wait_steps", "wait_share", "tpot_reach", "ttft_reach")
"""Entries that are taken as they stand."""


def load_software(path_or_name: str | Path) -> ServingSoftware:
    """The software of that name, if it ships with Halley, else that of the file.

    >>> load_software("ideal").step
    0.0

    Raises BadInput: neither a shipped name nor a file that can be read; every fault of the file.
    """
    text, name, _ = found(SERVING_SOFTWARE, path_or_name)
    document = read_yaml(text, name)
    file, findings = check(ServingSoftwareFile, document.data)
    if file is None:
        raise BadInput(document.faults(findings))
    stated = {key: getattr(file, key) for key in (*TIMES, "reserve")}
    values: dict[str, Any] = {key: each.value if each else 0.0 for key, each in stated.items()}
    return ServingSoftware(**values, **{key: getattr(file, key) for key in PLAIN})
