"""Settings of MaxText, for chips of one slice."""

from __future__ import annotations

from halley.launch.decisions import LaunchDecisions
from halley.launch.settings import Emitted, Setting, assignment_text
from halley.pipeline.data_parallel import Sharded
from halley.rewrite.recompute import Recompute

VERSION = "MaxText e591f30cbbf2"
POLICIES = {Recompute.FULL: "full", Recompute.SELECTIVE: "save_qkv_proj", Recompute.NONE: "minimal"}


def maxtext(plan: LaunchDecisions) -> Emitted:
    """Settings over ``base.yml``."""
    remarks: list[str] = []
    data, fsdp, expert = plan.data, 1, 1
    if plan.experts and plan.expert > 1:
        if plan.data % plan.expert == 0 and plan.expert <= plan.inner:
            # its expert-parallel ranks are data-parallel outside the experts
            data, expert = plan.data // plan.expert, plan.expert
        else:
            remarks.append(
                f"its expert-parallel ranks are not those of other degrees: experts are not distributed over {plan.expert}"
            )
    if plan.zero is Sharded.PARAMETERS:
        data, fsdp = 1, data
        if expert > 1:
            remarks.append(f"it shards parameters over {fsdp} of the data-parallel ranks: the others are those of the experts")
    elif plan.gathered and expert == 1:
        data, fsdp = data // plan.inner, plan.inner
    made: dict[str, Setting] = {
        "ici_data_parallelism": data,
        "ici_fsdp_parallelism": fsdp,
        "ici_tensor_sequence_parallelism" if plan.sequence_parallel else "ici_tensor_parallelism": plan.tensor,
        "ici_context_parallelism": plan.context,
        "ici_pipeline_parallelism": plan.pipeline,
    }
    if plan.experts:
        made["ici_expert_parallelism"] = expert
    if plan.zero in (Sharded.OPTIMIZER, Sharded.GRADIENTS):
        made["shard_optimizer_over_data"] = True
        if plan.zero is Sharded.GRADIENTS:
            remarks.append(
                "it has no sharding of gradients without parameters (ZeRO 2): the optimizer's state is sharded (ZeRO 1)"
            )
    if plan.pipeline > 1:
        made["num_layers_per_pipeline_stage"] = max(plan.layers)
        made["num_pipeline_repeats"] = plan.chunks
        made["num_pipeline_microbatches"] = plan.microbatches
        made["per_device_batch_size"] = plan.batch / plan.chips
        remarks.append("its pipeline runs all forward passes before the backward passes, in a loop over stages")
        if not plan.even:
            remarks.append(
                f"it gives all stages the same number of layers; the plan gives {min(plan.layers)} to {max(plan.layers)}"
            )
    else:
        made["per_device_batch_size"] = plan.batch / plan.chips / plan.microbatches
        made["gradient_accumulation_steps"] = plan.microbatches
    made["remat_policy"] = POLICIES[plan.recompute]
    if plan.recompute is not Recompute.FULL:
        remarks.append(f"its policies save other tensors than the plan's choice ({plan.recompute}); this is the nearest of them")
    if plan.offload:
        remarks.append("the optimizer's state stays on the chip with these settings")
    remarks.append("all chips are taken as one slice; between slices the names begin with dcn_")
    return Emitted("maxtext", VERSION, made, assignment_text(made), (*plan.remarks, *remarks))
