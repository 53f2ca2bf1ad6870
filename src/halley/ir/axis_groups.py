"""Groups along an axis: the groups of neighbours, and the members of a group, as two axes.

A mapping that names the axis x of 32 members as ``x/8`` and ``x%8`` sees two axes in its place: ``x/8``, the index of the group
of 8 neighbours (i // 8, of size 4), and ``x%8``, the index in the group (i % 8, of size 8). Each can be split, and can carry
collectives, on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from halley.errors import BadInput, Fault
from halley.ir.hardware import Axis, Chip, Level, axis_group
from halley.ir.mapping import Collective, Node, Parallel, Pipeline, Spatial

Divisions = dict[tuple[str, str], int]
"""By (level, axis), the size of the groups in which mappings name it."""


def with_axis_groups(chip: Chip, nodes: Iterable[Node]) -> Chip:
    """The chip as a mapping of these nodes sees it: an axis that they divide into groups is two axes. The chip itself if
    they divide none.

    Raises BadInput: an axis named both whole and in groups, or in groups of two sizes; a size that does not divide the axis.
    """
    found: Divisions = {}
    for (level, name), group in _named(nodes):
        if found.setdefault((level, name), group) != group:
            where, expected = f"mapping, axis {level}.{name}", "the whole axis, or groups of one size, throughout the mapping"
            raise BadInput(Fault(where, expected, " and ".join(sorted({_shown(found[level, name]), _shown(group)}))))
    return divided(chip, {key: group for key, group in found.items() if group})


def divided(chip: Chip, groups: Divisions) -> Chip:
    """The chip with these axes in two parts each; the chip itself if it has none of them, as when they are in parts already.

    Raises BadInput: a size that does not divide the axis.
    """
    if not any((level, axis.name) in groups for level, axis in chip.axes):
        return chip
    return replace(chip, levels=tuple(_level(level, groups) for level in chip.levels))


def _named(nodes: Iterable[Node]) -> Iterator[tuple[tuple[str, str], int]]:
    """((level, axis), size of the groups) of every node that names an axis; 0 for the whole axis."""
    for node in nodes:
        if isinstance(node, Spatial | Collective | Parallel | Pipeline):
            name, group = axis_group(node.axis)
            yield (node.level, name), group


def _shown(group: int) -> str:
    return f"groups of {group}" if group else "the whole axis"


def _level(level: Level, divided: Divisions) -> Level:
    if level.network is None or not any((level.name, axis.name) in divided for axis in level.network.axes):
        return level
    axes: list[Axis] = []
    for axis in level.network.axes:
        group = divided.get((level.name, axis.name))
        axes += [axis] if group is None else axis.grouped(group, level.name)
    return replace(level, network=replace(level.network, axes=tuple(axes)))
