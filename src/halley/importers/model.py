"""An imported model: its parameters by kind, what of it a plan includes, and its layers as workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from halley.workloads.transformer import Hybrid, Transformer


@dataclass(frozen=True, slots=True)
class WeightGroup:
    """Equal groups of parameters: ``count`` times ``each``. ``active``: of each, those that a token is multiplied by, which are
    none of a bias, a gain or a table. ``planned``: a plan includes them."""

    what: str
    each: int
    count: int = 1
    active: int = 0
    planned: bool = True

    @property
    def parameters(self) -> int:
        return self.each * self.count

    @property
    def work(self) -> int:
        """Operations of a token in the forward pass [op]; a multiply-accumulate is two."""
        return 2 * self.active * self.count


@dataclass(frozen=True, slots=True)
class LayerWorkload:
    """A layer, or a part of one, as a workload: its ``kind`` and ``parameters``, and the names of the parameters that count
    tokens: ``tokens`` that are processed, in units of ``unit`` tokens, and ``keys`` that they attend to."""

    meaning: str
    kind: str
    parameters: Mapping[str, object]
    tokens: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    unit: int = 1


@dataclass(frozen=True, slots=True)
class Counted:
    """The parameters and layers of a model; its ``shape`` if a plan covers it, or else why none does (``missing``); what is
    ``served`` of it then, if anything, with the recurrent layers of a ``hybrid``."""

    groups: tuple[WeightGroup, ...]
    layers: dict[str, LayerWorkload]
    missing: str
    remarks: tuple[str, ...] = ()
    served: Transformer | None = None
    hybrid: Hybrid | None = None
    shape: Transformer | None = None


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model from a file of others.

    ``name``; ``architecture``: the model type; ``source``: the file. ``groups``: all parameters. ``shape``: the transformer that
    a plan trains, None if it is none, and then ``missing`` says why. ``layers``: workloads by name. ``remarks``: what differs
    from the file. ``windowed``: layers in which a token attends to ``window`` keys at most. ``served``: what is served where no
    plan trains the model, with the recurrent layers of a ``hybrid``; None: nothing is. ``formats``: by option of serving, the
    format that the file has.
    """

    name: str
    architecture: str
    source: str
    groups: tuple[WeightGroup, ...]
    shape: Transformer | None
    layers: Mapping[str, LayerWorkload]
    missing: str = ""
    remarks: tuple[str, ...] = ()
    window: int = 0
    windowed: int = 0
    served: Transformer | None = None
    hybrid: Hybrid | None = None
    formats: Mapping[str, str] = field(default_factory=dict)

    @property
    def extents(self) -> Transformer | None:
        """The transformer that a plan trains, or else what is served."""
        return self.served if self.shape is None else self.shape

    @property
    def parameters(self) -> int:
        """All parameters; a table that embedding and head share counts once."""
        return sum(group.parameters for group in self.groups)

    @property
    def work(self) -> int:
        """Operations of a token in the products with parameters, forward [op]."""
        return sum(group.work for group in self.groups)

    @property
    def left_out(self) -> tuple[WeightGroup, ...]:
        """Parameters that no plan includes."""
        return tuple(group for group in self.groups if not group.planned)

    @property
    def planned_parameters(self) -> int:
        """Parameters that a plan includes."""
        return sum(group.parameters for group in self.groups if group.planned)
