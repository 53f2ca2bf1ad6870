"""Where the time goes: each second of the estimate attributed to one cause."""

from __future__ import annotations

from collections import Counter as Tally

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
    return {cause: time for cause, time in causes.most_common() if time > 0}


class _View:
    def __init__(self, tree: Node, estimate: Estimate) -> None:
        self.nodes = estimate.nodes
        self.parts: dict[Path, Tally[str]] = {}
        for event in estimate.events:
            if isinstance(event, Work | Crossing):
                engine = isinstance(event, Work)
                name = resource_name(("engine", event.engine) if isinstance(event, Work) else ("axis", event.level, event.axis))
                self.parts.setdefault(event.path, Tally())[name if engine else f"collectives on {name}"] += float(event.time)

    def phase(self, path: Path, node: Node) -> Tally[str]:
        cost = self.nodes[path]
        causes: Tally[str] = Tally()
        causes[RAMPS] += float(cost.entries) * (float(cost.ramp_up) + float(cost.ramp_down))
        resource = binding(cost)
        if resource and float(cost.busy[resource]) > float(cost.work):
            causes[resource_name(resource)] += float(cost.busy[resource])
            return causes
        return causes + self.work(path, node)

    def work(self, path: Path, node: Node) -> Tally[str]:
        """The parts of a node's work."""
        inside = (*path, 0)
        match node:
            case Temporal() | Spatial():
                return self.work(inside, node.body)
            case Hold():
                if node.buffers > 1:
                    return self.work(inside, node.body)
                serial = float(self.nodes[path].work) - float(self.nodes[inside].time)
                return self.phase(inside, node.body) + Tally({SERIAL: serial})
            case Sequence():
                return sum((self.phase((*path, i), child) for i, child in enumerate(node.children)), Tally[str]())
            case Overlap() | Parallel():
                return self.phase(*self._longest(path, node.children))
            case Pipeline():
                longest, child = self._longest(path, node.children)
                rest = float(self.nodes[path].work) - float(self.nodes[longest].time)
                return self.phase(longest, child) + Tally({STAGES: rest})
            case Compute() | Collective():
                return self.parts.get(path, Tally())

    def _longest(self, path: Path, children: tuple[Node, ...]) -> tuple[Path, Node]:
        position = max(range(len(children)), key=lambda i: float(self.nodes[(*path, i)].time))
        return (*path, position), children[position]
