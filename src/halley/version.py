"""Which Halley this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def halley_version() -> str:
    """Version of the installed package."""
    try:
        return version("halley")
    except PackageNotFoundError:
        return "unknown"
