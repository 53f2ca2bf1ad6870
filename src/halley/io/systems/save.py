"""From a `System` to the content of a system file: what `halley.io.systems.system.parse_system` reads back as the equal
system."""

from __future__ import annotations

from typing import Any

import yaml

from halley.io.chips.load import load_chip
from halley.io.chips.save import chip_document
from halley.io.networks.save import axis_document, library_document, link_document
from halley.ir.hardware import Chip
from halley.ir.system import Cost, System
from halley.library import CHIPS


def system_yaml(system: System) -> str:
    """The system as YAML, each number to the last digit, with its unit and, where it has one, its source."""
    return yaml.safe_dump(system_document(system), sort_keys=False, width=120, allow_unicode=True)


def system_document(system: System) -> dict[str, Any]:
    """The content of a system file; a chip that ships with Halley is named, any other is written out."""
    content: dict[str, Any] = {"name": system.name}
    if system.description:
        content["description"] = system.description
    content["chip"] = _chip(system.chip)
    if system.memories:
        content["memories"] = list(system.memories)
    costs = {key: _cost(getattr(system, f"{key}_cost")) for key in ("chip", "memory", "node")}
    content["costs"] = _sourced({key: cost for key, cost in costs.items() if cost}, "costs", system)
    if system.host is not None:
        numbers = {"capacity": f"{system.host.capacity!r} B", "bandwidth": f"{system.host.bandwidth!r} B/s"}
        content["host"] = _sourced(numbers | {"link": link_document(system.host.link)}, "host", system)
    if system.axes:
        axes = [axis_document(axis) | library_document(system.libraries, axis.name) for axis in system.axes]
        content["axes"] = [_sourced(axis, f"axes.{axis['name']}", system) for axis in axes]
    return content


def _chip(chip: Chip) -> str | dict[str, Any]:
    return chip.name if chip.name in CHIPS.names() and load_chip(chip.name) == chip else chip_document(chip)


def _cost(cost: Cost) -> dict[str, Any]:
    price = {} if cost.price is None else {"price": float(cost.price)}
    return price if cost.power is None else price | {"power": f"{float(cost.power)!r} W"}


def _sourced(value: Any, path: str, system: System) -> Any:
    """The value with the source of each number put beside it."""
    if isinstance(value, dict):
        return {key: item if key == "name" else _sourced(item, f"{path}.{key}", system) for key, item in value.items()}
    return {"value": value, "source": system.sources[path]} if path in system.sources else value
