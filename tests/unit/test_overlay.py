"""Overlays of measured collectives: their times by hand, their fits on rows made from protocols that are known."""

from __future__ import annotations

import contextlib
import math
from itertools import combinations_with_replacement, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from validation.collectives.baselines import judge, unseen_ranks

from halley.errors import BadInput
from halley.formulas.software import overlaid_time
from halley.io.networks.fits import fit_document, load_fit, parse_fit
from halley.ir.mapping import CollectiveKind
from halley.library import NETWORK_FITS
from halley.network.fit.calibrate import SWITCH_COST, Measurement, _best_run, _Rows, calibrate, fit_rows
from halley.network.fit.overlay import FAMILIES, Choice, Family, Fit, Overlay, Protocol, Series, demand
from halley.network.fit.regression import robust_fit
from halley.units import UNLIMITED

KIND = CollectiveKind
RING = (KIND.ALL_REDUCE, KIND.ALL_GATHER, KIND.REDUCE_SCATTER)
PROTOCOLS = (Protocol(8e-6, 1e-6, 20e9, 40e9), Protocol(12e-6, 1.2e-6, 150e9, 300e9), Protocol(40e-6, 3e-6, 240e9, 500e9))
SIZES = tuple(2**power for power in range(9, 30))


def steps_and_bytes(kind: CollectiveKind, ranks: int, size: float) -> tuple[float, float, float]:
    """Steps, bytes sent and own bytes, counted by walking a ring: in each step of a pass a rank sends one share."""
    if kind in (KIND.BROADCAST, KIND.REDUCE):
        return ranks - 1, size, 0.0
    if kind is KIND.SHIFT:
        return 1, size, 0.0
    steps = [size / ranks for _ in range(2 if kind is KIND.ALL_REDUCE else 1) for _ in range(ranks - 1)]
    return len(steps), sum(steps), size / ranks


def time_of(protocol: Protocol, kind: CollectiveKind, ranks: int, size: float) -> float:
    steps, sent, own = steps_and_bytes(kind, ranks, size)
    return protocol.startup + steps * protocol.latency + sent / protocol.bandwidth + own / protocol.copy_rate


def best_time(kind: CollectiveKind, ranks: int, size: float) -> float:
    return min(time_of(protocol, kind, ranks, size) for protocol in PROTOCOLS)


def rows(ranks: tuple[int, ...] = (2, 4, 8), noise: float = 0.0, seed: int = 0) -> list[Measurement]:
    """What a library of the three protocols that always takes the fastest would measure."""
    source = Random(seed)
    return [
        Measurement(kind, number, size, best_time(kind, number, size) * (1 + noise * source.uniform(-1, 1)))
        for kind in RING
        for number in ranks
        for size in SIZES
    ]


def fitted(measured: list[Measurement]) -> Overlay:
    return calibrate(measured, "machine", "library 1", "made up", "2026-01-01")


def complaint(call: object, *arguments: object) -> str:
    with pytest.raises(BadInput) as caught:
        call(*arguments)  # type: ignore[operator]
    return str(caught.value)


# Times.


@pytest.mark.parametrize("kind", CollectiveKind)
@pytest.mark.parametrize("ranks", [2, 3, 7])
def test_a_protocols_time_is_what_a_walk_around_the_ring_counts(kind: CollectiveKind, ranks: int) -> None:
    for protocol in PROTOCOLS:
        assert protocol.time(demand(kind, ranks, 4200)) == pytest.approx(time_of(protocol, kind, ranks, 4200), rel=1e-12)


def test_choices_hold_from_their_size_on_for_numbers_and_arrays_alike() -> None:
    series = Series(KIND.ALL_REDUCE, 4, (Choice(1, 0), Choice(1000, 2)), 1, 4000, 5, 0.0)
    overlay = Overlay("m", "s", "s", "d", (Fit(Family.RING, PROTOCOLS, (series,)),))
    sizes = np.array([1.0, 999.0, 1000.0, 1001.0, 4000.0])
    times = overlay.time(KIND.ALL_REDUCE, 4, sizes)
    assert times.tolist() == [overlay.time(KIND.ALL_REDUCE, 4, size) for size in sizes.tolist()]
    expected = [time_of(PROTOCOLS[0 if size < 1000 else 2], KIND.ALL_REDUCE, 4, size) for size in sizes]
    assert times == pytest.approx(expected, rel=1e-12)
    assert overlay.time(KIND.ALL_REDUCE, 1, 5) == 0


@given(st.sampled_from(RING), st.sampled_from([3, 8, 16]), st.integers(1, 2**30))
def test_unseen_ranks_get_the_fastest_protocol_that_is_used_for_such_shares(kind: CollectiveKind, ranks: int, size: int) -> None:
    """On 2 ranks all protocols are used, with borders at shares of 512 B and 512 KiB; on 4 the first holds up to 2 KiB."""
    two = Series(KIND.ALL_REDUCE, 2, (Choice(1, 0), Choice(2**10, 1), Choice(2**20, 2)), 1, 2**30, 21, 0.0)
    four = Series(KIND.ALL_GATHER, 4, (Choice(1, 0), Choice(2**13, 1), Choice(2**21, 2)), 1, 2**30, 21, 0.0)
    overlay = Overlay("m", "s", "s", "d", (Fit(Family.RING, PROTOCOLS, (two, four)),))
    share = size / ranks
    ranges = ((0, 2**11), (2**9, 2**19), (2**19, math.inf))
    used = [number for number, (least, most) in enumerate(ranges) if least <= share < most]
    expected = min(time_of(PROTOCOLS[number], kind, ranks, size) for number in used)
    assert overlay.time(kind, ranks, size) == pytest.approx(expected, rel=1e-12)
    assert overlay.time(kind, ranks, np.array([float(size)]))[0] == overlay.time(kind, ranks, float(size))


def test_extrapolation_is_said() -> None:
    overlay = fitted(rows((2, 4)))
    assert overlay.remarks(KIND.ALL_REDUCE, 4, 2**20) == ()
    assert overlay.remarks(KIND.ALL_REDUCE, 4, np.array([512, 2**30])) == (
        "all-reduce on 4 ranks is extrapolated: measured from 512 to 536870912 bytes",
    )
    assert overlay.remarks(KIND.ALL_REDUCE, 8, 512) == ("all-reduce on 8 ranks is extrapolated: measured on 2, 4 ranks",)
    assert overlay.remarks(KIND.BROADCAST, 4, 512) == ("broadcast on 4 ranks is extrapolated: never measured itself",)


def test_what_cannot_be_asked_is_refused() -> None:
    overlay = fitted(rows((2,)))
    assert "expected at least 1 rank; got 0" in complaint(overlay.time, KIND.ALL_REDUCE, 0, 8)
    assert "expected sizes above 0 bytes; got 0" in complaint(overlay.time, KIND.ALL_REDUCE, 2, 0)
    assert "expected sizes above 0 bytes; got -3" in complaint(overlay.time, KIND.ALL_REDUCE, 2, np.array([4.0, -3.0]))
    text = complaint(overlay.time, KIND.ALL_TO_ALL, 2, 8)
    assert text == (
        "machine, all-to-all: expected a collective like those measured (all-gather, all-reduce, reduce-scatter); got all-to-all"
    )


def test_the_network_bounds_the_overlay() -> None:
    assert overlaid_time(np.array([3.0, 9.0]), np.array([5.0, 5.0])).tolist() == [5.0, 9.0]


# Fits.


def test_a_fit_finds_the_protocols_that_made_the_rows() -> None:
    overlay = fitted(rows())
    (fit,) = overlay.fits
    for found, true in zip(fit.protocols, PROTOCOLS, strict=True):
        for name in ("startup", "latency", "bandwidth", "copy_rate"):
            assert getattr(found, name) == pytest.approx(getattr(true, name), rel=0.02), name
    assert all(item.error < 0.005 and item.held_out is not None and item.held_out < 0.02 for item in fit.series)


@pytest.mark.parametrize("seed", range(4))
def test_noise_stays_noise(seed: int) -> None:
    """Against the times without noise, on sizes that were never measured."""
    overlay = fitted(rows(noise=0.04, seed=seed))
    for kind in RING:
        for ranks in (2, 4, 8):
            for size in (3000, 50_000, 900_000, 40_000_000):
                assert overlay.time(kind, ranks, size) == pytest.approx(best_time(kind, ranks, size), rel=0.08)


def test_unseen_ranks_follow_from_the_protocols() -> None:
    found = unseen_ranks(rows(noise=0.02, seed=1))
    assert {ranks for _, ranks in found} == {8}
    for predictions in found.values():
        assert sum(row.error for row in predictions) / len(predictions) < 0.05
        assert max(row.error for row in predictions if row.size >= 2**26) < 0.03


def test_a_spike_changes_nothing() -> None:
    plain, spiked = rows(), rows()
    at = spiked.index(Measurement(KIND.ALL_REDUCE, 4, 2**14, best_time(KIND.ALL_REDUCE, 4, 2**14)))
    spiked[at] = Measurement(KIND.ALL_REDUCE, 4, 2**14, 3e-4)
    sizes = np.array(SIZES, float)
    times = fitted(spiked).time(KIND.ALL_REDUCE, 4, sizes)
    assert times == pytest.approx(fitted(plain).time(KIND.ALL_REDUCE, 4, sizes), rel=0.03)


def test_order_and_repeats_of_rows_change_nothing() -> None:
    measured = rows(noise=0.05, seed=3)
    shuffled = measured + measured
    Random(5).shuffle(shuffled)
    assert fitted(shuffled) == fitted(measured)


def test_a_slower_clock_is_a_slower_overlay() -> None:
    measured = rows(noise=0.05, seed=4)
    slower = [Measurement(row.kind, row.ranks, row.size, 2 * row.time) for row in measured]
    sizes = np.array(SIZES, float)
    for kind in RING:
        assert fitted(slower).time(kind, 4, sizes) == pytest.approx(2 * fitted(measured).time(kind, 4, sizes), rel=1e-4)


def test_a_jump_to_a_slower_protocol_is_kept() -> None:
    """Libraries do change to a protocol that is slower at that size; the change is placed at the first size that showed it."""
    used = [(size, PROTOCOLS[1 if size < 2**20 else 2]) for size in SIZES]
    measured = [Measurement(KIND.ALL_REDUCE, 4, size, time_of(protocol, KIND.ALL_REDUCE, 4, size)) for size, protocol in used]
    overlay = fitted(measured)
    for row in measured:
        assert overlay.time(row.kind, 4, row.size) == pytest.approx(row.time, rel=0.03)
    before, after = overlay.time(KIND.ALL_REDUCE, 4, 2**20 - 1), overlay.time(KIND.ALL_REDUCE, 4, 2**20)
    assert after > 1.5 * before


def test_few_rows_get_few_protocols() -> None:
    few = [Measurement(KIND.ALL_TO_ALL, 2, size, time_of(PROTOCOLS[1], KIND.ALL_TO_ALL, 2, size)) for size in SIZES[::4]]
    (fit,) = fitted(few).fits
    assert (fit.family, len(fit.protocols), fit.series[0].held_out) == (Family.EXCHANGE, 1, None)
    assert "expected at least 4 sizes; got 3; measure more sizes" in complaint(fitted, few[:3])


def test_an_overlay_beats_simple_models() -> None:
    for item in judge(rows(noise=0.03, seed=6), peak=300e9):
        assert item.peak is not None
        assert item.overlay < 0.04 < min(item.start_and_bandwidth, item.constant_bandwidth, item.peak)


def test_rows_that_cannot_be_are_all_named() -> None:
    bad = [Measurement(KIND.ALL_REDUCE, 1, 0, 0.0), Measurement(KIND.ALL_GATHER, 2, 8, float("nan"))]
    faults = complaint(fitted, bad).splitlines()
    assert [fault.split(": ")[1].split(";")[0] for fault in faults] == [
        "expected at least 2 ranks",
        "expected a size above 0 bytes",
        "expected a time above 0 s",
        "expected a time above 0 s",
    ]
    assert complaint(fitted, []) == "calibration: expected measurements; got none"


# What the fit is made of.


@given(st.integers(0, 2**32 - 1))
def test_coefficients_are_optimal(seed: int) -> None:
    """The conditions of Karush, Kuhn and Tucker for least squares of relative errors with coefficients of at least 0."""
    source = np.random.default_rng(seed)
    columns, values = source.uniform(0, 3, (9, 4)) ** 2, source.uniform(0.5, 4, 9)
    found = robust_fit(columns, values, rounds=1)
    relative = columns / values[:, None]
    gradient = relative.T @ (relative @ found - 1)
    assert (found >= 0).all()
    assert (gradient >= -1e-5).all()
    assert (np.abs(gradient * found) < 1e-5).all()


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 6))
def test_the_best_run_is_the_best_of_all(seed: int, protocols: int, count: int) -> None:
    source = np.random.default_rng(seed)
    columns, times = source.uniform(0.1, 2, (count, 4)), source.uniform(0.5, 2, count)
    coefficients = source.uniform(0, 1, (protocols, 4))
    losses = np.abs(np.log(columns @ coefficients.T / times[:, None]))

    def loss(run: tuple[int, ...]) -> float:
        changes = sum(one != other for one, other in pairwise(run))
        return float(sum(losses[row, number] for row, number in enumerate(run))) + SWITCH_COST * changes

    found, run = _best_run(_Rows((KIND.ALL_REDUCE, 2), times, times, columns), coefficients)
    least = min(map(loss, combinations_with_replacement(range(protocols), count)))
    assert found == pytest.approx(least)
    assert loss(tuple(run.tolist())) == pytest.approx(least)


# Files.


def test_a_fit_survives_its_file() -> None:
    overlay = fitted(rows(noise=0.05, seed=7))
    assert parse_fit(fit_document(overlay)) == overlay
    series = (Series(KIND.REDUCE, 3, (Choice(1, 0),), 8, 8, 1, 0.25),)
    fit = Fit(Family.RING, (Protocol(0.0, 0.0, UNLIMITED, UNLIMITED),), series)
    unlimited = Overlay("a: b", 'say "x"', "s # t", "d", (fit,))
    assert parse_fit(fit_document(unlimited)) == unlimited


@pytest.mark.parametrize("name", NETWORK_FITS.names())
def test_shipped_fits_are_within_their_targets(name: str) -> None:
    """On sizes that were held out, on average over the series of a family."""
    overlay = load_fit(name)
    assert parse_fit(fit_document(overlay)) == overlay
    assert overlay.source.startswith("github.com/")
    for family, target in ((Family.RING, 0.08), (Family.EXCHANGE, 0.12)):
        found = [item.held_out for fit in overlay.fits if fit.family is family for item in fit.series]
        errors = [error for error in found if error is not None]
        assert len(errors) == len(found)
        assert not errors or sum(errors) / len(errors) <= target


def test_faults_of_a_file_are_reported_together(tmp_path: Path) -> None:
    overlay = fitted(rows((2,)))
    text = fit_document(overlay)
    broken = text.replace("protocol: 3}", "protocol: 9}", 1).replace("collective: all-reduce", "collective: all-to-all")
    broken = broken.replace("choices: [{from_size: 1 B", "choices: [{from_size: 7 B", 1)
    message = complaint(parse_fit, broken, "x.yaml")
    assert "expected a collective of the family ring; got all-to-all" in message
    assert "expected protocols from 1 to 3; got a larger number" in message
    assert "expected sizes that grow from 1 B; got 7" in message
    assert "did you mean 'machine'?" in complaint(parse_fit, text.replace("machine:", "machin:"))
    file = tmp_path / "fit.yaml"
    file.write_text(text)
    assert load_fit(file) == overlay
    assert "did you mean 'l40s-nccl-2.27.3'?" in complaint(load_fit, "l40s-ncl-2.27.3")


def test_a_garbled_file_is_read_or_refused() -> None:
    source, text = Random(1), fit_document(fitted(rows((2,))))
    for _ in range(150):
        letters = list(text)
        for _ in range(source.randint(1, 4)):
            piece = source.choice(["", " ", "\n", "0", "-", "x", "{", "]", ":", '"', "1e9", "inf"])
            letters[source.randrange(len(letters))] = piece
        with contextlib.suppress(BadInput):
            overlay = parse_fit("".join(letters))
            assert all(overlay.time(item.kind, item.ranks, 100) >= 0 for fit in overlay.fits for item in fit.series)


def test_families_cover_every_collective() -> None:
    assert set(FAMILIES) == set(CollectiveKind)
    assert fit_rows(rows((2,)), lenient=True)[0].family is Family.RING
