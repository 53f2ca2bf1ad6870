"""Quantities with units: text in, SI numbers out, and back again. Used at the file, flag and report boundary only.

Decimal prefixes are powers of 1000 (k, M, G, T, P, E), binary ones powers of 1024 (Ki, Mi, Gi, Ti, Pi, Ei); B is a byte, b or
bit an eighth of it. Reading is exact: the nearest float to the number that is written. `Quantity` carries dimensions through an
equation or an expression, to find out whether it balances.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from halley.errors import Fault, UnitError, did_you_mean

UNLIMITED = 1e18
"""Bandwidth [B/s] that stands for "unlimited": finite, so that arithmetic stays finite, and beyond any port."""

_LARGE = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_SMALL = {"m": 10**3, "u": 10**6, "µ": 10**6, "n": 10**9, "p": 10**12, "f": 10**15}

Factors = Mapping[str, Fraction]
"""Units by spelling, each with its size in SI."""


def _prefixed(base: str, prefixes: str, size: Fraction | int = 1) -> dict[str, Fraction]:
    """``base`` with each of the prefixes ("" included); ``size`` is the SI value of the bare unit."""
    units = {base: Fraction(size)}
    for prefix in prefixes:
        factor = Fraction(_LARGE[prefix]) if prefix in _LARGE else Fraction(1, _SMALL[prefix])
        units[prefix + base] = factor * size
    return units


_BITS = _prefixed("bit", "kMGT", Fraction(1, 8)) | _prefixed("b", "kMGT", Fraction(1, 8))
_SIZES = _prefixed("B", "kMGTPE") | {f"{prefix}B": Fraction(size) for prefix, size in _BINARY.items()} | _BITS
_JOULES = _prefixed("J", "kMmuµnpf")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One kind of quantity: what to call it, how to write it, and its units.

    ``per_cycle`` holds units that count clock cycles; their SI value is ``factor * clock ** cycles``. ``display`` lists the
    units that output uses, smallest first.
    """

    name: str
    example: str
    units: Factors
    display: tuple[str, ...]
    per_cycle: Factors = field(default_factory=dict)
    cycles: int = 0
    unlimited: bool = False

    @property
    def pattern(self) -> str:
        """A regular expression (ECMA 262) for a text of this dimension; magnitudes are not negative."""
        units = "|".join(re.escape(unit) for unit in sorted((*self.units, *self.per_cycle), key=lambda unit: (-len(unit), unit)))
        word = "|unlimited" if self.unlimited else ""
        return rf"^(\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{{1,3}})? *({units}){word})$"


BYTES = Dimension("a size", "64 KiB", _SIZES, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
BYTES_PER_SECOND = Dimension(
    "a bandwidth",
    "25.6 GB/s",
    {f"{unit}/s": size for unit, size in _SIZES.items()},
    ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", "EB/s"),
    {f"{unit}/cycle": size for unit, size in _SIZES.items()},
    cycles=1,
    unlimited=True,
)
SECONDS = Dimension(
    "a time",
    "150 ns",
    _prefixed("s", "muµnpf") | {"min": Fraction(60), "h": Fraction(3600)},
    ("fs", "ps", "ns", "us", "ms", "s"),
    {"cycle": Fraction(1), "cycles": Fraction(1)},
    cycles=-1,
)
HERTZ = Dimension("a frequency", "1.05 GHz", _prefixed("Hz", "kMGT"), ("Hz", "kHz", "MHz", "GHz", "THz"))
JOULES = Dimension(
    "an energy",
    "0.5 pJ",
    {f"{unit}{per}": size for unit, size in _JOULES.items() for per in ("", "/op", "/MAC")},
    ("fJ", "pJ", "nJ", "uJ", "mJ", "J", "kJ", "MJ"),
)
JOULES_PER_BYTE = Dimension(
    "an energy per byte",
    "8 pJ/bit",
    {f"{unit}{per}": size * bits for unit, size in _JOULES.items() for per, bits in (("/B", 1), ("/bit", 8), ("/b", 8))},
    ("fJ/B", "pJ/B", "nJ/B", "uJ/B", "mJ/B", "J/B"),
)
SQUARE_METRES = Dimension(
    "an area",
    "100 mm2",
    {"um2": Fraction(1, 10**12), "mm2": Fraction(1, 10**6), "cm2": Fraction(1, 10**4), "m2": Fraction(1)},
    ("um2", "mm2"),
)
WATTS = Dimension("a power", "6 W", _prefixed("W", "kMGmuµn"), ("nW", "uW", "mW", "W", "kW", "MW", "GW"))

DIMENSIONS: tuple[Dimension, ...] = (BYTES, BYTES_PER_SECOND, SECONDS, HERTZ, JOULES, JOULES_PER_BYTE, WATTS, SQUARE_METRES)
"""Every dimension that a file can ask for; a count is a bare number."""

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?) *([^\W\d_].*)?")
_QUANTITY_CHARACTERS = 80  # characters: no quantity needs more, and a longer one is not worth quoting back


def parse(
    text: object,
    dimension: Dimension,
    *,
    where: str = "quantity",
    clock: float | None = None,
    zero: bool = False,
    negative: bool = False,
) -> float:
    """The SI value of a quantity: bytes, bytes per second, seconds, hertz, joules, joules per byte, watts or
    square metres.

    ``clock`` [Hz] is needed by units that count cycles. ``zero`` and ``negative`` say whether such values make sense.

    >>> parse("64 KiB", BYTES), parse("32 B/cycle", BYTES_PER_SECOND, clock=2e9), parse("8 pJ/bit", JOULES_PER_BYTE)
    (65536.0, 64000000000.0, 6.4e-11)
    >>> parse("25.6 GB", BYTES_PER_SECOND, where="bandwidth")
    Traceback (most recent call last):
    halley.errors.UnitError: bandwidth: expected a bandwidth; got '25.6 GB', a size; write for example '25.6 GB/s'

    Raises UnitError: no unit, an unknown one, one of another dimension, cycles without a clock, a value that is not finite, or
    zero or negative where that makes no sense.
    """
    wrong = _Complaint(where, dimension)
    if isinstance(text, bool) or not isinstance(text, str):
        bare = isinstance(text, (int, float)) and not isinstance(text, bool)
        raise wrong(f"{_quoted(text)}, without a unit" if bare else _quoted(text))
    words = text.strip()
    if dimension.unlimited and words == "unlimited":
        return UNLIMITED
    match = _QUANTITY.fullmatch(words) if len(words) <= _QUANTITY_CHARACTERS else None
    if match is None:
        raise wrong(_quoted(text))
    number, unit = Fraction(match[1]), (match[2] or "").strip()
    value = _finite(number * _factor(text, unit, dimension, clock, wrong))
    if value is None:
        raise wrong(_quoted(text), f"{dimension.name} that a 64-bit float can hold")
    if value < 0 and not negative:
        raise wrong(_quoted(text), f"{dimension.name} that is not negative")
    if value == 0 and not zero:
        raise wrong(_quoted(text), f"{dimension.name} above zero")
    return value


@dataclass(frozen=True, slots=True)
class _Complaint:
    where: str
    dimension: Dimension

    def __call__(self, got: str, expected: str = "", remedy: str = "") -> UnitError:
        example = f"write for example '{self.dimension.example}'"
        return UnitError(Fault(self.where, expected or self.dimension.name, got, remedy or example))


def _factor(text: str, unit: str, dimension: Dimension, clock: float | None, wrong: _Complaint) -> Fraction:
    """SI value of the unit."""
    if unit in dimension.units:
        return dimension.units[unit]
    if unit in dimension.per_cycle:
        if clock is None:
            raise wrong(_quoted(text), f"{dimension.name} in seconds, as there is no clock to count cycles of")
        return dimension.per_cycle[unit] * Fraction(clock) ** dimension.cycles
    if not unit:
        raise wrong(f"{_quoted(text)}, without a unit")
    for other in DIMENSIONS:
        if unit in other.units or unit in other.per_cycle:
            raise wrong(f"{_quoted(text)}, {other.name}")
    known = (*dimension.units, *dimension.per_cycle)
    if unit.replace("KB", "kB") in known or unit.replace("Kb", "kb") in known:
        remedy = "write kB for 1000 bytes, KiB for 1024 bytes or kb for 1000 bits"
    else:
        cut_short = [unit + end for end in ("iB", "B", "iB/s", "B/s") if unit + end in known]  # bytes are meant, not bits
        alike = cut_short or [spelling for spelling in known if spelling.lower() == unit.lower()]
        remedy = f"did you mean {' or '.join(alike)}?" if alike else _nearest(unit, known, dimension)
    raise wrong(f"the unknown unit {_quoted(unit)} in {_quoted(text)}", remedy=remedy)


def _nearest(unit: str, known: tuple[str, ...], dimension: Dimension) -> str:
    hint = did_you_mean(unit, known)
    return hint if hint.startswith("did") else f"write for example '{dimension.example}'"


def _finite(value: Fraction) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _QUANTITY_CHARACTERS else f"{text[: _QUANTITY_CHARACTERS - 3]}..."


def format_quantity(value: float, dimension: Dimension) -> str:
    """The value with the largest unit that leaves a number of at least 1, to four significant digits.

    >>> format_quantity(5e-10, JOULES_PER_BYTE), format_quantity(0, WATTS)
    ('500 pJ/B', '0 W')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {next((unit for unit in dimension.display if dimension.units[unit] == 1), dimension.display[-1])}"
    chosen = dimension.display[0]
    for unit in dimension.display:
        # round first: 999.96 ns reads as 1 us, not as 1000 ns
        if abs(_four_digits(value / float(dimension.units[unit]))) >= 1:
            chosen = unit
    return f"{_four_digits(value / float(dimension.units[chosen])):.12g} {chosen}"


def _four_digits(value: float) -> float:
    return float(f"{value:.3e}")


def format_bytes(value: float) -> str:
    """Bytes with binary prefixes.

    >>> format_bytes(65536), format_bytes(1_500_000)
    ('64 KiB', '1.431 MiB')
    """
    return format_quantity(value, BYTES)


def format_rate(value: float) -> str:
    """Bytes per second with decimal prefixes, as data sheets have it.

    >>> format_rate(25.6e9), format_rate(UNLIMITED)
    ('25.6 GB/s', 'unlimited')
    """
    return "unlimited" if value == UNLIMITED else format_quantity(value, BYTES_PER_SECOND)


def format_time(value: float) -> str:
    """Seconds.

    >>> format_time(0.00224695), format_time(7200)
    ('2.247 ms', '7200 s')
    """
    return format_quantity(value, SECONDS)


def format_frequency(value: float) -> str:
    """Hertz.

    >>> format_frequency(1.05e9)
    '1.05 GHz'
    """
    return format_quantity(value, HERTZ)


def format_energy(value: float) -> str:
    """Joules.

    >>> format_energy(0.0142265)
    '14.23 mJ'
    """
    return format_quantity(value, JOULES)


def format_energy_per_byte(value: float) -> str:
    """Joules per byte.

    >>> format_energy_per_byte(6.4e-11)
    '64 pJ/B'
    """
    return format_quantity(value, JOULES_PER_BYTE)


def format_area(value: float) -> str:
    """Square millimetres, or smaller.

    >>> format_area(826e-6), format_area(2e-10)
    ('826 mm2', '200 um2')
    """
    return format_quantity(value, SQUARE_METRES)


def format_power(value: float) -> str:
    """Watts.

    >>> format_power(0.25)
    '250 mW'
    """
    return format_quantity(value, WATTS)


def counted(number: float, noun: str) -> str:
    """A whole number of things, in words.

    >>> counted(1, "chip"), counted(2048, "search")
    ('1 chip', '2,048 searches')
    """
    ending = "" if number == 1 else "es" if noun.endswith("ch") else "s"
    return f"{number:,.0f} {noun}{ending}"


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A number with dimensions, to find out whether an equation balances.

    >>> traffic, bandwidth = Quantity.of(256, B=1), Quantity.of(64, B=1, s=-1)
    >>> traffic / bandwidth
    Quantity(4.0, s)
    >>> traffic + bandwidth
    Traceback (most recent call last):
    halley.errors.UnitError: +: expected quantities of one dimension; got B and B s^-1

    Plain numbers are dimensionless; 0 fits every dimension, as a sum's start does. Unequal dimensions compare as unequal, and
    ordering them raises. Raises UnitError: a sum, difference, order, remainder or power that has no meaning.
    """

    value: float
    exponents: tuple[tuple[str, int], ...] = ()

    @staticmethod
    def of(value: float, **exponents: int) -> Quantity:
        """``Quantity.of(3, B=1, s=-1)`` is 3 B/s."""
        return Quantity(value, tuple(sorted((unit, power) for unit, power in exponents.items() if power)))

    def __repr__(self) -> str:
        return f"Quantity({self.value}, {self.unit})"

    @property
    def unit(self) -> str:
        return " ".join(unit if power == 1 else f"{unit}^{power}" for unit, power in self.exponents) or "1"

    def _same(self, other: Quantity | float, sign: str) -> float:
        """The other's value, if it has this one's dimensions."""
        if not isinstance(other, Quantity):
            if other == 0:
                return other
            other = Quantity(other)
        if other.exponents == self.exponents or (other.value == 0 and not other.exponents):
            return other.value
        raise UnitError(Fault(sign, "quantities of one dimension", f"{self.unit} and {other.unit}"))

    def _product(self, value: float, other: Quantity | float, sign: int) -> Quantity:
        powers = dict(self.exponents)
        for unit, power in other.exponents if isinstance(other, Quantity) else ():
            powers[unit] = powers.get(unit, 0) + sign * power
        return Quantity.of(value, **powers)

    def __neg__(self) -> Quantity:
        return Quantity(-self.value, self.exponents)

    def __abs__(self) -> Quantity:
        return Quantity(abs(self.value), self.exponents)

    def __add__(self, other: Quantity | float) -> Quantity:
        if self.value == 0 and not self.exponents and isinstance(other, Quantity):
            return other
        return Quantity(self.value + self._same(other, "+"), self.exponents)

    __radd__ = __add__

    def __sub__(self, other: Quantity | float) -> Quantity:
        return self + -other

    def __rsub__(self, other: float) -> Quantity:
        return -self + other

    def __mul__(self, other: Quantity | float) -> Quantity:
        return self._product(self.value * _value(other), other, 1)

    __rmul__ = __mul__

    def __truediv__(self, other: Quantity | float) -> Quantity:
        return self._product(self.value / _value(other), other, -1)

    def __rtruediv__(self, other: float) -> Quantity:
        return Quantity(other) / self

    def __floordiv__(self, other: Quantity | float) -> Quantity:
        return self._product(self.value // _value(other), other, -1)

    def __rfloordiv__(self, other: float) -> Quantity:
        return Quantity(other) // self

    def __mod__(self, other: Quantity | float) -> Quantity:
        return Quantity(self.value % self._same(other, "%"), self.exponents)

    def __pow__(self, power: int) -> Quantity:
        if not isinstance(power, int):
            raise UnitError(Fault("**", "a whole exponent", repr(power)))
        return Quantity.of(self.value**power, **{unit: size * power for unit, size in self.exponents})

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity):
            return (self.value, self.exponents) == (other.value, other.exponents)
        return self.value == other and (not self.exponents or self.value == 0)

    def __hash__(self) -> int:
        return hash((self.value, self.exponents) if self.exponents and self.value else self.value)

    def __lt__(self, other: Quantity | float) -> bool:
        return self.value < self._same(other, "<")

    def __le__(self, other: Quantity | float) -> bool:
        return self.value <= self._same(other, "<=")

    def __gt__(self, other: Quantity | float) -> bool:
        return self.value > self._same(other, ">")

    def __ge__(self, other: Quantity | float) -> bool:
        return self.value >= self._same(other, ">=")


def _value(quantity: Quantity | float) -> float:
    return quantity.value if isinstance(quantity, Quantity) else quantity
