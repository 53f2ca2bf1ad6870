"""Pictures and PDFs through a Chromium that is installed: the one program that draws a page exactly as readers see it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from xml.etree.ElementTree import Element

from halley.errors import BadInput, Fault
from halley.report.markup import el, html_text

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PICTURE_TIMEOUT = 60.0
"""Seconds for one picture."""

QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
)
"""Options of a browser that opens one local file and then leaves. Without a sandbox, as it also has to run for root in a
container; the only pages that it gets are Halley's own."""


def browser() -> str | None:
    """Path of the first Chromium on the search path."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def png_file(figure: Element, zoom: float = 2.0) -> bytes:
    """The figure as PNG, with ``zoom`` pixels per unit of its size.

    Raises BadInput: there is no Chromium, or it made no picture.
    """
    program = browser()
    if program is None:
        raise BadInput(
            Fault("PNG", "a Chromium to draw it", "none on the search path", "install the package chromium, or write SVG")
        )
    width, height = (float(figure.get(side, "0")) for side in ("width", "height"))
    page = el("html", el("head", el("style", "body { margin: 0 } svg { display: block }")), el("body", figure))
    with tempfile.TemporaryDirectory(prefix="halley-") as folder:
        source, target = Path(folder) / "figure.html", Path(folder) / "figure.png"
        source.write_text("<!doctype html><meta charset=utf-8>" + html_text(page), encoding="utf-8")
        options = (
            f"--user-data-dir={folder}/profile",
            f"--window-size={width:.0f},{height:.0f}",
            f"--force-device-scale-factor={zoom:g}",
        )
        command = [program, *QUIET, *options, f"--screenshot={target}", source.as_uri()]
        try:
            said = subprocess.run(command, capture_output=True, text=True, timeout=PICTURE_TIMEOUT, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BadInput(
                Fault("PNG", "a picture from the browser", f"{type(error).__name__}", f"try {program} by hand")
            ) from None
        if not target.exists():
            last = (said.stderr.strip().splitlines() or ["nothing"])[-1]
            raise BadInput(Fault("PNG", "a picture from the browser", last[:200], f"try {program} by hand"))
        return target.read_bytes()
