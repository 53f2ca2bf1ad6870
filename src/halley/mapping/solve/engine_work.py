"""Lower bounds of a frame of one stage with open splits, from the work of the engines alone.

No tiles make the engines of a member work less than its whole range does at once (`halley.mapping.bounds.untiled`). This needs no
formulas on open sizes: one evaluation costs all combinations of the tile sizes of the split as arrays. Where the engines limit
the time, it prunes all frames with idle members.
"""

from __future__ import annotations

import numpy as np

from halley.cost.evaluate import evaluate
from halley.formulas.energy import static_energy
from halley.ir.mapping import Compute, Hold, Node, walk
from halley.ir.mapping import Sequence as Steps
from halley.mapping.bounds.costing import Costing
from halley.mapping.bounds.incumbents import Values
from halley.mapping.solve.outside_stages import shared_sizes
from halley.mapping.space.frame_sets import Frame


def _in_outermost(costs: Costing, node: Node) -> Node:
    """A node with all tensors in the outermost memory: the engines work as long wherever their operands are."""
    outermost, enclose = costs.chip.memories[0].name, costs.enclose(Steps(()))
    touched = dict.fromkeys(name for op in map(costs.workload.op, costs.ops) for name in (*op.inputs, *op.outputs))
    held = {name for _, own in walk(enclose) if isinstance(own, Hold) for name in own.names}
    inside = tuple((name,) for name in touched if name not in held)
    return costs.enclose(Hold(outermost, inside, node, 1) if inside else node)


def engine_bounds(costs: Costing, frame: Frame) -> Values:
    """Lower bounds of the objectives, a row for each combination of the shared tile sizes; infinite for one that is not part of
    the frame."""
    rows, (stage,) = costs.combinations(frame), frame.stages
    result = np.zeros((rows, len(costs.objectives)))
    if frame.known_first:
        result[0] = np.inf
    if not costs.timed:
        return result
    sizes = shared_sizes(costs, frame)
    others = tuple(Compute(op) for op in stage.ops)
    each: list[Values] = []
    for laid in dict.fromkeys(shape.laid for shape in stage.skeletons):
        tree = _in_outermost(costs, frame.tree(sizes, [Steps((laid,) if laid else others)]))
        busy = evaluate(costs.workload, costs.chip, tree, totals=False).busy
        engines = [np.broadcast_to(time, (rows,)) for resource, time in busy.items() if resource[0] == "engine"]
        each.append(np.max([np.zeros(rows), *engines], axis=0))
    time = np.min(each, axis=0)
    found = {"time": time, "energy": static_energy(costs.chip.static_power, time)}
    return np.maximum(result, np.stack([np.asarray(found[name], dtype=np.float64) for name in costs.objectives], axis=1))
