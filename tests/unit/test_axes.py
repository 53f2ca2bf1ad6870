"""Assignments of a system's axes: all of them, none twice, as many as a formula says; impossible degrees are reported."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halley.errors import BadInput
from halley.io.systems.system import load_system
from halley.ir.hardware import Axis, Chip, Link, Topology
from halley.ir.system import System
from halley.sharding.axes import ROLES, Assignment, Role, SubAxis, assignment_text, assignments, counts, cuts, degree

T = Topology
LINK = Link(1e9, 1e-6)
SHAPES: Mapping[Topology, tuple[int, ...]] = {T.SWITCH: (1, 2, 6, 8, 12), T.FULL: (2, 4, 9), T.RING: (1, 8, 12), T.LINE: (4, 6)}


def system(*axes: tuple[Topology, int]) -> System:
    return System("drawn", Chip("c", ()), tuple(Axis(f"x{place}", size, kind, LINK) for place, (kind, size) in enumerate(axes)))


drawn_axes = st.lists(
    st.sampled_from(list(SHAPES)).flatmap(lambda kind: st.tuples(st.just(kind), st.sampled_from(SHAPES[kind]))), max_size=3
)
drawn = drawn_axes.map(lambda axes: system(*axes))


def products(number: int, factors: int) -> int:
    """Ordered ways to write a number as a product of so many numbers: the powers of each prime are distributed independently."""
    found, prime = 1, 2
    while number > 1:
        power = 0
        while number % prime == 0:
            number, power = number // prime, power + 1
        found *= math.comb(power + factors - 1, factors - 1)
        prime += 1
    return found


def ways(axis: Axis) -> int:
    """The number of factorisations of an axis: products of three numbers where the order does not matter; else, for each choice
    of roles in an order, products of as many numbers above 1 (by inclusion and exclusion)."""
    if axis.topology in (T.SWITCH, T.FULL):
        return products(axis.size, 3)
    if axis.size == 1:
        return 1
    return sum(
        math.perm(3, parts) * sum((-1) ** (parts - i) * math.comb(parts, i) * products(axis.size, i) for i in range(1, parts + 1))
        for parts in range(1, 4)
    )


def every_cut(axis: Axis) -> set[tuple[tuple[Role, int, int], ...]]:
    """By brute force: sizes up to the axis, all orders of the roles."""
    found = set()
    for sizes in product(range(1, axis.size + 1), repeat=3):
        if math.prod(sizes) != axis.size:
            continue
        for order in permutations(range(3)):
            parts = [(ROLES[r], sizes[r], math.prod(sizes[o] for o in order[place + 1 :])) for place, r in enumerate(order)]
            found.add(tuple(part for part in parts if part[1] > 1))
    return found


@settings(deadline=None)
@given(drawn)
def test_there_are_as_many_as_the_formula_says(found: System) -> None:
    all_of_them = assignments(found)
    assert len(all_of_them) == len(set(all_of_them)) == math.prod(map(ways, found.axes)) == sum(counts(found).values())


@pytest.mark.parametrize("size", [2, 6, 8, 12, 30])
def test_a_ring_is_cut_in_every_way(size: int) -> None:
    ring = Axis("x", size, T.RING, LINK)
    assert {tuple((part.role, part.size, part.stride) for part in cut) for cut in cuts(ring)} == every_cut(ring)


@pytest.mark.parametrize("size", [2, 6, 8, 12])
def test_a_switch_has_one_of_each_set_of_sizes(size: int) -> None:
    switch = Axis("x", size, T.SWITCH, LINK)
    sizes = [tuple(degree(cut, role) for role in Role) for cut in cuts(switch)]
    assert len(set(sizes)) == len(sizes)
    assert set(sizes) == {found for found in product(range(1, size + 1), repeat=3) if math.prod(found) == size}


@settings(deadline=None, max_examples=60)
@given(drawn, st.data())
def test_parts_multiply_to_their_axis_and_number_all_its_ranks(found: System, data: st.DataObject) -> None:
    every = assignments(found)
    for assignment in data.draw(st.lists(st.sampled_from(every), max_size=20)):
        assert math.prod(degree(assignment, role) for role in Role) == found.chips
        names = [axis.name for axis in found.axes]
        assert [names.index(part.axis) for part in assignment] == sorted(names.index(part.axis) for part in assignment)
        for axis in found.axes:
            parts = [part for part in assignment if part.axis == axis.name]
            assert len({part.role for part in parts}) == len(parts)
            ranks = {sum(c * part.stride for c, part in zip(point, parts, strict=True)) for point in points(parts)}
            assert ranks == set(range(axis.size))


def points(parts: list[SubAxis]) -> product:
    return product(*(range(part.size) for part in parts))


@settings(deadline=None, max_examples=60)
@given(drawn, st.data())
def test_degrees_choose_among_all(found: System, data: st.DataObject) -> None:
    every = assignments(found)
    wanted = dict(zip(ROLES, data.draw(st.sampled_from(sorted(counts(found)))), strict=True))
    some = {role: wanted[role] for role in data.draw(st.sets(st.sampled_from(ROLES)))}
    kept = tuple(item for item in every if all(degree(item, role) == size for role, size in some.items()))
    assert assignments(found, some) == kept
    assert kept


@settings(deadline=None, max_examples=30)
@given(drawn)
def test_whole_axes_are_those_that_are_not_cut(found: System) -> None:
    def uncut(assignment: Assignment) -> bool:
        return max(Counter(part.axis for part in assignment).values(), default=0) <= 1

    assert assignments(found, whole=True) == tuple(item for item in assignments(found) if uncut(item))


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ({Role.MODEL: 7}, "whose product divides the 1024 chips; got model 7; nearest that work: model 8; model 4; model 16"),
        ({Role.DATA: 8, Role.PIPELINE: 8, Role.MODEL: 8}, "is the 1024 chips; got data 8 x pipeline 8 x model 8 = 512"),
        ({Role.MODEL: 0}, "degrees, model: expected a whole number of ranks, at least 1; got 0"),
        ({"modle": 2}, "did you mean 'model'"),
    ],
)
def test_degrees_that_do_not_work_are_reported(degrees: Mapping[Role, int], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        assignments(load_system("1024 x h100, nvlink 8, ib"), degrees)
    assert said in str(caught.value)


def test_all_faults_come_together() -> None:
    with pytest.raises(BadInput) as caught:
        assignments(system((T.RING, 8)), {Role.MODEL: -1, Role.DATA: True, "tp": 2})  # type: ignore[dict-item]
    assert len(caught.value.faults) == 3


def test_degrees_that_divide_the_chips_but_no_axis_are_reported() -> None:
    """4 divides 36 chips, but every axis of 6 has one factor of 2; whole axes give none of 18."""
    with pytest.raises(BadInput, match="degrees that whole axes give"):
        assignments(system((T.RING, 6), (T.RING, 6)), {Role.MODEL: 18}, whole=True)
    assert assignments(system((T.RING, 6), (T.RING, 6)), {Role.MODEL: 18})


def test_too_many_are_refused_without_listing_them() -> None:
    with pytest.raises(BadInput, match="at most 1048576; got"):
        assignments(system(*[(T.RING, 12)] * 8))


def test_a_single_chip_has_one_assignment() -> None:
    assert assignments(system()) == assignments(system((T.RING, 1))) == ((),)
    assert assignment_text(()) == "one chip"
