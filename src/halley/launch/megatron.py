"""Flags of Megatron-LM (Megatron-Core), and the same settings of Megatron-Bridge."""

from __future__ import annotations

from halley.launch.decisions import LaunchDecisions
from halley.launch.settings import Emitted, Setting, assignment_text, flag_text
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute

CORE_VERSION = "Megatron-Core d98e8a64ddf3"
BRIDGE_VERSION = "Megatron-Bridge 10d8ea24f971 over Megatron-Core d98e8a64ddf3"

STRATEGIES = {Sharded.GRADIENTS: "optim_grads", Sharded.PARAMETERS: "optim_grads_params"}
"""Values of --data-parallel-sharding-strategy."""


def layout(plan: LaunchDecisions) -> str:
    """Layers by chunk in the words of --pipeline-model-parallel-layout: E embedding, t layer, L head with the loss."""
    chunks = [f"t*{count}" if count else "" for count in plan.layers]
    return f"E{'|'.join(chunks)}L"


def megatron_settings(plan: LaunchDecisions) -> tuple[dict[str, Setting], list[str]]:
    """Flags by name, and what they cannot say."""
    flags: dict[str, Setting] = {
        "--tensor-model-parallel-size": plan.tensor,
        "--pipeline-model-parallel-size": plan.pipeline,
        "--context-parallel-size": plan.context,
    }
    remarks: list[str] = []
    if plan.sequence_parallel and plan.tensor > 1:
        flags["--sequence-parallel"] = True
    if plan.experts and plan.expert > 1:
        flags["--expert-model-parallel-size"] = plan.expert
        flags["--expert-tensor-parallel-size"] = 1
    if not plan.even:
        flags["--pipeline-model-parallel-layout"] = layout(plan)
    elif plan.chunks > 1:
        flags["--num-virtual-stages-per-pipeline-rank"] = plan.chunks
    if plan.pipeline > 1 and plan.schedule is PipelineSchedule.GPIPE:
        remarks.append("it has no GPipe schedule: it runs 1F1B, which has the same bubble and holds fewer activations")
    flags |= {"--micro-batch-size": plan.microbatch, "--global-batch-size": plan.batch}
    flags |= _recomputed(plan.recompute)
    flags |= _sharded(plan, remarks)
    if plan.data > 1:
        flags["--overlap-grad-reduce"] = True
        if "--use-distributed-optimizer" in flags:
            flags["--overlap-param-gather"] = True
    if plan.offload:
        flags["--optimizer-cpu-offload"] = True
    return flags, remarks


def _sharded(plan: LaunchDecisions, remarks: list[str]) -> dict[str, Setting]:
    """What is sharded over the data-parallel ranks, or over the inner ones of them."""
    zero = plan.zero
    flags: dict[str, Setting] = {}
    if plan.gathered and zero is not Sharded.PARAMETERS and plan.data > plan.inner:
        if zero is Sharded.GRADIENTS:
            remarks.append(
                f"it shards parameters over all {plan.data} data-parallel ranks; the plan does over {plan.inner} of them"
            )
        else:
            flags["--num-distributed-optimizer-instances"] = plan.data // plan.inner
            flags["--outer-dp-sharding-strategy"] = "optim" if zero is Sharded.OPTIMIZER else "no_shard"
    if plan.gathered:
        zero = Sharded.PARAMETERS
    if zero is not Sharded.NOTHING:
        flags["--use-distributed-optimizer"] = True
    if zero in STRATEGIES:
        flags |= {"--use-megatron-fsdp": True, "--data-parallel-sharding-strategy": STRATEGIES[zero]}
        remarks.append("its FSDP also needs --no-gradient-accumulation-fusion and --ckpt-format fsdp_dtensor")
    return flags


def _recomputed(choice: Recompute) -> dict[str, Setting]:
    match choice:
        case Recompute.FULL:
            method: dict[str, Setting] = {"--recompute-method": "uniform", "--recompute-num-layers": 1}
            return {"--recompute-granularity": "full"} | method
        case Recompute.SELECTIVE:
            return {"--recompute-granularity": "selective", "--recompute-modules": "core_attn"}
        case Recompute.NONE:
            return {}


def megatron(plan: LaunchDecisions) -> Emitted:
    """Flags of pretrain_gpt.py; the data-parallel degree follows from the number of chips."""
    flags, remarks = megatron_settings(plan)
    return Emitted("megatron", CORE_VERSION, flags, flag_text(flags), (*plan.remarks, *remarks))


PLACES = {
    "micro_batch_size": "train",
    "global_batch_size": "train",
    "use_distributed_optimizer": "ddp",
    "use_megatron_fsdp": "ddp",
    "num_distributed_optimizer_instances": "ddp",
    "outer_dp_sharding_strategy": "ddp",
    "data_parallel_sharding_strategy": "ddp",
    "overlap_grad_reduce": "ddp",
    "overlap_param_gather": "ddp",
    "optimizer_cpu_offload": "optimizer",
}
"""Parts of Megatron-Bridge's configuration that have a setting; all others are of the model."""


def bridge(plan: LaunchDecisions) -> Emitted:
    """Overrides of a recipe of Megatron-Bridge."""
    flags, remarks = megatron_settings(plan)
    made: dict[str, Setting] = {}
    for flag, value in flags.items():
        name = flag.removeprefix("--").replace("-", "_")
        if name == "num_virtual_stages_per_pipeline_rank":
            name = "virtual_pipeline_model_parallel_size"
        made[f"{PLACES.get(name, 'model')}.{name}"] = value
        if name == "use_megatron_fsdp":
            made[f"dist.{name}"] = value
    made["model.seq_length"] = plan.sequence
    return Emitted("megatron-bridge", BRIDGE_VERSION, made, assignment_text(made), (*plan.remarks, *remarks))
