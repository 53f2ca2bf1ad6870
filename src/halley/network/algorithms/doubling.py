"""Distances that double or halve: logarithmic steps, for powers of two and for any number of ranks."""

from __future__ import annotations

from halley.ir.mapping import CollectiveKind
from halley.network.algorithms.algorithm import (
    Algorithm,
    ChunkRule,
    Maker,
    Setting,
    backwards,
    every,
    gathering,
    mirror,
    power_below,
    power_of_two,
    table_of,
    there_and_back,
)
from halley.network.algorithms.direct import ANYWHERE
from halley.network.algorithms.tables import Steps, Transfer

_K = CollectiveKind
_POWERS = "a power of two"


def _distances(n: int) -> list[int]:
    return [1 << bit for bit in range((n - 1).bit_length())]


def _doubling_all_reduce(at: Setting) -> Steps:
    n = at.ranks
    return table_of((Transfer(i, i ^ d, chunk, True) for i in range(n) for chunk in range(at.chunks)) for d in _distances(n))


def _doubling_all_gather(at: Setting) -> Steps:
    # before the step of distance d, member i has the d blocks of its aligned group
    n = at.ranks
    return table_of((Transfer(i, i ^ d, i // d * d + k, False) for i in range(n) for k in range(d)) for d in _distances(n))


def _near_halving_all_reduce(at: Setting) -> Steps:
    """Halving with every rank's bits read backwards: the large halves go to the near ranks."""
    bits = at.ranks.bit_length() - 1
    mirrored = [sum((i >> bit & 1) << (bits - 1 - bit) for bit in range(bits)) for i in range(at.ranks)]
    table = there_and_back(_doubling_all_gather)(at)
    return table_of((Transfer(mirrored[t.source], mirrored[t.target], t.chunk, t.combine) for t in step) for step in table)


def bruck_all_gather(at: Setting) -> Steps:
    """Before the step of distance d, rank i has the d blocks from its own on; the last step sends only what is missing."""
    n = at.ranks
    return table_of(
        (Transfer(i, (i - d) % n, (i + k) % n, False) for i in range(n) for k in range(min(d, n - d))) for d in _distances(n)
    )


def _bruck_all_to_all(radix: int, n: int) -> Steps:
    """The way from source to target is written in digits; step p moves the blocks whose digit p is not zero so far."""
    steps, place = [], 1
    while place < n:
        step = []
        for source in range(n):
            for away in range(1, n):
                digit = away // place % radix
                if digit:
                    here = source + away % place
                    step.append(Transfer(here % n, (here + digit * place) % n, source * n + (source + away) % n, False))
        steps.append(step)
        place *= radix
    return table_of(steps)


def _active(at: Setting) -> tuple[list[int], list[tuple[int, int]]]:
    """(the rank that plays each of the largest power of two of parts, (rank that sits out, its partner))."""
    power = power_below(at.ranks)
    spare = at.ranks - power
    return [2 * v + 1 if v < spare else v + spare for v in range(power)], [(2 * v, 2 * v + 1) for v in range(spare)]


def _folded(at: Setting, inner: Steps, chunks: int) -> Steps:
    """Ranks beyond a power of two give all they have to a partner, sit the inner table out and get the result back."""
    actors, folds = _active(at)
    give = [Transfer(out, partner, chunk, True) for out, partner in folds for chunk in range(chunks)]
    played = [[Transfer(actors[t.source], actors[t.target], t.chunk, t.combine) for t in step] for step in inner]
    back = [Transfer(partner, out, chunk, False) for out, partner in folds for chunk in range(chunks)]
    return table_of([give, *played, back])


def _folded_doubling(at: Setting) -> Steps:
    power = power_below(at.ranks)
    return _folded(at, _doubling_all_reduce(Setting(power, at.chunks)), at.chunks)


def _folded_halving(at: Setting) -> Steps:
    power = power_below(at.ranks)
    return _folded(at, there_and_back(_doubling_all_gather)(Setting(power, power)), power)


def _folded_halving_reduce_scatter(at: Setting) -> Steps:
    actors, folds = _active(at)
    power = len(actors)
    shards = [[2 * v, 2 * v + 1] if v < len(folds) else [actors[v]] for v in range(power)]
    give = [Transfer(out, partner, chunk, True) for out, partner in folds for chunk in range(at.ranks)]
    inner = mirror(_doubling_all_gather(Setting(power, power)), True)
    played = [
        [Transfer(actors[t.source], actors[t.target], shard, True) for t in step for shard in shards[t.chunk]] for step in inner
    ]
    return table_of([give, *played, [Transfer(partner, out, out, False) for out, partner in folds]])


def _bruck_of(radix: int) -> Maker:
    return lambda at: _bruck_all_to_all(radix, at.ranks)


DOUBLING = (
    Algorithm(
        "doubling",
        {_K.ALL_REDUCE: _doubling_all_reduce, _K.ALL_GATHER: _doubling_all_gather},
        "Partners at distance 1, 2, 4, ... exchange all they have (recursive doubling; Thakur, Rabenseifner and Gropp, "
        "Int. J. High Perform. Comput. Appl. 19, 2005).",
        ANYWHERE,
        power_of_two,
        _POWERS,
        every(ChunkRule.UNCUT),
    ),
    Algorithm(
        "halving",
        {_K.REDUCE_SCATTER: backwards(_doubling_all_gather), _K.ALL_REDUCE: there_and_back(_doubling_all_gather)},
        "Partners at distance n/2, n/4, ... exchange the halves that they are not to keep; an all-reduce then doubles "
        "back (recursive halving, Rabenseifner's algorithm; Thakur et al. 2005).",
        ANYWHERE,
        power_of_two,
        _POWERS,
    ),
    Algorithm(
        "near-halving",
        {_K.ALL_REDUCE: _near_halving_all_reduce},
        "Partners at distance 1, 2, 4, ... exchange halves, quarters, eighths, so that most bytes travel least far (vector "
        "halving and distance doubling; Thakur, Rabenseifner and Gropp 2005).",
        admits=power_of_two,
        sizes=_POWERS,
    ),
    Algorithm(
        "bruck",
        gathering(bruck_all_gather) | {_K.ALL_TO_ALL: _bruck_of(2)},
        "Distances double among any number of ranks, each block going to the rank that far back (Bruck, Ho, Kipnis, Upfal and "
        "Weathersby, IEEE Trans. Parallel Distrib. Syst. 8, 1997).",
    ),
    *(
        Algorithm(
            f"bruck-{radix}",
            {_K.ALL_TO_ALL: _bruck_of(radix)},
            f"Bruck's all-to-all in digits of base {radix}: fewer steps than base 2 has, of {radix - 1} messages each "
            "(Bruck et al. 1997).",
        )
        for radix in (4, 8)
    ),
    Algorithm(
        "folded-doubling",
        {_K.ALL_REDUCE: _folded_doubling},
        "Ranks beyond a power of two add theirs to a partner's and wait; the others double (recursive doubling for any number; "
        "Thakur et al. 2005).",
        cuts=every(ChunkRule.UNCUT),
    ),
    Algorithm(
        "folded-halving",
        {_K.REDUCE_SCATTER: _folded_halving_reduce_scatter, _K.ALL_REDUCE: _folded_halving},
        "Ranks beyond a power of two add theirs to a partner's and wait; the others halve and double (Rabenseifner's algorithm "
        "for any number; Thakur et al. 2005).",
        cuts=every(ChunkRule.POWER),
    ),
)
