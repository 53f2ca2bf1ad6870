"""A plan of training as one HTML file that needs nothing beside itself."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from halley.io.plan import plan_document
from halley.planning.plan import Outcome, TrainingResult
from halley.report.document import document
from halley.report.html import table
from halley.report.markup import el
from halley.report.plan import headline, plan_tables, plan_words, verdict
from halley.report.plan_figures import figure
from halley.report.table import percent
from halley.units import format_time

CAPTIONS = {
    "account": "The best plan first, then the best plans of other kinds; degrees are data x pipeline x model. On each plan's own "
    "stage that is done last, so that the parts add up to its time.",
    "memory": "Stages that hold the same stand in one bar.",
    "roofline": "From the rate that the plan reaches up to the rate that each resource alone would allow: the shorter the stem, "
    "the busier the resource.",
}


def plan_page(result: TrainingResult) -> str:
    """The whole result as HTML; its numbers stand in it as JSON."""
    title = headline(result)
    proven = result.outcome is Outcome.OPTIMAL
    sections: list[Element] = []
    for name, heading in (("account", "Where the time goes"), ("memory", "Memory"), ("roofline", "Limits")):
        picture = el("figure", figure(result, name), el("figcaption", CAPTIONS[name]), id=f"figure-{name}")
        sections.append(el("section", el("h2", heading), picture, id=name))
    tables = [table(shown) for shown in plan_tables(result, ops=True)]
    sections.append(el("section", el("h2", "In numbers"), *tables, id="numbers"))
    header = [
        el("p", "Halley plan, objective: time of an iteration", class_="kicker"),
        el("h1", title),
        el("p", plan_words(result.plan), class_="faint"),
        el("div", el("strong", verdict(result.certificate, result.outcome)), class_="verdict" if proven else "verdict open"),
        el("dl", *_tiles(result), class_="tiles"),
    ]
    data = plan_document(result)
    footer = f"Halley {data['provenance']['halley']}; solved {data['provenance']['created']}."
    return document(title, header, sections, data, "plan.json", footer)


def _tiles(result: TrainingResult) -> list[Element]:
    cost = result.cost
    shown = (
        ("iteration", format_time(cost.time), "time"),
        ("tokens", f"{cost.tokens_per_second:,.0f} /s", "tokens"),
        ("utilisation", percent(cost.utilisation, 1), "utilisation"),
        ("gap to the bound", f"{100 * result.certificate.gap:.2f} %", "gap"),
    )
    return [el("div", el("dt", name), el("dd", el("span", value, data_value=key))) for name, value, key in shown]
