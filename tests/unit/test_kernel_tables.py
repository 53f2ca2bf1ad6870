"""Tables of measured kernels, as public collections have them."""

from __future__ import annotations

import pytest

from halley.errors import BadInput
from halley.io.chips.kernel_tables import FAULTS_SHOWN, KINDS, is_kernel_table, read_kernel_table
from halley.io.chips.shape_tables import is_shape_table, read_shape_table

HEAD = "gpu,op,framework,version,kernel_source,gemm_dtype,m,n,k,latency_us,origin"
DECODE = (
    "gpu,op,framework,version,kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_dim,beam_width,attn_dtype,"
    "kv_cache_dtype,step,window_size,latency_us,origin"
)
MOE = (
    "gpu,op,framework,version,kernel_source,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
    "distribution,latency_us,origin"
)


def test_rows_become_measurements_by_gpu() -> None:
    text = (
        f"{HEAD}\n# a comment\nGPU A,gemm,VLLM,1,linear,bfloat16,5,256,6144,7.5,x\nGPU B,gemm,vllm,1,linear,fp8_block,1,2,3,4,x\n"
    )
    found = read_kernel_table(text, "gemm.csv")
    (first,), (second,) = found["GPU A"], found["GPU B"]
    assert (first.family, first.sizes, first.dtype, first.framework) == ("gemm", {"m": 5, "n": 256, "k": 6144}, "bf16", "vllm")
    assert first.time == pytest.approx(7.5e-6)
    assert second.dtype == "fp8_block"


def test_the_context_of_decode_has_the_new_token() -> None:
    text = f"{DECODE}\nA,attention_decode,vllm,1,fa,8,1,16,4,128,1,bfloat16,fp8,511,,69,x\n"
    (row,) = read_kernel_table(text, "t")["A"]
    assert (row.sizes["cached"], row.cache, row.sizes.get("window")) == (511, "fp8", None)


def test_experts_have_a_distribution_and_a_gate() -> None:
    uneven = "A,moe,trtllm,1,moe_nongated,bfloat16,4,64,64,2,8,1,1,power_law_1.2,9,x"
    even = "A,moe,vllm,1,k,bfloat16,4,64,64,2,8,1,1,balanced,9,x"
    first, second = read_kernel_table(f"{MOE}\n{uneven}\n{even}\n", "t")["A"]
    assert (first.sizes["alpha"], first.sizes["gated"]) == (1.2, 0)
    assert (second.sizes["alpha"], second.sizes["gated"]) == (0, 1)
    with pytest.raises(BadInput, match="t:2: distribution: expected balanced, or power_law_ and a number; got 'zipf'"):
        read_kernel_table(f"{MOE}\nA,moe,vllm,1,k,bfloat16,4,64,64,2,8,1,1,zipf,9,x\n", "t")


def test_milliseconds_are_read() -> None:
    (row,) = read_kernel_table("op,gemm_dtype,m,n,k,latency\ngemm,bfloat16,1,2,3,0.25\n", "t")[""]
    assert row.time == pytest.approx(2.5e-4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t:1: expected the column op"),
        (HEAD + "\n", "t: expected rows of measured kernels; got none"),
        (HEAD.replace("m,", "em,", 1) + "\n", "t:1: expected columns that a table of kernels has; got 'em'"),
        (HEAD.replace(",n,", ",m,") + "\n", "t:1: expected each column once; got m twice"),
        (f"{HEAD}\nA,gems,v,1,l,bfloat16,1,1,1,1,x", "t:2: op: expected one of gemm, .*got 'gems'"),
        (f"{HEAD}\nA,gemm,v,1,l,bfloat16,0,1,1,1,x", "t:2: m: expected a whole number from 1 to .*got '0'"),
        (f"{HEAD}\nA,gemm,v,1,l,bfloat16,1.5,1,1,1,x", "t:2: m: expected a whole number"),
        (f"{HEAD}\nA,gemm,v,1,l,bfloat16,1,1,1,-1,x", "t:2: latency_us: expected a time above 0; got '-1'"),
        (f"{HEAD}\nA,gemm,v,1,l,bfloat16,1,1,1,nan,x", "t:2: latency_us: expected a time above 0; got 'nan'"),
        (f"{HEAD}\nA,gemm,v,1,l,bfloat61,1,1,1,1,x", "t:2: gemm_dtype: expected one of bf16"),
        (f"{HEAD}\nA,gemm,v,1,l,bfloat16,1,1,1,1", "t:2: expected 11 cells, as the head has columns; got 10"),
        (
            f"{DECODE}\nA,attention_decode,v,1,f,8,1,16,5,128,1,bfloat16,fp8,1,,69,x",
            "num_key_value_heads: expected a divisor of 16",
        ),
    ],
)
def test_a_broken_table_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_kernel_table(text, "t")


def test_all_faults_are_told_up_to_a_limit() -> None:
    with pytest.raises(BadInput) as caught:
        read_kernel_table(f"{HEAD}\n" + "A,gemm,v,1,l,bfloat16,0,1,1,1,x\n" * 99, "t")
    assert len(caught.value.faults) == FAULTS_SHOWN + 1


def test_tables_are_told_apart() -> None:
    assert is_kernel_table(HEAD)
    assert is_kernel_table(DECODE)
    assert not is_kernel_table("operator,dtype,m,time")
    assert is_shape_table("hardware,op,shape,dtype,measured_latency_s,notes")
    assert not is_shape_table(HEAD)
    assert set(KINDS) == {KINDS[name].family for name in KINDS}


def test_shapes_in_one_cell() -> None:
    head = "hardware,op,shape,dtype,measured_latency_s"
    text = (
        f"{head}\nH20,mha_decode,heads=16;kv_heads=8;head_dim=128;batch_size=2;kv_len=64,bf16/kv_fp8,3e-5\nH20,other,M=1,bf16,1\n"
    )
    (row,) = read_shape_table(text, "t", "mine")["H20"]
    assert (row.family, row.sizes["cached"], row.cache, row.framework) == ("attention_decode", 63, "fp8", "mine")
    for cells, message in (
        ("H20,gemm,M=1;N=2,fp8,1e-5", "t:2: shape: expected a size K; got M, N"),
        ("H20,gemm,M=1;N=2;K=x,fp8,1e-5", "t:2: shape: expected sizes like"),
        ("H20,gemm,M=1;N=2;K=3,fp8,0", "t:2: measured_latency_s: expected a time above 0"),
        ("H20,nothing,M=1,fp8,1", "t: expected rows of"),
    ):
        with pytest.raises(BadInput, match=message):
            read_shape_table(f"{head}\n{cells}\n", "t")
