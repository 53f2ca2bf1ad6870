"""The problem of a deployment from what a user names: a model, a system, requests and limits."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from halley.errors import BadInput, Fault, did_you_mean
from halley.importers.files import is_model
from halley.importers.source import description, find_model
from halley.io.acceptance import load_acceptance
from halley.io.chips.fits import DEFAULT_FIT, load_chip_fit
from halley.io.chips.kernel_fits import serving_fits
from halley.io.networks.fits import load_libraries
from halley.io.software import load_software
from halley.io.systems.system import load_system
from halley.ir.system import System
from halley.library import MODELS
from halley.serving.deployment import Deployment
from halley.serving.layout import ReplicaLayout
from halley.serving.model import ServedModel
from halley.serving.plans.problem import Drafts, Limits, ServingObjective, ServingProblem
from halley.serving.software import ServingSoftware
from halley.serving.speculation import Acceptance, Speculation, check_target, proposing_head
from halley.serving.steady import Lengths
from halley.units import SECONDS, parse

SOFTWARE = "vllm"
"""The software of deployments that name none."""

STATE = "bf16"
"""Dtype of the states of recurrent layers if none is named: that of activations, as in vLLM (mamba_ssm_cache_dtype auto)."""

TOKENS_LIMIT = 10_000_000
"""Most tokens of a prompt or an answer."""

HEAD = "head"
"""Name of a draft that is one layer of the model itself."""

_LIMIT = re.compile(r"\s*(ttft|tpot)\s+(\S.*?)\s*")


def serving_problem(
    model: str | Path,
    system: System | str | Path,
    lengths: Lengths,
    slo: str | None = None,
    weights: str = "bf16",
    cache: str = "bf16",
    software: str | None = None,
    efficiency: str | None = None,
    rate: float | None = None,
    front: bool = False,
    together: bool = False,
    draft: str | None = None,
    acceptance: str | None = None,
    state: str = STATE,
) -> ServingProblem:
    """The problem of `halley.plan_serving`, whose arguments these are.

    Raises BadInput: an unknown name, limits of another form, a rate that is none, or a draft without its acceptance.
    """
    if rate is not None and not 0 < rate < math.inf:
        raise BadInput(Fault("rate", "a number of requests per second above 0", f"{rate:g}"))
    found, asked = (
        system if isinstance(system, System) else load_system(system),
        served_model(str(model), cache=cache, state=state),
    )
    models = tuple(replace(asked, weights=precision.strip()) for precision in weights.split(","))
    return ServingProblem(
        models,
        found,
        load_software(software or SOFTWARE),
        load_chip_fit(efficiency or DEFAULT_FIT).efficiency,
        lengths,
        limits_of(slo),
        load_libraries(found),
        ServingObjective.THROUGHPUT if rate is None else ServingObjective.CHIPS,
        rate or 0.0,
        not together,
        front,
        fits=serving_fits(found.chip.name),
        drafts=drafts_of(models, draft, acceptance),
    )


def drafts_of(models: Sequence[ServedModel], draft: str | None, acceptance: str | None) -> Drafts | None:
    """Drafts of a name for each of the models; None where none is asked for. Raises BadInput: one without the other, an unknown
    name, no chances, or a model without attention.

    >>> found = drafts_of([served_model("llama3-8b")], "head", "0.7,0.95")
    >>> found.models[0].shape.layers, found.acceptance
    (1, Acceptance(first=0.7, decay=0.95))
    """
    if draft is None and acceptance is None:
        return None
    if draft is None or acceptance is None:
        raise BadInput(
            Fault("speculation", "--draft and --acceptance", "one of them alone", "write for example '--acceptance 0.7,0.95'")
        )
    for model in models:
        check_target(model)
    if draft != HEAD and not is_model(draft):
        names = [HEAD, *MODELS.names()]
        expected = f"{HEAD} (one layer of the model itself), the name of a shipped model, or {MODELS.other}"
        raise BadInput(Fault("--draft", expected, repr(draft), did_you_mean(draft, names)))
    made = (
        proposing_head(model) if draft == HEAD else served_model(draft, model.weights, model.cache, model.state)
        for model in models
    )
    return Drafts(tuple(made), acceptance_of(acceptance))


def acceptance_of(text: str) -> Acceptance:
    """One or two numbers, or the name of a measured curve. Raises BadInput: neither.

    >>> acceptance_of("0.7").decay
    1.0
    """
    if "/" in text:
        return load_acceptance(text)
    expected = "one or two numbers, or the name of a measured curve"
    try:
        parts = [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(Fault("--acceptance", expected, repr(text))) from None
    if len(parts) > 2:
        raise BadInput(Fault("--acceptance", expected, repr(text)))
    return Acceptance(*parts)


def deployment(
    model: ServedModel,
    system: System,
    layout: ReplicaLayout,
    software: ServingSoftware,
    efficiency: str | None = None,
) -> Deployment:
    """A deployment with the measured kernels and libraries of its chip and its links. ``efficiency``: fit of a chip's kernels, by
    default that with which the software of serving was fitted.

    Raises BadInput: a layout that model or system do not have, or no such fit; Infeasible: a model that does not fit.
    """
    fitted = load_chip_fit(efficiency or DEFAULT_FIT).efficiency
    return Deployment(model, system, layout, software, fitted, load_libraries(system), fits=serving_fits(system.chip.name))


def with_speculation(made: Deployment, draft: str | None, acceptance: str | None, window: int | None) -> Deployment:
    """The deployment with a draft that proposes ``window`` tokens in a round; without a draft as it is. Raises BadInput: one of
    the three without the others, an unknown name, or no chances.

    >>> from halley.serving.software import IDEAL
    >>> system = load_system("1 x h100")
    >>> made = deployment(served_model("llama3-8b"), system, layout_on(system), IDEAL)
    >>> with_speculation(made, "head", "0.5", 2).tokens_of_step
    1.75
    """
    drafts = drafts_of((made.model,), draft, acceptance)
    if drafts is None and window is None:
        return made
    if drafts is None:
        raise BadInput(Fault("--window", "--draft and --acceptance beside it", "neither", "name a draft, or leave it out"))
    if window is None:
        raise BadInput(Fault("--draft", "--window beside it", "none", "write for example '--window 3'"))
    return replace(made, speculation=Speculation(drafts.models[0], drafts.acceptance, window))


def layout_on(system: System, tp: int | None = None, pp: int = 1, ep: int = 1, dp: int = 1) -> ReplicaLayout:
    """The layout of a replica: unless ``tp`` is given, all chips are one replica.

    >>> layout_on(load_system("8 x h100, nvlink 8"), pp=2).tp
    4
    """
    return ReplicaLayout(max(system.chips // (pp * dp), 1) if tp is None else tp, pp=pp, ep=ep, dp=dp)


def served_model(name: str, weights: str = "bf16", cache: str = "bf16", state: str = STATE) -> ServedModel:
    """The model of a name, a file or a configuration, with the sliding windows of its layers, and with its recurrent layers,
    whose states have the dtype ``state``. Raises BadInput: neither a transformer nor a hybrid, or unknown dtypes.

    >>> served_model("llama3-8b", "fp8").weight_bytes < 10e9
    True
    >>> served_model("nemotron-h-8b", state="fp32").attention_layers
    4
    """
    model = description(find_model(name))
    return ServedModel(model.shape, weights, cache, model.keys, model.windowed, model.hybrid or model.shape.recurrent, state)


def lengths_of(prompt: int, answer: int, cached: int = 0, where: str = "prefix") -> Lengths:
    """Mean lengths of requests in tokens. Raises BadInput: more cached than the prompt has.

    >>> lengths_of(1024, 256).output
    256
    """
    for name, number, least in (("input", prompt, 1), ("output", answer, 1), ("prefix", cached, 0)):
        if not least <= number <= TOKENS_LIMIT:
            raise BadInput(Fault(name, f"a number of tokens from {least} to {TOKENS_LIMIT:,}", f"{number:,}"))
    if cached >= prompt:
        raise BadInput(Fault(where, f"fewer than the {prompt} tokens of a prompt", str(cached)))
    return Lengths(prompt, answer, cached)


def limits_of(text: str | None, where: str = "--slo") -> Limits:
    """The limits of ``ttft 1 s, tpot 30 ms``. Raises BadInput: another form.

    >>> limits_of("ttft 1 s, tpot 30 ms").tpot
    0.03
    """
    if text is None:
        return Limits()
    given: dict[str, float] = {}
    for part in text.split(","):
        found = _LIMIT.fullmatch(part)
        if found is None or found[1] in given:
            first = next(iter(part.split()), "")
            remedy = did_you_mean(first, ("ttft", "tpot")) if first.isalpha() and first not in ("ttft", "tpot") else ""
            raise BadInput(Fault(where, "limits such as 'ttft 1 s, tpot 30 ms'", repr(text), remedy))
        given[found[1]] = parse(found[2], SECONDS, where=f"{where}, {found[1]}")
    return Limits(given.get("ttft", math.inf), given.get("tpot", math.inf))
