"""Hypothesis: where CI is set the drawn examples are the same in every run; elsewhere each run explores new ones."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
