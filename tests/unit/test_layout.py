"""Cuttings of a dim against sets of indices."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from halley.rewrite.layout import AxisKey, DimCut, covers, extents_after, ranges, restrict

X, Y = ("cluster", "x"), ("cluster", "y")
SIZES: dict[AxisKey, int] = {X: 3, Y: 2}
MEMBERS = [{X: x, Y: y} for x in range(3) for y in range(2)]

cuts = st.one_of(
    st.builds(DimCut, st.integers(1, 5)),
    st.builds(DimCut, st.integers(1, 5), st.sampled_from([X, Y]), st.integers(0, 1)),
    st.just(DimCut(0, X, 0, 3)),
    st.just(DimCut(0, Y, 0, 2)),
)


def splits_once(chain: tuple[DimCut, ...]) -> bool:
    axes = [cut.axis for cut in chain if cut.axis]
    return len(axes) == len(set(axes))


chains = st.lists(cuts, max_size=4).map(tuple).filter(splits_once)
extents = st.integers(1, 9)


def indices(chain: tuple[DimCut, ...], extent: int, member: dict[AxisKey, int]) -> set[int]:
    return {index for start, stop in ranges(chain, (0, extent), member) for index in range(start, stop)}


@given(chains, chains, extents)
@settings(deadline=None)
def test_covers_is_inclusion_of_indices(have: tuple[DimCut, ...], read: tuple[DimCut, ...], extent: int) -> None:
    expected = all(indices(read, extent, member) <= indices(have, extent, member) for member in MEMBERS)
    assert covers(have, read, {}, extent, SIZES) == expected


@given(chains, chains, extents, st.integers(1, 3))
@settings(deadline=None)
def test_only_those_who_read_need_it(have: tuple[DimCut, ...], read: tuple[DimCut, ...], extent: int, stop: int) -> None:
    expected = all(indices(read, extent, member) <= indices(have, extent, member) for member in MEMBERS if member[X] < stop)
    found = covers(have, read, {X: (0, stop)}, extent, SIZES)
    assert expected or not found
    if have[:1] != read[:1]:  # behind a common cut it asks for every range that any member could have
        assert found == expected


@given(cuts, extents)
def test_sizes_inside_a_cut(cut: DimCut, extent: int) -> None:
    walked = {stop - start for start, stop in ranges((DimCut(cut.size(extent)),), (0, extent), {})}
    assert extents_after(frozenset({extent}), cut) == walked


@given(chains, extents)
def test_a_shared_memory_sees_what_all_members_bring(chain: tuple[DimCut, ...], extent: int) -> None:
    everyone = {index for member in MEMBERS for index in indices(restrict(chain, [X]), extent, member)}
    assert everyone >= {index for member in MEMBERS for index in indices(chain, extent, member)}
    assert covers(restrict(chain, []), (), {}, extent, SIZES)
