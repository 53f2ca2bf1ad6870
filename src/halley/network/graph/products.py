"""Networks of several axes: the product of their topologies.

A 3-D torus is the product of three rings; a pod with rails is the product of a switch of nodes and a switch of GPUs.
"""

from __future__ import annotations

from functools import lru_cache

from halley.errors import BadInput, Fault
from halley.ir.hardware import Axis
from halley.network.graph.cartesian import cartesian
from halley.network.graph.graph import Graph
from halley.network.graph.topologies import axis_faults, build, coordinates

COORDINATES = 24
"""Most coordinates of a rank, of all axes together."""


@lru_cache(maxsize=1024)
def product(axes: tuple[Axis, ...]) -> Graph:
    """The network whose ranks have one coordinate per axis, row-major (the first axis changes slowest).

    Ranks that differ in one coordinate alone form a copy of that axis' topology. A link's ``dimension`` is its axis' place.
    Messages are routed in the last axis first (`halley.network.graph.cartesian.DimensionOrder`). Equal axes share one graph.

    >>> from halley.ir.hardware import Link, Topology
    >>> nodes, gpus = Axis("node", 4, Topology.SWITCH, Link(50e9)), Axis("gpu", 8, Topology.SWITCH, Link(450e9))
    >>> pod = product((nodes, gpus))
    >>> pod.ranks, len(pod.switches), len(pod.edges)   # a switch for each of 8 rails and 4 nodes
    (32, 12, 128)

    Raises BadInput: no axes, two axes of one name, every fault of each axis.
    """
    faults = [fault for axis in axes for fault in axis_faults(axis)]
    names = [axis.name for axis in axes]
    twice = sorted({name for name in names if names.count(name) > 1})
    faults += [Fault("network", "axes with names of their own", f"{name!r} twice") for name in twice]
    if not faults and sum(map(coordinates, axes)) > COORDINATES:
        faults.append(Fault("network", f"at most {COORDINATES} coordinates", str(sum(map(coordinates, axes)))))
    if not axes:
        faults.append(Fault("network", "at least one axis", "none"))
    if faults:
        raise BadInput(faults)
    return cartesian(" x ".join(names), tuple(build(axis) for axis in axes))
