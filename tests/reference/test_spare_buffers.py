"""A spare buffer for what overlapped stages hand over: it costs nothing by the formula, and the simulation takes less with it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.mapping import Hold, walk
from halley.ir.text import parse
from halley.mapping.solve.spare_buffers import with_spare_buffers
from halley.rewrite import legality
from halley.simulate.simulation import simulate
from halley.workloads import attention

WORKLOAD = attention(1, 4, 4, 512, 512, 128, variant="deferred")
TREE = parse("""
hold dram: Q K V O
  for h by 1
    hold glb x3: z
      hold glb x2: S E U
        overlap
          spread m by 128 over cluster.x
            spread n by 128 over cluster.y
              hold ibuf x2: Q
                for n by 128
                  hold obuf x2: S
                    hold wbuf x2: K
                      compute scores
          spread m by 128 over cluster.x
            spread m by 32 over cluster.y
              for m by 1
                hold obuf x2: S|S2|E
                  hold obuf: mx z
                    sequence
                      compute scale
                      compute max
                      compute exp
                      compute sum
          spread m by 128 over cluster.x
            spread n by 128 over cluster.y
              hold obuf: U
                sequence
                  for n by 128
                    hold wbuf x2: V
                      hold ibuf x2: E
                        compute values
                  reduce-scatter U over cluster.y to e with ring
          spread m by 128 over cluster.x
            spread m by 32 over cluster.y
              for m by 1
                hold obuf x2: z
                  hold obuf x2: U|O
                    compute divide
""")


def numbers(tree: Hold) -> list[int]:
    return [node.buffers for _, node in walk(tree) if isinstance(node, Hold) and node.memory == "glb"]


def with_room(chip: Chip, size: float) -> Chip:
    """The chip with a global buffer of another size [B]."""
    outer, shared, inner = chip.levels
    return replace(chip, levels=(outer, replace(shared, memories=(replace(shared.memories[0], capacity=size),)), inner))


def test_what_is_handed_over_gets_a_buffer_more() -> None:
    chip = load_chip("cloud")
    before = evaluate(WORKLOAD, chip, TREE)
    tree, after = with_spare_buffers(WORKLOAD, chip, TREE, before)
    assert (numbers(TREE), numbers(tree)) == ([3, 2], [4, 3])
    assert not legality.faults(tree, WORKLOAD, chip)
    assert (after.time, after.energy) == pytest.approx((before.time, before.energy), rel=1e-12)
    assert simulate(WORKLOAD, chip, tree).time < 0.92 * simulate(WORKLOAD, chip, TREE).time


def test_without_capacity_the_mapping_stays_as_it_is() -> None:
    chip = load_chip("cloud")
    used = float(evaluate(WORKLOAD, chip, TREE).footprint["glb"])
    tight = with_room(chip, used)
    assert with_spare_buffers(WORKLOAD, tight, TREE, evaluate(WORKLOAD, tight, TREE))[0] == TREE
