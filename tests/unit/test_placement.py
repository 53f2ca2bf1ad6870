"""Placements: each row of the transition table, and each transition carried out on arrays by every algorithm that serves it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from halley.errors import BadInput
from halley.ir.hardware import CHIP_TOPOLOGIES, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.placement import Partial, Placement, Replicate, Shard, Single, transition
from halley.network.algorithms.tables import Transfer, chunk_sizes
from halley.network.time.axis import algorithms, steps

Kind = CollectiveKind
Array = NDArray[np.int64]
Message = tuple[Transfer, NDArray[np.bool_], Array]

TABLE: list[tuple[Placement, Placement, Kind | None]] = [
    (Partial("sum"), Replicate(), Kind.ALL_REDUCE),
    (Partial("max"), Shard("m"), Kind.REDUCE_SCATTER),
    (Partial("sum"), Single(), Kind.REDUCE),
    (Shard("m"), Replicate(), Kind.ALL_GATHER),
    (Shard("n"), Single(), Kind.GATHER),
    (Shard("m"), Shard("n"), Kind.ALL_TO_ALL),
    (Replicate(), Shard("n"), None),
    (Replicate(), Single(), None),
    (Single(), Replicate(), Kind.BROADCAST),
    (Single(), Shard("n"), Kind.SCATTER),
    (Partial("sum"), Partial("sum"), None),
    (Shard("m"), Shard("m"), None),
    (Replicate(), Replicate(), None),
    (Single(), Single(), None),
]
IMPOSSIBLE: list[tuple[Placement, Placement]] = [
    (Replicate(), Partial("sum")),
    (Shard("m"), Partial("sum")),
    (Single(), Partial("sum")),
    (Partial("max"), Partial("sum")),
]


@pytest.mark.parametrize(("source", "target", "kind"), TABLE)
def test_each_row_of_the_table(source: Placement, target: Placement, kind: Kind | None) -> None:
    assert transition(source, target) is kind


@pytest.mark.parametrize(("source", "target"), IMPOSSIBLE)
def test_nothing_leads_to_parts(source: Placement, target: Placement) -> None:
    with pytest.raises(BadInput) as caught:
        transition(source, target)
    (fault,) = caught.value.faults
    assert fault.where == f"transition {source} -> {target}"
    assert fault.expected == "a target that is not Partial"
    assert fault.got == str(target)
    assert fault.remedy


def test_the_table_covers_every_pair() -> None:
    def names(pairs: list[tuple[Placement, Placement]]) -> set[tuple[str, str]]:
        return {(type(a).__name__, type(b).__name__) for a, b in pairs}

    kinds = [kind.__name__ for kind in (Partial, Shard, Replicate, Single)]
    assert names([row[:2] for row in TABLE]) | names(IMPOSSIBLE) == set(itertools.product(kinds, kinds))


def test_every_collective_but_the_shift_is_a_transition() -> None:
    assert {kind for *_, kind in TABLE if kind} == set(Kind) - {Kind.SHIFT}


def test_placements_print() -> None:
    assert [str(p) for p in (Shard("n"), Replicate(), Partial("sum"), Single())] == [
        "Shard(n)",
        "Replicate",
        "Partial(sum)",
        "Single",
    ]


def test_placements_check_themselves() -> None:
    with pytest.raises(BadInput, match="did you mean 'sum'"):
        Partial("sun")
    with pytest.raises(BadInput, match="name of a dim"):
        Shard("")


# --- transitions on arrays -----------------------------------------------------------------------------------------------

COMBINE = {"sum": np.add, "max": np.maximum}
DIMS = ("m", "n")


def shards(shape: tuple[int, ...], dim: str, size: int) -> list[NDArray[np.bool_]]:
    """Which elements each member's shard has."""
    axis = DIMS.index(dim)
    tile = -(-shape[axis] // size)
    number = np.indices(shape)[axis] // tile
    return [number == member for member in range(size)]


def layout(
    placement: Placement, whole: Array, size: int, draw: np.random.Generator
) -> tuple[list[Array], list[NDArray[np.bool_]]]:
    """What each member has, and where it has anything: parts drawn at random whose combination is ``whole``."""
    everything, nothing = np.ones(whole.shape, bool), np.zeros(whole.shape, bool)
    match placement:
        case Replicate():
            held = [everything] * size
        case Single():
            held = [everything] + [nothing] * (size - 1)
        case Shard(dim):
            held = shards(whole.shape, dim, size)
        case Partial("sum"):
            parts = [draw.integers(-99, 99, whole.shape) for _ in range(size - 1)]
            return [*parts, whole - np.sum(parts, axis=0, dtype=np.int64)], [everything] * size
        case Partial():
            parts = [whole - draw.integers(0, 99, whole.shape) for _ in range(size)]
            owner = draw.integers(0, size, whole.shape)
            return [np.where(owner == i, whole, part) for i, part in enumerate(parts)], [everything] * size
    garbage = [draw.integers(-(10**6), 10**6, whole.shape) for _ in range(size)]
    return [np.where(mask, whole, junk) for mask, junk in zip(held, garbage, strict=True)], held


def chunk_masks(kind: Kind, source: Placement, target: Placement, shape: tuple[int, ...], size: int) -> list[NDArray[np.bool_]]:
    """The elements of each chunk, by the convention of the step tables."""
    match kind, source, target:
        case ((Kind.ALL_REDUCE | Kind.REDUCE | Kind.BROADCAST), _, _):
            ends = np.cumsum([0, *chunk_sizes(int(np.prod(shape)), size)])
            flat = np.arange(np.prod(shape)).reshape(shape)
            return [(flat >= a) & (flat < b) for a, b in itertools.pairwise(ends)]
        case ((Kind.REDUCE_SCATTER | Kind.SCATTER), _, Shard(dim)):
            return shards(shape, dim, size)
        case ((Kind.ALL_GATHER | Kind.GATHER), Shard(dim), _):
            return shards(shape, dim, size)
        case Kind.ALL_TO_ALL, Shard(before), Shard(after):
            return [i & j for i in shards(shape, before, size) for j in shards(shape, after, size)]
        case _:
            raise NotImplementedError(kind)


def run(table: tuple[tuple[Transfer, ...], ...], masks: list[NDArray[np.bool_]], values: list[Array], monoid: str) -> list[Array]:
    """Carry out a step table; all messages of a step leave before any arrives."""
    values = [value.copy() for value in values]
    for step in table:
        messages: list[Message] = [(t, masks[t.chunk], values[t.source][masks[t.chunk]]) for t in step]
        for t, where, message in messages:
            values[t.target][where] = COMBINE[monoid](values[t.target][where], message) if t.combine else message
    return values


moves = [(source, target, kind) for source, target, kind in TABLE if kind]
moves += [(Partial("max"), Replicate(), Kind.ALL_REDUCE), (Partial("sum"), Shard("n"), Kind.REDUCE_SCATTER)]


@given(
    st.sampled_from(moves),
    st.sampled_from(CHIP_TOPOLOGIES),
    st.integers(1, 9),
    st.tuples(st.integers(1, 11), st.integers(1, 11)),
    st.integers(0, 2**32 - 1),
)
def test_a_transition_reaches_the_placement_that_it_promises(
    move: tuple[Placement, Placement, Kind], topology: Topology, size: int, shape: tuple[int, int], seed: int
) -> None:
    source, target, kind = move
    draw = np.random.default_rng(seed)
    whole = draw.integers(-999, 999, shape)
    values, _ = layout(source, whole, size, draw)
    _, wanted = layout(target, whole, size, draw)
    masks = chunk_masks(kind, source, target, shape, size)
    monoid = source.monoid if isinstance(source, Partial) else "sum"
    for name in algorithms(kind, topology, size):
        after = run(steps(kind, name, topology, size), masks, values, monoid)
        for member in range(size):
            np.testing.assert_array_equal(after[member][wanted[member]], whole[wanted[member]], err_msg=f"{name} on {topology}")


@given(st.integers(1, 9), st.sampled_from(CHIP_TOPOLOGIES), st.integers(0, 2**32 - 1))
def test_a_shift_hands_every_block_to_the_next_member(size: int, topology: Topology, seed: int) -> None:
    """Members keep what they have, and get what the one before has beside it."""
    values = list(np.random.default_rng(seed).integers(-99, 99, (size, 5)))
    arrived = {t.target: values[t.source] for step in steps(Kind.SHIFT, "neighbour", topology, size) for t in step}
    assert sorted(arrived) == list(range(1, size))
    assert all((arrived[i] == values[i - 1]).all() for i in arrived)
    assert all(t.chunk == t.source for step in steps(Kind.SHIFT, "neighbour", topology, size) for t in step)


@given(st.sampled_from([row for row in TABLE if row[2] is None]), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_where_nothing_moves_each_member_has_what_it_keeps(row: tuple[Placement, Placement, None], size: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    whole = draw.integers(-999, 999, (7, 5))
    source, target, _ = row
    _, has = layout(source, whole, size, draw)
    _, keeps = layout(target, whole, size, draw)
    assert all((kept <= had).all() for kept, had in zip(keeps, has, strict=True))
