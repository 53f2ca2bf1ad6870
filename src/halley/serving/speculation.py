"""Speculative decoding: a draft model proposes tokens, and the target model verifies them in one step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from halley.errors import BadInput, Fault
from halley.formulas.numbers import Number
from halley.serving.model import ServedModel
from halley.serving.step import StepBatch, StepModel
from halley.serving.tables import Array

LONGEST_WINDOW = 64
"""Most tokens that are proposed in a round."""
WINDOWS = tuple(range(1, 9))
"""Tokens that a draft proposes in a round, of which the best is chosen."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Chance that the i-th proposed token is accepted if all before it were: a d^(i-1). ``first``: a; ``decay``: d; 1 where all
    positions are alike. Raises BadInput: no chances.

    >>> Acceptance(0.8, 0.9).at(3)
    0.6480000000000001
    """

    first: float
    decay: float = 1.0

    def __post_init__(self) -> None:
        if not (0 <= self.first <= 1 and 0 < self.decay <= 1):
            expected = "a chance from 0 to 1 and a decay above 0 and at most 1"
            raise BadInput(Fault("acceptance", expected, f"{self.first:g}, {self.decay:g}"))

    def at(self, place: int) -> float:
        """Of the token at a place, from 1."""
        return float(self.first * self.decay ** (place - 1))

    def chances(self, window: int) -> Array:
        """Chances that at least 1, 2, ... ``window`` proposed tokens are accepted.

        >>> Acceptance(0.5).chances(3).tolist()
        [0.5, 0.25, 0.125]
        """
        chances = np.array([self.at(place) for place in range(1, window + 1)], dtype=np.float64)
        return np.asarray(np.cumprod(chances), dtype=np.float64)


def proposing_head(model: ServedModel) -> ServedModel:
    """A head that proposes tokens, as EAGLE and the multi-token prediction of DeepSeek have: one layer of the model, its
    embedding and head. That of a hybrid has attention, as the multi-token prediction of Qwen3-Next has.

    >>> from halley.io.transformers import load_model
    >>> proposing_head(ServedModel(load_model("llama3-8b"))).shape.layers
    1
    """
    shape = model.shape
    experts = replace(shape.experts, dense_layers=0) if shape.experts else None
    layer = replace(shape, name=f"head of {shape.name}", layers=1, experts=experts)
    return replace(model, shape=layer, window=0, windowed=0, hybrid=None)


def check_target(model: ServedModel) -> None:
    """Raises BadInput: a model that no draft can propose tokens for here, as all its layers are recurrent."""
    if not model.attention_layers:
        where, remedy = f"speculation of {model.shape.name}", "leave the draft out"
        raise BadInput(Fault(where, "a model with attention in some layers", "recurrent layers alone", remedy))


def sequence_tokens(acceptance: Acceptance, window: int) -> float:
    """Expected tokens of a round that proposes a sequence of ``window`` tokens: those accepted, and one of the target.

    .. math:: E = 1 + \\sum_{j=1}^{K} \\prod_{i=1}^{j} a_i, \\quad a_i = a d^{i-1}

    Symbols: K [1] window, a, d [1] acceptance of the first token and its decay. With d = 1 it is (1 - a^(K+1)) / (1 - a). Source:
    Leviathan, Kalman and Matias, ICML 2023, equation 1, for d = 1.

    >>> round(sequence_tokens(Acceptance(0.8), 4), 4), round((1 - 0.8**5) / (1 - 0.8), 4)
    (3.3616, 3.3616)
    """
    _check(window)
    return 1.0 + float(acceptance.chances(window).sum())


def tree_tokens(acceptance: Acceptance, window: int, width: int = 2) -> float:
    """Expected tokens of a round that proposes a tree: ``width`` candidates after each token, ``window`` levels.

    .. math:: E = 1 + \\sum_{j=1}^{K} \\prod_{i=1}^{j} (1 - (1 - a_i)^w)

    Symbols: w [1] candidates of a token; others as in `sequence_tokens`. Holds for: candidates that are accepted independently.
    Source: Miao et al., SpecInfer, ASPLOS 2024, whose trees have 2^K tokens.

    >>> tree_tokens(Acceptance(0.5), 1), tree_tokens(Acceptance(0.5), 1, 1)
    (1.75, 1.5)
    """
    _check(window)
    chances = np.cumprod([1 - (1 - acceptance.at(place)) ** width for place in range(1, window + 1)])
    return 1.0 + float(chances.sum())


def tree_size(window: int, width: int = 2) -> int:
    """Tokens that a tree proposes.

    >>> tree_size(3), tree_size(3, 1)
    (14, 3)
    """
    return sum(width**level for level in range(1, window + 1))


def _check(window: int) -> None:
    if not 1 <= window <= LONGEST_WINDOW:
        raise BadInput(Fault("speculation, window", f"1 to {LONGEST_WINDOW} tokens", str(window)))


def verification_time(target: StepModel, users: Number, context: Number, proposed: int) -> Array:
    """Time of the step in which ``users`` sequences have ``proposed`` tokens and one more verified each [s]: matrices and
    experts see all these tokens, the cache of a sequence is read once for all of its own."""
    return target.with_width(proposed + 1).time(StepBatch(users, context))


@dataclass(frozen=True, slots=True)
class Speculation:
    """How a deployment speculates: a ``draft`` on the same chips proposes a sequence of ``window`` tokens in a round. Raises
    BadInput: no such window.

    >>> from halley.io.transformers import load_model
    >>> head = proposing_head(ServedModel(load_model("llama3-8b")))
    >>> Speculation(head, Acceptance(0.5), 1).tokens
    1.5
    """

    draft: ServedModel
    acceptance: Acceptance
    window: int

    def __post_init__(self) -> None:
        _check(self.window)

    @property
    def tokens(self) -> float:
        """Output tokens of a round."""
        return sequence_tokens(self.acceptance, self.window)

    @property
    def text(self) -> str:
        """In words."""
        return f"{self.draft.shape.name} (window {self.window}, {self.tokens:.3g} tokens a round)"


def windows_worth_trying(acceptance: Acceptance) -> tuple[int, ...]:
    """Of `WINDOWS`, those whose round has more tokens than all shorter ones: others only take longer.

    >>> windows_worth_trying(Acceptance(0.0)), windows_worth_trying(Acceptance(0.5))
    ((), (1, 2, 3, 4, 5, 6, 7, 8))
    """
    tokens = [1.0, *(sequence_tokens(acceptance, window) for window in WINDOWS)]
    return tuple(window for place, window in enumerate(WINDOWS) if tokens[place + 1] > max(tokens[: place + 1]))


@dataclass(frozen=True, slots=True)
class Round:
    """A round of speculation: ``tokens`` [1] expected of it for each sequence, ``drafting`` and ``verifying`` [s], ``speedup``
    over decoding without it at the same batch."""

    window: int
    tokens: float
    drafting: float
    verifying: float
    speedup: float

    @property
    def tpot(self) -> float:
        """Time per output token [s]."""
        return (self.drafting + self.verifying) / self.tokens


def speculation_round(
    target: StepModel, draft: StepModel, acceptance: Acceptance, window: int, users: float, context: float, width: int = 1
) -> Round:
    """A round with the draft on the same chips. ``width``: 1 proposes a sequence; more a tree with so many candidates after each
    token, whose levels the draft makes in a step each."""
    proposed = tree_size(window, width) if width > 1 else window
    tokens = tree_tokens(acceptance, window, width) if width > 1 else sequence_tokens(acceptance, window)
    levels = [users * (width**level if width > 1 else 1) for level in range(window)]
    drafting = sum(float(draft.time(StepBatch(level, context))) for level in levels)
    verifying = float(verification_time(target, users, context, proposed))
    plain = float(target.time(StepBatch(users, context)))
    return Round(window, tokens, drafting, verifying, plain * tokens / (drafting + verifying))
