"""Serving: DFModel's figures 20 and 21, CloudMatrix384 from its data sheet, caches by context, latents and experts by context and
batch, when speculation stops paying, and how many chips prompts and decoding need."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from benchmarks.measure import machine

from halley.io.chips.fits import load_chip_fit
from halley.io.software import load_software
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.system import System
from halley.report.markup import svg_file
from halley.serving.bounds import step_bytes
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.speculation import Acceptance, Round, speculation_round, verification_time
from halley.serving.steady import Lengths
from halley.serving.step import StepBatch, StepModel
from halley.serving.tables import Array
from studies.store import DOCS, behind, load_tables, replace_text, save_tables

NAME, TITLE = "serving", "Serving: layouts, speculation, caches, and a machine of 384 chips"
SCHEMA = "halley.study.serving/1"
HERE = Path(__file__).parent

PROMPT, CONTEXT = 2048, 1024
"""Tokens of a prompt, and context of a decoding sequence, where the paper states none."""
ACCEPTANCES, WINDOWS = (0.5, 0.65, 0.8, 0.95), tuple(range(1, 9))
DRAFTS = {"llama-68m": ("68M", 4), "llama3-8b": ("8B", 16), "llama3-70b": ("70B", 16)}
"""Draft models: what the figure calls them, and tensor parallelism (68M has 12 heads)."""
SCHEMES = {"sequence": 1, "tree": 2}
"""Candidates after each token."""
LIMIT = 0.05
"""Most time for an output token [s]."""
CONTEXTS = tuple(1024 * 2**power for power in range(8))
SERVED: Mapping[str, tuple[str, ReplicaLayout]] = {
    "GPT3-175B, a cache for every head": ("gpt3-175b", ReplicaLayout(8)),
    "Llama-3-70B, 8 heads of keys": ("llama3-70b", ReplicaLayout(8)),
    "Mixtral 8x7B, 8 heads of keys, experts": ("mixtral-8x7b", ReplicaLayout(8)),
    "DeepSeek-V3, latents, experts": ("deepseek-v3", ReplicaLayout(1, ep=8, dp=8)),
}
"""Models in fp8 on eight H200, and how each is laid out."""
DENSE = tuple(ReplicaLayout(tp) for tp in (2, 4, 8, 16))
SPARSE = (ReplicaLayout(8, ep=8), ReplicaLayout(16, ep=16), ReplicaLayout(1, ep=8, dp=8), ReplicaLayout(1, ep=16, dp=16))
COMPARED: Mapping[str, tuple[str, tuple[ReplicaLayout, ...]]] = {
    "Llama-3-70B": ("llama3-70b", DENSE),
    "Mixtral 8x7B": ("mixtral-8x7b", (*DENSE, *SPARSE[::2])),
    "DeepSeek-V3": ("deepseek-v3", (*DENSE, *SPARSE)),
}
"""Models whose caches and experts are compared by context and batch, and the layouts of which the fastest is taken."""
NOT_SERVED: Mapping[str, Any] = {"layout": "", "rate": 0.0, "attention": 0.0, "weights": 0.0}
"""Where the caches of so many sequences do not fit."""
BATCHES = tuple(2**power for power in range(10))
"""Sequences that decode on all chips."""
USERS = tuple(2**power for power in range(9))
FIXED, LONGEST_WINDOW = 5, 8
"""Tokens that a server proposes where the number is fixed."""
PAIRS = (("llama2-7b", "llama-68m", "1 x a100", 1, 1), ("llama3-70b", "llama3-8b", "8 x h100, nvlink 8", 8, 8))
"""Target, draft, system, tensor parallelism of each."""
LENGTHS = ((4096, 128), (2048, 512), (1024, 1024), (512, 2048))
"""Tokens of prompt and answer."""
CLOUD = HERE / "systems" / "cloudmatrix.yaml"
SOFTWARE = ("ideal", "sglang")
"""Without any host time, and with what was fitted to SGLang on GPUs."""
PUBLISHED = {"prompts": 6688.0, "tpot 50 ms": 1943.0, "tpot 15 ms": 538.0}
"""Tokens per second and chip of CloudMatrix384 (arXiv 2506.12708, abstract)."""

Rows: TypeAlias = list[dict[str, Any]]


def _deployment(model: ServedModel, system: System, layout: ReplicaLayout, software: str, longest: int = 32768) -> Deployment:
    """With kernels that reach the A100's measured shares of the data sheet."""
    return Deployment(model, system, layout, load_software(software), load_chip_fit("a100").efficiency, longest=longest)


def layouts() -> Rows:
    """Figure 20: Llama-3-8B on 16 SN40L, tensor parallelism against pipelines; parts of a step in seconds."""
    system, model = load_system("sn40l-torus"), ServedModel(load_model("llama3-8b"))
    found = []
    for tp in (1, 2, 4, 8, 16):
        made = _deployment(model, system, ReplicaLayout(tp, 16 // tp), "ideal")
        decode, prompt = StepBatch(1, CONTEXT), StepBatch(0, 0, PROMPT, PROMPT)
        first, token = float(made.step.time(prompt)), float(made.step.time(decode))
        found.append(
            {
                "tp": tp,
                "pp": 16 // tp,
                "ttft": first,
                "prompts": made.engines * PROMPT / first,
                "tpot": token,
                "decoding": made.engines / token,
                "prompt_parts": _parts(made.step, prompt),
                "decode_parts": _parts(made.step, decode),
            }
        )
    return found


def _parts(step: StepModel, batch: StepBatch) -> dict[str, float]:
    return {name: float(value) for name, value in step.parts(batch).items()}


def speculation() -> Rows:
    """Figure 21: Llama 405B on 16 SN40L with three drafts; tokens per second of one sequence."""
    system, found = load_system("sn40l-torus"), []
    target = _deployment(ServedModel(load_model("llama3-405b")), system, ReplicaLayout(16), "ideal").step
    for name, (_, tp) in DRAFTS.items():
        draft = _deployment(ServedModel(load_model(name)), system, ReplicaLayout(tp), "ideal").step
        for scheme, width in SCHEMES.items():
            for acceptance in ACCEPTANCES:
                rounds = [speculation_round(target, draft, Acceptance(acceptance), k, 1, CONTEXT, width) for k in WINDOWS]
                rates = [1 / item.tpot for item in rounds]
                gains = [item.speedup for item in rounds]
                found.append({"draft": name, "scheme": scheme, "acceptance": acceptance, "rates": rates, "gains": gains})
    return found


def best_window(target: StepModel, draft: StepModel, acceptance: Acceptance, users: float) -> Round:
    """The window of up to `LONGEST_WINDOW` tokens with the largest speed-up."""
    rounds = [speculation_round(target, draft, acceptance, window, users, CONTEXT) for window in range(1, LONGEST_WINDOW + 1)]
    return max(rounds, key=lambda item: item.speedup)


def batches() -> Rows:
    """Speed-up by speculation, by the number of sequences: with the best window for each, and with one for all."""
    found = []
    for target, draft, words, tp, draft_tp in PAIRS:
        system = load_system(words)
        steps = [
            _deployment(ServedModel(load_model(name)), system, ReplicaLayout(ranks), "vllm").step
            for name, ranks in ((target, tp), (draft, draft_tp))
        ]
        for acceptance in (0.4, 0.6, 0.8):
            chance = Acceptance(acceptance)
            best: list[Round] = [best_window(steps[0], steps[1], chance, users) for users in USERS]
            fixed = [speculation_round(steps[0], steps[1], chance, FIXED, users, CONTEXT) for users in USERS]
            found.append(
                {
                    "target": target,
                    "draft": draft,
                    "system": words,
                    "acceptance": acceptance,
                    "gains": [item.speedup for item in best],
                    "windows": [item.window for item in best],
                    "fixed": [item.speedup for item in fixed],
                }
            )
    return found


def contexts() -> Rows:
    """Decoding on eight H200 within the limit of time for a token, by context."""
    system, found = load_system("8 x h200, nvlink 8"), []
    for title, (name, layout) in SERVED.items():
        made = _deployment(ServedModel(load_model(name), "fp8", "fp8"), system, layout, "vllm", CONTEXTS[-1])
        for context in CONTEXTS:
            users, time = _most(made, context)
            found.append(
                {
                    "model": title,
                    "context": context,
                    "cache": made.model.cache_bytes_per_token * context,
                    "fits": made.memory.users(context) * made.layout.dp,
                    "users": users * made.layout.dp,
                    "rate": users * made.layout.dp / time / made.chips,
                }
            )
    return found


def attention() -> Rows:
    """Decoding on sixteen H200 by context and number of sequences, with the fastest layout of each: tokens per second and chip,
    the share of attention in a step, and the bytes that a token reads of weights and of the cache. Rate 0: the caches do not
    fit."""
    system, found = load_system("16 x h200, nvlink 8, ib"), []
    for title, (name, plans) in COMPARED.items():
        model = ServedModel(load_model(name), "fp8", "fp8")
        every = [_deployment(model, system, layout, "vllm", CONTEXTS[-1]) for layout in plans]
        for context in CONTEXTS:
            for users in BATCHES:
                options = [item for made in every if (item := _decoded(made, context, users)) is not None]
                best = max(options, key=lambda item: float(item["rate"]), default=NOT_SERVED)
                cache = model.cache_bytes_per_token * context
                found.append({"model": title, "context": context, "users": users, "cache": cache, **best})
    return found


def _decoded(made: Deployment, context: int, users: int) -> dict[str, Any] | None:
    """So many sequences on equal engines: layout, tokens per second and chip, share of attention in a step, bytes of weights that
    a replica reads for a token. None where they do not fit or leave engines idle."""
    each = users // made.engines
    if not 1 <= each <= min(made.memory.users(context), made.software.users):
        return None
    parts, own = _parts(made.step, StepBatch(each, context)), users / made.replicas
    time = sum(parts.values())
    weights = step_bytes(made, Lengths(context - 1, 1), own).of(own) / own - made.model.cache_bytes_per_token * context
    rate = users / time / made.chips
    return {"layout": made.layout.text, "rate": rate, "attention": parts["attention"] / time, "weights": weights}


def _most(made: Deployment, context: int) -> tuple[int, float]:
    """Sequences of an engine that decode fastest together within `LIMIT`, and the time of their step [s]; 0 where none do."""
    users = np.arange(1, min(made.memory.users(context), made.software.users) + 1, dtype=np.float64)
    return _fastest(users, made.step.time(StepBatch(users, context)), LIMIT)


def _fastest(users: Array, times: Array, limit: float) -> tuple[int, float]:
    """The number of sequences that gets most tokens per second within a time [s] of each, and that time; (0, infinite) where
    none keeps to it."""
    able = np.flatnonzero(times <= limit)
    if not able.size:
        return 0, math.inf
    place = int(able[np.argmax(users[able] / times[able])])
    return int(users[place]), float(times[place])


def ratios() -> Rows:
    """Chips for prompts per chip for decoding that keep each other busy, of Llama-3-70B on groups of eight H100."""
    found = []
    system = load_system("8 x h100, nvlink 8")
    made = _deployment(ServedModel(load_model("llama3-70b"), "fp8", "fp8"), system, ReplicaLayout(8), "vllm")
    for prompt, answer in LENGTHS:
        budget = made.software.budget
        count = budget / prompt
        first = float(made.step.time(StepBatch(0, 0, budget, prompt, prompts=count))) / count
        users, time = _most(made, prompt + answer // 2)
        found.append({"prompt": prompt, "answer": answer, "prompt_time": first, "answer_time": answer * time / users})
    return found


def cloud() -> Rows:
    """DeepSeek-V3 in int8 on CloudMatrix384: tokens per second of a chip (two dies) by batch of a die, with one token proposed by
    the model's own head and accepted seven times in ten."""
    system, model, found = load_system(str(CLOUD)), ServedModel(load_model("deepseek-v3"), "int8"), []
    chance = 0.7
    for software in SOFTWARE:
        made = _deployment(model, system, ReplicaLayout(1, ep=256, dp=256), software)
        users = np.arange(1, 129, dtype=np.float64)
        tokens = verification_time(made.step, users, 4096, 1) / (1 + chance)
        for title, limit in (("tpot 50 ms", 0.05), ("tpot 15 ms", 0.015)):
            batch, token = _fastest(users, tokens, limit)
            found.append({"software": software, "what": title, "batch": 2 * batch, "rate": 2 * batch / token})
        stated = float(verification_time(made.step, 48, 4096, 1)) / (1 + chance)
        found.append({"software": software, "what": "batch of 96", "batch": 96, "rate": 96 / stated})
        apart = _deployment(model, system, ReplicaLayout(1, ep=32, dp=32), software)
        time = float(apart.step.time(StepBatch(0, 0, 8192, 4096, prompts=2)))
        found.append({"software": software, "what": "prompts", "batch": 16384, "rate": 2 * 8192 / time})
    return found


PARTS: Mapping[str, Callable[[], Rows]] = {
    "layouts": layouts,
    "speculation": speculation,
    "batches": batches,
    "contexts": contexts,
    "attention": attention,
    "ratios": ratios,
    "cloud": cloud,
}


def source() -> str:
    """A fingerprint of the code and files behind every figure."""
    return behind(Path(__file__), CLOUD, HERE / "chips" / "ascend-910c-die.yaml")


def run(again: bool, say: Callable[[str], None]) -> None:
    """Compute what is not known for the present source; then write figures and page."""
    mark = source()
    known = load()
    if again or known.get("source") != mark:
        known = {"schema": SCHEMA, "source": mark, "machine": machine()}
    for name, make in PARTS.items():
        if name not in known:
            known[name] = make()
            save_tables(NAME, known)
            say(f"{NAME}: {name}, {len(known[name])} rows")
    write()


def load() -> dict[str, Any]:
    """What is kept; empty where the study was never run."""
    return load_tables(NAME, SCHEMA)


def write() -> None:
    """Figures and page from what is kept."""
    from studies import serving_page as page  # it reads this module's rows

    known = load()
    for name, figure in page.figures(known).items():
        replace_text(DOCS / f"{name}.svg", svg_file(figure))
    replace_text(DOCS / f"{NAME}.md", page.page(known))
