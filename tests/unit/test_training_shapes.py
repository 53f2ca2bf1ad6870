"""How layers, chips and batches are distributed; what a training graph keeps; words of what is wrong."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from halley.errors import BadInput
from halley.ir.workload import Op, OpKind, Tensor, Workload
from halley.memory.saved import saved_activations
from halley.pipeline.data_parallel import LayerBlock
from halley.pipeline.recurrence import pipeline_times
from halley.pipeline.schedule import PipelineSchedule, TrainingPipeline, layers_per_chunk, microbatches


def test_layers_are_dealt_out_whole() -> None:
    for layers in range(1, 40):
        for parts in range(1, layers + 1):
            dealt = layers_per_chunk(layers, parts)
            assert sum(dealt) == layers
            assert len(dealt) == parts
            assert max(dealt) - min(dealt) <= 1
            # the head's chunk has no more than any other; of the others, the first ones have least
            assert dealt[-1] == min(dealt)
            assert all(before <= after for before, after in pairwise(dealt[:-1]))
    with pytest.raises(BadInput, match="at least one layer for each of 5 parts; got 3 layers; take at most 3 stages x chunks"):
        layers_per_chunk(3, 5)
    with pytest.raises(BadInput, match="parts: expected a whole number of at least 1; got 0"):
        layers_per_chunk(3, 0)


def test_microbatches_of_a_batch() -> None:
    assert microbatches(2048, 16, 4) == 32
    with pytest.raises(BadInput, match="a multiple of 12; got 100 sequences over 4 ranks in microbatches of 3; take a batch"):
        microbatches(100, 4, 3)
    with pytest.raises(BadInput, match="sequences of a microbatch: expected a whole number"):
        microbatches(100, 4, 0)


def test_pipelines_that_cannot_be() -> None:
    with pytest.raises(BadInput) as caught:
        TrainingPipeline(0, -1, 2)
    assert [fault.where for fault in caught.value.faults] == ["pipeline, stages", "pipeline, microbatches"]
    with pytest.raises(BadInput, match="microbatches: expected at most 65536; got 1000000000"):
        TrainingPipeline(2, 10**9)
    for given in (TrainingPipeline, lambda *numbers: TrainingPipeline(*numbers, schedule=PipelineSchedule.GPIPE)):
        with pytest.raises(BadInput, match="1 with GPipe and with a single stage; got 2"):
            given(1, 4, 2)
    with pytest.raises(BadInput, match="times backward: expected 2 of them, for 2 stages x 1 chunks; got 1"):
        pipeline_times(TrainingPipeline(2, 4), [1.0, 2.0], [1.0])
    with pytest.raises(BadInput, match="times onward: expected 1 of them"):
        pipeline_times(TrainingPipeline(2, 4), [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])


def test_work_of_a_backward_pass_includes_recomputation() -> None:
    assert LayerBlock(1.0, 2.0, recompute=0.5).backward_work == 2.5


# --- what is kept -----------------------------------------------------------------------------------------------------


def graph(draw: random.Random) -> tuple[Workload, set[str], set[str]]:
    """A drawn graph of elementwise ops: forward ones, then backward ones that read anything before; which are backward, and its
    parameters."""
    names = ["x", "w", "seed"]
    ops = []
    forward, backward = draw.randint(1, 7), draw.randint(1, 7)
    for number in range(forward + backward):
        # the gradient that comes in is not the forward ops' to read
        known = [name for name in names if number >= forward or name != "seed"]
        inputs = draw.sample(known, min(len(known), draw.randint(1, 3)))
        function = {1: "relu", 2: "add", 3: "multiply_add"}[len(inputs)]
        ops.append(Op(f"op{number}", OpKind.MAP, tuple(inputs), (f"t{number}",), ("m",), function))
        names.append(f"t{number}")
    tensors = {name: Tensor(name, ("m",)) for name in names}
    behind = {op.name for op in ops[forward:]}
    return Workload("drawn", {"m": 6}, tensors, tuple(ops), (names[-1],)), behind, {"w"}


def runs(workload: Workload, behind: set[str], have: set[str], again: tuple[str, ...]) -> bool:
    """Whether the backward pass finds all that it reads, in a memory that holds nothing else."""
    have = set(have)
    for op in (*(workload.op(name) for name in again), *(op for op in workload.ops if op.name in behind)):
        if not have.issuperset(op.inputs):
            return False
        have.update(op.outputs)
    return True


@pytest.mark.parametrize("seed", range(60))
def test_kept_is_what_the_backward_pass_needs_and_no_more(seed: int) -> None:
    draw = random.Random(seed)
    workload, behind, parameters = graph(draw)
    forward = [op.name for op in workload.ops if op.name not in behind]
    found = saved_activations(workload, behind, parameters, set(draw.sample(forward, draw.randint(0, len(forward)))))
    # what forward ops never touch comes from elsewhere
    elsewhere = set(workload.inputs) - {read for op in workload.ops if op.name in forward for read in op.inputs}
    have = {*found.tensors, *parameters, *elsewhere}
    assert runs(workload, behind, have, found.recomputed)
    assert not any(runs(workload, behind, have - {name}, found.recomputed) for name in found.tensors)
    for name in found.recomputed:
        assert not runs(workload, behind, have, tuple(other for other in found.recomputed if other != name))


def mlp() -> Workload:
    """Two layers with a ReLU, and their backward pass, as by hand."""
    dims = {"m": 4, "k": 8, "n": 16}
    tensors = {
        name: Tensor(name, tuple(shape))
        for name, shape in {"x": "mk", "a": "kn", "b": "nk", "h": "mn", "g": "mn", "y": "mk", "dy": "mk", "db": "nk", "dg": "mn",
                            "dh": "mn", "da": "kn", "dx": "mk"}.items()
    }  # fmt: skip
    rows = [("up", "xa", "h", "mkn"), ("act", "h", "g", "mn"), ("down", "gb", "y", "mnk"), ("db", ["g", "dy"], "db", "mnk"),
            ("dg", ["dy", "b"], "dg", "mkn"), ("dh", ["dg", "h"], "dh", "mn"), ("da", ["x", "dh"], "da", "mkn"),
            ("dx", ["dh", "a"], "dx", "mnk")]  # fmt: skip
    ops = tuple(
        Op(name, OpKind.MAP if name in ("act", "dh") else OpKind.CONTRACT, tuple(inputs), (output,), tuple(space),
           {"act": "relu", "dh": "mul"}.get(name, "identity"))
        for name, inputs, output, space in rows
    )  # fmt: skip
    return Workload("mlp", dims, tensors, ops, ("y", "da", "db", "dx"))


def test_recomputation_of_an_mlp() -> None:
    workload, behind = mlp(), ("db", "dg", "dh", "da", "dx")
    plain = saved_activations(workload, behind, "ab")
    assert (plain.tensors, plain.recomputed) == (("x", "h", "g"), ())
    assert plain.size(workload) == 2 * (4 * 8 + 2 * 4 * 16)
    assert plain.size(workload, {"n": 4}) == 2 * (4 * 8 + 2 * 4 * 4)
    selective = saved_activations(workload, behind, "ab", ["act"])
    assert (selective.tensors, selective.recomputed) == (("x", "h"), ("act",))
    full = saved_activations(workload, behind, "ab", ["up", "act", "down"])
    assert (full.tensors, full.recomputed) == (("x",), ("up", "act"))


def test_kept_wants_names_that_exist() -> None:
    with pytest.raises(BadInput) as caught:
        saved_activations(mlp(), ["dbb", "dx"], ["c"], ["dx", "ac"])
    assert [fault.got for fault in caught.value.faults] == ["'dbb'", "'ac'", "'c'", "dx, a backward op"]
    assert "did you mean 'act'?" in str(caught.value)
