"""Tokens that each expert of one rank gets, as the public benchmark of the measured tables routes them.

Balanced: token i chooses the experts i + j s, with the stride s = experts / topk, and few tokens are spread over a stride. Under
a power law the tokens of an expert are drawn from a density proportional to x^-alpha. No token chooses an expert twice: what an
expert would get beyond the number of tokens, and what rounding loses, goes to the experts with fewest tokens, of one rank after
the other. The rank is the first of balanced routing and the busiest of a power law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from halley.kernels.library.family import Array

DRAWS = 8
"""Draws of the tokens of each expert; measurements average over five to ten."""
LARGEST_SHARE = 0.8
"""Largest number that the power law draws, as a share of the tokens (`SMALL_BATCH_SHARES`: of small batches)."""
SMALL_BATCH_SHARES = (0.01, 2.0)
"""Smallest and largest number that the power law draws where there are no more choices than experts."""
LARGEST_EXPERTS = 2048
"""Most experts whose loads are drawn in advance."""

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class RoutedTokens:
    """Tokens of each expert of the rank, of shape [draws, experts of the rank], and tokens with a choice among them, of shape
    [draws]."""

    counts: Counts
    tokens: Counts


def load(tokens: int, topk: int, experts: int, ranks: int, alpha: float) -> RoutedTokens:
    """Tokens of the experts of one of ``ranks`` that share ``experts``; ``alpha`` of the power law, 0: balanced.

    >>> load(2, 8, 256, 16, 0.0).counts.sum(), load(512, 8, 256, 16, 0.0).counts.sum()
    (np.int64(1), np.int64(256))
    >>> load(1, 8, 256, 1, 1.2).counts.sum(axis=1).tolist() == 8 * [8]
    True
    """
    local = max(experts // ranks, 1)
    topk = min(topk, experts)
    if alpha == 0:
        return _balanced(tokens, topk, experts, local)
    groups = max(experts // local, 1)
    counts = _power_law(tokens, topk, local, groups, alpha)
    busiest = counts.sum(axis=2).argmax(axis=1)
    mine = counts[np.arange(DRAWS), busiest]
    return RoutedTokens(mine, np.array([_with_a_choice(counts[draw], int(busiest[draw]), tokens) for draw in range(DRAWS)]))


def _balanced(tokens: int, topk: int, experts: int, local: int) -> RoutedTokens:
    stride = -(-experts // topk)
    # a token is one of `experts` that differ by their first choice; equal ones are counted together
    first = np.arange(experts)
    if tokens >= stride:
        kinds = tokens // experts + (first < tokens % experts)
    else:
        kinds = np.bincount(np.arange(tokens) * stride // tokens, minlength=experts)
    chosen = (np.arange(experts)[:, None] + stride * np.arange(topk)[None, :]) % experts
    counts = np.bincount(chosen.ravel(), weights=np.repeat(kinds, topk), minlength=experts)[:local]
    own = int(kinds[(chosen < local).any(axis=1)].sum())
    return RoutedTokens(counts.astype(np.int64)[None, :], np.array([own]))


def _power_law(tokens: int, topk: int, local: int, groups: int, alpha: float) -> Counts:
    """Of shape [draws, groups, local]."""
    chosen = tokens * topk
    low, high = (1.0, max(LARGEST_SHARE * tokens, 1.0 + 1e-9)) if chosen > local * groups else SMALL_BATCH_SHARES
    power = 1 - alpha
    drawn = ((high**power - low**power) * _UNIFORM[:, : groups * local] + low**power) ** (1 / power)
    counts = np.round(drawn / drawn.sum(axis=1, keepdims=True) * chosen).astype(np.int64)
    counts = np.minimum(counts, tokens).reshape(DRAWS, groups, local)
    lost = chosen - counts.sum(axis=(1, 2))
    counts = _raised(counts, np.maximum(lost, 0), tokens)
    return tokens - _raised(tokens - counts, np.maximum(-lost, 0), tokens)


def _raised(counts: Counts, more: Counts, top: int) -> Counts:
    """Counts of shape [draws, groups, local] with ``more`` [draws] added, one to a group after the other, there to the least, and
    none above ``top``."""
    if not more.any():
        return counts
    free = (top - counts).sum(axis=2)
    share = _filled(np.zeros_like(free), np.minimum(more, free.sum(axis=1)), free)
    return _filled(counts, share, np.full_like(counts, top))


def _filled(counts: Counts, more: Counts, top: Counts) -> Counts:
    """Counts of shape [..., n] with ``more`` [...] added, one after the other to the least that is below its ``top``."""
    low, high = counts.min(axis=-1), (counts + more[..., None]).max(axis=-1)
    while (low < high).any():  # the highest level that takes no more than there is
        level = (low + high + 1) // 2
        fits = np.maximum(np.minimum(level[..., None], top) - counts, 0).sum(axis=-1) <= more
        low, high = np.where(fits, level, low), np.where(fits, high, level - 1)
    found = np.maximum(counts, np.minimum(low[..., None], top))
    rest = more - (found - counts).sum(axis=-1)
    open_ = (found <= low[..., None]) & (found < top)
    return np.asarray(found + (open_ & (np.cumsum(open_, axis=-1) <= rest[..., None])), dtype=np.int64)


def _with_a_choice(counts: Counts, rank: int, tokens: int) -> int:
    """Tokens with a choice on the rank, where the experts with most tokens fill the first choices of all tokens, then the second.
    ``counts``: of shape [groups, local]."""
    flat = counts.ravel()
    order = np.argsort(-flat, kind="stable")
    starts = np.empty_like(flat)
    starts[order] = np.cumsum(flat[order]) - flat[order]
    local = counts.shape[1]
    mine = slice(rank * local, (rank + 1) * local)
    first, size = starts[mine] % tokens, flat[mine]
    beyond = np.maximum(first + size - tokens, 0)  # wraps to the next choice of the first tokens
    begin = np.concatenate([first, np.zeros_like(first)])
    end = np.concatenate([first + size - beyond, beyond])
    at = np.argsort(begin, kind="stable")
    begin, end = begin[at], end[at]
    reach = np.concatenate([[0], np.maximum.accumulate(end)[:-1]])
    return int(np.maximum(end - np.maximum(begin, reach), 0).sum())


def _uniform(draws: int, count: int) -> Array:
    """Fixed numbers spread evenly over 0 to 1, in an order without pattern: a hash of their index (splitmix64)."""
    state = np.arange(1, draws * count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((state ^ (state >> np.uint64(31))) >> np.uint64(11)).astype(np.float64).reshape(draws, count) / 2.0**53


_UNIFORM = _uniform(DRAWS, LARGEST_EXPERTS)
