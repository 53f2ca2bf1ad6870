"""Communication times by role: collectives of tensor and data parallelism, and activations sent between pipeline stages.

All groups of a role communicate at the same time, each on its lanes of the axes (`halley.network.graph.lanes`); different roles
do not contend. Times depend on the lanes alone, so that assignments whose lanes are equal share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, reduce
from itertools import pairwise
from math import prod
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from halley.errors import BadInput, Fault, did_you_mean
from halley.formulas.numbers import Number, maximum, minimum, positive
from halley.formulas.timing import busy_time, longest, transfer_time
from halley.ir.hardware import Axis, Topology
from halley.ir.mapping import CollectiveKind
from halley.ir.system import System
from halley.network.fit.overlay import Overlay
from halley.network.graph.lanes import Crossed, Lane, lanes
from halley.network.graph.routes import routing_matrix
from halley.network.graph.topologies import build
from halley.network.time.phased import MeasuredLane, collective_time
from halley.sharding.axes import Assignment, Role, SubAxis, degree, parts_of
from halley.sharding.layouts import Mesh, MeshAxis

_T = Topology

BLOCK = 4096
"""Payloads that are timed at once."""
MAX_CACHED_PAYLOADS = 64
"""Payloads of an array whose times are remembered: plans that are timed together ask for those of each block again and again."""

Dimensions: TypeAlias = tuple[MeasuredLane, ...]


class Route(NamedTuple):
    """The way of an activation to the next stage: start and hops [s], and what a chip has of its slowest link [B/s] while all
    chips of the stage send."""

    latency: float
    bandwidth: float

    def time(self, size: Number) -> Number:
        """Of a transfer of so many bytes [s]."""
        return transfer_time(self.latency, busy_time(size, self.bandwidth))


@dataclass(frozen=True, eq=False, slots=True)
class Interconnect:
    """A system as its roles see it. ``libraries``: by the name of an axis, what a communication library was measured to take
    there; other axes take the least of the known algorithms. ``named``: somebody tells axes apart by their names, so that equal
    ones do not stand for each other.

    Makes each dimension and each pipeline's routes once, for all assignments. Raises BadInput: a library on an axis that the
    system lacks.
    """

    system: System
    libraries: Mapping[str, Overlay] = field(default_factory=dict)
    named: bool = False
    _dimensions: dict[tuple[Lane, str], MeasuredLane] = field(default_factory=dict)
    _parts: dict[tuple[str, int, int], Dimensions] = field(default_factory=dict)
    _routes: dict[Assignment, tuple[Route, ...]] = field(default_factory=dict)
    _like: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = [axis.name for axis in self.system.axes]
        where = f"libraries of system {self.system.name}"
        strange = [name for name in self.libraries if name not in known]
        if strange:
            raise BadInput([Fault(where, "the name of an axis", repr(name), did_you_mean(name, known)) for name in strange])

    def like(self, name: str) -> int:
        """The place in the system of the first axis that is like this one in all but its name, on which nothing was measured."""
        if not self._like:
            first: dict[Axis, int] = {}
            for place, axis in enumerate(self.system.axes):
                apart = self.named or axis.name in self.libraries
                self._like[axis.name] = place if apart else first.setdefault(replace(axis, name=""), place)
        return self._like[name]

    def dimensions(self, part: SubAxis) -> Dimensions:
        """The dimensions of a part of an axis; one object for all that are equal."""
        key = part.axis, part.size, part.stride
        if key not in self._parts:
            library = self.libraries.get(part.axis)
            alike = part.axis if library else ""
            self._parts[key] = tuple(
                self._dimensions.setdefault((_nameless(lane), alike), MeasuredLane(_nameless(lane), library))
                for lane in lanes(self.system.axis(part.axis), part.size, part.stride)
            )
        return self._parts[key]

    def routes(self, pipeline: Assignment) -> tuple[Route, ...]:
        """From each stage to the next, and from the last to the first."""
        if pipeline not in self._routes:
            dimensions = tuple(item for part in pipeline for item in self.dimensions(part))
            self._routes[pipeline] = _routes(dimensions)
        return self._routes[pipeline]


@dataclass(frozen=True, eq=False)
class Communication:
    """An assignment on a system: what each role's communication takes.

    >>> from halley.ir.hardware import Chip, Link
    >>> axes = Axis("node", 4, Topology.SWITCH, Link(50e9, 1e-6)), Axis("gpu", 8, Topology.SWITCH, Link(450e9, 5e-7))
    >>> assignment = SubAxis("node", Role.PIPELINE, 4, 1), SubAxis("gpu", Role.DATA, 2, 4), SubAxis("gpu", Role.MODEL, 4, 1)
    >>> found = Communication(Interconnect(System("pod", Chip("c", ()), axes)), assignment)
    >>> f"{found.model(CollectiveKind.ALL_REDUCE, ('gpu',), 45_000_000) * 1e6:.0f} us"
    '152 us'
    >>> f"{found.transfer(0, 50_000) * 1e6:.0f} us"
    '3 us'
    """

    interconnect: Interconnect
    assignment: Assignment

    @cached_property
    def mesh(self) -> Mesh:
        """The axes of the model's ranks, outermost first, but of equal axes the larger parts first; a part has the name of its
        axis."""
        return tuple(MeshAxis(part.axis, part.size) for part in self._parts)

    @cached_property
    def _parts(self) -> Assignment:
        """Equal axes change places without a change of the network, so that one order of their parts stands for all."""
        like = self.interconnect.like
        return tuple(sorted(parts_of(self.assignment, Role.MODEL), key=lambda part: (like(part.axis), -part.size, part.stride)))

    @cached_property
    def _model(self) -> dict[str, Dimensions]:
        return {part.axis: self.interconnect.dimensions(part) for part in self._parts}

    @cached_property
    def _data(self) -> Dimensions:
        return tuple(item for part in parts_of(self.assignment, Role.DATA) for item in self.interconnect.dimensions(part))

    @cached_property
    def model_key(self) -> tuple[tuple[int, Dimensions], ...]:
        """Communications of one interconnect with equal keys have meshes that are equal but for the names of equal axes, and
        equal `model` times over axes in the same places."""
        return tuple((self.interconnect.like(name), lanes) for name, lanes in self._model.items())

    @cached_property
    def data_key(self) -> Dimensions:
        """Communications of one interconnect with equal keys have equal `data` times. The order of the axes counts, as networks
        route messages in it."""
        return self._data

    @cached_property
    def pipeline_key(self) -> tuple[Route, ...]:
        """Communications with equal keys have as many stages and equal `transfer` times: the routes between stages."""
        return self.interconnect.routes(parts_of(self.assignment, Role.PIPELINE))

    def model(self, kind: CollectiveKind, axes: tuple[str, ...], size: int) -> float:
        """Time [s] of a collective over axes of the mesh (`halley.sharding.layouts.CollectiveTime`). Raises BadInput: no such
        axis."""
        try:
            dimensions = tuple(item for name in axes for item in self._model[name])
        except KeyError as error:
            name = str(error.args[0])
            raise BadInput(Fault("mesh of the model", "one of its axes", repr(name), did_you_mean(name, self._model))) from None
        return _remembered(kind, dimensions, size)

    def data(self, kind: CollectiveKind, payload: Number) -> Number:
        """Time [s] of a collective over the ranks that share the batch (`halley.pipeline.data_parallel.CollectiveTime`), numbers
        and arrays; payloads of 0 take none."""
        if not isinstance(payload, np.ndarray):
            return float(_few(kind, self.data_key, np.float64(payload).tobytes())[0])
        if payload.size <= MAX_CACHED_PAYLOADS:
            return _few(kind, self.data_key, payload.astype(np.float64).tobytes()).reshape(payload.shape)
        time = collective_time(kind, self.data_key)
        # what stays in a core's cache takes half as long
        blocks = np.array_split(payload.ravel(), -(-payload.size // BLOCK))
        return np.concatenate([positive(block) * time(maximum(block, 1.0)) for block in blocks]).reshape(payload.shape)

    def transfer(self, boundary: int, size: Number) -> Number:
        """Time [s] in which each chip of a stage sends ``size`` bytes to its like in the next one: from chunk ``boundary`` of the
        model to chunk ``boundary + 1``; 0 where there is one stage."""
        routes = self.pipeline_key
        if not routes:
            return 0.0 * size
        return routes[boundary % len(routes)].time(size)

    def fastest_transfer(self, size: Number) -> Number:
        """The shortest time [s] of a `transfer` from any stage to the next; 0 where there is one stage."""
        times = [route.time(size) for route in dict.fromkeys(self.pipeline_key)]
        return reduce(minimum, times) if times else 0.0 * size

    def ranks(self, role: Role) -> int:
        """How many ranks a role has."""
        return degree(self.assignment, role)


def _nameless(lane: Lane) -> Lane:
    """Lanes of different axes may be equal."""
    return replace(lane, axis=replace(lane.axis, name="")) if isinstance(lane, Crossed) else replace(lane, name="")


@lru_cache(maxsize=1 << 20)
def _remembered(kind: CollectiveKind, dimensions: Dimensions, size: int) -> float:
    return float(collective_time(kind, dimensions)(size)) if size > 0 else 0.0


@lru_cache(maxsize=1 << 12)
def _few(kind: CollectiveKind, dimensions: Dimensions, payloads: bytes) -> NDArray[np.float64]:
    """Times [s] of an array of payloads, which is not to be written into."""
    sizes = np.frombuffer(payloads)
    found = np.asarray(positive(sizes) * collective_time(kind, dimensions)(np.maximum(sizes, 1.0)))
    found.setflags(write=False)
    return found


def _routes(dimensions: Dimensions) -> tuple[Route, ...]:
    """Stages are numbered row-major over the dimensions; each goes on to the next number, the last to the first."""
    stages = prod(item.size for item in dimensions)
    if stages == 1:
        return ()
    shape = tuple(item.size for item in dimensions)
    places = np.stack(np.unravel_index(np.arange(stages + 1) % stages, shape), axis=1).tolist()
    return tuple(_route(dimensions, tuple(here), tuple(there)) for here, there in pairwise(places))


def _route(dimensions: Dimensions, here: tuple[int, ...], there: tuple[int, ...]) -> Route:
    """Cut through, dimension by dimension: latencies add up, the slowest link sets the pace."""
    found = [_hop(item.lane, a, b) for item, a, b in zip(dimensions, here, there, strict=True) if a != b]
    posting = longest([_axis(item.lane).link.overhead for item, a, b in zip(dimensions, here, there, strict=True) if a != b])
    return Route(posting + sum(hop.latency for hop in found), min(hop.bandwidth for hop in found))


@lru_cache(maxsize=1 << 14)
def _hop(lane: Lane, here: int, there: int) -> Route:
    """From rank to rank of every group of the lane at the same time."""
    if isinstance(lane, Crossed):
        graph = build(lane.axis)
        matrix = routing_matrix(graph, [(ranks[here], ranks[there]) for ranks in lane.groups])
        return Route(float(matrix.latency.max()), 1.0 / float((matrix.loads(1.0) / graph.bandwidths).max()))
    return Route(_links(lane, here, there) * lane.link.latency, lane.link.bandwidth)


def _links(lane: Axis, here: int, there: int) -> int:
    """Links between two ranks of a lane."""
    match lane.topology:
        case _T.SWITCH:
            return 2
        case _T.FULL:
            return 1
        case _T.RING:
            up = (there - here) % lane.size
            return up if lane.one_way else min(up, lane.size - up)
        case _:
            return abs(there - here)


def _axis(lane: Lane) -> Axis:
    return lane.axis if isinstance(lane, Crossed) else lane
