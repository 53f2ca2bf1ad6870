"""Configuration of DeepSpeed, as JSON."""

from __future__ import annotations

import json

from halley.launch.decisions import LaunchDecisions
from halley.launch.settings import Emitted, Setting
from halley.pipeline.data_parallel import Sharded
from halley.rewrite.recompute import Recompute

VERSION = "DeepSpeed edaa72212672"


def deepspeed(plan: LaunchDecisions) -> Emitted:
    """The file of ``--deepspeed_config``."""
    remarks: list[str] = []
    zero = plan.zero
    if plan.gathered and zero is not Sharded.PARAMETERS:
        remarks.append(f"it shards parameters over all {plan.data} data-parallel ranks; the plan does over {plan.inner} of them")
        zero = Sharded.PARAMETERS
    made: dict[str, Setting] = {
        "train_batch_size": plan.batch,
        "train_micro_batch_size_per_gpu": plan.microbatch,
        "gradient_accumulation_steps": plan.microbatches,
        "zero_optimization.stage": int(zero),
    }
    if plan.offload:
        made["zero_optimization.offload_optimizer.device"] = "cpu"
    if plan.tensor > 1:
        made["tensor_parallel.autotp_size"] = plan.tensor
        if plan.sequence_parallel:
            remarks.append("its tensor-parallel ranks do not split the tokens between the matrices")
    if plan.context > 1:
        made["sequence_parallel_size"] = plan.context
        made["data_parallel_size"] = plan.data
        remarks.append("it splits sequences with all-to-all over the heads (Ulysses)")
    if plan.pipeline > 1:
        remarks.append(f"pipeline stages are in code: PipelineModule(..., num_stages={plan.pipeline})")
        if zero > Sharded.OPTIMIZER:
            remarks.append(f"its pipelines do not run with ZeRO {int(zero)}")
        if plan.chunks > 1:
            remarks.append("it has no interleaved schedule: it runs 1F1B with one chunk per stage")
    if plan.experts and plan.expert > 1:
        remarks.append(f"expert parallelism is in code: MoE(..., ep_size={plan.expert})")
    if plan.recompute is not Recompute.NONE:
        made["activation_checkpointing.number_checkpoints"] = sum(plan.layers)
        full = plan.recompute is Recompute.FULL
        remarks.append(
            "what is recomputed is in the model's code" + ("" if full else ", which has to checkpoint attention alone")
        )
    return Emitted("deepspeed", VERSION, made, json.dumps(_nested(made), indent=2), (*plan.remarks, *remarks))


def _nested(flat: dict[str, Setting]) -> dict[str, object]:
    """
    >>> _nested({"a.b": 1, "a.c": 2, "d": 3})
    {'a': {'b': 1, 'c': 2}, 'd': 3}
    """
    made: dict[str, object] = {}
    for name, value in flat.items():
        *path, last = name.split(".")
        place = made
        for part in path:
            inner = place.setdefault(part, {})
            assert isinstance(inner, dict), name
            place = inner
        place[last] = value
    return made
