"""What is proposed where nothing fits: with it some plan does, and it is the only thing that changes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tests.certificates import training_enumeration as oracle
from tests.certificates.test_training_search import Drawn, drawn

from halley.errors import Infeasible
from halley.ir.system import with_memory
from halley.pipeline.data_parallel import Sharded
from halley.rewrite.recompute import Recompute
from halley.training.fixed import NAMES, parse_fixed
from halley.training.help import chosen
from halley.training.plan import Fixed, TrainingProblem
from halley.training.search.search import best_training_plan

DEMANDING = Fixed(recompute=Recompute.NONE, sharded=Sharded.NOTHING, fused=True)


@pytest.mark.parametrize("seed", range(40, 60))
def test_the_change_helps(seed: int) -> None:
    problem, model = drawn(seed, 1)
    asked = replace(problem, fixed=DEMANDING)
    with pytest.raises(Infeasible) as caught:
        best_training_plan(squeezed := _squeezed(asked, model), model=model, others=0)
    remedy = caught.value.faults[0].remedy
    changed = re.match(r"take (\w+=\w+), with which it fits|leave ([\w, ]+) to the search", remedy)
    if changed is None:
        assert "chips" in remedy
        return
    fixed = squeezed.fixed
    if changed[1]:
        given = parse_fixed(changed[1])
        fixed = replace(fixed, **{name: getattr(given, name) for name in chosen(given)})
    else:
        fixed = replace(fixed, **{NAMES.get(word, word): None for word in changed[2].split(", ")})
    found, _ = oracle.least(oracle.enumerate_plans(replace(squeezed, fixed=fixed), model), squeezed.capacity)
    assert found is not None


def _squeezed(problem: TrainingProblem, model: Drawn) -> TrainingProblem:
    """The problem on chips with a little less memory than its least demanding plan needs."""
    need = min(each.memory for each in oracle.enumerate_plans(problem, model))
    chip = with_memory(problem.system.chip, 0.9 * need, 2e12, 1e-12)
    return replace(problem, system=replace(problem.system, chip=chip))
