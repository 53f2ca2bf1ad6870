"""Data that ships with Halley: chips, networks, systems, models, fits and tables, as YAML, each number with its source.

Only finds the texts; `halley.io` reads them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from halley.errors import BadInput, Fault, did_you_mean

_ROOT = resources.files("halley.library")


@dataclass(frozen=True, slots=True)
class Shelf:
    """A folder of files of one kind. ``what`` names the kind in messages; ``other``: what else may be given instead of a name of
    the shelf, and ``hint`` how that looks; ``tables``: files in the folder that are of another kind."""

    what: str
    folder: tuple[str, ...]
    other: str = "a path to a file"
    hint: str = "a path contains / or ends in .yaml"
    tables: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        """What is on the shelf, sorted.

        >>> "edge" in CHIPS.names(), "links" in NETWORKS.names()
        (True, False)
        """
        found = (item.name for item in _ROOT.joinpath(*self.folder).iterdir())
        names = {name.removesuffix(".yaml") for name in found if name.endswith(".yaml")}
        return tuple(sorted(names - set(self.tables)))

    def text(self, name: str) -> str:
        """A file of the shelf. Raises BadInput: no such name."""
        if name not in self.names():
            raise BadInput(self.unknown(name))
        return _text(*self.folder, name)

    def unknown(self, name: str) -> Fault:
        """The complaint about a name that is not on the shelf.

        >>> print(CHIPS.unknown("egde"))  # doctest: +ELLIPSIS
        chip: expected the name of a shipped chip (a100, ...) or a path to a file; got 'egde'; did you mean 'edge'?
        """
        names = self.names()
        alike = did_you_mean(name, names)
        remedy = alike if alike.startswith("did you mean") else self.hint
        return Fault(self.what, f"the name of a shipped {self.what} ({', '.join(names)}) or {self.other}", repr(name), remedy)


CHIPS = Shelf("chip", ("chips",))
NETWORKS = Shelf("network", ("networks",), tables=("links",))
SYSTEMS = Shelf("system", ("systems",), "a path to a file or a short form", "a short form is '1024 x h100, nvlink 8, ib'")
GRIDS = Shelf("grid", ("systems", "grids"))
MODELS = Shelf(
    "model",
    ("models",),
    "a path to a model file, to a config.json of Hugging Face or to its folder",
    "a path contains / or ends in .yaml or .json",
)
NETWORK_FITS = Shelf("network fit", ("networks", "fits"))
CHIP_FITS = Shelf("chip fit", ("calibrations",))
SOFTWARE = Shelf("software", ("software",))
KERNEL_FITS = Shelf("kernel fit", ("kernels",))
SERVING_SOFTWARE = Shelf("serving software", ("serving",))


def chip_names() -> tuple[str, ...]:
    """Names of the chips that ship with Halley.

    >>> "edge" in chip_names()
    True
    """
    return CHIPS.names()


def energy_text() -> str:
    """The table of energies."""
    return _text("energy")


def gpu_text() -> str:
    """The template of a GPU's chip file, with ``$name`` and other places to be filled."""
    return _text("templates", "gpu")


def links_text() -> str:
    """The table of link technologies."""
    return _text("networks", "links")


def acceptance_text() -> str:
    """The table of measured acceptance of proposed tokens."""
    return _text("acceptance")


def parts_text() -> str:
    """The table of prices and power of parts."""
    return _text("parts")


def _text(*place: str) -> str:
    return _ROOT.joinpath(*place[:-1], f"{place[-1]}.yaml").read_text(encoding="utf-8")
