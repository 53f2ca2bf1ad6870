"""Results and estimates as tables. Reads numbers and words them; computes no physics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from halley.answer import Status
from halley.cost.estimate import Estimate
from halley.cost.figures import resource_name, sustained
from halley.ir.hardware import Chip
from halley.ir.mapping import Collective, Node, walk
from halley.ir.workload import Workload
from halley.mapping.problem import Objective
from halley.mapping.result import MappingCertificate, Point, Result, Solution
from halley.report.mapping.causes import causes
from halley.report.mapping.tree import lines
from halley.report.table import Table, percent, ratio
from halley.units import format_bytes, format_energy, format_power, format_time

RIGHT = frozenset({1, 2, 3, 4})


def outer_traffic(chip: Chip, estimate: Estimate) -> float:
    """Bytes read from and written to the memories of the outermost level."""
    return sum(float(estimate.traffic(memory.name)) for memory in chip.levels[0].memories)


def outer_name(chip: Chip) -> str:
    """What to call the outermost memories: "DRAM"."""
    return " + ".join(memory.name for memory in chip.levels[0].memories).upper() or "outer memory"


def collectives(tree: Node) -> tuple[str, ...]:
    """The collectives of a mapping, each once: "all-reduce mx over cluster.x (ring)"."""
    found = (node for _, node in walk(tree) if isinstance(node, Collective))
    names = (f"{c.kind.value} {' '.join(c.tensors)} over {c.level}.{c.axis} ({c.algorithm})" for c in found)
    return tuple(dict.fromkeys(names))


def collective_kinds(tree: Node) -> tuple[str, ...]:
    """The kinds of collectives in a mapping, each once."""
    return tuple(dict.fromkeys(node.kind.value for _, node in walk(tree) if isinstance(node, Collective)))


def binding_resource(estimate: Estimate) -> tuple[str, float]:
    """The busiest resource and its busy time [s]."""
    resource, busy = max(estimate.busy.items(), key=lambda item: float(item[1]), default=((), 0.0))
    return resource_name(resource) if resource else "none", float(busy)


def power_text(chip: Chip, estimate: Estimate) -> str:
    """The average power, and the time of a run at the chip's power limit if that is more."""
    time, longer = float(estimate.time), sustained(chip, estimate)
    text = format_power(float(estimate.energy) / time)
    if longer > time:
        text += f", over the limit of {format_power(chip.power_limit)}: {format_time(longer)} if repeated without a pause"
    return text


def summary(chip: Chip, estimate: Estimate) -> Table:
    """Time, energy, traffic, what binds, and how full the memories are."""
    memory = outer_name(chip)
    reads, writes = (
        sum(float(value) for (name, _, _), value in accesses.items() if chip.depth(name) == 0)
        for accesses in (estimate.reads(), estimate.writes())
    )
    resource, busy = binding_resource(estimate)
    full = ", ".join(
        f"{name} {percent(float(used), chip.memory(name).capacity)}"
        for name, used in estimate.footprint.items()
        if chip.depth(name)
    )
    rows = (
        ("time", format_time(float(estimate.time))),
        ("energy", format_energy(float(estimate.energy))),
        ("power", power_text(chip, estimate)),
        (f"{memory} traffic", f"{format_bytes(reads + writes)} ({format_bytes(reads)} read, {format_bytes(writes)} written)"),
        ("busiest resource", f"{resource}, {percent(busy, float(estimate.time))} of the time"),
        ("memory in use", full or "-"),
    )
    return Table("Estimate", ("quantity", "value"), rows)


def tree_table(tree: Node, estimate: Estimate) -> Table:
    """The mapping, one node a row, with the time of each node, its share and what sets it."""
    whole = float(estimate.time)
    rows = tuple(
        (
            str(line.number),
            line.text,
            format_time(line.time),
            percent(line.time, whole),
            resource_name(line.bound) if line.bound else "",
        )
        for line in lines(tree, estimate)
    )
    return Table("Mapping", ("", "node", "time", "share", "set by"), rows, frozenset({0, 2, 3}), spare=frozenset({4}))


def time_table(tree: Node, estimate: Estimate, as_drawn: bool = False) -> Table:
    """Where the time goes, cause by cause: largest first, or in the order of the figure."""
    whole = float(estimate.time)
    found = sorted(causes(tree, estimate).items(), key=lambda item: 0.0 if as_drawn else -item[1])
    rows = tuple((cause, format_time(time), percent(time, whole)) for cause, time in found)
    return Table("Where the time goes", ("cause", "time", "share"), rows, RIGHT)


def energy_table(estimate: Estimate) -> Table:
    """Energy by component, largest first."""
    whole = float(estimate.energy)
    ordered = sorted(((name, float(value)) for name, value in estimate.energy_by.items()), key=lambda item: -item[1])
    rows = tuple((name, format_energy(value), percent(value, whole)) for name, value in ordered if value > 0)
    return Table("Where the energy goes", ("component", "energy", "share"), rows, RIGHT)


def objective_text(objective: str, value: float) -> str:
    """A value of the objective with its unit."""
    match Objective(objective):
        case Objective.TIME:
            return format_time(value)
        case Objective.ENERGY:
            return format_energy(value)
        case Objective.EDP:
            return f"{value:.4g} J s"


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}" if number < 10**15 else f"{number:.2e} {what}"


def verdict(certificate: MappingCertificate) -> str:
    """The certificate in one sentence."""
    bound = objective_text(certificate.objective, certificate.bound)
    none = "no mapping of the space" if certificate.size is None else f"of {_many(certificate.size, 'mappings')}, none"
    measure = {"time": "takes less time than", "energy": "needs less energy than", "edp": "has an energy-delay product below"}
    sentence = f"{none} {measure[certificate.objective]} {bound}"
    if certificate.status is Status.OPTIMAL:
        return f"optimal: {sentence}, which this one reaches"
    value = objective_text(certificate.objective, certificate.value)
    gap = f"{100 * certificate.gap:.2f} %" if certificate.bound > 0 else "unknown"
    if certificate.status is Status.WITHIN:
        return f"within {gap} of the best: {sentence}; this one has {value}"
    return f"not proven optimal: {sentence}; this one has {value} (gap {gap}); {certificate.closed}"


def certificate_tables(certificate: MappingCertificate) -> tuple[Table, ...]:
    """The certificate: verdict and effort, the space, what the space leaves out."""
    effort = f"{certificate.costed:,} mappings costed, {certificate.bounds:,} bounds, {certificate.seconds:.1f} s"
    rows = (
        ("verdict", verdict(certificate)),
        ("method", certificate.method),
        ("proof", certificate.closed),
        ("effort", effort),
    )
    lists = (("Space", certificate.declaration), ("Left out", certificate.left_out))
    declared = (Table(title, ("", ""), tuple((clause.what, clause.how) for clause in found)) for title, found in lists)
    return (Table("Certificate", ("", ""), rows), *declared)


def comparison(result: Result) -> Table:
    """The best plan beside the baselines; speed-up is over the first row."""
    chip = result.problem.chip
    return comparison_table([(plan.name, chip, plan) for plan in (*result.baselines, result.best)], result.absent)


def comparison_table(plans: Sequence[tuple[str, Chip, Solution]], absent: Sequence[str] = ()) -> Table:
    """Plans side by side by name, the last one strong; speed-up is over the first. ``absent`` names those without a plan."""
    reference = float(plans[0][2].estimate.time)
    rows = tuple(
        (
            name,
            format_time(float(solution.estimate.time)),
            format_energy(float(solution.estimate.energy)),
            format_bytes(outer_traffic(chip, solution.estimate)),
            ratio(reference / float(solution.estimate.time)),
            ", ".join(collective_kinds(solution.plan)) or "none",
            _proof(solution),
        )
        for name, chip, solution in plans
    )
    rows = (*((name, "-", "-", "-", "-", "none found", "-") for name in absent), *rows)
    outer = " / ".join(dict.fromkeys(outer_name(chip) for _, chip, _ in plans))
    head = ("plan", "time", "energy", outer, "speed-up", "collectives", "proof")
    return Table("Comparison", head, rows, RIGHT, frozenset({len(rows) - 1}), frozenset({6}))


def _proof(solution: Solution) -> str:
    if solution.status is Status.OPTIMAL:
        return "optimal"
    return f"gap {100 * solution.certificate.gap:.1f} %" if solution.certificate.bound > 0 else "not searched"


def front_table(front: Sequence[Point]) -> Table:
    """The time-energy front, fastest first."""
    rows = tuple((format_time(p.time), format_energy(p.energy), f"{p.time * p.energy:.4g} J s") for p in front)
    return Table("Time-energy front", ("time", "energy", "product"), rows, frozenset({0, 1, 2}))


def problem_text(workload: Workload, chip: Chip, objective: Objective) -> str:
    """One line that says what was asked."""
    return f"{workload_text(workload.name, workload.parameters)} on {chip.label}, objective {objective.value}"


def workload_text(kind: str, parameters: Mapping[str, object]) -> str:
    """The kind with its parameters, the algorithm left out.

    >>> workload_text("gemm", {"m": 4, "n": 5, "k": 6, "variant": "plain"})
    'gemm m=4 n=5 k=6'
    """
    words = (f"{name}={value}" for name, value in parameters.items() if value is not None and name != "variant")
    return " ".join((kind, *words)).replace("\n", "; ")  # the lines of a graph


def plan_text(solution: Solution) -> str:
    """How the plan is built: its algorithm and fused groups."""
    groups = " | ".join(" + ".join(group) for group in solution.groups)
    algorithm = f"{solution.variant}; " if solution.variant else ""
    return f"{algorithm}{'one kernel' if len(solution.groups) == 1 else f'{len(solution.groups)} kernels'}: {groups}"


def solution_tables(chip: Chip, tree: Node, estimate: Estimate) -> tuple[Table, ...]:
    """The tables of one plan."""
    return (tree_table(tree, estimate), summary(chip, estimate), time_table(tree, estimate), energy_table(estimate))


def result_tables(result: Result, details: bool = False) -> tuple[Table, ...]:
    """The tables of a result, in the order in which they are read. ``details``: energy by component, the certificate with the
    space, and the collectives of every plan too."""
    best = result.best
    tables = list(solution_tables(result.problem.chip, best.plan, best.estimate))
    if not details:
        tables = tables[:-1]
    if result.baselines:
        tables.append(comparison(result))
    if result.front:
        tables.append(front_table(result.front))
    if details:
        tables += certificate_tables(best.certificate)
        used = tuple((s.name, text) for s in (*result.baselines, best) for text in collectives(s.plan))
        if used:
            tables.append(Table("Collectives", ("plan", "collective"), used))
    return tuple(tables)
