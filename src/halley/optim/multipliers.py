"""Lagrange multipliers of resources that work at the same time.

The time of a task is the largest of its resources' times, hence at least any weighted mean of them. With weights that add up
to 1 for each task, the least weighted sum over all choices is a lower bound of the least time (Lagrangian relaxation). Each
choice found bounds this maximum over the weights from above. The weights that are best against a mixture of the choices found
solve a matrix game; it is solved by extragradient steps on products of simplices (Nemirovski, SIAM Journal on Optimization 15,
2004). An approximate solution suffices: any weights give a valid bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

EXTRAGRADIENT_STEPS = 200
"""Extragradient steps per game."""


def best_multipliers(always: Numbers, times: Numbers) -> Numbers:
    """Multipliers [tasks, resources] that add up to 1 for each task and nearly maximise the least value of the choices.

        max over p of min over c of  always[c] + sum over k, r of p[k, r] times[c, k, r]

    ``always`` [choices] [s]: time that nothing overlaps; ``times`` [choices, tasks, resources] [s]: of each resource.

    >>> best_multipliers(np.zeros(2), np.array([[[4.0, 0.0]], [[0.0, 2.0]]])).round(1).tolist()
    [[0.3, 0.7]]
    """
    longest = times.max(axis=2)
    scale = float((always + longest.sum(axis=1)).min()) or 1.0
    always, times, longest = always / scale, times / scale, longest / scale
    # tasks of short times take larger steps
    pace = 1.0 / np.maximum(longest.max(axis=0), 1e-3)[:, None]
    width = 1.0 / max(float(longest.sum(axis=1).max()), 1.0)
    mixture, shares = np.full(len(always), 1.0 / len(always)), np.full(times.shape[1:], 1.0 / times.shape[2])
    means = np.zeros_like(shares)
    for _ in range(EXTRAGRADIENT_STEPS):
        ahead, bold = _moved(mixture, shares, mixture, shares, always, times, width, pace)
        mixture, shares = _moved(mixture, shares, ahead, bold, always, times, width, pace)
        means += bold
    return np.asarray(means / means.sum(axis=1, keepdims=True))


def _moved(
    mixture: Numbers, shares: Numbers, at_mixture: Numbers, at_shares: Numbers,
    always: Numbers, times: Numbers, width: float, pace: Numbers,
) -> tuple[Numbers, Numbers]:  # fmt: skip
    """A multiplicative-weights step of both players, along the gradient at a point."""
    flat = times.reshape(len(times), -1)
    worth = flat @ at_shares.ravel() + always
    mixed = (at_mixture @ flat).reshape(shares.shape)
    chosen = mixture * np.exp(-width * (worth - worth.min()))
    raised = shares * np.exp(pace * (mixed - mixed.max(axis=1, keepdims=True)))
    return np.maximum(chosen / chosen.sum(), 1e-300), np.maximum(raised / raised.sum(axis=1, keepdims=True), 1e-300)
