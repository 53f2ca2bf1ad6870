"""What training frameworks can run, for searches that are restricted to it.

From the settings that each framework has (the modules beside this one) and its documentation at these versions. Schedules,
chunks, ZeRO, recomputation and offload are restricted. How single ops are sharded is not, as no framework has a setting for
that: where a plan uses an axis in several ways, its launch flags say so.
"""

from __future__ import annotations

from halley.errors import BadInput, Fault, did_you_mean
from halley.launch.deepspeed import VERSION as DEEPSPEED
from halley.launch.maxtext import VERSION as MAXTEXT
from halley.launch.megatron import BRIDGE_VERSION, CORE_VERSION
from halley.launch.torchtitan import VERSION as TORCHTITAN
from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute
from halley.training.framework import FrameworkLimits

ONLY_1F1B, ONLY_GPIPE = (PipelineSchedule.ONE_FORWARD_ONE_BACKWARD,), (PipelineSchedule.GPIPE,)
WITHOUT_FSDP = Sharded.NOTHING, Sharded.OPTIMIZER

LIMITS: dict[str, FrameworkLimits] = {
    # its FSDP (ZeRO 2 and 3) is not for pipelines
    "megatron": FrameworkLimits(CORE_VERSION, staged=WITHOUT_FSDP, schedules=ONLY_1F1B),
    "megatron-bridge": FrameworkLimits(BRIDGE_VERSION, staged=WITHOUT_FSDP, schedules=ONLY_1F1B),
    "torchtitan": FrameworkLimits(
        TORCHTITAN,
        sharded=(Sharded.NOTHING, Sharded.GRADIENTS, Sharded.PARAMETERS),
        staged=(Sharded.NOTHING, Sharded.GRADIENTS, Sharded.PARAMETERS),
        uneven=False,
        offload=False,
    ),
    # stages shard no gradients: each microbatch adds to them
    "deepspeed": FrameworkLimits(
        DEEPSPEED, staged=WITHOUT_FSDP, schedules=ONLY_1F1B, chunks=False, recompute=(Recompute.NONE, Recompute.FULL)
    ),
    "maxtext": FrameworkLimits(
        MAXTEXT,
        sharded=(Sharded.NOTHING, Sharded.OPTIMIZER, Sharded.PARAMETERS),
        staged=(Sharded.NOTHING, Sharded.OPTIMIZER, Sharded.PARAMETERS),
        schedules=ONLY_GPIPE,
        chunks=False,
        uneven=False,
        offload=False,
    ),
}
"""By name."""


def limits_of(name: str, where: str = "--for") -> FrameworkLimits:
    """What a framework can run.

    >>> limits_of("deepspeed").version
    'DeepSpeed edaa72212672'

    Raises BadInput: no such framework.
    """
    if name not in LIMITS:
        raise BadInput(Fault(where, f"one of {', '.join(LIMITS)}", repr(name), did_you_mean(name, LIMITS)))
    return LIMITS[name]
