"""Results that no search made, so that a test of reports hangs on costs alone: plans written by hand, and names that try to
break out."""

from __future__ import annotations

from dataclasses import replace

from halley.answer import Status
from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.ir.hardware import Chip
from halley.ir.text import parse
from halley.mapping.problem import Objective, Problem
from halley.mapping.result import Clause, MappingCertificate, Point, Result, Solution
from halley.workloads import build

OPS = ("gemm", "max", "exp", "sum", "divide")
GEMM = """
      for k by 8
        hold glb x2: A
          for n by 128
            hold glb x2: B
              spread n by 64 over cluster.x
                spread n by 32 over cluster.y
                  hold obuf x2: S
                    hold wbuf x2: B
                      hold ibuf x2: A
                        compute gemm"""
SPLIT = """
      spread n by 128 over cluster.x
        spread n by 64 over cluster.y
          for m by 1
            hold obuf x2: S|E|P
              hold obuf: mx z
                sequence
                  compute max
                  all-reduce mx over cluster.x with centre
                  all-reduce mx over cluster.y with centre
                  compute exp
                  compute sum
                  all-reduce z over cluster.x with centre
                  all-reduce z over cluster.y with centre
                  compute divide
"""
WHOLE = """
      spread m by 8 over cluster.x
        spread m by 4 over cluster.y
          for m by 1
            hold obuf x2: S|E|P
              hold obuf: mx z
                sequence
                  compute max
                  compute exp
                  compute sum
                  compute divide
"""
FUSED = "hold dram: A B P\n  hold glb: S\n    sequence"
PLANS = {
    "best": (f"{FUSED}{GEMM}{SPLIT}", (OPS,)),
    "unfused": (f"hold dram: A B S P\n  hold dram: S\n    sequence{GEMM}{SPLIT}", (OPS[:1], OPS[1:])),
    "fused, no split reductions": (f"{FUSED}{GEMM}{WHOLE}", (OPS,)),
}
"""Text and fused groups of each plan, best first."""

MADE_UP = (Clause("made up", "nothing"),)
NASTY = '<script>alert("x")</script>&amp;\x07]]>'
"""Text that must stay text."""


def made_result(chip: Chip | None = None, front: bool = True, baselines: bool = True, proven: bool = True) -> Result:
    """A fused GEMM-Softmax with collectives beside two baselines. What the certificate says is made up."""
    machine = chip or load_chip("edge")
    workload = build("gemm-softmax", {"m": 16, "n": 256, "k": 64})
    solutions = []
    for name, (text, groups) in PLANS.items():
        plan = parse(text)
        cost = evaluate(workload, machine, plan)
        time = float(cost.time)
        bound = time if proven else 0.9 * time
        certificate = MappingCertificate(
            time,
            bound,
            Status.OPTIMAL if proven else Status.LIMIT,
            size=12_345,
            left_out=MADE_UP,
            effort={"costed": 67, "bounded": 8},
            seconds=0.5,
            closed="made up",
            declaration=MADE_UP,
            method="none",
        )
        solutions.append(Solution(name, plan, cost, certificate, groups, ("",) * len(groups), "plain"))
    best, *others = solutions
    points = [Point(float(item.estimate.time), float(item.estimate.energy), item.plan) for item in (best, others[-1])]
    ordered = tuple(sorted(points, key=lambda point: point.time)) if front else ()
    problem = Problem(workload, machine, Objective.TIME, baselines=baselines, front=front)
    return Result(problem, best, tuple(others) if baselines else (), ordered)


def nasty_result() -> Result:
    """The same, with names and texts that would be markup if anything forgot to escape them."""
    chip = load_chip("edge")
    result = made_result(replace(chip, name=NASTY, description=NASTY, sources=dict.fromkeys(chip.sources, NASTY)))
    clauses = (Clause(NASTY, NASTY),)
    certificate = replace(result.best.certificate, declaration=clauses, left_out=clauses, closed=NASTY)
    best = replace(result.best, certificate=certificate, variant=NASTY)
    return replace(
        result, best=best, baselines=tuple(replace(plan, name=f"{NASTY} {i}") for i, plan in enumerate(result.baselines))
    )
