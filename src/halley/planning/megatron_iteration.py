"""An iteration of a GPT as Megatron-LM of 2022 trains it on a system: tensor parallel in a node, pipelined over the rest.

Kernels and collectives are those of `halley.planning.megatron`; the schedule and the account are `halley.planning.iteration`'s.
Chips of a stage lie side by side, stages one after the other. Stages send and receive between their passes, not beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from halley.errors import BadInput, Fault
from halley.formulas.activations import (
    attention_core_bytes,
    layer_input_bytes,
    replicated_layer_bytes,
    sequence_parallel_layer_bytes,
)
from halley.formulas.numbers import Number, ceil_div
from halley.formulas.software import overlaid_time
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.network.collective import best_time, bound_of, team_of
from halley.network.overlay import Overlay
from halley.network.tables import Pattern
from halley.planning.data_parallel import RECIPES, Block, DataParallel, Sharded, dealt_out
from halley.planning.iteration import Iteration, Optimizer, Training, iteration_time
from halley.planning.machine import Efficiency, machine
from halley.planning.megatron import SUM, WORD, Part, Split, embedding, head, layer
from halley.planning.passes import Kind, Work, Worker, macs
from halley.planning.schedule import Pipeline, check_degrees, microbatches
from halley.rewrite.recompute import Recompute
from halley.workloads.transformer import Transformer

AROUND = 3 * SUM + SUM
"""Bytes per parameter that kernels around the optimizer move: gradients cleared, read and written again as they are clipped; the
master weight read again to be rounded."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How a model is trained: ``tensor`` ranks, ``stages`` of ``chunks``, sequences of a ``microbatch`` and of the ``batch``.

    ``scattered``: sequence parallelism (`Split`). ``shared_sends``: where it is off, each rank sends its share of an activation
    to the next stage, and the ranks there gather it.
    """

    tensor: int
    stages: int
    microbatch: int
    batch: int
    chunks: int = 1
    recompute: Recompute = Recompute.NONE
    scattered: bool = False
    shared_sends: bool = True


@dataclass(frozen=True, slots=True)
class MegatronTime:
    """``account``: where the time of the stage that is done last goes; ``kinds`` [s]: the work of the first stage, all
    microbatches; ``macs`` of all chips, repeated ones among them; ``training``: for `halley.planning.memory`."""

    training: Training
    account: Iteration
    kinds: Mapping[Kind, float]
    macs: float

    @property
    def time(self) -> float:
        """[s]."""
        return float(self.account.time[0])


def worker_of(system: System, efficiency: Efficiency, overlay: Overlay, ranks: int, channels: int = 0) -> Worker:
    """A chip and its neighbours on the innermost axis; collectives as the library was measured there, never below what the links
    allow. ``channels`` of the library hold a core each.

    Raises BadInput: ranks that do not divide the axis.
    """
    inner = system.axes[-1]
    if ranks < 1 or inner.size % ranks:
        expected = f"a divisor of the {inner.size} chips on axis {inner.name} of {system.name}"
        raise BadInput(Fault("tensor-parallel ranks", expected, str(ranks), "use more stages instead"))
    team = team_of((replace(inner, size=ranks),))

    def collective(kind: CollectiveKind, size: Number) -> Number:
        if ranks == 1:
            return 0.0
        return overlaid_time(overlay.time(kind, ranks, size), bound_of(kind, team, int(size)).value)

    chip = machine(system.chip)
    return Worker(chip, efficiency, collective, channels / chip.cores)


def megatron_iteration(shape: Transformer, setting: Setting, system: System, worker: Worker) -> MegatronTime:
    """Time of one iteration, on one tensor-parallel group per stage (one data-parallel rank).

    Raises BadInput: degrees that do not multiply to the chips, or do not divide the model; see also `Pipeline`.
    """
    check_degrees(system.chips, {"pipeline": setting.stages, "tensor": setting.tensor})
    pipeline = Pipeline(setting.stages, microbatches(setting.batch, 1, setting.microbatch), setting.chunks)
    split = Split(setting.microbatch, shape.sequence, setting.tensor, setting.scattered)
    ends = embedding(shape, split), head(shape, split, table=not shape.tied or setting.stages > 1)
    inside = layer(shape, split, setting.recompute)
    first, last = (_block(part, worker) for part in ends)
    kept, working = _activations(shape, setting)
    block = replace(_block(inside, worker), activation=kept, working=working)
    chunks = dealt_out([block] * shape.layers, pipeline, [first], [last])
    times = [_transfer(boundary, shape, split, setting, system, worker) for boundary in range(pipeline.last)]
    alone = DataParallel(1, Sharded.NOTHING, lambda kind, size: 0.0, RECIPES["mixed-adam-fp32-gradients"])
    optimizer = Optimizer(
        worker.efficiency.memory * worker.chip.memory,
        _sums_before_step(shape, setting, system, worker, max(map(len, chunks)) * setting.chunks),
        clipping=True,
        around=AROUND,
    )
    training = Training(pipeline, chunks, alone, optimizer, times, times, holding=True)
    mine = sum(map(len, training.of_stage(0))) - (1 if setting.stages > 1 else 2)
    kinds = [(ends[0], 1), (inside, mine), *([(ends[1], 1)] if setting.stages == 1 else [])]
    count, whole = pipeline.microbatches, [(inside, shape.layers), (ends[1], 1)]
    return MegatronTime(
        training,
        iteration_time(training),
        {kind: count * sum(parts * float(_kinds(part, worker)[kind]) for part, parts in kinds) for kind in Kind},
        count * setting.tensor * sum(parts * float(macs(_all(part))) for part, parts in whole),
    )


def _all(part: Part) -> Work:
    return (*part.forward, *part.recompute, *part.backward)


def _kinds(part: Part, worker: Worker) -> Mapping[Kind, Number]:
    return worker.times(_all(part))


def _block(part: Part, worker: Worker) -> Block:
    forward, backward, again = (worker.time(work) for work in (part.forward, part.backward, part.recompute))
    return Block(forward, backward, again, part.parameters)


def _activations(shape: Transformer, setting: Setting) -> tuple[Number, Number]:
    """What a layer keeps of a microbatch, and what it makes again for its backward pass [B]."""
    extents = (shape.sequence, setting.microbatch, shape.model)
    outside = sequence_parallel_layer_bytes if setting.scattered else replicated_layer_bytes
    rest = outside(*extents, setting.tensor)
    core = attention_core_bytes(shape.sequence, setting.microbatch, shape.heads, setting.tensor)
    match setting.recompute:
        case Recompute.NONE:
            return rest + core, 0.0
        case Recompute.SELECTIVE:
            return rest, core
        case Recompute.FULL:
            return layer_input_bytes(*extents, setting.tensor if setting.scattered else 1), rest + core
        case _:
            assert_never(setting.recompute)


def _transfer(
    boundary: int, shape: Transformer, split: Split, setting: Setting, system: System, worker: Worker
) -> Number:
    """Activation of a microbatch, or its gradient, between a chunk and the next [s]: each rank sends to its like."""
    inner, stages = system.axes[-1], setting.stages
    nodes = [stage % stages * setting.tensor // inner.size for stage in (boundary, boundary + 1)]
    axis = inner if nodes[0] == nodes[1] else system.axes[-2]
    every = int(split.tokens) * shape.model * WORD
    shared = setting.scattered or setting.shared_sends
    size = int(ceil_div(every, setting.tensor)) if shared else every
    sent = best_time(Pattern.POINT_TO_POINT, team_of((replace(axis, size=2),)), size)
    return sent + (0.0 if setting.scattered or not shared else worker.collective(CollectiveKind.ALL_GATHER, every))


def _sums_before_step(shape: Transformer, setting: Setting, system: System, worker: Worker, layers: int) -> Number:
    """Gradients that ranks share [s]: of norms and biases where tokens are scattered; of a tied table, in the first and the last
    stage."""
    found: Number = 0.0
    if setting.scattered:
        found = worker.collective(CollectiveKind.ALL_REDUCE, 6 * shape.model * SUM * layers)
    if shape.tied and setting.stages > 1:
        axis = system.axes[-1] if setting.tensor * setting.stages <= system.axes[-1].size else system.axes[-2]
        table = shape.vocabulary // setting.tensor * shape.model * SUM
        found += best_time(CollectiveKind.ALL_REDUCE, team_of((replace(axis, size=2),)), table)
    return found
