"""Launch flags read again: the degrees that they set."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from halley.errors import BadInput, Fault
from halley.launch.megatron import STRATEGIES
from halley.launch.settings import TEXT_LIMIT, read_flags
from halley.pipeline.data_parallel import Sharded
from halley.rewrite.recompute import Recompute
from halley.training.plan import Fixed

NUMBER_LIMIT = 10**9
"""Largest number of a flag."""


@dataclass(frozen=True, slots=True)
class FlagDegrees:
    """Degrees [ranks] that flags set. ``data``: as they say, or what the other degrees leave of the chips. ``batch`` and
    ``microbatch`` [sequences]. ``zero`` is None where parameters are sharded over a part of the data-parallel ranks. None: the
    flags do not say."""

    framework: str
    data: int
    pipeline: int
    tensor: int
    context: int
    expert: int
    chunks: int
    batch: int | None
    microbatch: int | None
    zero: Sharded | None
    recompute: Recompute | None
    offload: bool
    layers: tuple[int, ...] = ()

    def fixed(self) -> Fixed:
        """The decisions of a plan that the flags fix. Ranks of experts are among those of data, tensor or context parallelism in
        each framework in another way: with them, only the stages are fixed of the degrees."""
        whole = self.expert == 1
        return Fixed(
            data=self.data if whole else None,
            stages=self.pipeline,
            model=self.tensor * self.context if whole else None,
            microbatch=self.microbatch if whole else None,
            chunks=self.chunks,
            recompute=self.recompute,
            sharded=self.zero,
            offload=self.offload,
        )


class _Settings:
    """Settings with their values as numbers and words; what is wrong is collected."""

    def __init__(self, given: Mapping[str, object], where: str) -> None:
        self.given, self.where = given, where
        self.faults: list[Fault] = []

    def whole(self, name: str, default: int | None = 1) -> int | None:
        value = self.given.get(name)
        if value is None:
            return default
        text = str(value)
        if isinstance(value, bool) or not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= NUMBER_LIMIT:
            self.faults.append(Fault(f"{self.where}: {name}", "a whole number from 1", repr(text[:40])))
            return default
        return int(text)

    def degree(self, *names: str) -> int:
        """The product of degrees; those that are not set are 1."""
        return math.prod(self.whole(name) or 1 for name in names)

    def on(self, name: str) -> bool:
        return str(self.given.get(name, "false")).lower() == "true"

    def word(self, name: str) -> str:
        return str(self.given.get(name, ""))


def read_degrees(text: str, chips: int, where: str = "flags") -> FlagDegrees:
    """The degrees that the text of any of the frameworks sets, on so many chips.

    >>> found = read_degrees("--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4", 64)
    >>> found.framework, found.tensor, found.pipeline, found.data
    ('megatron', 8, 4, 2)

    Raises BadInput: text of none of them; values that are no degrees; degrees that the chips are no multiple of.
    """
    given: Mapping[str, object]
    if len(text) > TEXT_LIMIT:
        raise BadInput(Fault(where, f"at most {TEXT_LIMIT} characters", str(len(text))))
    if text.lstrip().startswith("{"):
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BadInput(Fault(where, "JSON", str(error)[:80] or "nesting too deep")) from None
        given = _flat(data if isinstance(data, dict) else {})
    else:
        given = read_flags(text, where)
    settings = _Settings(given, where)
    framework = next((name for name, mark in MARKS.items() if any(key.startswith(mark) for key in given)), "")
    if not framework:
        raise BadInput(Fault(where, f"settings of {', '.join(MARKS)}", "none that is known"))
    found = READERS[framework](settings, chips)
    if settings.faults:
        raise BadInput(settings.faults)
    product = found.data * found.pipeline * found.tensor * found.context
    if product != chips:
        words = f"data {found.data} x pipeline {found.pipeline} x tensor {found.tensor} x context {found.context}"
        raise BadInput(Fault(where, f"degrees whose product is the number of chips, {chips}", f"{words} = {product}"))
    return found


MARKS = {
    "megatron-bridge": "model.",
    "megatron": "--tensor-model-parallel",
    "torchtitan": "--parallelism.",
    "deepspeed": "train_",
    "maxtext": "ici_",
}
"""What some setting of each framework begins with."""


def _flat(data: Mapping[str, object], before: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in data.items():
        if isinstance(value, dict) and before.count(".") < 4:
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value
    return found


def _megatron(settings: _Settings, chips: int) -> FlagDegrees:
    tensor, pipeline = settings.degree("--tensor-model-parallel-size"), settings.degree("--pipeline-model-parallel-size")
    context = settings.degree("--context-parallel-size")
    strategies = {word: zero for zero, word in STRATEGIES.items()}
    zero: Sharded | None = Sharded.OPTIMIZER if settings.on("--use-distributed-optimizer") else Sharded.NOTHING
    if settings.on("--use-megatron-fsdp"):
        zero = strategies.get(settings.word("--data-parallel-sharding-strategy"), zero)
    if settings.degree("--num-distributed-optimizer-instances") > 1:
        zero = None
    layers = _layers(settings.word("--pipeline-model-parallel-layout"))
    chunks = len(layers) // pipeline if layers else settings.degree("--num-virtual-stages-per-pipeline-rank")
    recomputed = {"full": Recompute.FULL, "selective": Recompute.SELECTIVE}
    return FlagDegrees(
        "megatron",
        max(chips // (tensor * pipeline * context), 1),
        pipeline,
        tensor,
        context,
        settings.degree("--expert-model-parallel-size"),
        chunks,
        settings.whole("--global-batch-size", None),
        settings.whole("--micro-batch-size", None),
        zero,
        recomputed.get(settings.word("--recompute-granularity"), Recompute.NONE),
        settings.on("--optimizer-cpu-offload"),
        layers,
    )


def _layers(words: str) -> tuple[int, ...]:
    """Layers of each chunk.

    >>> _layers("Et*3|t*4|ttL"), _layers("")
    ((3, 4, 2), ())
    """
    if not words:
        return ()
    found = []
    for chunk in words[:10_000].split("|"):
        pieces = re.findall(r"t(?:\*([0-9]{1,6}))?", chunk)
        found.append(sum(int(count) if count else 1 for count in pieces))
    return tuple(found)


def _bridge(settings: _Settings, chips: int) -> FlagDegrees:
    flags = {}
    for key, value in settings.given.items():
        name = key.rpartition(".")[2].replace("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank")
        flags[f"--{name.replace('_', '-')}"] = value
    inner = _Settings(flags, settings.where)
    found = _megatron(inner, chips)
    settings.faults += inner.faults
    return FlagDegrees("megatron-bridge", *(getattr(found, name) for name in found.__slots__ if name != "framework"))


def _torchtitan(settings: _Settings, chips: int) -> FlagDegrees:
    at = "--parallelism."
    tensor, pipeline = settings.degree(f"{at}tensor_parallel_degree"), settings.degree(f"{at}pipeline_parallel_degree")
    context = settings.degree(f"{at}context_parallel_degree")
    replicate = settings.degree(f"{at}data_parallel_replicate_degree")
    rest = max(chips // (tensor * pipeline * context * replicate), 1)
    all_the_rest = settings.word(f"{at}data_parallel_shard_degree") in ("-1", "")
    shard = rest if all_the_rest else settings.degree(f"{at}data_parallel_shard_degree")
    never = settings.word(f"{at}fsdp_reshard_after_forward") == "never"
    zero = Sharded.NOTHING if shard == 1 else Sharded.GRADIENTS if never else Sharded.PARAMETERS
    hybrid = replicate > 1 and shard > 1
    tokens = settings.whole("--training.max_context_length", None) or 1
    batch = settings.whole("--training.num_tokens_per_train_step", None)
    micro = settings.whole("--training.num_tokens_per_microbatch_per_dp_rank", None)
    return FlagDegrees(
        "torchtitan",
        replicate * shard,
        pipeline,
        tensor,
        context,
        settings.degree(f"{at}expert_parallel_degree"),
        1,
        batch // tokens if batch else None,
        micro // tokens if micro else None,
        None if hybrid else zero,
        None,
        offload=False,
    )


def _deepspeed(settings: _Settings, chips: int) -> FlagDegrees:
    tensor, context = settings.degree("tensor_parallel.autotp_size"), settings.degree("sequence_parallel_size")
    batch, micro = settings.whole("train_batch_size", None), settings.whole("train_micro_batch_size_per_gpu", None)
    steps = settings.whole("gradient_accumulation_steps", None)
    data = batch // (micro * steps) if batch and micro and steps else settings.degree("data_parallel_size")
    stage = settings.given.get("zero_optimization.stage", 0)
    if stage not in (0, 1, 2, 3) or isinstance(stage, bool):
        settings.faults.append(Fault(f"{settings.where}: zero_optimization.stage", "0, 1, 2 or 3", repr(stage)[:40]))
        stage = 0
    return FlagDegrees(
        "deepspeed",
        max(data, 1),
        max(chips // (max(data, 1) * tensor * context), 1),  # stages are in code
        tensor,
        context,
        1,
        1,
        batch,
        micro,
        Sharded(int(str(stage))),
        None,
        offload="zero_optimization.offload_optimizer.device" in settings.given,
    )


def _maxtext(settings: _Settings, chips: int) -> FlagDegrees:
    tensor = settings.degree("ici_tensor_parallelism", "ici_tensor_sequence_parallelism")
    pipeline, context = settings.degree("ici_pipeline_parallelism"), settings.degree("ici_context_parallelism")
    data, fsdp = settings.degree("ici_data_parallelism"), settings.degree("ici_fsdp_parallelism")
    expert = settings.degree("ici_expert_parallelism")
    zero = Sharded.OPTIMIZER if settings.on("shard_optimizer_over_data") else Sharded.NOTHING
    batch, micro = _maxtext_batch(settings, chips, data * fsdp * expert, pipeline)
    return FlagDegrees(
        "maxtext",
        data * fsdp * expert,
        pipeline,
        tensor,
        context,
        expert,
        settings.degree("num_pipeline_repeats"),
        batch,
        micro,
        None if fsdp > 1 and data > 1 else Sharded.PARAMETERS if fsdp > 1 else zero,
        None,
        offload=False,
    )


def _maxtext_batch(settings: _Settings, chips: int, data: int, pipeline: int) -> tuple[int | None, int | None]:
    """Sequences of an iteration and of a microbatch."""
    word = settings.word("per_device_batch_size")
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,12})?", word):
        return None, None
    steps = settings.degree("gradient_accumulation_steps")
    batch = round(float(word) * chips * steps)
    parts = settings.degree("num_pipeline_microbatches") if pipeline > 1 else steps
    return batch, max(batch // (data * parts), 1)


READERS: dict[str, Callable[[_Settings, int], FlagDegrees]] = {
    "megatron": _megatron,
    "megatron-bridge": _bridge,
    "torchtitan": _torchtitan,
    "deepspeed": _deepspeed,
    "maxtext": _maxtext,
}
"""By framework, what reads its settings."""
