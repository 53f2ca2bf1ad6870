"""What plans a training framework can run."""

from __future__ import annotations

from dataclasses import dataclass

from halley.pipeline.data_parallel import Sharded
from halley.pipeline.schedule import PipelineSchedule
from halley.rewrite.recompute import Recompute


@dataclass(frozen=True, slots=True)
class FrameworkLimits:
    """What a framework has settings for. ``sharded``: what its data-parallel ranks shard; ``staged``: of these, in pipelines;
    ``schedules`` of its pipelines; ``chunks``: whether a stage may have several; ``uneven``: whether chunks may differ in
    their numbers of layers; ``recompute``; ``offload``: whether the optimizer's state may be in the host's memory; ``version``
    in words.

    >>> one = FrameworkLimits("Some 1.0", uneven=False)
    >>> one.runs(PipelineSchedule.GPIPE, stages=4, chunks=1, layers=32), one.runs(PipelineSchedule.GPIPE, 4, 1, 30)
    (True, False)
    """

    version: str
    sharded: tuple[Sharded, ...] = tuple(Sharded)
    staged: tuple[Sharded, ...] = tuple(Sharded)
    schedules: tuple[PipelineSchedule, ...] = tuple(PipelineSchedule)
    chunks: bool = True
    uneven: bool = True
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    offload: bool = True

    def runs(self, schedule: PipelineSchedule, stages: int, chunks: int, layers: int) -> bool:
        """Whether it has a pipeline of so many stages and chunks of a stage, for so many layers."""
        if stages == 1:
            return True
        even = layers % (stages * chunks) == 0
        return schedule in self.schedules and (self.chunks or chunks == 1) and (self.uneven or even)
