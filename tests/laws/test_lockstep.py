"""Laws of memories whose double buffers swap at a barrier: barriers only delay, and the formula follows the simulation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from tests.reference.generate import all_grown
from validation.simulation.draw import drawn as realistic

from halley.cost.anatomy import anatomy
from halley.cost.evaluate import evaluate
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node, Sequence, walk
from halley.ir.workload import Workload
from halley.rewrite.paths import replace_at
from halley.rewrite.prefetch import prefetch_faults
from halley.simulate.simulation import simulate


def in_lockstep(chip: Chip, names: set[str]) -> Chip:
    """The chip with barriers in these memories, and in no other."""
    levels = tuple(
        replace(level, memories=tuple(replace(memory, lockstep=memory.name in names) for memory in level.memories))
        for level in chip.levels
    )
    return replace(chip, levels=levels)


def drawn(seeds: range) -> Iterator[tuple[Workload, Chip, Chip, Node]]:
    """Random trees with Holds of several buffers, on a chip without barriers and on the same chip with them."""
    for seed in seeds:
        _, work, chip, trees = all_grown(seed, 14)
        for tree in reversed(trees):
            held = sorted({node.memory for _, node in walk(tree) if isinstance(node, Hold) and node.buffers > 1})
            if held:
                random = Random(seed)
                yield work, chip, in_lockstep(chip, set(random.sample(held, random.randint(1, len(held))))), tree
                break


def with_prefetch(tree: Node, work: Workload, chip: Chip) -> Iterator[Node]:
    """The tree with one sequence that prefetches across its phases."""
    for path, node in walk(tree):
        if isinstance(node, Sequence):
            made = replace_at(tree, path, lambda node: replace(node, prefetch=True))
            if not list(prefetch_faults(made, work, chip)):
                yield made


@pytest.mark.parametrize("block", range(4))
def test_barriers_only_delay(block: int) -> None:
    """No tree is faster with barriers, and the breakdown of its time adds up."""
    delayed = 0
    for work, ahead, stepped, tree in drawn(range(30 * block, 30 * block + 30)):
        for made in (tree, *with_prefetch(tree, work, stepped)):
            estimate = evaluate(work, stepped, made)
            time, least = float(estimate.time), float(evaluate(work, ahead, made).time)
            assert time >= least * (1 - 1e-9)
            delayed += time > least * (1 + 1e-9)
            assert anatomy(made, estimate).total.time == pytest.approx(time)
    assert delayed > 2


def test_formula_follows_the_simulation() -> None:
    """With barriers as without, but for what the formula without barriers overestimates: the simulation is never much slower."""
    errors = []
    for work, _, stepped, tree in drawn(range(80)):
        errors.append(float(evaluate(work, stepped, tree).time) / float(simulate(work, stepped, tree).time) - 1)
    assert min(errors) > -0.1
    assert np.mean(np.abs(errors)) < 0.015


def test_realistic_mappings() -> None:
    """Searched plans with random tiles and buffers: never faster than without barriers, and as close to the simulation."""
    errors, random = [], Random(1)
    for number, one in enumerate(realistic(16, seed=7)):
        held = sorted({node.memory for _, node in walk(one.tree) if isinstance(node, Hold) and node.buffers > 1})
        chip = in_lockstep(one.chip, {random.choice(held)} if number % 2 else set(held))
        time = float(evaluate(one.workload, chip, one.tree).time)
        assert time >= float(one.estimate.time) * (1 - 1e-9)
        errors.append(time / simulate(one.workload, chip, one.tree).time - 1)
    assert min(errors) > -0.05
    assert np.mean(np.abs(errors)) < 0.03


def test_numbers_of_buffers_as_arrays() -> None:
    """A batch of one, two and three buffers in each Hold costs what each mapping costs by itself."""
    compared = 0
    for work, _, stepped, tree in drawn(range(30)):
        if any(isinstance(node, Sequence) and node.prefetch for _, node in walk(tree)):
            continue
        paths = [path for path, node in walk(tree) if isinstance(node, Hold) and path][:3]
        counts = np.stack(np.meshgrid(*([np.arange(1.0, 4.0)] * len(paths)), indexing="ij")).reshape(len(paths), -1)
        batch = tree
        for path, own in zip(paths, counts, strict=True):
            batch = replace_at(batch, path, lambda node, own=own: replace(node, buffers=own))
        times = np.broadcast_to(evaluate(work, stepped, batch).time, counts.shape[1])
        for place, each in enumerate(counts.T):
            single = tree
            for path, own in zip(paths, each, strict=True):
                single = replace_at(single, path, lambda node, own=own: replace(node, buffers=int(own)))
            assert times[place] == pytest.approx(float(evaluate(work, stepped, single).time), rel=1e-9)
        compared += 1
    assert compared > 10
