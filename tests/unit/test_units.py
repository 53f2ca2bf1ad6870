"""Quantities: exact reading, refusals that name the remedy, output that reads back, and formulas that balance."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halley import units
from halley.errors import UnitError
from halley.formulas.energy import action_energy, static_energy
from halley.formulas.engines import systolic_cycles, vector_cycles
from halley.formulas.numbers import ceil_div, maximum, minimum
from halley.formulas.timing import busy_time, phase_time, pipeline_time, transfer_time
from halley.units import (
    BYTES,
    BYTES_PER_SECOND,
    DIMENSIONS,
    HERTZ,
    JOULES,
    JOULES_PER_BYTE,
    SECONDS,
    UNLIMITED,
    WATTS,
    Dimension,
    Quantity,
    parse,
)


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("64 KiB", BYTES, 65536),
        ("64KiB", BYTES, 65536),
        ("8 GB", BYTES, 8 * 10**9),
        ("8 GiB", BYTES, 8 * 2**30),
        ("8 Gb", BYTES, 10**9),
        ("8 Gbit", BYTES, 10**9),
        ("0.5 kB", BYTES, 500),
        ("1.5e3 B", BYTES, 1500),
        ("25.6 GB/s", BYTES_PER_SECOND, 25_600_000_000),
        ("400 Gb/s", BYTES_PER_SECOND, 50 * 10**9),
        ("1 TiB/s", BYTES_PER_SECOND, 2**40),
        ("unlimited", BYTES_PER_SECOND, UNLIMITED),
        ("150 ns", SECONDS, Fraction(150, 10**9)),
        ("3 µs", SECONDS, Fraction(3, 10**6)),
        ("2 min", SECONDS, 120),
        ("1.05 GHz", HERTZ, 1_050_000_000),
        ("8 pJ/bit", JOULES_PER_BYTE, Fraction(64, 10**12)),
        ("8 pJ/B", JOULES_PER_BYTE, Fraction(8, 10**12)),
        ("0.5 pJ", JOULES, Fraction(1, 2 * 10**12)),
        ("40 fJ/MAC", JOULES, Fraction(40, 10**15)),
        ("250 mW", WATTS, Fraction(1, 4)),
        ("7 MW", WATTS, 7 * 10**6),
    ],
)
def test_reads_the_nearest_float(text: str, dimension: Dimension, value: int | Fraction) -> None:
    assert parse(text, dimension) == float(Fraction(value))


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("32 B/cycle", BYTES_PER_SECOND, 64e9),
        ("8 bit/cycle", BYTES_PER_SECOND, 2e9),
        ("3 cycles", SECONDS, 1.5e-9),
        ("1 cycle", SECONDS, 0.5e-9),
    ],
)
def test_cycles_follow_the_clock(text: str, dimension: Dimension, value: float) -> None:
    assert parse(text, dimension, clock=2e9) == value
    with pytest.raises(UnitError, match=r"in seconds, as there is no clock to count cycles of; got"):
        parse(text, dimension)


KB = "write kB for 1000 bytes, KiB for 1024 bytes or kb for 1000 bits"
GB_PER_SECOND = "did you mean GB/s or Gb/s?"


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        (25.6, BYTES_PER_SECOND, "x: expected a bandwidth; got 25.6, without a unit; write for example '25.6 GB/s'"),
        ("25.6", BYTES_PER_SECOND, "x: expected a bandwidth; got '25.6', without a unit; write for example '25.6 GB/s'"),
        ("25.6 GB", BYTES_PER_SECOND, "x: expected a bandwidth; got '25.6 GB', a size; write for example '25.6 GB/s'"),
        ("8 pJ", JOULES_PER_BYTE, "x: expected an energy per byte; got '8 pJ', an energy; write for example '8 pJ/bit'"),
        ("8 KB", BYTES, "x: expected a size; got the unknown unit 'KB' in '8 KB'; " + KB),
        ("8 M", BYTES, "x: expected a size; got the unknown unit 'M' in '8 M'; did you mean MiB or MB?"),
        ("8 gb/s", BYTES_PER_SECOND, "x: expected a bandwidth; got the unknown unit 'gb/s' in '8 gb/s'; " + GB_PER_SECOND),
        ("8 parsec", SECONDS, "x: expected a time; got the unknown unit 'parsec' in '8 parsec'; write for example '150 ns'"),
        ("-8 GB", BYTES, "x: expected a size that is not negative; got '-8 GB'; write for example '64 KiB'"),
        ("0 GB", BYTES, "x: expected a size above zero; got '0 GB'; write for example '64 KiB'"),
        ("1e-999 B", BYTES, "x: expected a size above zero; got '1e-999 B'; write for example '64 KiB'"),
        ("1e400 B", BYTES, "x: expected a size that a 64-bit float can hold; got '1e400 B'; write for example '64 KiB'"),
        ("nan GB", BYTES, "x: expected a size; got 'nan GB'; write for example '64 KiB'"),
        ("inf GB", BYTES, "x: expected a size; got 'inf GB'; write for example '64 KiB'"),
        (math.nan, BYTES, "x: expected a size; got nan, without a unit; write for example '64 KiB'"),
        ("unlimited", BYTES, "x: expected a size; got 'unlimited'; write for example '64 KiB'"),
        ("", BYTES, "x: expected a size; got ''; write for example '64 KiB'"),
        ("1,024 B", BYTES, "x: expected a size; got '1,024 B'; write for example '64 KiB'"),
        ("1e9999 B", BYTES, "x: expected a size; got the unknown unit 'e9999 B' in '1e9999 B'; write for example '64 KiB'"),
        (True, BYTES, "x: expected a size; got True; write for example '64 KiB'"),
        (None, BYTES, "x: expected a size; got None; write for example '64 KiB'"),
    ],
)
def test_refusals_say_what_to_write(text: object, dimension: Dimension, message: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text, dimension, where="x")
    assert str(caught.value) == message


def test_a_long_text_is_quoted_in_part() -> None:
    with pytest.raises(UnitError) as caught:
        parse("9" * 10**6, BYTES)
    assert len(str(caught.value)) < 200


def test_zero_and_negative_where_they_make_sense() -> None:
    assert parse("0 ns", SECONDS, zero=True) == 0
    assert parse("-2 W", WATTS, negative=True) == -2


@given(st.sampled_from(DIMENSIONS), st.floats(1e-30, 1e30))
def test_output_reads_back_to_four_digits(dimension: Dimension, value: float) -> None:
    text = units.format_quantity(value, dimension)
    assert parse(text, dimension) == pytest.approx(value, rel=5.001e-4)
    assert re.search(dimension.pattern, text)


@given(st.sampled_from(DIMENSIONS), st.floats(1e-9, 1e12))
def test_output_has_the_largest_prefix_that_leaves_at_least_one(dimension: Dimension, value: float) -> None:
    number, unit = units.format_quantity(value, dimension).split()
    index = dimension.display.index(unit)
    assert float(number) >= 1 or index == 0
    if index + 1 < len(dimension.display):
        step = dimension.units[dimension.display[index + 1]] / dimension.units[unit]
        assert float(number) < step


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_every_unit_that_is_written_can_be_read(dimension: Dimension) -> None:
    for unit in (*dimension.units, *dimension.per_cycle):
        assert parse(f"3 {unit}", dimension, clock=1e9) > 0
        assert re.search(dimension.pattern, f"3 {unit}")
    assert parse(dimension.example, dimension, clock=1e9) > 0
    for other in DIMENSIONS:
        if other is not dimension:
            assert not re.search(other.pattern, dimension.example)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.format_bytes(1023), "1023 B"),
        (units.format_bytes(2**20 - 1), "1 MiB"),
        (units.format_bytes(0), "0 B"),
        (units.format_rate(999.96e9), "1 TB/s"),
        (units.format_time(0.0), "0 s"),
        (units.format_time(999.96e-9), "1 us"),
        (units.format_time(-2e-3), "-2 ms"),
        (units.format_energy(math.inf), "inf J"),
        (units.format_frequency(1.05e9), "1.05 GHz"),
    ],
)
def test_output_at_the_edges(shown: str, text: str) -> None:
    assert shown == text


size, bandwidth, time = Quantity.of(96, B=1), Quantity.of(32, B=1, s=-1), Quantity.of(5, s=1)


def test_quantities_multiply_like_their_units() -> None:
    assert size / bandwidth == Quantity.of(3, s=1)
    assert bandwidth * time + size == Quantity.of(256, B=1)
    assert 2 * time - time == time
    assert size // Quantity.of(10, B=1) == 9
    assert size % Quantity.of(10, B=1) == Quantity.of(6, B=1)
    assert (time**2).unit == "s^2"
    assert 1 / time == Quantity.of(0.2, s=-1)
    assert sum([size, size]) == Quantity.of(192, B=1)
    assert max(size, Quantity.of(97, B=1)).value == 97
    assert size != Quantity.of(96, s=1)
    assert Quantity(0) + size == size


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: size + time,
        lambda: size - bandwidth,
        lambda: size + 1,
        lambda: 1 - time,
        lambda: size < time,
        lambda: max(size, time),
        lambda: min(size, 3),
        lambda: size % time,
        lambda: time**0.5,
    ],
)
def test_unbalanced_quantities_raise(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(UnitError):
        wrong()


def test_the_formulas_balance() -> None:
    one, joule = Quantity(3), Quantity.of(2, J=1)
    assert busy_time(size, bandwidth).unit == "s"
    assert transfer_time(time, time, 2 * time).unit == "s"
    assert phase_time(one, time, time, time, [time, 3 * time]).unit == "s"
    assert pipeline_time([time, 2 * time], one).unit == "s"
    assert action_energy(size, joule / size).unit == "J"
    assert static_energy(joule / time, time).unit == "J"
    assert systolic_cycles(one, one, one, one, one, one).unit == "1"
    assert vector_cycles(one, one).unit == "1"
    assert minimum(size, 2 * size) == size
    assert maximum(size, 2 * size) == 2 * size
    assert ceil_div(Quantity.of(13, B=1), Quantity.of(5, B=1)) == 3


def test_a_formula_fed_wrongly_does_not_balance() -> None:
    with pytest.raises(UnitError):
        transfer_time(size, time)
    with pytest.raises(UnitError):
        phase_time(time, time, time, time, [time])
