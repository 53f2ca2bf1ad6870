"""A plan of training as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree.ElementTree import Element

from halley.answer import Status
from halley.io.results.training import plan_document
from halley.kernels.searched import shape_of
from halley.report.document import document, framed
from halley.report.html_tables import table
from halley.report.markup import el
from halley.report.plans.figures import figure
from halley.report.plans.op import op_text
from halley.report.plans.others import others_table
from halley.report.plans.partitions import on_chip_tables
from halley.report.plans.plan import certificate_table, headline, shardings, summary_tables, verdict
from halley.report.plans.words import plan_words
from halley.report.table import Table, percent
from halley.training.op_mapping import op_mapping, ops_of_kernels
from halley.training.plan import TrainingResult
from halley.training.search.joint import searched_in_plan
from halley.training.uncertainty.plans import uncertainty
from halley.units import format_time

CAPTIONS = {
    "account": "The best plan first, then the best plans of other kinds: data x pipeline x model; mb: sequences of a microbatch; "
    "v: chunks of a stage; full, sel: what is recomputed; Z: ZeRO; off: optimizer state in the second tier of memory. For each "
    "plan, the stage that finishes last; the parts add up to the plan's time.",
    "schedule": "From the event simulation of the plan, with a few microbatches where an iteration has many. Numbers are those "
    "of microbatches; lighter colours are further chunks of a stage. At the end, gradients are summed and the optimizer works.",
    "cluster": "From the outermost axis of the system down to one chip: each row is the inside of one member of the row above, "
    "and its cells are coloured by what the plan splits over them. On the right: the link of a member in each direction.",
    "memory": "Stages with equal memory share a bar.",
    "roofline": "From the rate that the plan reaches up to the rate that each resource alone would allow: the shorter the stem, "
    "the busier the resource.",
}


def plan_page(result: TrainingResult) -> str:
    """The whole result as HTML; its numbers stand in it as JSON."""
    title = headline(result)
    proven = result.status is Status.OPTIMAL
    others, ops = _tables(others_table(result)), _tables(shardings(result.cost, ops=False))
    on_chip, trees = _tables(on_chip_tables(result.cost)), _op_trees(result)
    sections = [
        _section("account", "Where the time goes, and why alternatives are slower", _picture(result, "account"), *others),
        _section("cluster", "Cluster", _picture(result, "cluster")),
        _section("schedule", "Schedule", _picture(result, "schedule")),
        _section("memory", "Memory", _picture(result, "memory")),
        _section("roofline", "Hierarchical roofline", _picture(result, "roofline")),
        _section("numbers", "In numbers", *_tables(summary_tables(result))),
        *([_section("ops", "Sharding of the ops", *ops, _every_op(result))] if ops else []),
        *([_section("trees", "From the system to the array", *trees)] if trees else []),
        *([_section("on-chip", "Concurrent kernels on a chip", *on_chip)] if on_chip else []),
        _section("certificate", "Certificate", *_tables([certificate_table(result.certificate)])),
    ]
    header = [
        el("p", "Halley plan, objective: time of an iteration", class_="kicker"),
        el("h1", title),
        el("p", plan_words(result.plan, result.cost), class_="faint"),
        el("div", el("strong", verdict(result.certificate, result.status)), class_="verdict" if proven else "verdict open"),
        el("dl", *_tiles(result), class_="tiles"),
    ]
    data = plan_document(result)
    footer = f"Halley {data['provenance']['halley']}; solved {data['provenance']['created']}."
    return document(title, header, sections, data, "plan.json", footer)


def _section(name: str, heading: str, *content: Element) -> Element:
    return el("section", el("h2", heading), *content, id=name)


def _picture(result: TrainingResult, name: str) -> Element:
    return framed(figure(result, name), CAPTIONS[name], f"figure-{name}")


def _tables(tables: Iterable[Table]) -> list[Element]:
    return [table(shown) for shown in tables]


def _every_op(result: TrainingResult) -> Element:
    return el("details", el("summary", "Every op, both passes"), *_tables(shardings(result.cost, ops=True)), class_="small")


def _op_trees(result: TrainingResult) -> list[Element]:
    """The mappings of the ops whose kernels were searched, from the axes of the system to the array."""
    kernels = {f"{part}/{op}": kernel for part, ops in ops_of_kernels(result).items() for op, kernel in ops.items()}
    known = searched_in_plan(result)
    named = [name for name, kernel in kernels.items() if shape_of(kernel) in known]
    return [el("details", el("summary", name), el("pre", op_text(result, op_mapping(result, name)))) for name in named]


def _tiles(result: TrainingResult) -> list[Element]:
    cost, known = result.cost, uncertainty(result)
    shown = [
        ("iteration", format_time(cost.time), "time"),
        ("tokens", f"{cost.tokens_per_second:,.0f} /s", "tokens"),
        ("utilisation (MFU)", percent(cost.utilisation, 1), "utilisation"),
        ("memory of a chip", percent(sum(cost.memory[cost.fullest].values()), cost.capacity), "memory"),
        *([("interval of 80 %", f"{format_time(known.low)} to {format_time(known.high)}", "interval")] if known else []),
        ("gap to the bound", f"{100 * result.certificate.gap:.2f} %", "gap"),
    ]
    return [el("div", el("dt", name), el("dd", el("span", value, data_value=key))) for name, value, key in shown]
