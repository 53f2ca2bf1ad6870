"""Row reductions and a matrix engine in RTL: the comparison, where its constants come from, and the simulation of the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from validation.mesh import compare as mesh

from halley.errors import BadInput
from halley.rewrite.legality import faults
from halley.simulate.simulation import simulate


def test_every_figure_is_within_what_is_allowed() -> None:
    lines = mesh.rtl_lines()
    assert all(line.holds for line in lines)
    assert [len(line.cases) for line in lines] == [5, 5, 7]
    reductions, without, engine = lines
    assert reductions.mean_error < 0.02 < without.mean_error
    assert abs(engine.worst_case.error) < 0.005


def test_the_constants_are_those_of_the_fit() -> None:
    adder, beat, latency = mesh.fit(mesh.figures())
    machine = mesh.chip()
    exchange = machine.axis("tile", "x").exchange
    assert machine.matrix is not None
    assert (adder, latency) == (round(exchange.adder * mesh.CLOCK), round(machine.matrix.latency * mesh.CLOCK))
    assert exchange.add_bandwidth == pytest.approx(64 * mesh.CLOCK / beat, rel=2e-3)


@pytest.mark.parametrize("figure", mesh.figures(), ids=lambda figure: figure.name)
def test_the_mappings_are_legal_and_the_simulation_agrees(figure: mesh.Figure) -> None:
    machine, (workload, tree) = mesh.chip(), mesh.problem(figure)
    assert faults(tree, workload, machine) == []
    resource = "axis" if figure.what == mesh.REDUCTION else "engine"
    found = [each for each in simulate(workload, machine, tree).intervals if each.server.resource[0] == resource]
    assert sum(each.stop - each.start for each in found) * mesh.CLOCK == pytest.approx(mesh.predicted(figure, machine), rel=1e-9)


def test_a_changed_figure_is_found(tmp_path: Path) -> None:
    text = (mesh.HERE / "figures.csv").read_text()
    changed = tmp_path / "figures.csv"
    changed.write_text(text.replace("32768,613", "32768,713"))
    assert [line.holds for line in mesh.rtl_lines(changed)] == [False, True, True]
    changed.write_text(text.replace("row reduction,-,-,-,2048", "column reduction,-,-,-,2048"))
    with pytest.raises(BadInput, match="row 1, what: expected 'row reduction' or 'matrix engine'; got 'column reduction'"):
        mesh.figures(changed)
