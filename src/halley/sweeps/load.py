"""Study files: text in, a checked study out; all faults of a file are raised together."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from halley.errors import BadInput, Fault, did_you_mean
from halley.io.chips.chip import read_chip
from halley.io.chips.load import read_workload
from halley.io.files.check import check
from halley.io.files.entries import shown
from halley.io.files.models import Model
from halley.io.files.shelf import found, is_path
from halley.io.files.text import Document, DocumentFault, KeyPath, read_text_bounded, read_yaml
from halley.io.studies import LinkedAxisFile, StudyDeploymentFile, StudyFile, StudyPlanFile
from halley.io.systems.system import read_system
from halley.library import CHIPS, SYSTEMS
from halley.mapping.problem import Objective
from halley.sweeps.bases import Base, SystemWords, chip_base, names_in, system_base
from halley.sweeps.deployments import StudyDeployment
from halley.sweeps.expressions import Expression, expression
from halley.sweeps.figures import CHIP_FIGURES, SYSTEM_UNITS, UNITS
from halley.sweeps.plans import StudyPlan
from halley.sweeps.study import Study, StudyWorkload, SweepAxis
from halley.sweeps.values import VALUES_LIMIT, AxisValue, axis_values, common_unit, quantity
from halley.units import Quantity
from halley.workloads import build

OF_CHIPS, OF_SYSTEMS = ("chip", "workloads"), ("system", "plans", "deployments")
"""Keys of studies of either kind, the base first."""

PATHS = ("model", "efficiency", "software")
"""Options of plans and deployments that may be paths."""

QUESTIONS = (*OF_CHIPS[1:], *OF_SYSTEMS[1:])
"""Keys of what is searched on each design."""

OBJECTIVES = tuple(item.value for item in Objective)

T = TypeVar("T", StudyPlan, StudyDeployment)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,79}")
_UNIT_BEHIND = re.compile(r"^(\s+[^\s#:][^#:]*:\s+)(\[[^\]#]*\]\s*[A-Za-zµ][A-Za-zµ/]*2?)(\s*(?:#.*)?)$", re.MULTILINE)
"""A list with a unit behind it, which YAML has only in quotes."""


def load_study(path: str | Path, sampled: bool = False) -> Study:
    """The study of a file; paths in it start at its folder. ``sampled``: it may span any number of designs.

    Raises BadInput: every fault of the file, and of the chip file that it names.
    """
    return parse_study(read_text_bounded(path), str(path), Path(path).parent, sampled)


def parse_study(text: str, name: str = "study", folder: Path = Path(), sampled: bool = False) -> Study:
    """The study that the text of a file describes; ``name`` is for messages, a path to a chip starts at ``folder``.

    >>> text = "workloads: {g: {kind: gemm, m: 64, n: 64, k: 64}}\\nchip: edge\\naxes: {glb.capacity: '1, 2 MiB'}"
    >>> [design.figures["glb.capacity"] for design in parse_study(text).designs()]
    [1048576.0, 2097152.0]

    Raises BadInput: every fault of the text.
    """
    document = read_yaml(_UNIT_BEHIND.sub(r'\1"\2"\3', text), name)
    reader = _StudyReader(document, folder, sampled)
    study = reader.study(Path(name).stem)
    if study is None or reader.findings or reader.elsewhere:
        raise BadInput([*document.faults(reader.findings), *reader.elsewhere])
    return study


class _StudyReader:
    """Reads the parts of a study, whatever else may be wrong with it, so that one run shows all faults."""

    def __init__(self, document: Document, folder: Path, sampled: bool) -> None:
        self.document, self.folder, self.sampled = document, folder, sampled
        self.findings: list[DocumentFault] = []
        self.elsewhere: list[Fault] = []

    def study(self, name: str) -> Study | None:
        model, self.findings = check(StudyFile, self.document.data)
        data = self.document.data if isinstance(self.document.data, dict) else {}
        self._check_kind(data)
        base: Base | None
        if of_systems := any(key in data for key in OF_SYSTEMS):
            base, known = self._system(data.get("system")) if "system" in data else None, list(SYSTEM_UNITS)
        else:
            base, known = self._chip(data.get("chip")) if "chip" in data else None, list(CHIP_FIGURES)
        objectives = (Objective.TIME.value,) if of_systems else OBJECTIVES
        weights = _map(data.get("weights"))
        plans = self._asked("plans", _map(data.get("plans")), weights, StudyPlanFile, StudyPlan)
        deployments = self._asked("deployments", _map(data.get("deployments")), weights, StudyDeploymentFile, StudyDeployment)
        workloads = self._workloads(_map(data.get("workloads")), weights)
        every = [name for key in QUESTIONS for name in _map(data.get(key))]
        for key, count in Counter(every).items():
            if count > 1:
                self._find(("deployments", key), "a name that no plan has", repr(key), "choose another")
        for key in weights:
            if key not in every:
                self._find(("weights", key), "the name of a workload", repr(key), did_you_mean(str(key), every))
        axes = self._axes(base, _map(data.get("axes")), known, _braced(data))
        names = [*known, *(axis.name for axis in axes)]
        units = {name: unit for name in known if (unit := quantity(f"1 {UNITS[name]}" if UNITS[name] else 1, 1.0)) is not None}
        clock = base.clock if base is not None else 1.0
        units |= {axis.name: unit for axis in axes if (unit := common_unit((step[0] for step in axis.steps), clock)) is not None}
        own = self._figures(_map(data.get("figures")), names, units)
        names += list(own)
        where = self._constraints(data.get("where"), names, units)
        asked = data.get("minimise", ["time"])
        objective, minimised = self._objectives(asked, names, objectives) if isinstance(asked, list) else (None, ())
        gap = data.get("gap")
        if objective is Objective.EDP and isinstance(gap, int | float) and gap > 0:
            self._find(("gap",), "no gap where edp is minimised", f"{gap:g}", "remove it")
        if model is None or base is None or objective is None or self.findings or self.elsewhere:
            return None
        limit = model.time_limit.value if model.time_limit else None
        asked_of: tuple[StudyWorkload | StudyPlan | StudyDeployment, ...] = (*workloads, *plans, *deployments)
        return Study(
            name, self.document, base, asked_of, axes, own, where, objective, minimised, gap=model.gap.value, time_limit=limit
        )

    def _check_kind(self, data: Mapping[str, Any]) -> None:
        """A study is of chips or of systems."""
        of_chips, of_systems = [[key for key in keys if key in data] for keys in (OF_CHIPS, OF_SYSTEMS)]
        if of_chips and of_systems:
            got = f"{of_chips[0]} and {of_systems[0]}"
            self._find((of_systems[0],), "a study of chips or of systems", got, "make two studies")
        elif len(of_chips) + len(of_systems) < 2 or of_systems == list(OF_SYSTEMS[1:]):
            expected = "a chip and workloads, or a system and plans or deployments"
            self._find((), expected, " and ".join([*of_chips, *of_systems]) or "neither")

    def _find(self, path: KeyPath, expected: str, got: str, remedy: str = "") -> None:
        self.findings.append(DocumentFault(path, expected, got, remedy))

    def _faults(self, path: KeyPath, error: BadInput) -> None:
        for fault in error.faults:
            self._find(path, fault.expected, fault.got, fault.remedy)

    def _chip(self, given: object) -> Base | None:
        """The chip file that the axes change."""
        where = self.document.where(("chip",))
        match given:
            case str() if given.strip():
                try:
                    text, name, _ = found(CHIPS, self.folder / given if is_path(given) else given)
                    base = read_yaml(text, name)
                except BadInput as error:
                    self.elsewhere += [
                        Fault(f"{where}: {each.where}", each.expected, each.got, each.remedy) for each in error.faults
                    ]
                    return None
                chip, findings = read_chip(base)
                for each in base.faults(findings):
                    self.elsewhere.append(Fault(f"{where}: {each.where}", each.expected, each.got, each.remedy))
                return chip_base(base) if chip is not None else None
            case dict():
                chip, findings = read_chip(self.document, ("chip",))
                self.findings += findings
                return chip_base(self._part("chip", given)) if chip is not None else None
            case _:
                self._find(("chip",), "the name of a chip, a path to its file, or a map", shown(given))
                return None

    def _part(self, key: str, given: object) -> Document:
        """What the study says itself, as a file of its own."""
        return Document(self.document.name, given, {(): self.document.line((key,))})

    def _system(self, given: object) -> Base | None:
        """The system that the axes change."""
        where = self.document.where(("system",))
        match given:
            case str() if names_in(given) or ("," in given and not is_path(given)):
                return SystemWords(given if "," in given else str(self._placed(given)))
            case str() if given.strip():
                try:
                    text, name, _ = found(SYSTEMS, self.folder / given if is_path(given) else given)
                    return self._read_system(read_yaml(text, name), Path(name).parent, where)
                except BadInput as error:
                    self.elsewhere += [
                        Fault(f"{where}: {each.where}", each.expected, each.got, each.remedy) for each in error.faults
                    ]
                    return None
            case dict():
                return self._read_system(self._part("system", given), self.folder, where)
            case _:
                self._find(("system",), "a system by name, path or short form, or a map", shown(given))
                return None

    def _read_system(self, document: Document, folder: Path, where: str) -> Base | None:
        """The base of a system file, its chip written out, so that axes may lead into it."""
        system, findings, elsewhere = read_system(document, folder)
        for each in (*document.faults(findings), *elsewhere):
            self.elsewhere.append(Fault(f"{where}: {each.where}", each.expected, each.got, each.remedy))
        if system is None or not isinstance(document.data, dict):
            return None
        data = dict(document.data)
        if isinstance(reference := data["chip"], str):
            text, name, _ = found(CHIPS, folder / reference if is_path(reference) else reference)
            data["chip"] = read_yaml(text, name).data
        return system_base(Document(document.name, data, document.lines), folder)

    def _asked(self, key: str, asked: Mapping[str, Any], weights: Mapping[str, Any], kind: type[Model], made: type[T]) -> list[T]:
        """The plans or deployments of the study."""
        found = []
        for name, given in asked.items():
            model, findings = check(kind, given, (key, name))
            self.findings += findings
            if model is not None:
                placed = {key: self._placed(value) if key in PATHS else value for key, value in given.items()}
                found.append(made(name, _weight(weights, name), placed))
        return found

    def _placed(self, value: object) -> object:
        """A path, from the folder of the study; anything else as it is."""
        return str(self.folder / value) if isinstance(value, str) and (is_path(value) or value.endswith(".json")) else value

    def _workloads(self, given: Mapping[str, Any], weights: Mapping[str, Any]) -> tuple[StudyWorkload, ...]:
        made = []
        for name in given:
            path: KeyPath = ("workloads", name)
            asked, findings = read_workload(self.document, path)
            self.findings += findings
            if asked is None:
                if not findings:
                    self._find(path, "a workload: a kind with its parameters, or a graph", shown(given[name]))
                continue
            kind, parameters = asked
            try:
                work = build(kind, parameters)
            except BadInput as error:
                for fault in error.faults:
                    key = fault.where.partition(", parameter ")[2]
                    place = (*path, key) if key in (given[name] or ()) else path
                    self._find(place, fault.expected, fault.got, fault.remedy)
                continue
            plain = {"kind": kind, **parameters}
            made.append(StudyWorkload(name, work, _weight(weights, name), plain))
        return tuple(made)

    def _axes(
        self, base: Base | None, given: Mapping[str, Any], figures: list[str], braced: Mapping[str, KeyPath]
    ) -> tuple[SweepAxis, ...]:
        """``figures``: names that are taken; ``braced``: names in braces, with where they are."""
        for name, place_of_name in braced.items():
            if name not in given:
                self._find(place_of_name, "the name of an axis in braces", repr(name), did_you_mean(name, given))
        made: list[SweepAxis] = []
        taken: dict[KeyPath, str] = {}
        for name, value in given.items():
            path: KeyPath = ("axes", name)
            if not _NAME.fullmatch(name):
                self._find(path, "a name of letters, digits, _ and dots", repr(name))
                continue
            if (name in figures and name not in braced) or name in OBJECTIVES:
                self._find(path, "a name that no figure has", repr(name), "choose another")
                continue
            before = len(self.findings)
            lists = self._lists(name, value, path)
            if base is None or len(self.findings) > before or not lists:
                continue
            if name in braced and list(lists) == [name]:
                made.append(SweepAxis(name, (), tuple((value,) for value in lists[name]), path))
                continue
            places = []
            for target in lists:
                try:
                    places.append(base.place(target))
                except BadInput as error:
                    self._faults(path, error)
            for place in places:
                if place in taken:
                    self._find(path, "an axis of its own for each number", f"{base.words(place)}, set by {taken[place]}")
                taken[place] = name
            if len(places) == len(lists):
                made.append(SweepAxis(name, tuple(places), tuple(zip(*lists.values(), strict=True)), path))
        counts = [len(axis.steps) for axis in made]
        if (points := math.prod(counts)) > VALUES_LIMIT and not self.sampled:
            product = " x ".join(f"{count:,}" for count in counts)
            remedy = "give fewer values, split the study, or search some of them by --sample 100"
            self._find(("axes",), f"at most {VALUES_LIMIT:,} designs", f"{points:,} ({product})", remedy)
        return tuple(made)

    def _lists(self, name: str, value: object, path: KeyPath) -> dict[str, tuple[AxisValue, ...]]:
        """The values of each path that an axis sets."""
        try:
            if not isinstance(value, dict):
                return {name: axis_values(value)}
            linked, findings = check(LinkedAxisFile, value, path)
            self.findings += findings
            if linked is None:
                return {}
            if isinstance(linked.set, list):
                values = axis_values(linked.values)
                return dict.fromkeys(linked.set, values)
            lists = {target: axis_values(each, unique=False) for target, each in linked.set.items()}
            if linked.values is not None:
                self._find((*path, "values"), "no values beside a set that has them", "some", "remove them")
            if len({len(each) for each in lists.values()}) > 1:
                counts = ", ".join(str(len(each)) for each in lists.values())
                self._find(path, "as many values for each path of linked axes", counts)
            elif len(set(steps := list(zip(*lists.values(), strict=True)))) < len(steps):
                self._find(path, "each step of linked axes once", "one twice")
            return lists
        except BadInput as error:
            self._faults(path, error)
            return {}

    def _figures(self, given: Mapping[str, Any], names: list[str], units: dict[str, Quantity]) -> dict[str, Expression]:
        """``units``: of the names as far as they are known; those of the figures are added."""
        made: dict[str, Expression] = {}
        for name, text in given.items():
            path: KeyPath = ("figures", name)
            if not _NAME.fullmatch(name) or name in OBJECTIVES or name in names:
                self._find(path, "a name of its own, of letters, digits and _", repr(name), "choose another")
            elif isinstance(text, str | int | float):
                try:
                    made[name] = expression(str(text), [*names, *made])
                    if (unit := made[name].unit(units)) is not None:
                        units[name] = unit
                except BadInput as error:
                    self._faults(path, error)
        return made

    def _constraints(self, given: object, names: list[str], units: Mapping[str, Quantity]) -> tuple[Expression, ...]:
        made = []
        for index, text in enumerate(given if isinstance(given, list) else ()):
            if isinstance(text, str):
                try:
                    made.append(expression(text, names))
                    made[-1].unit(units)
                except BadInput as error:
                    self._faults(("where", index), error)
                    continue
                if not made[-1].compares:
                    self._find(("where", index), "a comparison, such as 'macs <= 4096'", repr(text))
        return tuple(made)

    def _objectives(
        self, given: list[Any], names: list[str], objectives: tuple[str, ...]
    ) -> tuple[Objective | None, tuple[str, ...]]:
        """``objectives``: what the searches of the study can minimise."""
        searched = [name for name in given if name in OBJECTIVES]
        others = tuple(name for name in given if name not in OBJECTIVES)
        if len(searched) != 1 or searched[0] not in objectives:
            got, several = ", ".join(searched) or "none of them", len(objectives) > 1
            expected = "one of time, energy and edp" if several else "time"
            self._find(("minimise",), f"{expected}, which the searches minimise, beside figures", got)
            return None, ()
        for name in others:
            if name not in names:
                known = [*OBJECTIVES, *names]
                self._find(("minimise", given.index(name)), "a figure or an axis", shown(name), did_you_mean(str(name), known))
            elif others.count(name) > 1:
                self._find(("minimise",), "each figure once", f"{name} twice")
        return Objective(searched[0]), others


def _weight(weights: Mapping[str, Any], name: str) -> float:
    """How often a workload counts; the check of the file reports what is no number."""
    weight = weights.get(name, 1.0)
    return float(weight) if isinstance(weight, int | float) else 1.0


def _braced(data: Mapping[str, Any]) -> dict[str, KeyPath]:
    """Names in braces in the text of the system, plans and deployments, with the places where they are."""
    texts: dict[KeyPath, object] = {("system",): data.get("system")}
    for kind in OF_SYSTEMS[1:]:
        for name, asked in _map(data.get(kind)).items():
            texts |= {(kind, name, key): value for key, value in _map(asked).items()}
    return {name: path for path, text in texts.items() if isinstance(text, str) for name in names_in(text)}


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
