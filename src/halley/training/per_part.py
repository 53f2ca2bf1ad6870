"""A value for each part of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PerPart(Generic[T]):
    """``blocks``: each kind of layer, in order, with its number of layers.

    >>> each = PerPart("e", (("dense", 3), ("experts", 58)), "h")
    >>> each.parts, each.counts, each.layers
    (('e', 'dense', 'experts', 'h'), (1, 3, 58, 1), (3, 58))
    """

    embedding: T
    blocks: tuple[tuple[T, int], ...]
    head: T

    @property
    def parts(self) -> tuple[T, ...]:
        """Embedding, each kind of layer, head."""
        return self.embedding, *[part for part, _ in self.blocks], self.head

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of each part."""
        return 1, *self.layers, 1

    @property
    def counted(self) -> tuple[tuple[T, int], ...]:
        """All parts in the order of the model, with their numbers."""
        return (self.embedding, 1), *self.blocks, (self.head, 1)

    @property
    def layers(self) -> tuple[int, ...]:
        """Number of layers of each kind."""
        return tuple(count for _, count in self.blocks)
