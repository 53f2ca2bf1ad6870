"""Chips whose kernels were not measured, and the measured ones that they resemble."""

from __future__ import annotations

KIN = {
    "a100-40gb": "a100",
    "h200": "h100",
    "h800": "h100",
    "gh200": "h100",
    "b300": "b200",
    "gb200": "b200",
    "gb300": "b200",
    "rtx-pro-6000": "l40s",
}
"""Chips without measured kernels, and the measured chip whose shares they take: the same architecture, or the nearest."""
SAME_DIE = ("a100-40gb", "h200", "h800", "gh200", "gb200")
"""Kin that differ in memory, links or limits alone."""
SAME_ARCHITECTURE = (*SAME_DIE, "b300", "gb300")
"""Kin whose libraries run the same kernels."""
