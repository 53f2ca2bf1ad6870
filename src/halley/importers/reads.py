"""Which node of a program reads a value: to find nodes that follow each other and to which nothing else belongs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple


class GraphNode(NamedTuple):
    """A node: its operator, and the names of the values that it reads and makes."""

    operator: str
    reads: Sequence[str]
    makes: Sequence[str]


class NodeGraph:
    """The nodes of a program. ``results``: values that the program returns; ``casts``: operators that change the element type
    alone. Nodes that make nothing are checks, and do not count. ``count``: how often a value is read or returned; ``maker``: the
    place of the node that makes it."""

    def __init__(self, steps: Sequence[GraphNode], results: Iterable[str], casts: Collection[str]) -> None:
        self.steps, self.casts = steps, casts
        self.count = Counter(results)
        self.maker = {name: place for place, step in enumerate(steps) for name in step.makes}
        self._reader: dict[str, int] = {}
        for place, step in enumerate(steps):
            for name in step.reads if step.makes else ():
                self.count[name] += 1
                self._reader[name] = place

    def path(self, place: int) -> list[int]:
        """Casts of the result of a node, each read by the next alone, and the node behind them; empty if there is none.

        >>> made = [GraphNode("add", ["x"], ["a"]), GraphNode("to", ["a"], ["b"]), GraphNode("mul", ["b", "c"], ["d"])]
        >>> NodeGraph(made, ["d"], ["to"]).path(0), NodeGraph(made, ["d", "b"], ["to"]).path(0)
        ([1, 2], [])
        """
        passed: list[int] = []
        while True:
            makes = self.steps[place].makes
            if len(makes) != 1 or self.count[makes[0]] != 1 or self._reader.get(makes[0], -1) <= place:
                return []  # a value that several nodes read, or, in a file that is wrong, one before
            place = self._reader[makes[0]]
            passed.append(place)
            if self.steps[place].operator not in self.casts:
                return passed

    def chain(self, start: int, operators: Sequence[str]) -> list[int]:
        """The places from a node to the last of these operators, one behind the other with casts between them; empty if they do
        not follow.

        >>> made = [GraphNode("add", ["x"], ["a"]), GraphNode("to", ["a"], ["b"]), GraphNode("mul", ["b", "c"], ["d"])]
        >>> NodeGraph(made, ["d"], ["to"]).chain(0, ["mul"]), NodeGraph(made, ["d"], ["to"]).chain(0, ["add"])
        ([0, 1, 2], [])
        """
        places = [start]
        for operator in operators:
            path = self.path(places[-1])
            if not path or self.steps[path[-1]].operator != operator:
                return []
            places += path
        return places

    def others(self, places: Sequence[int], place: int) -> list[str]:
        """What a node reads besides the results of these nodes."""
        made = {name for each in places for name in self.steps[each].makes}
        return [name for name in self.steps[place].reads if name not in made]
