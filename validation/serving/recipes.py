"""How the servers of measured closed loops were started, by the public scripts of the benchmark.

The rows of B200, and those of H100 with vLLM, are of InferenceX (SemiAnalysisAI/InferenceX, ``benchmarks/*.sh``). Its scripts
state when a server admits prompts: SGLang receives requests every 10 or 30 steps, TensorRT-LLM lets short prompts wait for
others for 20 or 40 steps, and the tokens of a step differ. Nothing here was fitted. The other rows of H100 state no settings.
Servers with attention of its own on each rank hold prompts back for up to 60 steps until all ranks have some
(``timeout_iters``), which is not modelled.
"""

from __future__ import annotations

import math
from dataclasses import replace

from validation.serving.rows import Measured

from halley.serving.software import ServingSoftware

SPARE_LENGTH = 200
"""Tokens by which the longest request of a server of InferenceX exceeds input and output."""
LEAST_TOKENS = 8192
"""Least tokens of a step of newer servers of DeepSeek."""
OWN_EVALUATION = "source_file=h100_sxm/"
"""How the origin of rows of aiconfigurator's own evaluation starts."""


def started(row: Measured, software: ServingSoftware) -> ServingSoftware:
    """The software as the row's server was started."""
    if row.origin.startswith(OWN_EVALUATION):
        return software
    short = row.lengths.input == 1024 and row.lengths.output == 1024
    longest = int(row.lengths.input + row.lengths.output) + SPARE_LENGTH
    eight_bits = row.model.weights == "fp8"
    if row.framework == "sglang":
        # dsr1_fp4_b200.sh, dsr1_fp8_b200.sh: --scheduler-recv-interval, --chunked-prefill-size
        small = eight_bits and row.layout.chips == 4
        budget = 8192 if small else 32768 if eight_bits else 16384
        return replace(software, receive=30 if row.batch >= 16 and not small else 10, budget=budget)
    if row.framework == "trtllm" and not row.experts:
        # 70b_fp4_b200_trt_slurm.sh, 70b_fp8_b200_trt_slurm.sh: batch_wait_*, --max_num_tokens
        made = replace(software, budget=16384 if eight_bits else longest)
        return replace(made, wait_steps=20, wait_share=0.9) if short and row.layout.tp < 8 else made
    if row.framework == "trtllm" and not row.version.startswith(("1.2", "1.3")):
        return replace(software, budget=longest)  # dsr1_fp4_b200_trt_slurm.sh
    if row.framework == "trtllm":
        # dsr1_fp4_b200_trt.sh, dsr1_fp8_b200_trt.sh
        made = replace(software, budget=max(LEAST_TOKENS, 64 * math.ceil((row.batch + row.lengths.input + 64) / 64)))
        return replace(made, wait_steps=40, wait_share=0.8) if eight_bits and short and 64 <= row.batch < 256 else made
    return software
