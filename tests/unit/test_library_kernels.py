"""Times of library kernels: fits recover what made a table, laws of the models, intervals, selection, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from halley.errors import BadInput
from halley.io.chips.kernel_fits import KIN, kernel_fits_document, load_kernel_fits, parse_kernel_fits
from halley.io.chips.load import load_chip
from halley.kernels.bounds import rate_time
from halley.kernels.library.calibrate import calibrate
from halley.kernels.library.corrections import FEWEST_FOR_CORRECTION, Correction, fit_correction
from halley.kernels.library.families import FAMILIES
from halley.kernels.library.family import Array, Formats, Sizes
from halley.kernels.library.fit import (
    FEWEST_FOR_OPTIONS,
    StratumFit,
    evaluate,
    fit_roofline,
    fit_stratum,
    interval,
    judge,
    predict,
    relative_error,
)
from halley.kernels.library.routing import LARGEST_EXPERTS
from halley.kernels.library.rows import MeasuredKernel, Stratum, columns, halves, strata, times
from halley.kernels.library.times import KernelFit, KernelFits, kernel_time
from halley.kernels.machine import PEAK, machine
from halley.kernels.times import Attention, Gemm

CHIP = machine(load_chip("h100"))
SIZES: dict[str, dict[str, tuple[float, ...]]] = {
    "gemm": {"m": (1, 16, 300, 4096, 20000), "n": (256, 4096, 12288), "k": (512, 8192)},
    "attention_prefill": {
        "batch": (1, 8), "queries": (16, 512, 4096), "cached": (0, 512), "heads": (32,), "kv_heads": (8,), "head_dim": (64, 128),
        "window": (0, 128),
    },
    "attention_decode": {
        "batch": (1, 64), "cached": (128, 4095, 65535), "heads": (32,), "kv_heads": (8,), "head_dim": (128,), "window": (0, 128),
    },
    "attention_encoder": {"batch": (1, 8), "queries": (64, 1024, 4096), "heads": (8, 16), "head_dim": (64, 72, 80)},
    "mla_prefill": {"batch": (1, 8), "queries": (64, 1024, 4096), "cached": (0,), "heads": (8, 128)},
    "mla_decode": {"batch": (1, 64), "cached": (128, 4095, 65535), "heads": (8, 128)},
    "moe": {
        "tokens": (1, 64, 4096), "hidden": (4096,), "inter": (1536,), "topk": (8,), "experts": (128,), "tp": (1, 2), "ep": (1, 8),
        "alpha": (0, 1.2), "gated": (1,),
    },
    "mamba2": {"batch": (1, 16), "queries": (1, 1024), "heads": (64,), "head_dim": (64,), "groups": (8,), "state": (128,)},
    "softmax": {"rows": (128, 4096, 65536), "columns": (512, 4096)},
    "layernorm": {"rows": (128, 4096, 65536), "columns": (512, 4096)},
    **{name: {"rows": (128, 4096, 65536), "columns": (1024,)} for name in ("gelu", "silu", "add", "copy")},
    "rmsnorm": {"rows": (128, 4096, 65536), "columns": (512, 4096)},
}  # fmt: skip
GROWING = {
    "gemm": ("m", "n", "k"),
    "attention_prefill": ("batch", "queries", "cached", "heads"),
    "attention_decode": ("batch", "cached"),
    "attention_encoder": ("batch", "queries", "heads"),
    "mla_prefill": ("batch", "queries", "heads"),
    "mla_decode": ("batch", "cached", "heads"),
    "moe": ("hidden", "inter"),
    "mamba2": ("batch", "heads"),
    "softmax": ("rows", "columns"),
    "layernorm": ("rows", "columns"),
    **dict.fromkeys(("rmsnorm", "gelu", "silu", "add", "copy"), ("rows",)),
}
"""Sizes of which more never take less time. Of experts not the tokens: other tokens may meet in fewer tiles."""


def grid(family: str) -> dict[str, Array]:
    """Every combination of the sizes above."""
    names = FAMILIES[family].sizes
    meshed = np.meshgrid(*(np.array(SIZES[family][name], dtype=float) for name in names), indexing="ij")
    return {name: values.ravel() for name, values in zip(names, meshed, strict=True)}


def fit_of(family: str, **changed: float) -> KernelFits:
    """A fit with the parameters and options that the search starts from."""
    known = FAMILIES[family]
    parameters = {**known.start(), **changed}
    stratum = Stratum(
        family, "vllm", "name", "bf16", "bf16" if family.startswith(("attention_p", "attention_d", "mla")) else "", ""
    )
    options = {name: values[0] for name, values in known.options.items()}
    return KernelFits(CHIP, "h100", "made up", "2026-11-26", (KernelFit(stratum, parameters, options, 9, 0.1, 0.2, 0.9, 1.2),))


def table(family: str, noise: float = 0.0, **changed: float) -> tuple[MeasuredKernel, ...]:
    """Rows that a machine of these parameters would have measured."""
    sizes, fits = grid(family), fit_of(family, **changed)
    known, stratum = FAMILIES[family], fits.fits[0].stratum
    took = known.time(fits.fits[0].parameters, known.features(sizes, stratum.formats, CHIP, fits.fits[0].options))
    errors = np.exp(noise * np.sin(12.9898 * np.arange(len(took))))
    found = []
    for row, time in enumerate(took * errors):
        mine = {name: float(values[row]) for name, values in sizes.items()}
        found.append(MeasuredKernel(family, mine, "bf16", stratum.cache, "vllm", "name", float(time)))
    return tuple(found)


def test_every_family_has_sizes_here() -> None:
    assert set(SIZES) == set(GROWING) == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_larger_kernels_do_not_take_less_time(family: str) -> None:
    sizes, fits = grid(family), fit_of(family)
    before = kernel_time(fits, family, sizes).time
    for name in GROWING[family]:
        for factor in (1.01, 2, 7):
            larger = {**sizes, name: np.ceil(sizes[name] * factor)}
            if "kv_heads" in sizes and name == "heads":
                larger["kv_heads"] = larger["heads"] * sizes["kv_heads"] / sizes["heads"]
            after = kernel_time(fits, family, larger).time
            assert (after >= before * (1 - 1e-9)).all(), (family, name, factor)


@pytest.mark.parametrize("family", FAMILIES)
def test_worse_shares_do_not_take_less_time(family: str) -> None:
    sizes = grid(family)
    before = kernel_time(fit_of(family), family, sizes).time
    for item in FAMILIES[family].parameters:
        if item.name in ("matrix", "vector", "memory", "feed", "cache", "core"):
            slower = kernel_time(fit_of(family, **{item.name: 0.7 * item.start}), family, sizes).time
            assert (slower >= before * (1 - 1e-9)).all(), item.name
        if item.name in ("launch", "latency", "host"):
            assert (kernel_time(fit_of(family, **{item.name: 2 * item.start}), family, sizes).time >= before).all()


def test_cold_times_are_not_below_the_chips_bound() -> None:
    """Even a fit that claims more than the data sheet does not go below it."""
    size = grid("gemm")
    eager = fit_of("gemm", matrix=50.0, memory=50.0, feed=50.0, cache=50.0, launch=1e-9, latency=1e-12, step=1e-15)
    kernel = Gemm(size["m"], size["n"], size["k"])
    least = np.asarray(rate_time(kernel, 1, CHIP, PEAK))
    assert (kernel_time(eager, "gemm", size, cold=True).time >= least * (1 - 1e-9)).all()
    assert (kernel_time(eager, "gemm", size, cold=True).low >= least * (1 - 1e-9)).all()
    size = grid("attention_decode")
    eager = fit_of("attention_decode", memory=50.0, feed=50.0, matrix=50.0, launch=1e-9, latency=1e-12, block=1e-15)
    keys = np.where(size["window"] > 0, np.minimum(size["cached"] + 1, size["window"]), size["cached"] + 1)
    decode = Attention(size["batch"], 1, keys, size["heads"], size["kv_heads"], size["head_dim"])
    least = np.asarray(rate_time(decode, 1, CHIP, PEAK))
    assert (kernel_time(eager, "attention_decode", size, cold=True).time >= least * (1 - 1e-9)).all()
    warm = kernel_time(eager, "attention_decode", size)
    assert (warm.time <= kernel_time(eager, "attention_decode", size, cold=True).time).all()


def test_demand_of_causal_attention_counts_pairs() -> None:
    """Against a count of all pairs of query and key."""
    sizes = {"batch": 3, "queries": 50, "cached": 30, "heads": 4, "kv_heads": 2, "head_dim": 64, "window": 17}
    pairs = sum(1 for query in range(30, 80) for key in range(80) if query - 17 < key <= query)
    known = FAMILIES["attention_prefill"]
    arrays = {name: np.array([float(value)]) for name, value in sizes.items()}
    products, _ = known.demand(arrays, Formats("bf16", "bf16"), CHIP)
    assert products[0] == pytest.approx(3 * 4 * pairs * 2 * 64 / CHIP.mac_rate("bf16"))


@pytest.mark.medium
@pytest.mark.parametrize(("family", "changed"), [("gemm", {"matrix": 0.6, "memory": 0.7, "launch": 5e-6, "feed": 2.0}),
                                                 ("attention_decode", {"memory": 0.6, "launch": 9e-6})])  # fmt: skip
def test_a_fit_recovers_what_made_the_table(family: str, changed: dict[str, float]) -> None:
    ((stratum, rows),) = strata(table(family, noise=0.01, **changed)).items() if family == "gemm" else [_all(family, changed)]
    found = fit_stratum(stratum, rows, CHIP)
    for name, value in changed.items():
        if name != "feed":  # of these rows, few are fed too slowly
            assert found.parameters[name] == pytest.approx(value, rel=0.15), name


def _all(family: str, changed: dict[str, float]) -> tuple[Stratum, tuple[MeasuredKernel, ...]]:
    """All variants as one stratum."""
    rows = table(family, noise=0.01, **changed)
    return Stratum(family, "", "name", "bf16", "bf16", ""), rows


def test_an_option_of_the_library_is_found() -> None:
    """Rows of a library that does not split contractions."""
    sizes = grid("gemm")
    known = FAMILIES["gemm"]
    took = known.time(known.start(), known.features(sizes, Formats("bf16"), CHIP, {"split": 1.0}))
    rows = [
        MeasuredKernel("gemm", {name: float(values[row]) for name, values in sizes.items()}, "bf16", "", "", "", float(took[row]))
        for row in range(len(took))
    ]
    assert len(rows) >= FEWEST_FOR_OPTIONS
    assert fit_stratum(Stratum("gemm", "", "", "bf16", "", ""), rows, CHIP).options == {"split": 1.0}


def test_rows_held_out_are_judged_and_a_roofline_is_worse() -> None:
    (found,) = judge(table("gemm", noise=0.03), CHIP)
    assert (len(found.measured), found.fitted) == (15, 15)
    assert found.error < 0.05 < found.baseline_error
    assert ((found.low <= found.predicted) & (found.predicted <= found.high)).all()


@pytest.mark.medium
def test_held_out_rows_do_not_change_a_fit() -> None:
    rows = table("gemm", noise=0.03)
    kept, held = halves(rows)
    changed = [*kept, *(replace(row, time=9 * row.time) for row in held)]
    (one,), (other,) = judge(rows, CHIP), judge(changed, CHIP)
    assert one.predicted == pytest.approx(other.predicted, rel=1e-12)
    assert (one.low / one.predicted) == pytest.approx(other.low / other.predicted, rel=1e-9)


def test_halves_are_every_second_row_by_size() -> None:
    rows = table("gemm")
    kept, held = halves(tuple(reversed(rows)))
    assert (len(kept), len(held)) == (15, 15)
    assert {id(row) for row in kept} | {id(row) for row in held} == {id(row) for row in rows}
    assert (kept, held) == halves(rows), "the order of the table does not matter"


def test_intervals_cover_four_of_five_new_rows() -> None:
    """Against draws from the distribution that they were made from."""
    drawn = np.random.default_rng(7).normal(0, 0.1, (200, 40))
    inside = []
    for sample in drawn:
        low, high = interval(sample[:30])
        inside.append(np.mean((sample[30:] >= np.log(low)) & (sample[30:] <= np.log(high))))
    assert 0.75 < np.mean(inside) < 0.88


def test_roofline_recovers_its_numbers() -> None:
    sides = np.array([1e-6, 1e-5, 1e-4, 1e-3, 1e-7, 1e-7]), np.array([1e-7, 1e-6, 1e-6, 1e-5, 1e-4, 1e-3])
    found = fit_roofline(sides, 5e-6 + np.maximum(sides[0] / 0.5, sides[1] / 0.8))
    assert (found.launch, found.matrix, found.memory) == pytest.approx((5e-6, 0.5, 0.8), rel=0.02)


def test_balanced_experts_have_equally_many_tokens() -> None:
    known = FAMILIES["moe"]
    sizes = {"tokens": 4096, "hidden": 64, "inter": 64, "topk": 8, "experts": 128, "tp": 1, "ep": 8, "alpha": 0, "gated": 1}
    arrays = {name: np.array([float(value)]) for name, value in sizes.items()}
    options = {"columns": 128.0, "rows": 64.0, "remote": 0.0}
    found = known.features(arrays, Formats("bf16"), CHIP, options)
    # the 16 experts of this rank have 256 of 4096 tokens each, in 4 tiles of 64
    assert float(np.asarray(found["up_waves"]).ravel()[0]) == np.ceil(16 * 4 / CHIP.cores)
    moved = 4096 * 2 * (64 + 3 * 64 + 2 * 64)
    assert float(np.asarray(found["activations"]).ravel()[0]) * CHIP.memory == pytest.approx(moved)
    uneven = known.features({**arrays, "alpha": np.array([1.2])}, Formats("bf16"), CHIP, options)
    assert np.asarray(uneven["activations"])[0] > np.asarray(found["activations"])[0], "the busiest rank has more"
    assert LARGEST_EXPERTS >= 1024


def test_a_rank_may_compute_or_pass_choices_of_other_ranks_experts() -> None:
    known = FAMILIES["moe"]
    sizes = {"tokens": 1024, "hidden": 64, "inter": 60, "topk": 8, "experts": 128, "tp": 1, "ep": 64, "alpha": 0, "gated": 1}
    arrays = {name: np.array([float(value)]) for name, value in sizes.items()}
    moved, waves = [], []
    for remote in (0.0, 1.0, 2.0):
        found = known.features(arrays, Formats("bf16"), CHIP, {"columns": 64.0, "rows": 1.0, "remote": remote})
        moved.append(float(np.asarray(found["activations"])[0]) * CHIP.memory / 2)
        waves.append(float(np.asarray(found["down_waves"]).ravel()[0]) * CHIP.cores)
        assert np.asarray(found["uneven"])[0] > 0, "rows of 60 weights"
    # 64 tokens choose each of the rank's two experts; the stride is 16, so that these are 128 tokens
    assert moved == pytest.approx([128 * 244 + 1024 * 128, 8192 * 244 + 1024 * 128, 1024 * 244 + 128 * 128])
    assert waves[0] == waves[1] == CHIP.cores
    assert waves[2] == np.ceil((1 + np.ceil((64 + 896) / 64)) / CHIP.cores) * CHIP.cores


def _latent_features(batch: int, cached: int, heads: int, **options: float) -> dict[str, float]:
    """Features of latent attention in one part."""
    known = FAMILIES["mla_decode"]
    every = {name: values[0] for name, values in known.options.items()} | {"splits": 1.0, **options}
    sizes = {"batch": np.array([batch]), "cached": np.array([cached]), "heads": np.array([heads])}
    found = known.features({name: value.astype(float) for name, value in sizes.items()}, Formats("bf16", "bf16"), CHIP, every)
    return {name: float(np.asarray(value).ravel()[0]) for name, value in found.items()}


@pytest.mark.parametrize("batch", [CHIP.cores // 4, CHIP.cores // 2, CHIP.cores, 4 * CHIP.cores])
@pytest.mark.parametrize("sequences_first", [0.0, 1.0])
def test_tiles_in_later_waves_read_keys_again(batch: int, sequences_first: float) -> None:
    """Against waves of units in their order of launch, each of which reads the keys of its sequences once."""
    tiles = 4
    assert CHIP.cores % tiles == 0
    order = [(tile, sequence) for tile in range(tiles) for sequence in range(batch)]
    if not sequences_first:
        order.sort(key=lambda unit: (unit[1], unit[0]))
    waves = [order[start : start + CHIP.cores] for start in range(0, len(order), CHIP.cores)]
    reads = sum(len({sequence for _, sequence in wave}) for wave in waves)
    found = _latent_features(batch, 2**17 - 1, 16 * tiles, heads_in_tile=16.0, sequences_first=sequences_first)
    assert found["keys_again"] / found["keys"] == pytest.approx(reads / batch - 1)


def test_keys_in_the_cache_are_not_read_again() -> None:
    assert _latent_features(4096, 1, 64, heads_in_tile=16.0, sequences_first=1.0)["keys_again"] == 0


def test_few_heads_of_latent_attention_have_tiles_of_the_fewest_rows() -> None:
    for heads, tiles in ((8, 1), (16, 1), (32, 2), (64, 1)):
        found = _latent_features(10 * CHIP.cores, 4095, heads, heads_in_tile=64.0, few_heads=1.0)
        assert found["units"] == 10 * tiles, heads


def test_the_last_tile_of_keys_may_be_read_as_far_as_there_are_keys() -> None:
    known = FAMILIES["attention_decode"]
    sizes = {"batch": 8.0, "heads": 8.0, "kv_heads": 8.0, "head_dim": 128.0, "window": 0.0}
    every = {name: values[0] for name, values in known.options.items()} | {"splits": 1.0}

    def feed(keys: float, whole: float) -> float:
        arrays = {name: np.array([value]) for name, value in {**sizes, "cached": keys - 1}.items()}
        found = known.features(arrays, Formats("bf16", "bf16"), CHIP, {**every, "whole_tiles": whole})
        return float(np.asarray(found["feed"]).ravel()[0])

    assert feed(2, 1.0) == feed(128, 1.0) == feed(128, 0.0)
    assert feed(2, 0.0) == pytest.approx(feed(128, 0.0) / 64)
    assert feed(129, 0.0) == pytest.approx(feed(129, 1.0) * 129 / 256)


def test_windows_may_be_skipped_in_part_and_single_queries_packed() -> None:
    known = FAMILIES["attention_prefill"]
    sizes = {"batch": 1, "queries": 4096, "cached": 0, "heads": 8, "kv_heads": 1, "head_dim": 128, "window": 128}
    arrays = {name: np.array([float(value)]) for name, value in sizes.items()}

    def of(name: str, changed: dict[str, float], **options: float) -> float:
        given = {**arrays, **{size: np.array([value]) for size, value in changed.items()}}
        every = {"skips_window": 1.0, "rows": 128.0, "packs_heads": 0.0, **options}
        return float(np.asarray(known.features(given, Formats("bf16"), CHIP, every)[name])[0])

    full, inside = of("products", {}, skips_window=0.0), of("products", {})
    assert of("products", {}, skips_window=0.7) == pytest.approx(0.3 * full + 0.7 * inside)
    assert full == of("products", {"window": 0.0}) > 5 * inside
    for queries, same in ((1.0, 1.0), (2.0, 0.0)):
        changed = {"queries": queries, "batch": 4096.0}
        assert of("waves", changed, packs_heads=2.0) == of("waves", changed, packs_heads=same)
    assert of("waves", {"queries": 1.0, "batch": 4096.0}, packs_heads=2.0) == np.ceil(4096 / CHIP.cores)


def test_kernels_of_a_framework_are_chosen_by_the_dims_of_a_head() -> None:
    base = fit_of("attention_decode").fits[0]
    fast = replace(base, stratum=replace(base.stratum, kernel="fast"), head_dims={64.0: 5, 128.0: 9}, rows=14)
    slow = replace(
        base,
        stratum=replace(base.stratum, kernel="slow"),
        head_dims={256.0: 4},
        rows=4,
        parameters={**base.parameters, "launch": 1e-3},
    )
    fits = replace(fit_of("attention_decode"), fits=(fast, slow))
    sizes = {"batch": 1, "cached": 100, "heads": 8, "kv_heads": 2, "head_dim": np.array([64, 128, 256, 512])}
    found = kernel_time(fits, "attention_decode", sizes)
    assert (found.time > 9e-4).tolist() == [False, False, True, True]
    assert (kernel_time(fits, "attention_decode", sizes, kernel="fast").time < 9e-4).all()


@pytest.mark.parametrize("framework", ["vllm", "sglang", "trtllm"])
def test_single_queries_take_the_time_of_the_kernel_that_decodes_them(framework: str) -> None:
    sizes = {"batch": 8.0, "cached": 0.0, "heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0, "window": 0.0}
    made = {}
    for family, launch in (("attention_prefill", 1e-3), ("attention_decode", 2e-3)):
        stratum = Stratum(family, framework, "kernel", "bf16", "bf16", "")
        parameters = {**FAMILIES[family].start(), "launch": launch}
        options = {name: values[0] for name, values in FAMILIES[family].options.items()}
        made[family] = KernelFit(stratum, parameters, options, 20, 0.05, 0.2, 0.9, 1.1)
    prefill, decode = made["attention_prefill"], made["attention_decode"]
    rows = tuple(
        MeasuredKernel("attention_prefill", {**sizes, "queries": queries}, "bf16", "bf16", framework, "kernel", 1e-3)
        for queries in (1.0, 2.0)
    )
    fits = KernelFits(CHIP, CHIP.name, "made up", "2026-11-29", (prefill, decode))
    given = {**sizes, "queries": np.array([1, 2])}
    decoded = framework != "trtllm"
    for times_of in (
        lambda both: kernel_time(replace(fits, fits=both), "attention_prefill", given, framework=framework).time,
        lambda both: predict(
            {item.stratum: StratumFit(item.parameters, item.options, 0.0, ()) for item in both}, prefill.stratum, rows, CHIP
        ),
    ):
        with_both, alone = times_of((prefill, decode)), times_of((prefill,))
        assert with_both[1] == alone[1] < 2e-3
        assert (with_both[0] > 2e-3) == decoded
        assert (with_both[0] == alone[0]) == (not decoded)
    found = kernel_time(fits, "attention_prefill", given, framework=framework, kernel="kernel").time
    assert (found[0] == kernel_time(fits, "attention_decode", sizes, framework=framework).time) == decoded


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "gem"}, "kernel: expected one of gemm, .*did you mean 'gemm'"),
        ({"sizes": {"m": 4, "n": 4}}, "gemm: k: expected a size; got none"),
        ({"sizes": {"m": 4, "n": 4, "k": 4, "l": 4}}, "expected the sizes m, n, k; got 'l'"),
        ({"sizes": {"m": 0, "n": 4, "k": 4}}, "gemm: m: expected numbers of at least 1; got 0"),
        ({"sizes": {"m": float("nan"), "n": 4, "k": 4}}, "gemm: m: expected numbers of at least 1; got nan"),
        ({"sizes": {"m": np.ones(2), "n": np.ones(3), "k": 4}}, "expected sizes that broadcast"),
        ({"dtype": "fp8"}, "gemm on h100: dtype: expected one that was measured .bf16.; got 'fp8'"),
        ({"dtype": "fp7"}, "dtype: expected a number format"),
        ({"framework": "vlm"}, "framework: expected one that was measured .vllm.; got 'vlm'; did you mean 'vllm'"),
        ({"kernel": "other"}, "kernel: expected one that was measured .name."),
        ({"kind": "moe", "sizes": {}}, "moe: .*expected"),
    ],
)
def test_what_a_fit_does_not_have_is_refused(change: dict[str, object], message: str) -> None:
    asked: dict[str, object] = {"kind": "gemm", "sizes": {"m": 4, "n": 4, "k": 4}, **change}
    with pytest.raises(BadInput, match=message):
        kernel_time(fit_of("gemm"), **asked)  # type: ignore[arg-type]


def test_a_family_that_was_not_measured_is_refused() -> None:
    with pytest.raises(BadInput, match=r"moe on h100: expected a kernel that the fit has \(gemm\); got moe; measure it"):
        kernel_time(fit_of("gemm"), "moe", {"tokens": 1, "hidden": 1, "inter": 1, "topk": 1, "experts": 1})


def test_fits_of_kin_use_their_data_sheet_and_have_wider_intervals() -> None:
    own, kin = load_kernel_fits("h100"), load_kernel_fits("h200")
    assert (kin.measured, kin.machine.name, kin.of_kin, own.of_kin) == ("h100", "h200", True, False)
    sizes = {"batch": 256, "cached": 8191, "heads": 32, "kv_heads": 8, "head_dim": 128}
    one, other = (kernel_time(fits, "attention_decode", sizes, framework="vllm", cold=True) for fits in (own, kin))
    assert float(one.time / other.time) == pytest.approx(4.8 / 3.35, rel=0.1), "the ratio of the bandwidths"
    assert float(other.high / other.time) > float(one.high / one.time)
    assert "shares of h100 on the data sheet of h200" in other.source


@pytest.mark.parametrize("name", ["a100", "h100", "b200", "l40s", "h20", *KIN])
def test_shipped_fits_load_and_answer(name: str) -> None:
    fits = load_kernel_fits(name)
    for item in fits.fits:
        family = FAMILIES[item.stratum.family]
        sizes = {key: values[:40] for key, values in grid(family.name).items()}
        found = kernel_time(fits, family.name, sizes, item.stratum.dtype, item.stratum.cache or None, item.stratum.framework)
        assert (found.time > 0).all()
        assert (found.low <= found.time).all()
        assert (found.time <= found.high).all()
    assert {"gemm", "attention_prefill", "attention_decode"} <= {item.stratum.family for item in fits.fits}


def test_files_keep_fits() -> None:
    fits = load_kernel_fits("a100")
    again = parse_kernel_fits(kernel_fits_document(fits))
    assert again == fits


def bumps(sizes: Sizes) -> Array:
    """Deviations [logarithm] from a formula, alike for shapes near each other: a slow kernel for 16 to 300 rows."""
    return np.where((sizes["m"] >= 16) & (sizes["m"] < 1000), 0.4, -0.1)


def bumpy() -> tuple[MeasuredKernel, ...]:
    """Rows of a library with such a kernel."""
    rows = table("gemm")
    return tuple(replace(row, time=row.time * float(np.exp(bumps(sizes)[0]))) for row in rows for sizes in [_sizes_of(row)])


def _sizes_of(row: MeasuredKernel) -> dict[str, Array]:
    return {name: np.array([value]) for name, value in row.sizes.items()}


def test_shapes_nearby_correct_what_a_formula_does_not_know() -> None:
    """Against the deviations that the rows were made with, at shapes between the measured ones."""
    rows = bumpy()
    known = FAMILIES["gemm"]
    options = fit_of("gemm").fits[0].options
    formula = known.time(known.start(), known.features(columns(rows, known), Formats("bf16"), CHIP, options))
    plain = np.array([row.time for row in table("gemm")])
    assert formula == pytest.approx(plain)
    correction = fit_correction(columns(rows, known), formula, times(rows))
    assert correction is not None
    between = {"m": np.array([64.0, 8192.0]), "n": np.array([2048.0, 6000.0]), "k": np.array([1024.0, 4096.0])}
    modelled = known.time(known.start(), known.features(between, Formats("bf16"), CHIP, options))
    assert np.log(correction.factor(between, modelled)) == pytest.approx(bumps(between), abs=0.12)
    far = {"m": np.array([1e12]), "n": np.array([1e12]), "k": np.array([1e12])}
    assert correction.factor(far, np.array([1e12])) == pytest.approx([1], abs=1e-3), "the formula alone, far from all shapes"


def test_few_rows_have_no_correction() -> None:
    rows = table("gemm")[: FEWEST_FOR_CORRECTION - 1]
    assert fit_correction(columns(rows, FAMILIES["gemm"]), times(rows), times(rows)) is None


@pytest.mark.medium
def test_rows_held_out_are_judged_with_corrections() -> None:
    """Of 15 rows; without what the shapes nearby say, the errors are larger."""
    (found,) = judge(bumpy(), CHIP)
    kept, held = halves(bumpy())
    ((stratum, _),) = strata(kept).items()
    without = evaluate(stratum, held, CHIP, fit_stratum(stratum, kept, CHIP))
    assert found.error < 0.85 * relative_error(without, times(held))


def test_kin_of_another_architecture_take_no_corrections() -> None:
    for name, taken in (("h100", True), ("h200", True), ("b300", True), ("rtx-pro-6000", False)):
        assert any(item.correction is not None for item in load_kernel_fits(name).fits) == taken, name


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("sizes", [[1, 2]], r"kernels\.0\.correction\.sizes: expected shapes of 3 sizes: m, n, k"),
        ("sizes", [[1, 2, -3]] * 2, r"kernels\.0\.correction\.sizes: expected numbers from 0"),
        ("times", [1.0], r"kernels\.0\.correction\.times: expected one for each of 2 shapes; got 1"),
        ("weights", [0.1, 1e9], r"kernels\.0\.correction\.weights: expected numbers from -100 to 100"),
    ],
)
def test_faults_of_corrections_have_lines(key: str, value: object, message: str) -> None:
    fits = fit_of("gemm")
    shapes = Correction(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), np.array([1e-6, 1e-5]), np.array([0.1, -0.1]))
    text = kernel_fits_document(replace(fits, fits=(replace(fits.fits[0], correction=shapes),)))
    assert parse_kernel_fits(text).fits[0].correction == shapes
    data = json.loads(text)
    data["kernels"][0]["correction"][key] = value
    with pytest.raises(BadInput, match=message):
        parse_kernel_fits(json.dumps(data), "mine.yaml")


def test_large_fits_of_another_version_are_refused_by_what_they_lack() -> None:
    data = json.loads(kernel_fits_document(load_kernel_fits("h100")))
    kernel = next(kernel for kernel in data["kernels"] if kernel["family"] == "mla_decode")
    del kernel["parameters"]["again"]
    with pytest.raises(BadInput, match=r"kernels\.\d+\.parameters: expected again, .* made again with 'halley calibrate chip'"):
        parse_kernel_fits(json.dumps(data), "mine.yaml")


def test_faults_of_a_file_have_lines() -> None:
    lines = kernel_fits_document(fit_of("gemm")).splitlines()
    broken = "\n".join(lines).replace('"matrix"', '"matricks"')
    with pytest.raises(BadInput, match=r"mine.yaml:7: kernels\.0\.parameters: expected .*matrix.*; got .*matricks"):
        parse_kernel_fits(broken, "mine.yaml")
    with pytest.raises(BadInput, match=r"mine.yaml:7: kernels\.0\.low: expected"):
        parse_kernel_fits("\n".join(lines).replace('"low":0.9', '"low":"x"'), "mine.yaml")
    with pytest.raises(BadInput, match="each kernel once"):
        parse_kernel_fits("\n".join([*lines[:6], lines[6] + ",", *lines[6:]]), "mine.yaml")
    with pytest.raises(BadInput, match=r"family: expected one of gemm"):
        parse_kernel_fits("\n".join(lines).replace('"family":"gemm"', '"family":"gems"'), "mine.yaml")
    with pytest.raises(BadInput):
        parse_kernel_fits("{" * 50, "mine.yaml")


@pytest.mark.medium
def test_a_chip_is_calibrated_with_all_rows_and_errors_of_halves() -> None:
    fits, judged = calibrate(table("gemm", noise=0.03), CHIP, "made up", "2026-11-26")
    (item,) = fits.fits
    assert (item.rows, item.error) == (30, judged[0].error)
    assert item.low < 1 < item.high < 1.2
    sizes = columns(table("gemm"), FAMILIES["gemm"])
    assert kernel_time(fits, "gemm", sizes).time == pytest.approx(times(table("gemm")), rel=0.15)


def test_shipped_fits_are_small_and_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected the name of a shipped kernel fit"):
        load_kernel_fits("v100")
    (tmp_path / "mine.yaml").write_text(kernel_fits_document(fit_of("gemm")))
    assert load_kernel_fits(tmp_path / "mine.yaml", "b200").machine.name == "b200"
