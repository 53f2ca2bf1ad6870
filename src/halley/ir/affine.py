"""Affine indices: a dim of a tensor that an op reads at a sum of its own dims with coefficients, as ``h`` at ``2 p + r - 1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AffineIndex:
    """``dim`` of a tensor is read at ``constant`` + the sum of coefficient x dim over the ``terms``, (dim of the op,
    coefficient).

    Positions outside the tensor are padding: they are not moved, and are neutral in what the op computes.
    """

    dim: str
    terms: tuple[tuple[str, int], ...]
    constant: int = 0

    @property
    def dims(self) -> tuple[str, ...]:
        """The dims of the op that add up to the position."""
        return tuple(dim for dim, _ in self.terms)

    def coefficient(self, dim: str) -> int:
        """The coefficient of a dim of the op; 0 if the sum lacks it."""
        return dict(self.terms).get(dim, 0)

    def positions(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """(first, last) position over whole dims of these ``extents``, padding included.

        >>> AffineIndex("h", (("p", 2), ("r", 1)), -1).positions({"p": 4, "r": 3, "h": 8})
        (-1, 7)
        """
        steps = [(coefficient, extents[dim] - 1) for dim, coefficient in self.terms]
        first = self.constant + sum(min(coefficient * most, 0) for coefficient, most in steps)
        return first, self.constant + sum(max(coefficient * most, 0) for coefficient, most in steps)

    def padded(self, extents: Mapping[str, int]) -> bool:
        """Whether some position is outside the tensor."""
        first, last = self.positions(extents)
        return first < 0 or last >= extents[self.dim]

    def span(self, extents: Mapping[str, int], without: str = "") -> int:
        """Points from the first to the last position; with one dim of the op, ``without``, held at one index.

        >>> AffineIndex("h", (("p", 2), ("r", 3))).span({"p": 4, "r": 3}, "p")
        7
        """
        return 1 + sum(abs(coefficient) * (extents[dim] - 1) for dim, coefficient in self.terms if dim != without)

    def unsplit(self, extents: Mapping[str, int]) -> frozenset[str]:
        """Dims of the op whose tiles may select the same part of the tensor once padding is clipped: two tiles that both contain
        the whole dim. That takes a span without the dim of at least the tensor's extent plus the dim's coefficient."""
        if not self.padded(extents):
            return frozenset()
        return frozenset(
            dim for dim, coefficient in self.terms if self.span(extents, dim) >= extents[self.dim] + abs(coefficient)
        )

    def __str__(self) -> str:
        """
        >>> str(AffineIndex("h", (("p", 2), ("r", -1)), 3)), str(AffineIndex("a", (("i", 1),)))
        ('2p-r+3', 'i')
        """
        text = ""
        for dim, coefficient in self.terms:
            sign = "-" if coefficient < 0 else "+" if text else ""
            text += sign + (str(abs(coefficient)) if abs(coefficient) != 1 else "") + dim
        return text + (f"{self.constant:+d}" if self.constant else "")
