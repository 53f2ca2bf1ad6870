"""Where the time goes: each second of the estimate attributed to one cause."""

from __future__ import annotations

from collections.abc import Mapping

from halley.cost.estimate import Estimate
from halley.cost.events import Crossing, Work
from halley.io.result import resource_name
from halley.ir.mapping import Collective, Compute, Hold, Node, Overlap, Parallel, Pipeline, Sequence, Spatial, Temporal
from halley.report.tree import Path, binding

RAMPS = "first fills and last drains"
SERIAL = "fills and drains of single buffers"
STAGES = "filling and draining the pipeline"


def anatomy(tree: Node, estimate: Estimate) -> dict[str, float]:
    """Seconds by cause, largest first; they add up to the estimate's time.

    A phase is its ramps and then whatever takes longest: its busiest resource, or the work inside, which is taken apart further.
    """
    view = _View(tree, estimate)
    causes = view.phase((), tree)
    return {cause: time for cause, time in sorted(causes.items(), key=lambda item: -item[1]) if time > 0}


class _Times(dict[str, float]):
    """Seconds by cause; ``+`` adds them up."""

    def __add__(self, other: Mapping[str, float]) -> _Times:
        made = _Times(self)
        for cause, time in other.items():
            made[cause] = made.get(cause, 0.0) + time
        return made


class _View:
    def __init__(self, tree: Node, estimate: Estimate) -> None:
        self.nodes = estimate.nodes
        self.parts: dict[Path, _Times] = {}
        for event in estimate.events:
            if isinstance(event, Work | Crossing):
                if isinstance(event, Work):
                    cause = resource_name(("engine", event.engine))
                else:
                    cause = f"collectives on {resource_name(('axis', event.level, event.axis))}"
                before = self.parts.get(event.path, _Times())
                self.parts[event.path] = before + {cause: float(event.time)}

    def phase(self, path: Path, node: Node) -> _Times:
        cost = self.nodes[path]
        ramps = _Times({RAMPS: float(cost.entries) * (float(cost.ramp_up) + float(cost.ramp_down))})
        resource = binding(cost)
        if resource and float(cost.busy[resource]) > float(cost.work):
            return ramps + {resource_name(resource): float(cost.busy[resource])}
        return ramps + self.work(path, node)

    def work(self, path: Path, node: Node) -> _Times:
        """The parts of a node's work."""
        inside = (*path, 0)
        match node:
            case Temporal() | Spatial():
                return self.work(inside, node.body)
            case Hold():
                if node.buffers > 1:
                    return self.work(inside, node.body)
                serial = float(self.nodes[path].work) - float(self.nodes[inside].time)
                return self.phase(inside, node.body) + _Times({SERIAL: serial})
            case Sequence():
                return sum((self.phase((*path, i), child) for i, child in enumerate(node.children)), _Times())
            case Overlap() | Parallel():
                return self.phase(*self._longest(path, node.children))
            case Pipeline():
                longest, child = self._longest(path, node.children)
                rest = float(self.nodes[path].work) - float(self.nodes[longest].time)
                return self.phase(longest, child) + _Times({STAGES: rest})
            case Compute() | Collective():
                return self.parts.get(path, _Times())

    def _longest(self, path: Path, children: tuple[Node, ...]) -> tuple[Path, Node]:
        position = max(range(len(children)), key=lambda i: float(self.nodes[(*path, i)].time))
        return (*path, position), children[position]
