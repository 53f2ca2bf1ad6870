"""Settings of torchtitan."""

from __future__ import annotations

from halley.launch.decisions import LaunchDecisions
from halley.launch.settings import Emitted, Setting, flag_text
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute

VERSION = "torchtitan b5bcd76c66d0"


def torchtitan(plan: LaunchDecisions) -> Emitted:
    """Settings of a configuration on the command line."""
    made: dict[str, Setting] = {}
    remarks: list[str] = []
    made |= _data(plan, remarks)
    made["--parallelism.tensor_parallel_degree"] = plan.tensor
    if plan.tensor > 1:
        made["--parallelism.enable_sequence_parallel"] = "true" if plan.sequence_parallel else "false"
    made["--parallelism.context_parallel_degree"] = plan.context
    if plan.experts:
        made["--parallelism.expert_parallel_degree"] = plan.expert
    made["--parallelism.pipeline_parallel_degree"] = plan.pipeline
    if plan.pipeline > 1:
        interleaved = "Interleaved1F1B" if plan.chunks > 1 else "1F1B"
        made["--parallelism.pipeline_parallel_schedule"] = "GPipe" if plan.schedule is PipelineSchedule.GPIPE else interleaved
        made["--parallelism.pipeline_parallel_layers_per_stage"] = max(plan.layers)
        made["--parallelism.num_pp_microbatches"] = plan.microbatches
        if not plan.even:
            remarks.append(
                f"it gives all stages the same number of layers; the plan gives {min(plan.layers)} to {max(plan.layers)}"
            )
    made["--training.num_tokens_per_microbatch_per_dp_rank"] = plan.microbatch * plan.sequence
    made["--training.num_tokens_per_train_step"] = plan.batch * plan.sequence
    made["--training.max_context_length"] = plan.sequence
    if plan.recompute is not Recompute.NONE:
        kind = "FullAC" if plan.recompute is Recompute.FULL else "SelectiveAC"
        remarks.append(f"recomputation is no setting of the command line: register a configuration with {kind}")
    if plan.offload:
        remarks.append("it has no setting for an optimizer's state in the memory of the host")
    return Emitted("torchtitan", VERSION, made, flag_text(made), (*plan.remarks, *remarks))


def _data(plan: LaunchDecisions, remarks: list[str]) -> dict[str, Setting]:
    """Replicas and shards of the data-parallel ranks, and when gathered parameters are dropped."""
    replicate, shard, reshard = plan.data, 1, ""
    if plan.zero is Sharded.PARAMETERS:
        replicate, shard, reshard = 1, plan.data, "always"
    elif plan.zero is not Sharded.NOTHING:
        replicate, shard, reshard = 1, plan.data, "always" if plan.gathered else "never"
        if plan.zero is Sharded.OPTIMIZER:
            remarks.append("it has no sharding of the optimizer's state alone (ZeRO 1): gradients are sharded too (ZeRO 2)")
        if plan.gathered:
            remarks.append(
                f"it shards parameters over all {plan.data} data-parallel ranks; the plan does over {plan.inner} of them"
            )
    elif plan.gathered:
        replicate, shard, reshard = plan.data // plan.inner, plan.inner, "always"
    made: dict[str, Setting] = {
        "--parallelism.data_parallel_replicate_degree": replicate,
        "--parallelism.data_parallel_shard_degree": shard,
    }
    if shard > 1:
        made["--parallelism.fsdp_reshard_after_forward"] = reshard
    if plan.context > 1 and plan.zero is Sharded.NOTHING and not plan.gathered:
        remarks.append("it also shards parameters over context-parallel ranks")
    return made
