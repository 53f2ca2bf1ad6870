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

    >>> one = FrameworkLimits("Some 1.0", sharded=(Sharded.NOTHING, Sharded.OPTIMIZER), staged=(Sharded.NOTHING,))
    >>> one.shards(Sharded.OPTIMIZER, stages=1), one.shards(Sharded.OPTIMIZER, stages=4)
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

    def shards(self, what: Sharded, stages: int) -> bool:
        """Whether its data-parallel ranks can shard that, in a pipeline of so many stages."""
        return what in self.sharded and (stages == 1 or what in self.staged)

    def runs(self, schedule: PipelineSchedule, stages: int, chunks: int, layers: int) -> bool:
        """Whether it has a pipeline of so many stages and chunks of a stage, for so many layers."""
        if stages == 1:
            return True
        even = layers % (stages * chunks) == 0
        return schedule in self.schedules and (self.chunks or chunks == 1) and (self.uneven or even)
