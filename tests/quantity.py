"""Numbers with dimensions, which tests give to equations to find out whether they balance."""

from __future__ import annotations

from dataclasses import dataclass

from halley.errors import Fault, UnitError


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
