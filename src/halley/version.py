"""Which Halley this is."""

from __future__ import annotations

from importlib import import_module


def halley_version() -> str:
    """Version of the installed package."""
    metadata = import_module("importlib.metadata")  # few commands need it, and it takes long to load
    try:
        return str(metadata.version("halley"))
    except metadata.PackageNotFoundError:
        return "unknown"
