"""One op of a plan as text of the mapping language, from the outermost axis of the system to the array of the chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from halley.ir.text import to_text
from halley.kernels.groups import GroupShape
from halley.kernels.searched import Product, shape_of
from halley.report.plans.words import dim_words, system_words
from halley.sharding.axes import Role
from halley.training.op_mapping import Movement, OpMapping, OuterSplit
from halley.training.plan import TrainingResult
from halley.units import format_bytes, format_time
from halley.workloads.transformer import token_extents

ROLES = {Role.DATA: "data-parallel ranks", Role.PIPELINE: "pipeline stages", Role.MODEL: "model-parallel chips"}
"""What the ranks of a role are called."""


def op_text(result: TrainingResult, op: OpMapping) -> str:
    """The op of a plan: comments for what is no node of a mapping (stages, microbatches, collectives of other tensors), then its
    tree, if its kernel was searched."""
    lines = [f"# {line}" for line in _about(result, op)]
    if op.tree is not None:
        lines += [to_text(op.tree)]
    return "\n".join(lines)


def _about(result: TrainingResult, op: OpMapping) -> Iterator[str]:
    plan, problem = result.plan, result.problem
    others = [name for name in op.ops if name != op.op]
    yield f"{op.op} of {op.part}, {op.passing} pass" + (f"; one kernel with {', '.join(others)}" if others else "")
    rank = f"{plan.pipeline.microbatches} x {plan.microbatch} sequences for each data-parallel rank"
    yield f"{system_words(problem.system)}; {op.layers} in the model, and {rank}"
    for split in op.splits:
        words = dim_words(token_extents(problem.shape, problem.sequence))
        yield f"{split.axis}, {split.part.size} {ROLES[split.part.role]}: {_split(split, words)}"
    for move in op.movements:
        yield _move(move)
    shape, kind = shape_of(op.kernel), type(op.kernel).__name__.lower()
    if shape is not None:
        kind = (
            f"{'group' if isinstance(shape, GroupShape) else 'product' if isinstance(shape, Product) else 'attention'} of {shape}"
        )
    if op.tree is None:
        reason = "its time comes from a formula" if problem.searched else "kernels were not searched (--kernels searched)"
        yield f"on one chip: {kind}, {format_time(op.time)}; no mapping: {reason}"
    elif op.whole:
        yield f"on one chip: {kind}, {format_time(op.time)}, its best mapping, with the axes of the system outside"
        yield "the mapping is that of one microbatch of all data-parallel ranks on the chips of one stage:"
    else:
        yield f"on one chip: {kind}, {format_time(op.time)}, its best mapping"
        yield f"the axes of the system cannot enclose it as nodes: {op.reason}"


def _split(split: OuterSplit, dims: Mapping[str, str]) -> str:
    if split.part.role is Role.PIPELINE:
        return "layers are divided over it"
    if not split.split:
        return "replicated"
    words = f" ({dims[split.split]})" if split.split in dims else ""
    inside = f": {split.dim} of the mapping, {split.tile}" if split.dim else ""
    return f"{split.split}{words} split, {split.extent} on each{inside}"


def _move(move: Movement) -> str:
    size = f"{format_bytes(move.bytes)} in {format_time(move.time)}"
    return f"{move.kind} of {move.tensor} over {' '.join(move.axes)}, {move.when}: {size}"
