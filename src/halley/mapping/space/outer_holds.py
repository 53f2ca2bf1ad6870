"""Uneven mappings: which tensors of a contraction are held around its inner loops, while others come tile by tile inside them.

Every tensor that is held beside the engine may be held around all inner loops or just inside the last of them that indexes it
(the uneven mappings of ZigZag, Mei et al., IEEE Transactions on Computers 70(8), 2021). Of these shapes some are left out, as
they move no less than another one (docs/decisions/0067-uneven-mappings.md):

- The tensor that the innermost loop does not index stays for that loop anyway.
- Where a single tensor is left inside the loops, a loop that does not index it only brings it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import combinations


def outer_holds(
    loops: Sequence[str], innermost: Collection[str], indices: Mapping[str, Set[str]]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The tensors to hold around inner ``loops``, in each useful way, none first; and the loops that are left.

    ``innermost``: the dims of one role, whose loops are the last. ``indices``: of each tensor that is held beside the engine
    inside these loops, the dims whose loops it depends on.

    >>> indices = {"A": {"m", "k"}, "B": {"k", "n"}, "C": {"m", "n"}}
    >>> list(outer_holds("mnk", "k", indices))
    [((), ('m', 'n', 'k')), (('A',), ('m', 'n', 'k')), (('B',), ('m', 'n', 'k')), (('A', 'B'), ('m', 'n'))]
    """
    yield (), tuple(loops)
    last = [dim for dim in loops if dim in innermost]
    moving = [tensor for tensor in indices if not indices[tensor].isdisjoint(last)]
    for count in range(1, len(indices)):
        for outer in combinations(moving, count):
            left = [indices[tensor] for tensor in indices if tensor not in outer]
            only = len(left) == 1
            if only and not left[0].isdisjoint(last):
                continue  # another order has the loop that does not index it innermost, where it is left out
            kept = tuple(dim for dim in loops if not only or dim in left[0])
            if kept:
                yield outer, kept
