"""Prefetch across phases: text, rules, footprint, time and simulation of a `Sequence` that runs on (docs/model.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from tests.reference.agreement import dealt_again
from tests.reference.generate import random_chip, random_trees, random_workload
from tests.reference.oracles import inputs
from tests.reference.test_counts import assert_agrees
from tests.reference.test_simulation import assert_busy
from tests.reference.trees import chip, op
from tests.reference.trees import workload as problem
from validation.simulation.draw import drawn

from halley.cost.anatomy import anatomy
from halley.cost.evaluate import evaluate
from halley.errors import BadInput, IllegalMapping
from halley.execute.interpreter import random_inputs, run
from halley.ir.hardware import Chip
from halley.ir.mapping import Compute, Hold, Node, Sequence, Temporal, walk
from halley.ir.text import parse, to_text
from halley.ir.workload import OpKind, Workload
from halley.rewrite import legality
from halley.rewrite.paths import replace_at
from halley.simulate.simulation import simulate
from halley.simulate.tasks import Path

CHAIN = """
hold dram: A B D E
  for m by 4
    hold obuf x2: C
      sequence prefetch
        for k by 2
          hold ibuf x2: A
            hold wbuf x2: B
              compute C
        hold obuf x2: E
          for n by 2
            hold wbuf x2: D
              compute E
"""


def two_gemms(m: int = 12, n: int = 6, k: int = 6, p: int = 4) -> Workload:
    ops = (op("C", OpKind.CONTRACT, "A B", "C", "mnk"), op("E", OpKind.CONTRACT, "C D", "E", "mpn"))
    return problem({"m": m, "n": n, "k": k, "p": p}, "A:mk B:kn C:mn D:np E:mp", ops, "E")


def turned(tree: Node, on: bool) -> Node:
    """The tree with `prefetch` in all sequences, or in none."""
    for path, node in walk(tree):
        if isinstance(node, Sequence):
            tree = replace_at(tree, path, lambda node: replace(node, prefetch=on))
    return tree


# ---- text and rules --------------------------------------------------------------------------------


def test_the_text_says_it() -> None:
    tree = parse(CHAIN)
    assert to_text(tree) == CHAIN.strip()
    assert parse(to_text(turned(tree, False))) != tree
    with pytest.raises(BadInput, match="expected 'prefetch' or the end of the line; got 'prefech'; did you mean 'prefetch'"):
        parse("sequence prefech\n  compute C")


def test_something_must_run_on() -> None:
    """C is handed over, and A and B have one buffer: nothing can come early."""
    text = "hold dram: A B D E\n hold obuf: C E D\n  hold ibuf: A B\n   sequence prefetch\n    compute C\n    compute E"
    tree = parse(text)
    found = legality.faults(tree, two_gemms(), chip(1, 1))
    assert [(fault.where, fault.got) for fault in found] == [("sequence prefetch", "none; children hand over C")]
    with pytest.raises(IllegalMapping, match="sequence prefetch: expected a child that holds, in several buffers"):
        run(two_gemms(), chip(1, 1), tree, random_inputs(two_gemms(), 1))
    assert legality.faults(turned(tree, False), two_gemms(), chip(1, 1)) == []


# ---- footprint and counts -------------------------------------------------------------------------------


def test_room_for_what_comes_early() -> None:
    """Beside the tiles of the first GEMM lie those of the second that come early, and the other way round."""
    tree, work, machine = parse(CHAIN), two_gemms(), chip(1, 1)
    a, b, c, d, e = 4 * 2 * 2, 2 * 6 * 2, 4 * 6 * 2, 2 * 4 * 2, 4 * 4 * 2
    together = {"dram": (72 + 36 + 24 + 48) * 2, "ibuf": 2 * a, "wbuf": 2 * b + 2 * d, "obuf": 2 * c + 2 * e}
    assert {name: evaluate(work, machine, tree).footprint[name] for name in together} == together
    in_turn = evaluate(work, machine, turned(tree, False)).footprint
    assert in_turn["wbuf"] == 2 * max(b, d)
    assert_agrees(work, machine, tree, run(work, machine, tree, random_inputs(work, 2)))


@pytest.mark.parametrize(("loop", "bytes_"), [("", 64 + 32), ("  for m by 4\n", 64 + 64)])
def test_in_a_loop_the_last_child_is_followed_by_the_first(loop: str, bytes_: int) -> None:
    """The first and the last of four children have two buffers of 4 x 4 x 2 bytes; those between have one, and wait."""
    pairs = (("A", "W"), ("B", "X"), ("D", "Y"), ("F", "Z"))
    ops = tuple(op(made, OpKind.MAP, given, made, "mn", function="identity") for given, made in pairs)
    work = problem({"m": 8 if loop else 4, "n": 4}, " ".join(f"{name}:mn" for pair in pairs for name in pair), ops, "W X Y Z")
    pad = "    " if loop else "  "
    lines = [f"hold dram: {' '.join(name for pair in pairs for name in pair)}\n{loop}{pad}sequence prefetch"]
    for (given, made), buffers in zip(pairs, (" x2", "", "", " x2"), strict=True):
        lines += [f"{pad}  hold ibuf{buffers}: {given}", f"{pad}    hold obuf: {made}", f"{pad}      compute {made}"]
    tree = parse("\n".join(lines))
    assert_agrees(work, chip(1, 1), tree, run(work, chip(1, 1), tree, random_inputs(work, 2)))
    assert evaluate(work, chip(1, 1), tree).footprint["ibuf"] == bytes_


# ---- time ------------------------------------------------------------------------------------------


def test_ramps_of_later_phases_are_hidden() -> None:
    """Only the first fill of the first child and the last drain of the last one stand alone, once for all rows."""
    tree, work, machine = parse(CHAIN), two_gemms(), chip(1, 1)
    on, off = evaluate(work, machine, tree), evaluate(work, machine, turned(tree, False))
    path = next(path for path, node in walk(tree) if isinstance(node, Sequence))
    apart, running = ([found.nodes[*path, index] for index in (0, 1)] for found in (off, on))
    assert [(cost.ramp_up, cost.ramp_down) for cost in running] == [(0, 0), (0, 0)]
    assert (on.nodes[path].ramp_up, on.nodes[path].ramp_down) == (apart[0].ramp_up, apart[1].ramp_down) != (0, 0)
    for one, cost in zip(running, apart, strict=True):
        ramps = 3 * float(cost.ramp_up + cost.ramp_down)
        assert max(one.work, *one.busy.values()) <= one.time <= cost.time
        assert one.time >= cost.time - ramps * (1 + 1e-12)
    steady = sum(float(cost.time) for cost in running)
    assert steady <= float(on.time) <= steady + float(apart[0].ramp_up + apart[1].ramp_down) + 1e-15
    assert float(on.time) < 0.95 * float(off.time)
    assert on.events == off.events
    assert on.busy == off.busy


def test_simulation_brings_the_next_tiles_in_early() -> None:
    """B's first tile of the next rows is loaded while the second GEMM computes; and D's while the first does."""
    tree, work, machine = parse(CHAIN), two_gemms(), chip(1, 1)
    found, apart = simulate(work, machine, tree), simulate(work, machine, turned(tree, False))
    assert found.time < apart.time
    begin = [i.start for i in found.intervals if i.name == "fill D" and i.server.resource == ("write", "wbuf")]
    computed = [i.stop for i in found.intervals if i.name == "compute C" and i.server.resource == ("engine", "mxu")]
    assert begin[0] < computed[2]  # three tiles of k make the first rows
    assert all(a == b for a, b in ((found.busy[s], apart.busy[s]) for s in found.busy))


# ---- random trees ----------------------------------------------------------------------------------


@cache
def running_on(count: int) -> list[tuple[Workload, Chip, Node, bool]]:
    """Random trees with double buffers in the children of sequences, some of which run on; whether the tree is legal."""
    found = []
    for seed in range(count):
        random = Random(seed)
        work, machine = random_workload(random), random_chip(random)

        def legal(tree: Node, work: Workload = work, machine: Chip = machine) -> bool:
            return not legality.faults(tree, work, machine)

        *_, tree = random_trees(random, work, machine, legal, 16)
        if work.indices:
            continue
        for _ in range(20):
            made = edited(random, work, machine, tree)
            tree = made if legal(made) else tree
        for path in [path for path, node in walk(tree) if isinstance(node, Hold) and random.random() < 0.5]:
            made = replace_at(tree, path, lambda node: replace(node, buffers=2))
            tree = made if legal(made) else tree
        series = [path for path, node in walk(tree) if isinstance(node, Sequence)]
        for path in series:
            if random.random() < 0.7:
                tree = replace_at(tree, path, lambda node: replace(node, prefetch=True))
        if series:
            found.append((work, machine, tree, legal(tree)))
    return found


def edited(random: Random, work: Workload, machine: Chip, tree: Node) -> Node:
    """A loop or a Hold, mostly of two buffers, around a sequence or a child of one."""
    series = [(path, node) for path, node in walk(tree) if isinstance(node, Sequence)]
    if not series:
        return tree
    places = [path for path, _ in series] + [(*path, index) for path, node in series for index in range(len(node.children))]
    at = random.choice(places)
    ops = [work.op(node.op) for path, node in walk(tree) if isinstance(node, Compute) and path[: len(at)] == at]
    if not ops:
        return tree
    if random.random() < 0.4:
        dim = random.choice(sorted({dim for each in ops for dim in each.dims}))
        tile = random.randint(1, max(1, work.dims[dim] - 1))
        return replace_at(tree, at, lambda node: Temporal(dim, tile, node))
    names = sorted({name for each in ops for name in (*each.inputs, *each.outputs)})
    if random.random() < 0.7:  # what no op makes can come early
        names = [name for name in names if name in work.inputs] or names
    groups = tuple((name,) for name in random.sample(names, random.randint(1, min(2, len(names)))))
    memory, buffers = random.choice(machine.memories[1:]).name, random.choice((2, 2, 3, 1))
    return replace_at(tree, at, lambda node: Hold(memory, groups, node, buffers))


def judge(count: int) -> tuple[int, int, int]:
    """How many trees are legal and run on, then need more memory, and are then faster; all else is checked."""
    judged = roomier = faster = 0
    for seed, (work, machine, tree, legal) in enumerate(running_on(count)):
        try:
            done = run(work, machine, tree, inputs(work, seed))
        except BadInput:
            assert not legal, to_text(tree)
            continue
        assert legal, to_text(tree)
        assert parse(to_text(tree)) == tree
        assert_agrees(work, machine, tree, done)
        if not dealt_again(work, tree):
            assert_busy(work, machine, tree, simulate(work, machine, tree))
        on, off = evaluate(work, machine, tree), evaluate(work, machine, turned(tree, False))
        assert anatomy(tree, on).total.time == pytest.approx(float(on.time), rel=1e-12)
        assert all(on.footprint[name] >= size for name, size in off.footprint.items())
        judged += on.nodes != off.nodes
        roomier += on.footprint != off.footprint
        faster += float(on.time) < float(off.time) * (1 - 1e-9)
    return judged, roomier, faster


def test_random_trees_that_run_on() -> None:
    """The interpreter's and the formulas' rules, counts and footprints agree; so do the simulation's busy times."""
    judged, roomier, faster = judge(40)
    assert judged > 5
    assert min(roomier, faster) > 1


@pytest.mark.slow
def test_many_random_trees_that_run_on() -> None:
    assert min(judge(600)) > 40


def test_time_of_realistic_mappings_that_run_on() -> None:
    """Formula against simulation: no further apart than in mappings whose phases end before the next begins."""
    on, gains = [], []
    for one in drawn(12, seed=5):
        tree = one.tree
        for path, node in walk(one.tree):
            made = replace_at(tree, path, lambda node: replace(node, prefetch=True)) if isinstance(node, Sequence) else tree
            tree = tree if legality.faults(made, one.workload, one.chip) else made
        if tree != one.tree:
            estimate, simulated = evaluate(one.workload, one.chip, tree), simulate(one.workload, one.chip, tree)
            on.append(float(estimate.time) / simulated.time - 1)
            gains.append((float(one.estimate.time) / float(estimate.time), one.simulation.time / simulated.time))
    assert len(on) > 5
    assert abs(fmean(on)) < 0.06
    assert max(map(abs, on)) < 0.25
    assert fmean(formula for formula, _ in gains) == pytest.approx(fmean(found for _, found in gains), abs=0.02)


def test_batches_equal_scalars() -> None:
    """Tiles and numbers of buffers as arrays: each entry costs what its tree costs."""
    work, machine, tree = two_gemms(), chip(1, 1), parse(CHAIN)
    holds = [path for path, node in walk(tree) if isinstance(node, Hold) and node.buffers == 2]
    loops = [path for path, node in walk(tree) if isinstance(node, Temporal)]
    choices = [dict(zip(holds, each, strict=True)) for each in product((1, 2), repeat=len(holds))]
    tiles = [dict(zip(loops, each, strict=True)) for each in product((4, 6), (2, 3), (2, 3))]
    every = [(buffers, sizes) for buffers in choices for sizes in tiles]

    def made(change: Callable[[Path], Any]) -> Node:
        result = tree
        for path in (*holds, *loops):
            field = "buffers" if path in holds else "tile"
            result = replace_at(result, path, lambda node, field=field, path=path: replace(node, **{field: change(path)}))  # type: ignore[misc]
        return result

    batch = evaluate(work, machine, made(lambda path: np.array([(b | t)[path] for b, t in every], dtype=float)))
    for index, (buffers, sizes) in enumerate(every):
        one = evaluate(work, machine, made(lambda path, found={**buffers, **sizes}: found[path]))  # type: ignore[misc]
        assert np.broadcast_to(batch.time, (len(every),))[index] == pytest.approx(float(one.time), rel=1e-12)
