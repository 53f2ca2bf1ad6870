"""Which tests run when, and what is drawn.

Tests that took longer than `QUICK` seconds get the mark `medium`: `make test` leaves them out, `make test-medium` runs them.
Tests of the folders in `LONG` that took longer than is said there get the mark `slow`, unless they have the mark `medium` where
they are defined.
tests/durations.json has the seconds of tests that take half a second or more, also of slow ones, so that parts of
`make test-slow` take about the same time; `make durations` measures them again, or takes them from logs.
Where CI is set the drawn examples of hypothesis are the same in every run; elsewhere each run explores new ones. Examples have no
deadline: on a busy machine it would be missed.
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import settings

QUICK = 0.5
"""Longest test of the quick run [s], on one core."""

LONG = {"certificates": 5.0, "cli": 20.0}
"""Longest test of the medium run [s], by folder, on one core, but for those that are marked by hand."""

DURATIONS = Path(__file__).with_name("durations.json")

settings.register_profile("explore", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "explore")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks before pytest chooses by marks."""
    seconds = json.loads(DURATIONS.read_text(encoding="utf-8"))
    for item in items:
        took = seconds.get(item.nodeid, 0.0)
        if took > QUICK and not any(map(item.get_closest_marker, ("slow", "medium"))):
            long = took > LONG.get(item.path.parent.name, float("inf"))
            item.add_marker(pytest.mark.slow if long else pytest.mark.medium)
