"""Costs of a model's parts: what practice has found, bounds below every sharding, the joint optimum."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from random import Random

import numpy as np
import pytest

from halley.errors import BadInput, Infeasible
from halley.io.chips.fits import load_chip_fit
from halley.io.systems.system import load_system
from halley.io.transformers import load_model
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Replicate, Shard
from halley.kernels.machine import machine
from halley.network.time.collective import best_time, team_of
from halley.rewrite.recompute import Recompute
from halley.sharding.layouts import CollectiveTime, Mesh, MeshAxis
from halley.sharding.solution import shard
from halley.sharding.text import parallelisms
from halley.training.part_bounds import ModelBound, PartBound, model_bound
from halley.training.part_costs import MemoryBudget, ModelCosts, PartCosts, model_costs
from halley.training.part_solvers import CostTerms
from halley.training.tensor_parallel import tensor_parallel
from halley.workloads.transformer import Experts, Transformer

SYSTEM = load_system("dgx-a100-pod")
CHIP, FIT = machine(SYSTEM.chip), load_chip_fit("a100").efficiency
NODE = replace(SYSTEM.axes[-1], size=8)
EIGHT = (MeshAxis("x", 8),)
WHOLE, TOKENS = (Replicate(),), (Shard("m"),)
GPT = Transformer("gpt", 3, 512, 8, 8, 64, 2048, 4096, 512, gated=False, rms=False, positions=True, tied=True, dropout=0.1)
LLAMA = Transformer("llama", 3, 512, 8, 4, 64, 1024, 4096, 512)
MIXTURE = replace(LLAMA, name="mixture", experts=Experts(4, 2, 512, shared=256, dense_layers=1))


@cache
def node(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
    return best_time(kind, team_of((NODE,)), size)


def terms(**more: object) -> CostTerms:
    given: dict = {"mesh": EIGHT, "collective": node, "chip": CHIP, "efficiency": FIT} | more
    return CostTerms(**given)


def collectives(part: PartCosts) -> Counter[tuple[str, str]]:
    """Those of activations and their gradients; sums of gradients of gains and biases, some KiB, are left out."""
    return Counter(
        (str(step.kind), move.tensor) for move, step in part.sharding.steps if not move.tensor.startswith(("d_gain", "d_bias"))
    )


def split_as_megatron(scattered: bool) -> dict[str, dict[str, str]]:
    """Megatron-LM's splits over the one axis here."""
    return {op: {"x": dim} for op, dim in tensor_parallel(GPT, 512, scattered).items()}


# --- what practice has found --------------------------------------------------------------------------------------------


def test_four_all_reduces_of_tensor_parallelism() -> None:
    """Shoeybi et al., arXiv 1909.08053: two forward and two backward, where all ranks work on the whole residual stream."""
    shape = load_model("megatron-22b")
    found = model_costs(shape, 4, 2048, terms(boundary=WHOLE, splits=split_as_megatron(scattered=False)))
    layer = found.blocks[0][0]
    assert collectives(layer) == Counter({("all-reduce", name): 1 for name in ("Z", "D", "d_B", "d_A")})
    assert layer.exposed[CollectiveKind.ALL_REDUCE] == pytest.approx(
        4 * node(CollectiveKind.ALL_REDUCE, ("x",), 4 * 2048 * 6144 * 2)
    )
    assert set(parallelisms(layer.sharding)["x"]) == {"TP"}


@pytest.mark.parametrize("name", ["megatron-175b", "llama3-70b", "gpt3-1t"])
def test_sequence_parallelism_where_nothing_is_fixed(name: str) -> None:
    """Korthikanti et al., arXiv 2205.05198: reduce-scatter and all-gather, tokens split between the weights."""
    shape = load_model(name)
    layer = model_costs(shape, 1, 2048, terms()).blocks[0][0]
    gathered = Counter({("all-gather", each): 1 for each in ("A", "B")})
    found = collectives(layer)
    assert gathered <= found
    assert Counter({("reduce-scatter", each): 1 for each in ("Z", "D", "d_B", "d_A")}) <= found
    assert sum(found.values()) == 8
    assert "SP" in parallelisms(layer.sharding)["x"]
    assert layer.sharding.ends["X"] == TOKENS


def test_all_to_all_of_experts() -> None:
    """Lepikhin et al., arXiv 2006.16668: tokens travel to the experts and back, in both passes."""
    layer = model_costs(load_model("mixtral-8x7b"), 8, 4096, terms()).blocks[0][0]
    found = collectives(layer)
    assert {name: found["all-to-all", name] for name in ("T", "N", "d_N", "d_T")} == dict.fromkeys(("T", "N", "d_N", "d_T"), 1)
    assert "EP" in parallelisms(layer.sharding)["x"]
    assert layer.sharding.strategy("down")[0].split == "x"


def test_a_split_vocabulary_combines_statistics_only() -> None:
    head = model_costs(load_model("llama3-70b"), 1, 4096, terms()).head
    found = collectives(head)
    assert {("all-reduce", name) for name in ("mx", "z", "picked")} <= set(found)
    assert not {"S", "E", "d_S"} & {name for _, name in found}
    assert head.parameters == 128256 * 8192 / 8 + 8192


# --- bounds -------------------------------------------------------------------------------------------------------------


def parts(found: ModelCosts, bound: ModelBound) -> list[tuple[PartCosts, PartBound]]:
    ends = [(found.embedding, bound.embedding), (found.head, bound.head)]
    return ends + [(part, least) for (part, _), (least, _) in zip(found.blocks, bound.blocks, strict=True)]


def anything(random: Random) -> CollectiveTime:
    """Collectives that cost anything from nothing to far too much, so that optima are shardings of all sorts."""

    @cache
    def time(kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        return random.choice([0.0, 1e-6, 1e-3]) * random.random()

    return time


@dataclass(frozen=True)
class Drawn:
    """A model on a mesh, and how its passes run."""

    shape: Transformer
    mesh: Mesh
    microbatch: int
    choice: Recompute
    fused: bool
    random: Random

    @property
    def ranks(self) -> int:
        return math.prod(axis.ranks for axis in self.mesh)

    def costs(self, **more: object) -> ModelCosts:
        given = terms(mesh=self.mesh, collective=anything(self.random), fused=self.fused, **more)
        return model_costs(self.shape, self.microbatch, 512, given, self.choice)

    def bound(self) -> ModelBound:
        return model_bound(self.shape, self.microbatch, 512, self.ranks, CHIP, FIT, self.choice, self.fused)


def drawn(seed: int) -> Drawn:
    random = Random(seed)
    axes, choice, fused = random.choice([1, 1, 2]), random.choice(list(Recompute)), random.random() < 0.5
    shape = random.choice([GPT, LLAMA, MIXTURE] if axes == 1 else [GPT, LLAMA])
    mesh = tuple(MeshAxis(name, random.choice([2, 3, 4, 8])) for name in "xy"[:axes])
    return Drawn(shape, mesh, random.choice([1, 2, 3, 8]), choice, fused, random)


def check_below(found: ModelCosts, bound: ModelBound) -> None:
    """The bound is below the costs, field by field; collectives are not in it."""
    for part, least in parts(found, bound):
        assert part.time - math.fsum(part.exposed.values()) >= float(least.time) * (1 - 1e-9)
        for name in ("forward", "recompute", "backward", "parameters", "activation", "working", "macs", "traffic"):
            assert getattr(part, name) >= float(getattr(least, name)) * (1 - 1e-9), name


@pytest.mark.parametrize("seed", range(24))
def test_no_sharding_costs_less_than_the_bound(seed: int) -> None:
    given = drawn(seed)
    check_below(given.costs(), given.bound())


@pytest.mark.parametrize("choice", list(Recompute))
def test_alone_the_bound_is_near(choice: Recompute) -> None:
    """On one chip nothing is sharded: sizes and counts are equal, and times differ by waves, refetches and padding."""
    shape = load_model("megatron-22b")
    found = model_costs(shape, 2, 2048, terms(mesh=()), choice)
    bound = model_bound(shape, 2, 2048, 1, CHIP, FIT, choice)
    for part, least in parts(found, bound):
        for name in ("parameters", "activation", "working", "macs", "traffic"):
            assert getattr(part, name) == pytest.approx(float(getattr(least, name)))
        assert not part.exposed
    assert 0.75 < float(bound.time) / found.time < 1


def test_bounds_come_as_arrays() -> None:
    microbatches, ranks = np.array([1, 2, 4]), np.array([[1], [8]])
    together = model_bound(MIXTURE, microbatches, 512, ranks, CHIP, FIT, Recompute.SELECTIVE)
    assert np.shape(together.time) == (2, 3)
    for row, m in enumerate((1, 8)):
        for column, b in enumerate((1, 2, 4)):
            one = model_bound(MIXTURE, b, 512, m, CHIP, FIT, Recompute.SELECTIVE)
            assert np.asarray(together.time)[row, column] == one.time
            assert np.asarray(together.head.activation)[row, column] == one.head.activation


# --- the joint optimum --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [GPT, LLAMA, MIXTURE], ids=lambda shape: shape.name)
def test_parts_meet_in_the_best_layout(shape: Transformer) -> None:
    """The least over all layouts, each given."""
    free = model_costs(shape, 2, 512, terms())
    times = {}
    for layout in (Replicate(), Shard("b"), Shard("m"), Shard("k")):
        fixed = model_costs(shape, 2, 512, terms(boundary=(layout,)))
        times[layout] = fixed.time
        for part in fixed.parts:
            ends = part.sharding.ends
            assert {ends[name] for name in ("X", "Y", "d_X", "d_Y") if name in ends} == {(layout,)}
    assert free.time == pytest.approx(min(times.values()), rel=1e-9)
    assert free.boundary[0] == min(times, key=lambda each: times[each])


def test_less_memory_takes_longer() -> None:
    """What fits is the best of what fits: more budget is never slower, and the budget that the fastest takes gives it."""
    free = model_costs(GPT, 1, 512, terms())
    held, sizes = (1.0, 2.0, 1.0), [part.sharding.memory for part in free.parts]
    need = math.fsum(many * size for many, size in zip(held, sizes, strict=True))
    assert model_costs(GPT, 1, 512, terms(), budget=MemoryBudget(need, held)).time == free.time
    times = []
    for share in (0.999, 0.97):
        found = model_costs(GPT, 1, 512, terms(), budget=MemoryBudget(share * need, held))
        parts_held = [part.sharding for part in found.parts]
        assert math.fsum(many * each.memory for many, each in zip(held, parts_held, strict=True)) <= share * need
        assert all(each.certificate.gap == 0 for each in parts_held)
        times.append(found.time)
    assert free.time < times[0]
    assert times == sorted(times)
    with pytest.raises(Infeasible, match="memory of gpt embedding, gpt layer, gpt head: expected a choice of at most 1 MiB"):
        model_costs(GPT, 1, 512, terms(), budget=MemoryBudget(2.0**20))


def frontier(part: PartCosts, slack: float) -> list[tuple[float, float]]:
    """(time, memory) of the part's shardings, each the fastest that takes less memory than the one before, down to ``slack`` [B]
    below the first."""
    problem = replace(part.sharding.problem, layouts={name: TOKENS for name in ("X", "Y") if name in part.sharding.ends})
    found = [shard(problem)]
    while found[-1].memory > found[0].memory - slack:
        try:
            found.append(shard(problem, capacity=found[-1].memory - 1))
        except Infeasible:
            break
    return [(each.time, each.memory) for each in found]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.995, 0.98])
def test_what_fits_together_is_the_best_of_all_divisions_of_the_room(share: float) -> None:
    """Against every combination of what the parts could take alone."""
    given, held, counts = terms(boundary=TOKENS), (1.0, 2.0, 1.0), (1, 3, 1)
    free = model_costs(GPT, 1, 512, given)
    need = math.fsum(many * part.sharding.memory for many, (part, _) in zip(held, free.counted, strict=True))
    found = model_costs(GPT, 1, 512, given, budget=MemoryBudget(share * need, held))
    slack = (1 - share) * need
    points = [frontier(part, slack / many) for many, (part, _) in zip(held, free.counted, strict=True)]
    fitting = (
        math.fsum(count * time for count, (time, _) in zip(counts, each, strict=True))
        for each in itertools.product(*points)
        if math.fsum(many * size for many, (_, size) in zip(held, each, strict=True)) <= share * need
    )
    assert found.time == pytest.approx(min(fitting), rel=1e-8)


def test_room_is_for_all_microbatches_in_flight() -> None:
    one, many = (model_costs(GPT, 2, 512, terms(), budget=MemoryBudget(math.inf, in_flight=each)) for each in (1.0, 8.0))
    for found, flying in ((one, 1.0), (many, 8.0)):
        part = found.blocks[0][0]
        assert part.sharding.saved_memory == flying * part.activation
    # of shardings that take equally long, that with least memory
    assert many.time == pytest.approx(one.time, rel=1e-8)


def test_a_charge_for_parameters_leaves_fewer() -> None:
    """Weights that all ranks have would save a collective of each microbatch; the optimizer's step makes them dear."""
    plain = model_costs(LLAMA, 1, 512, terms())
    dear = model_costs(LLAMA, 1, 512, terms(update=1e-9))
    count = [math.fsum(part.parameters * times for part, times in found.counted) for found in (plain, dear)]
    assert count[1] < count[0]
    assert dear.time >= plain.time
    assert dear.time + 1e-9 * count[1] < plain.time + 1e-9 * count[0]


def test_gradients_that_are_partial_sums_are_reduced_once_for_all_microbatches() -> None:
    """Gains and biases of sequence parallelism; of eight microbatches each pays an eighth."""
    given = {"boundary": TOKENS, "splits": split_as_megatron(scattered=True)}
    one, eight = (model_costs(GPT, 1, 512, terms(**given, microbatches=count)).blocks[0][0] for count in (1, 8))
    sums = math.fsum(step.time for move, step in one.sharding.steps if move.tensor.startswith(("d_gain", "d_bias")))
    assert sums > 0
    assert one.time - eight.time == pytest.approx(sums * 7 / 8)
    assert {move.runs for move, _ in eight.sharding.steps if move.tensor.startswith(("d_gain", "d_bias"))} == {8}
    assert all(move.runs == 1 for move, _ in eight.sharding.steps if not move.tensor.startswith("d_"))


def test_times_add_up_to_the_shardings() -> None:
    for part, _ in model_costs(MIXTURE, 2, 512, terms(), Recompute.FULL).counted:
        assert part.time == pytest.approx(part.sharding.time)
        assert math.fsum(part.exposed.values()) == pytest.approx(part.sharding.collective_time)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: model_costs(GPT, 2, 512, terms(boundary=(Shard("f"),))), "layout of X|layout of Y"),
        (lambda: model_costs(GPT, 2, 512, terms(splits={"up": {"x": "q"}})), "a dim of the op"),
        (lambda: model_costs(GPT, 2, 512, terms(), budget=MemoryBudget(1.0, (1.0,))), "expected 3 numbers: embedding"),
        (lambda: model_costs(GPT, 2, 1024, terms()), "positions of its table"),
        (lambda: terms(resident=0.0), "above 0 bytes for a parameter"),
        (lambda: terms(microbatches=0), "at least 1 microbatch"),
    ],
)
def test_faults(made: Callable[[], object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        made()
