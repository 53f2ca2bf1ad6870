"""Launch flags on the terminal."""

from __future__ import annotations

from rich.text import Text

from halley.cli import options
from halley.launch.emit import emit, emitted_text
from halley.training.plan import TrainingResult


def show_flags(result: TrainingResult, framework: str, alone: bool = False) -> None:
    """Print the flags of the best plan; ``alone``: stdout has nothing else, so that it can be a file."""
    made = emit(result, framework)
    console = options.output()
    if not alone:
        console.print()
        console.print(Text(f"Launch flags for {made.version}", style="bold"))
    console.print(Text(emitted_text(made)), soft_wrap=True)
    if made.text.startswith("{"):  # JSON has no comments
        remarks = options.remarks()
        for remark in (made.version, *made.remarks):
            remarks.print(Text(f"{framework}: {remark}"))
