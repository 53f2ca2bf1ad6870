"""``python -m validation.serving FOLDER``: errors of each quantity on both halves, beside the roofline of five numbers."""

from __future__ import annotations

import sys
from pathlib import Path

from validation.serving.baseline import fitted as fitted_roofline
from validation.serving.baseline import roofline
from validation.serving.compare import (
    closed_loop_of,
    closed_predictor,
    closed_rows,
    closed_throughput,
    medians,
    rank_and_regret,
    static_predictor,
    static_rows,
    static_throughput,
)
from validation.serving.traces import median, percentiles, traces


def main(folder: Path) -> None:
    """Prints the page's figures."""
    made = static_predictor()
    halves = static_rows(folder)
    base = {framework: fitted_roofline([r for r in halves[0] if r.framework == framework]) for framework in ("vllm", "trtllm")}
    for half, rows in zip(("fitted", "judged"), halves, strict=True):
        for framework in ("vllm", "trtllm"):
            mine = [row for row in rows if row.framework == framework]
            ours = medians((made.static(row), row.latency or 0.0) for row in mine)
            flat = medians((roofline(row, base[framework]), row.latency or 0.0) for row in mine)
            words = f"median {ours[0]:.1%}, mean {ours[1]:.1%}; roofline {flat[0]:.1%}, {flat[1]:.1%}"
            print(f"static {framework} {half}: {ours[2]} rows, {words}")
        times = [made.static(row) for row in rows]
        got = rank_and_regret(
            rows,
            [static_throughput(row, time) for row, time in zip(rows, times, strict=True)],
            [static_throughput(row, row.latency or 1.0) for row in rows],
        )
        print(f"static {half}: rank correlation {got[0]:.3f}, regret {got[1]:.1%} mean, {got[2]:.1%} largest, {got[3]} groups")
    closed, made = closed_rows(folder), closed_predictor()
    base = {f: fitted_roofline([r for r in closed[0] if r.framework == f]) for f in ("vllm", "trtllm", "sglang")}
    for half, rows in zip(("fitted", "judged"), closed, strict=True):
        loops = [closed_loop_of(row, made) for row in rows]
        for experts in (False, True):
            mine = [loop for loop in loops if loop.row.experts == experts]
            kind = "MoE" if experts else "dense"
            ours = medians((loop.tpot, loop.row.tpot or 0.0) for loop in mine)
            events = medians((loop.simulated.tpot.mean, loop.row.tpot or 0.0) for loop in mine)
            flat = medians((roofline(loop.row, base[loop.row.framework]), loop.row.tpot or 0.0) for loop in mine)
            first = medians((loop.simulated.ttft.mean, loop.row.ttft) for loop in mine if loop.row.ttft)
            print(
                f"closed {kind} {half}: {ours[2]} rows, TPOT median {ours[0]:.1%}, mean {ours[1]:.1%}, "
                f"by events {events[0]:.1%}, {events[1]:.1%}; "
                f"roofline {flat[0]:.1%}, {flat[1]:.1%}; TTFT by events {first[0]:.1%}, {first[1]:.1%}"
            )
            for pair in sorted({loop.row.pair for loop in mine}):
                part = [loop for loop in mine if loop.row.pair == pair]
                p, t = (
                    medians((x.tpot, x.row.tpot or 0.0) for x in part),
                    medians((x.simulated.ttft.mean, x.row.ttft) for x in part if x.row.ttft),
                )
                print(f"    {pair}: {p[2]} rows, TPOT {p[0]:.1%}, TTFT {t[0]:.1%}")
        got = rank_and_regret(
            rows,
            [closed_throughput(loop.row, loop.tpot) for loop in loops],
            [closed_throughput(row, row.tpot or 1.0) for row in rows],
        )
        print(f"closed {half}: rank correlation {got[0]:.3f}, regret {got[1]:.1%} mean, {got[2]:.1%} largest, {got[3]} groups")
    for trace in traces(folder):
        for name, pairs in (("TTFT", trace.ttft), ("TPOT", trace.tpot), ("end to end", trace.latency)):
            worst = max(abs(found / given - 1) for found, given in percentiles(pairs))
            print(f"requests {trace.name}, {name}: median {median(pairs):.1%}, worst of 50th, 90th, 99th percentile {worst:.1%}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
