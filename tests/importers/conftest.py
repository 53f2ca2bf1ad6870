"""Fixtures of the command line's tests."""

from tests.cli.conftest import empty_folder

__all__ = ["empty_folder"]
