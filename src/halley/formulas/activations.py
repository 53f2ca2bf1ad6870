"""Activations of a transformer layer that training keeps for its backward pass: published counts, as a check of derived ones.

Symbols throughout: s [1] tokens of a sequence; b [1] sequences of a microbatch; h [1] hidden size; a [1] heads; t [1]
tensor-parallel ranks. Two bytes per activation, one per entry of a dropout mask; an MLP four h wide; softmax and its dropout are
kept unless recomputed.
Source of all: Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, MLSys 2023 (arXiv 2205.05198).
"""

from __future__ import annotations

from halley.formulas.numbers import Number


def attention_core_bytes(tokens: Number, batch: Number, heads: Number, ranks: Number) -> Number:
    """What selective recomputation drops: softmax, its dropout's mask and output, per rank.

    .. math:: M = \\frac{5 a s^2 b}{t}

    Symbols: s, b, a, t [1]; M [B]. Source: Korthikanti et al. 2023, table 2.

    >>> attention_core_bytes(64, 2, 4, 8)
    20480.0
    """
    return 5.0 * heads * tokens * tokens * batch / ranks


def replicated_layer_bytes(tokens: Number, batch: Number, hidden: Number, ranks: Number) -> Number:
    """A layer without its attention core, tensor parallel; norms and dropouts outside are replicated.

    .. math:: M = s b h (10 + 24 / t)

    Symbols: s, b, h, t [1]; M [B]. Source: Korthikanti et al. 2023, table 2.

    >>> replicated_layer_bytes(64, 2, 16, 8)
    26624.0
    """
    return (10 + 24 / ranks) * tokens * batch * hidden


def sequence_parallel_layer_bytes(tokens: Number, batch: Number, hidden: Number, ranks: Number) -> Number:
    """A layer without its attention core, tensor and sequence parallel (or on one rank).

    .. math:: M = \\frac{34 s b h}{t}

    Symbols: s, b, h, t [1]; M [B]. Source: Korthikanti et al. 2023, table 2.

    >>> sequence_parallel_layer_bytes(64, 2, 16, 8)
    8704.0
    """
    return 34.0 * tokens * batch * hidden / ranks


def layer_input_bytes(tokens: Number, batch: Number, hidden: Number, ranks: Number) -> Number:
    """What full recomputation keeps of a layer: its input; sharded over t ranks where that is done (else t is 1).

    .. math:: M = \\frac{2 s b h}{t}

    Symbols: s, b, h, t [1]; M [B]. Source: Korthikanti et al. 2023, table 2.

    >>> layer_input_bytes(64, 2, 16, 8)
    512.0
    """
    return 2.0 * tokens * batch * hidden / ranks


def interleaved_share(stages: Number, chunks: Number) -> Number:
    """Activations of the first stage with interleaving, relative to those without.

    .. math:: 1 + \\frac{S - 1}{S v}

    Symbols: S [1] stages, v [1] chunks per stage, at least 2. Source: Korthikanti et al. 2023, on interleaved schedules.

    >>> interleaved_share(8, 3)
    1.2916666666666667
    """
    return 1 + (stages - 1) / (stages * chunks)
