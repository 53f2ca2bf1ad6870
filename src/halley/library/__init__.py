"""Data that ships with Halley: chips and the energy table, as YAML, each number with its source.

Only finds the texts; `halley.io.load` reads them.
"""

from __future__ import annotations

from importlib import resources

from halley.errors import BadInput, Fault, did_you_mean

_ROOT = resources.files("halley.library")


def chip_names() -> tuple[str, ...]:
    """Names of the chips that ship with Halley.

    >>> "edge" in chip_names()
    True
    """
    files = (item.name for item in _ROOT.joinpath("chips").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def chip_text(name: str) -> str:
    """The file of a shipped chip, as text.

    Raises BadInput: no chip of that name.
    """
    if name not in chip_names():
        raise BadInput(unknown_chip(name))
    return _ROOT.joinpath("chips", f"{name}.yaml").read_text(encoding="utf-8")


def unknown_chip(name: str) -> Fault:
    """The complaint about a name that no shipped chip has.

    >>> print(unknown_chip("egde"))  # doctest: +ELLIPSIS
    chip: expected the name of a shipped chip (a100, cloud, ...) or a path to a file; got 'egde'; did you mean 'edge'?
    """
    names = chip_names()
    hint = did_you_mean(name, names)
    remedy = hint if hint.startswith("did you mean") else "a path contains / or ends in .yaml"
    return Fault("chip", f"the name of a shipped chip ({', '.join(names)}) or a path to a file", repr(name), remedy)


def energy_text() -> str:
    """The energy table, as text."""
    return _ROOT.joinpath("energy.yaml").read_text(encoding="utf-8")
