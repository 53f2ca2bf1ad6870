"""A search that is interrupted at a chosen step: what it knows stays whole, and what it found is given."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from halley.answer import Status
from halley.cost.evaluate import evaluate
from halley.io.chips.load import load_chip
from halley.mapping.bounds.incumbents import Frontier
from halley.mapping.optimise import optimise
from halley.mapping.problem import Problem
from halley.workloads import gemm


def test_ctrl_c_while_the_answer_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts = [KeyboardInterrupt()]

    def interrupted(*words: Any) -> Any:
        if interrupts:
            raise interrupts.pop()
        return evaluate(*words)

    monkeypatch.setattr("halley.mapping.optimise.evaluate", interrupted)
    result = optimise(Problem(gemm(4, 4, 4), load_chip("edge"), baselines=False))
    assert not interrupts
    assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("line", range(1, 12))
def test_a_point_is_added_wholly_or_not_at_all(line: int) -> None:
    front, left = Frontier(2), line
    for point in ((1.0, 5.0), (2.0, 4.0), (3.0, 3.0)):
        front.add(np.array(point), point)

    def step(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code is not Frontier.add.__code__:
            return None
        left -= event == "line"
        if not left:
            raise KeyboardInterrupt
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        front.add(np.array((1.5, 3.5)), (1.5, 3.5))
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    assert [tuple(point) for point in front.points] == front.payloads
    assert front.pruned(np.array([[1.6, 3.6]])).tolist() == [(1.5, 3.5) in front.payloads]
