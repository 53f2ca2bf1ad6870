"""What recurrent layers (state-space models, linear attention) keep of a sequence."""

from __future__ import annotations

from halley.formulas.numbers import Number


def sequence_state(
    heads: Number, width: Number, state: Number, word: Number, channels: Number, kept: Number, conv_word: Number
) -> Number:
    """Bytes that one recurrent layer keeps of one sequence, whatever its length.

    .. math:: S = h p n b + c k b_c

    Symbols: h [1] heads, p [1] width of a head's values, n [1] elements of state for each of them, b [B] of an element of the
    state; c [1] channels of the causal convolution, k [1] tokens that it keeps (one less than its taps), b_c [B] of an element of
    them. Holds for: a layer with a decay for each channel is one with a head for each channel (p = 1). Source: Dao and Gu, arXiv
    2405.21060, section 2 (a state of n by p for each head); Gu and Dao, arXiv 2312.00752, algorithm 2; Yang, Kautz and
    Hatamizadeh, arXiv 2412.06464, section 3 (gated delta rule: keys by values for each head).

    >>> sequence_state(128, 64, 16, 4, 10240, 3, 2)
    585728.0
    """
    # floats from the first factor on, so that large whole numbers round as arrays of them do
    return 1.0 * heads * width * state * word + 1.0 * channels * kept * conv_word
