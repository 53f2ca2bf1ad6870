"""Deployments as launch flags of serving engines, and flags read again.

Names of settings: vLLM, SGLang and TensorRT-LLM at the versions below; those of a cache's dtype and of memory are the engines'
long-standing ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from halley.errors import BadInput, Fault, did_you_mean
from halley.launch.settings import TEXT_LIMIT, Emitted, Setting, flag_text, read_flags
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.plans.search import ServingPlan
from halley.serving.served import Served
from halley.serving.speculation import Speculation
from halley.serving.steady import Lengths
from halley.units import counted

VLLM = "vLLM 00193b82b0e2"
SGLANG = "SGLang 001067fffe33"
TENSORRT = "TensorRT-LLM 00209af149e7"

PROMPTS, DECODING = "for prompts", "for decoding"


@dataclass(frozen=True, slots=True)
class ServerDecisions:
    """One kind of server of a deployment. ``servers``: how many; ``role``: which pool it is, empty for both; ``users``: sequences
    of a step of one attention rank at most; ``budget``: tokens of a step at most; ``longest``: tokens of a request; ``share`` [1]
    of the memory; ``page``: tokens of a page."""

    model: ServedModel
    layout: ReplicaLayout
    servers: int
    role: str
    users: int
    budget: int
    longest: int
    share: float
    page: int
    speculation: Speculation | None = None

    @property
    def experts(self) -> bool:
        """Whether the model has experts."""
        return self.model.shape.experts is not None


def server_decisions(value: Served | ServingPlan) -> tuple[ServerDecisions, ...]:
    """What flags say of a deployment, or of the best one of a plan: a kind of server for each pool."""
    if isinstance(value, Served):
        asked = value.load.concurrency
        users = value.deployment.software.users if asked is None else math.ceil(asked / value.deployment.engines)
        return (_server(value.deployment, value.load.lengths, users),)
    best, lengths = value.served.deployment, value.problem.lengths
    if value.pools is None:
        return (_server(best, lengths, math.ceil(value.best.users)),)
    pools, software = value.pools, value.problem.software
    longest = math.ceil(lengths.input + lengths.output)
    common = longest, software.share, software.page, pools.speculation
    prompts = pools.prompt_replicas, PROMPTS, software.users, pools.prompt_budget
    decoding = pools.decode_replicas, DECODING, math.ceil(pools.users), max(value.problem.budgets)
    return (
        ServerDecisions(pools.model, pools.prompts, *prompts, *common),
        ServerDecisions(pools.model, pools.decoding, *decoding, *common),
    )


def _server(own: Deployment, lengths: Lengths, users: int) -> ServerDecisions:
    software, longest = own.software, math.ceil(lengths.input + lengths.output)
    common = software.budget, longest, software.share, software.page, own.speculation
    return ServerDecisions(own.model, own.layout, own.replicas, "", users, *common)


def vllm(server: ServerDecisions) -> Emitted:
    """Flags of ``vllm serve``."""
    layout, remarks = server.layout, list(_remarks(server))
    made: dict[str, Setting] = {"--tensor-parallel-size": layout.tp}
    if layout.pp > 1:
        made["--pipeline-parallel-size"] = layout.pp
    if layout.dp > 1:
        made["--data-parallel-size"] = layout.dp
    if server.experts and layout.ep > 1:
        made["--enable-expert-parallel"] = True
        if layout.ep != layout.stage:
            remarks.append(f"it distributes the experts over all {layout.stage} ranks of a stage, not over {layout.ep} groups")
    made |= {"--max-num-seqs": server.users, "--max-num-batched-tokens": server.budget, "--enable-chunked-prefill": True}
    made |= {"--max-model-len": server.longest, "--gpu-memory-utilization": server.share, "--block-size": server.page}
    made |= _dtypes(server, "--quantization", "--kv-cache-dtype", "fp8")
    if server.model.hybrid is not None:
        made[STATE_FLAG] = STATE_WORDS[server.model.state]
        remarks.append("it makes pages of attention as large as a state, whatever --block-size says")
    return _emitted("vllm", VLLM, f"vllm serve {server.model.shape.name}", made, remarks)


def sglang(server: ServerDecisions) -> Emitted:
    """Flags of ``sglang.launch_server``: its tensor-parallel ranks are those of all attention ranks together."""
    layout, remarks = server.layout, list(_remarks(server))
    made: dict[str, Setting] = {"--tp-size": layout.stage}
    if layout.pp > 1:
        made["--pp-size"] = layout.pp
    if layout.dp > 1:
        made |= {"--dp-size": layout.dp, "--enable-dp-attention": True}
    if server.experts and layout.ep > 1:
        made["--ep-size"] = layout.ep
    made |= {"--max-running-requests": server.users * layout.dp, "--chunked-prefill-size": server.budget}
    made |= {"--context-length": server.longest, "--mem-fraction-static": server.share, "--page-size": server.page}
    made |= _dtypes(server, "--quantization", "--kv-cache-dtype", "fp8_e4m3")
    command = f"python -m sglang.launch_server --model-path {server.model.shape.name}"
    return _emitted("sglang", SGLANG, command, made, remarks)


def trtllm(server: ServerDecisions) -> Emitted:
    """Flags of ``trtllm-serve``."""
    layout, remarks = server.layout, list(_remarks(server))
    made: dict[str, Setting] = {"--tp_size": layout.stage}
    if layout.pp > 1:
        made["--pp_size"] = layout.pp
    if server.experts and layout.ep > 1:
        made["--ep_size"] = layout.ep
    if layout.dp > 1:
        remarks.append("write 'enable_attention_dp: true' into the YAML file of --config")
        if layout.tp > 1:
            remarks.append(f"its attention ranks are all {layout.stage} ranks then, not {layout.dp} groups of {layout.tp}")
    made |= {"--max_batch_size": server.users, "--max_num_tokens": server.budget, "--max_seq_len": server.longest}
    made |= {"--enable_chunked_prefill": True, "--free_gpu_memory_fraction": server.share}
    if server.model.weights not in ("bf16", "fp16"):
        remarks.append(f"serve a checkpoint that is quantised to {server.model.weights}")
    if server.model.cache not in ("bf16", "fp16"):
        remarks.append(f"write 'kv_cache_config: {{dtype: {server.model.cache}}}' into the YAML file of --config")
    return _emitted("trtllm", TENSORRT, f"trtllm-serve {server.model.shape.name}", made, remarks)


STATE_FLAG = "--mamba-ssm-cache-dtype"
"""Flag of vLLM for the dtype of states."""
STATE_WORDS = {"bf16": "auto", "fp16": "float16", "fp32": "float32"}
"""The states' dtypes in vLLM's words; auto is that of the model."""

SERVING_ENGINES: dict[str, Callable[[ServerDecisions], Emitted]] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
"""By name, what makes the flags of a serving engine."""


def known_engine(name: str, where: str = "--emit") -> str:
    """The name itself. Raises BadInput: no such serving engine."""
    if name not in SERVING_ENGINES:
        raise BadInput(Fault(where, f"one of {', '.join(SERVING_ENGINES)}", repr(name), did_you_mean(name, SERVING_ENGINES)))
    return name


def emit_serving(value: Served | ServingPlan, engine: str) -> tuple[Emitted, ...]:
    """Flags for each kind of server of a deployment, or of the best one of a plan. Raises BadInput: no such engine."""
    return tuple(SERVING_ENGINES[known_engine(engine)](server) for server in server_decisions(value))


def _remarks(server: ServerDecisions) -> list[str]:
    kind = f"{server.role}: " if server.role else ""
    remarks = [f"{kind}{counted(server.servers, 'such server')} of {server.layout.chips} chips each"]
    if server.role:
        remarks.append("the two kinds of server also need the engine's connector that transfers the cache between them")
    if server.speculation is not None:
        own = server.speculation
        remarks.append(
            f"add its settings of speculative decoding: {own.window} proposed tokens a round by {own.draft.shape.name}"
        )
    if server.model.hybrid is not None:
        remarks.append(f"the states of its recurrent layers are in {server.model.state} here: compare the engine's own setting")
    if server.model.weights not in ("bf16", "fp16", "fp8"):
        remarks.append(f"serve a checkpoint that is quantised to {server.model.weights}")
    return remarks


def _dtypes(server: ServerDecisions, weights: str, cache: str, eight: str) -> dict[str, Setting]:
    made: dict[str, Setting] = {}
    if server.model.weights == "fp8":
        made[weights] = "fp8"
    if server.model.cache == "fp8":
        made[cache] = eight
    return made


def _emitted(engine: str, version: str, command: str, made: dict[str, Setting], remarks: list[str]) -> Emitted:
    text = f"{command} \\\n{flag_text(made)}"
    return Emitted(engine, version, made, text, tuple(dict.fromkeys(remarks)))


@dataclass(frozen=True, slots=True)
class ServingFlags:
    """What flags of a serving engine decide; ``users`` of one attention rank and ``budget`` are None where they say nothing."""

    engine: str
    layout: ReplicaLayout
    users: int | None
    budget: int | None
    weights: str | None
    cache: str | None
    state: str | None = None


NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "tp": ("--tensor-parallel-size", "-tp"),
        "pp": ("--pipeline-parallel-size", "-pp"),
        "dp": ("--data-parallel-size", "-dp"),
        "users": ("--max-num-seqs",),
        "budget": ("--max-num-batched-tokens",),
    },
    "sglang": {
        "tp": ("--tp-size", "--tensor-parallel-size", "--tp"),
        "pp": ("--pp-size", "--pipeline-parallel-size"),
        "dp": ("--dp-size", "--data-parallel-size", "--dp"),
        "ep": ("--ep-size", "--expert-parallel-size"),
        "users": ("--max-running-requests",),
        "budget": ("--chunked-prefill-size",),
    },
    "trtllm": {
        "tp": ("--tp_size", "--tensor_parallel_size"),
        "pp": ("--pp_size", "--pipeline_parallel_size"),
        "ep": ("--ep_size", "--moe_expert_parallel_size"),
        "users": ("--max_batch_size",),
        "budget": ("--max_num_tokens",),
    },
}
"""The names that each engine has for a setting."""

QUANTISATIONS = {
    **dict.fromkeys(("fp8", "modelopt", "w8a8_fp8"), "fp8"),
    **dict.fromkeys(("awq", "awq_marlin", "gptq", "gptq_marlin", "moe_wna16"), "int4"),
    "w8a8_int8": "int8",
    "mxfp4": "mxfp4",
    **dict.fromkeys(("modelopt_fp4", "nvfp4"), "nvfp4"),
}
"""What vLLM and SGLang call formats of weights; those of AWQ and GPTQ are taken to have 4 bits, as nearly all checkpoints."""

COMMANDS = {"vllm": "vllm serve", "sglang": "sglang", "trtllm": "trtllm-serve"}
"""What the command of each engine contains."""


def read_serving_flags(text: str, where: str = "flags") -> ServingFlags:
    """The layout and the limits that a launch command sets.

    >>> found = read_serving_flags("vllm serve llama3-70b --tensor-parallel-size 4 --max-num-seqs 256")
    >>> found.engine, found.layout.text, found.users
    ('vllm', 'TP 4', 256)

    Raises BadInput: the command of none of the engines; values that are no numbers from 1; degrees that do not divide each other.
    """
    if len(text) > TEXT_LIMIT:
        raise BadInput(Fault(where, f"at most {TEXT_LIMIT} characters", str(len(text))))
    engine = next((name for name, mark in COMMANDS.items() if mark in text), "")
    if not engine:
        raise BadInput(Fault(where, f"a command with one of {', '.join(COMMANDS.values())}", "none of them"))
    first = re.search(r"\s-{1,2}[A-Za-z]", text)
    given = read_flags(text[first.start() :] if first else "", where)
    faults: list[Fault] = []

    def number(setting: str, default: int | None) -> int | None:
        for name in NAMES[engine].get(setting, ()):
            if name in given:
                if given[name].isascii() and given[name].isdigit() and 1 <= int(given[name][:9]) < 10**8:
                    return int(given[name][:9])
                faults.append(Fault(f"{where}, {name}", "a whole number from 1", repr(given[name][:40])))
        return default

    tp, pp, dp, ep = (number(name, 1) or 1 for name in ("tp", "pp", "dp", "ep"))
    users, budget = number("users", None), number("budget", None)
    if engine == "trtllm" and "enable_attention_dp: true" in text:
        dp = tp
    if engine != "vllm":  # tensor-parallel ranks are those of all attention ranks together
        if tp % dp:
            faults.append(Fault(f"{where}, attention ranks", f"a divisor of the {tp} tensor-parallel ranks", str(dp)))
        else:
            tp //= dp
        users = users if users is None or engine == "trtllm" else max(users // dp, 1)
    elif given.get("--enable-expert-parallel") == "true":
        ep = tp * dp
    quantised = given.get("--quantization", given.get("-q"))
    weights = QUANTISATIONS.get(quantised) if quantised is not None else None
    if quantised is not None and weights is None:
        remedy = f"leave it out and give --weights, or {did_you_mean(quantised[:40], QUANTISATIONS)}"
        faults.append(Fault(f"{where}, --quantization", "a known format of weights", repr(quantised[:40]), remedy))
    if faults:
        raise BadInput(faults)
    cache = "fp8" if given.get("--kv-cache-dtype", "").startswith("fp8") else None
    said = given.get(STATE_FLAG)
    state = next((name for name, word in STATE_WORDS.items() if word == said), None)
    return ServingFlags(engine, ReplicaLayout(tp, pp, ep, dp), users, budget, weights, cache, state)
