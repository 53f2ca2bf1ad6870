"""Tokens of experts: against the rules of the benchmark, applied one token after the other."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from halley.kernels.library import routing
from halley.kernels.library.routing import DRAWS, load

Counts = NDArray[np.int64]


def balanced(tokens: int, topk: int, experts: int) -> list[set[int]]:
    """The experts of each token."""
    stride = -(-experts // topk)
    step = 1 if tokens >= stride else stride / tokens
    return [{int(token * step + choice * stride) % experts for choice in range(topk)} for token in range(tokens)]


@pytest.mark.parametrize(
    ("tokens", "topk", "experts", "ranks"),
    [(1, 8, 256, 1), (2, 8, 256, 16), (5, 6, 128, 4), (96, 22, 512, 64), (300, 10, 512, 8), (700, 1, 16, 16), (33, 2, 8, 4)],
)
def test_balanced_tokens_are_those_of_each_token(tokens: int, topk: int, experts: int, ranks: int) -> None:
    chosen, local = balanced(tokens, topk, experts), experts // ranks
    found = load(tokens, topk, experts, ranks, 0.0)
    assert found.counts.tolist() == [[sum(expert in one for one in chosen) for expert in range(local)]]
    assert found.tokens.tolist() == [sum(any(expert < local for expert in one) for one in chosen)]


def one_by_one(counts: Counts, more: int, top: int) -> Counts:
    """Counts [groups, local] with ``more`` added, one to a group after the other, there to the least that is below ``top``."""
    found = counts.copy()
    while more and (found < top).any():
        for group in found:
            open_ = np.flatnonzero(group < top)
            if more and len(open_):
                group[open_[np.argmin(group[open_])]] += 1
                more -= 1
    return found


def test_lost_choices_go_to_the_least_expert_of_one_rank_after_the_other() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        groups, local, top = rng.integers(1, 5), rng.integers(1, 6), int(rng.integers(1, 20))
        counts, more = rng.integers(0, top + 1, (groups, local)), int(rng.integers(0, 40))
        expected = one_by_one(counts, more, top)
        found = routing._raised(counts[None], np.array([more]), top)[0]
        assert np.sort(found, axis=1).tolist() == np.sort(expected, axis=1).tolist()


@pytest.mark.parametrize(
    ("tokens", "topk", "experts", "ranks"), [(1, 8, 128, 1), (3, 8, 256, 8), (64, 2, 8, 8), (50, 6, 128, 16)]
)
@pytest.mark.parametrize("alpha", [1.01, 1.2])
def test_no_token_chooses_an_expert_twice(tokens: int, topk: int, experts: int, ranks: int, alpha: float) -> None:
    local = experts // ranks
    every = routing._power_law(tokens, topk, local, ranks, alpha)
    assert every.sum(axis=(1, 2)).tolist() == DRAWS * [tokens * topk]
    assert 0 <= every.min() <= every.max() <= tokens
    found = load(tokens, topk, experts, ranks, alpha)
    assert found.counts.sum(axis=1).tolist() == every.sum(axis=2).max(axis=1).tolist(), "the busiest rank"
    for draw in range(DRAWS):
        rank = int(every[draw].sum(axis=1).argmax())
        # experts with most tokens fill the first choices of all tokens, then the second
        flat = every[draw].ravel()
        chosen = np.repeat(np.argsort(-flat, kind="stable"), np.sort(flat)[::-1]).reshape(topk, tokens)
        assert all(len(set(column)) == topk for column in chosen.T)
        assert found.tokens[draw] == (chosen // local == rank).any(axis=0).sum()
