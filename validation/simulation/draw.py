"""Random mappings for the comparison of formula and simulation.

Plans of shipped workloads (`trees/`: proven or best found mappings, fused, and kernel by kernel) with a random tile in every loop
and split, and random buffers in every Hold. What is drawn is kept if it is legal, fits the chip and takes few enough steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from random import Random

from halley.cost.estimate import Estimate
from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal, walk
from halley.ir.text import parse
from halley.ir.workload import Workload
from halley.rewrite import legality
from halley.simulate.simulation import Simulation, simulate
from halley.workloads import build, variants

TREES = Path(__file__).parent / "trees"

SIZES: dict[str, dict[str, object]] = {
    "gemm": {"m": 256, "n": 512, "k": 256},
    "gemm-softmax": {"m": 128, "n": 256, "k": 64},
    "gemm-layernorm": {"m": 128, "n": 256, "k": 64},
    "gated-mlp": {"tokens": 128, "model": 128, "hidden": 256},
    "attention": {
        "batch": 1, "heads": 4, "kv_heads": 2, "queries": 128, "keys": 256, "head_dim": 64, "value_dim": 64,
    },
}  # fmt: skip

TASKS = 4_000
"""Most visits of nodes in a mapping that is drawn."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A mapping with both its times. ``source``: the plan that it varies."""

    source: str
    workload: Workload
    chip: Chip
    tree: Node
    estimate: Estimate
    simulation: Simulation

    @property
    def deviation(self) -> float:
        """Formula over simulation, less one: above 0 the formula is the slower."""
        return float(self.estimate.time) / self.simulation.time - 1


def sources() -> list[str]:
    """Names of the plans that are varied."""
    return sorted(path.stem for path in TREES.glob("*.tree"))


def plan(name: str) -> tuple[Workload, Chip, Node]:
    """A plan with its problem; of several variants of the workload, the one that it maps."""
    chip, kind, _ = name.split("_")
    tree = parse((TREES / f"{name}.tree").read_text(encoding="utf-8"), name)
    machine = load_chip(chip)
    family = variants(build(kind, SIZES[kind]))
    return next(work for work in family if not legality.faults(tree, work, machine)), machine, tree


def varied(random: Random, tree: Node) -> Node:
    """The tree with other tiles and buffers. All splits of a dim over an axis get the same tile."""
    splits: dict[tuple[str, str, str], int] = {}

    def tile(node: Temporal | Spatial | Pipeline) -> int:
        """Half to twice the plan's, even or odd, or the plan's own; a split has no more parts than in the plan."""
        if isinstance(node, Spatial):
            return random.choice([node.tile, node.tile, random.randint(node.tile, 2 * node.tile)])
        scaled = max(1, int(node.tile * random.choice([0.5, 1, 1, 2])))
        return random.choice([node.tile, scaled, random.randint(max(1, scaled // 2), scaled)])

    def made(node: Node) -> Node:
        match node:
            case Temporal():
                return replace(node, tile=tile(node), body=made(node.body))
            case Spatial():
                key = (node.dim, node.level, node.axis)
                return replace(node, tile=splits.setdefault(key, tile(node)), body=made(node.body))
            case Hold():
                buffers = random.choice([1, 2, 2]) if node.buffers > 1 else random.choice([1, 1, 2])
                return replace(node, buffers=buffers, body=made(node.body))
            case Pipeline():
                return replace(node, tile=tile(node), children=tuple(map(made, node.children)))
            case Sequence() | Overlap() | Parallel():
                return replace(node, children=tuple(map(made, node.children)))
            case _:
                return node

    return made(tree)


def compared(source: str, workload: Workload, chip: Chip, tree: Node) -> Drawn | None:
    """Both times of a mapping; None where it is illegal, does not fit, or takes too many steps."""
    if legality.faults(tree, workload, chip):
        return None
    estimate = evaluate(workload, chip, tree)
    if any(float(used) > chip.memory(name).capacity for name, used in estimate.footprint.items()):
        return None
    if sum(float(estimate.nodes[path].entries) for path, _ in walk(tree)) > TASKS:
        return None
    return Drawn(source, workload, chip, tree, estimate, simulate(workload, chip, tree))


def drawn(count: int, seed: int = 0) -> Iterator[Drawn]:
    """Varied plans, from one source after the other."""
    random, found = Random(seed), 0
    plans = {name: plan(name) for name in sources()}
    for name in cycle(plans):
        if found == count:
            return
        workload, chip, tree = plans[name]
        made = compared(name, workload, chip, varied(random, tree))
        if made is not None:
            found += 1
            yield made
