"""Launch flags on the terminal."""

from __future__ import annotations

from rich.text import Text

from halley.cli import options
from halley.launch.emit import emit, emitted_text
from halley.launch.serving import emit_serving
from halley.serving.plans.search import ServingPlan
from halley.serving.served import Served
from halley.training.plan import TrainingResult


def show_flags(result: TrainingResult | Served | ServingPlan, framework: str, alone: bool = False) -> None:
    """Print the flags of the best plan, or of a deployment; ``alone``: stdout has nothing else, so that it can be a file."""
    each = (emit(result, framework),) if isinstance(result, TrainingResult) else emit_serving(result, framework)
    console = options.output()
    if not alone:
        console.print()
        console.print(Text(f"Launch flags for {each[0].version}", style="bold"))
    for made in each:
        console.print(Text(emitted_text(made)), soft_wrap=True)
        if made.text.startswith("{"):  # JSON has no comments
            remarks = options.remarks()
            for remark in (made.version, *made.remarks):
                remarks.print(Text(f"{framework}: {remark}"))
