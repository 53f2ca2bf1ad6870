"""Data that ships with Halley: chips, networks, fits of both, and the energy table, as YAML, each number with its source.

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
    chip: expected the name of a shipped chip (a100, ...) or a path to a file; got 'egde'; did you mean 'edge'?
    """
    names = chip_names()
    hint = did_you_mean(name, names)
    remedy = hint if hint.startswith("did you mean") else "a path contains / or ends in .yaml"
    return Fault("chip", f"the name of a shipped chip ({', '.join(names)}) or a path to a file", repr(name), remedy)


def energy_text() -> str:
    """The energy table, as text."""
    return _ROOT.joinpath("energy.yaml").read_text(encoding="utf-8")


def fit_names() -> tuple[str, ...]:
    """Names of the fitted networks that ship with Halley."""
    files = (item.name for item in _ROOT.joinpath("networks", "fits").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def fit_text(name: str) -> str:
    """The file of a shipped fit, as text.

    Raises BadInput: no fit of that name.
    """
    if name not in fit_names():
        raise BadInput(unknown_fit(name))
    return _ROOT.joinpath("networks", "fits", f"{name}.yaml").read_text(encoding="utf-8")


def unknown_fit(name: str) -> Fault:
    """The complaint about a name that no shipped fit has."""
    hint = did_you_mean(name, fit_names())
    remedy = hint if hint.startswith("did you mean") else "a path contains / or ends in .yaml"
    return Fault("network fit", "the name of a shipped fit or a path to a file", repr(name), remedy)


def calibration_names() -> tuple[str, ...]:
    """Names of the fitted chips that ship with Halley.

    >>> "a100" in calibration_names()
    True
    """
    files = (item.name for item in _ROOT.joinpath("calibrations").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def calibration_text(name: str) -> str:
    """The file of a shipped fit of a chip, as text.

    Raises BadInput: no fit of that name.
    """
    if name not in calibration_names():
        raise BadInput(unknown_calibration(name))
    return _ROOT.joinpath("calibrations", f"{name}.yaml").read_text(encoding="utf-8")


def unknown_calibration(name: str) -> Fault:
    """The complaint about a name that no shipped fit of a chip has."""
    names = calibration_names()
    hint = did_you_mean(name, names)
    remedy = hint if hint.startswith("did you mean") else "a path contains / or ends in .yaml"
    return Fault("chip fit", f"the name of a shipped fit of a chip ({', '.join(names)}) or a path to a file", repr(name), remedy)


def network_names() -> tuple[str, ...]:
    """Names of the networks that ship with Halley.

    >>> "dgx-1" in network_names()
    True
    """
    files = (item.name for item in _ROOT.joinpath("networks").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml") and name != "links.yaml"))


def network_text(name: str) -> str:
    """The file of a shipped network, as text.

    Raises BadInput: no network of that name.
    """
    if name not in network_names():
        raise BadInput(unknown_network(name))
    return _ROOT.joinpath("networks", f"{name}.yaml").read_text(encoding="utf-8")


def unknown_network(name: str) -> Fault:
    """The complaint about a name that no shipped network has."""
    names = network_names()
    hint = did_you_mean(name, names)
    remedy = hint if hint.startswith("did you mean") else "a path contains / or ends in .yaml"
    return Fault("network", f"the name of a shipped network ({', '.join(names)}) or a path to a file", repr(name), remedy)


def links_text() -> str:
    """The table of link technologies, as text."""
    return _ROOT.joinpath("networks", "links.yaml").read_text(encoding="utf-8")


def system_names() -> tuple[str, ...]:
    """Names of the systems that ship with Halley.

    >>> "dgx-h100-pod" in system_names()
    True
    """
    files = (item.name for item in _ROOT.joinpath("systems").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def system_text(name: str) -> str:
    """The file of a shipped system, as text.

    Raises BadInput: no system of that name.
    """
    if name not in system_names():
        raise BadInput(unknown_system(name))
    return _ROOT.joinpath("systems", f"{name}.yaml").read_text(encoding="utf-8")


def unknown_system(name: str) -> Fault:
    """The complaint about a name that no shipped system has.

    >>> print(unknown_system("sn10-rin"))  # doctest: +ELLIPSIS
    system: expected a shipped system (...), a path to a file, or a short form; got 'sn10-rin'; did you mean 'sn10-ring'?
    """
    names = system_names()
    hint = did_you_mean(name, names)
    remedy = hint if hint.startswith("did you mean") else "a short form reads for example '1024 x h100, nvlink 8, ib'"
    return Fault("system", f"a shipped system ({', '.join(names)}), a path to a file, or a short form", repr(name), remedy)


def parts_text() -> str:
    """The table of parts, as text."""
    return _ROOT.joinpath("parts.yaml").read_text(encoding="utf-8")


def grid_names() -> tuple[str, ...]:
    """Names of the grids of systems that ship with Halley."""
    files = (item.name for item in _ROOT.joinpath("systems", "grids").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def grid_text(name: str) -> str:
    """The file of a shipped grid of systems, as text.

    Raises BadInput: no grid of that name.
    """
    names = grid_names()
    if name not in names:
        raise BadInput(Fault("grid", "the name of a shipped grid or a path to a file", repr(name), did_you_mean(name, names)))
    return _ROOT.joinpath("systems", "grids", f"{name}.yaml").read_text(encoding="utf-8")


def model_names() -> tuple[str, ...]:
    """Names of the models that ship with Halley.

    >>> "gpt3-175b" in model_names()
    True
    """
    files = (item.name for item in _ROOT.joinpath("models").iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def model_text(name: str) -> str:
    """The file of a shipped model, as text.

    Raises BadInput: no model of that name.
    """
    if name not in model_names():
        raise BadInput(unknown_model(name))
    return _ROOT.joinpath("models", f"{name}.yaml").read_text(encoding="utf-8")


def unknown_model(name: str) -> Fault:
    """The complaint about a name that no shipped model has."""
    names = model_names()
    hint = did_you_mean(name, names)
    remedy = hint if hint.startswith("did you mean") else "a path contains / or ends in .yaml"
    return Fault("model", f"the name of a shipped model ({', '.join(names)}) or a path to a file", repr(name), remedy)
