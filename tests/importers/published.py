"""Fields of published configurations that fix the extents of a model, and the parameters of the released checkpoints.

The fields are those of the ``config.json`` of the named repository of Hugging Face. ``CHECKPOINTS`` has the numbers of parameters
that the index of the released weights, or the publication, states; where the checkpoint has more than the language model (an
encoder of images, a module that predicts further tokens), the source says what the number is of.
"""

from __future__ import annotations

from typing import Any

LLAMA = {"model_type": "llama", "tie_word_embeddings": False}

CONFIGS: dict[str, dict[str, Any]] = {
    "meta-llama/Llama-2-7b-hf": LLAMA
    | {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32}
    | {"num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096},
    "meta-llama/Llama-3.1-8B": LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32}
    | {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072}
    | {"rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}},
    "meta-llama/Llama-3.2-1B": LLAMA
    | {"hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 16, "head_dim": 64}
    | {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": True},
    "meta-llama/Llama-3.1-405B": LLAMA
    | {"hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128, "num_hidden_layers": 126}
    | {"num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072}
    | {"rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}},
    "mistralai/Mistral-7B-v0.1": {"model_type": "mistral", "tie_word_embeddings": False}
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32}
    | {"num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096},
    "mistralai/Mixtral-8x7B-v0.1": {"model_type": "mixtral", "tie_word_embeddings": False}
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32}
    | {"num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": None}
    | {"num_local_experts": 8, "num_experts_per_tok": 2},
    "Qwen/Qwen2.5-7B": {"model_type": "qwen2", "tie_word_embeddings": False, "use_sliding_window": False}
    | {"hidden_size": 3584, "intermediate_size": 18944, "num_attention_heads": 28, "num_hidden_layers": 28}
    | {"num_key_value_heads": 4, "vocab_size": 152064, "max_position_embeddings": 131072, "sliding_window": 131072}
    | {"max_window_layers": 28, "attention_dropout": 0.0},
    "Qwen/Qwen2.5-0.5B": {"model_type": "qwen2", "tie_word_embeddings": True, "use_sliding_window": False}
    | {"hidden_size": 896, "intermediate_size": 4864, "num_attention_heads": 14, "num_hidden_layers": 24}
    | {"num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 32768},
    "Qwen/Qwen3-8B": {"model_type": "qwen3", "tie_word_embeddings": False, "attention_bias": False}
    | {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 32, "num_hidden_layers": 36, "head_dim": 128}
    | {"num_key_value_heads": 8, "vocab_size": 151936, "max_position_embeddings": 40960},
    "Qwen/Qwen3-30B-A3B": {"model_type": "qwen3_moe", "tie_word_embeddings": False, "attention_bias": False}
    | {"hidden_size": 2048, "intermediate_size": 6144, "num_attention_heads": 32, "num_hidden_layers": 48, "head_dim": 128}
    | {"num_key_value_heads": 4, "vocab_size": 151936, "max_position_embeddings": 40960, "moe_intermediate_size": 768}
    | {"num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "Qwen/Qwen3-235B-A22B": {"model_type": "qwen3_moe", "tie_word_embeddings": False, "attention_bias": False}
    | {"hidden_size": 4096, "intermediate_size": 12288, "num_attention_heads": 64, "num_hidden_layers": 94, "head_dim": 128}
    | {"num_key_value_heads": 4, "vocab_size": 151936, "max_position_embeddings": 40960, "moe_intermediate_size": 1536}
    | {"num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {"model_type": "qwen3_next", "tie_word_embeddings": False}
    | {"hidden_size": 2048, "intermediate_size": 5120, "num_attention_heads": 16, "num_hidden_layers": 48, "head_dim": 256}
    | {"num_key_value_heads": 2, "vocab_size": 151936, "max_position_embeddings": 262144, "moe_intermediate_size": 512}
    | {"num_experts": 512, "num_experts_per_tok": 10, "decoder_sparse_step": 1, "mlp_only_layers": []}
    | {"shared_expert_intermediate_size": 512, "full_attention_interval": 4, "linear_conv_kernel_dim": 4}
    | {"linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32},
    "deepseek-ai/DeepSeek-V2-Lite": {"model_type": "deepseek_v2", "tie_word_embeddings": False, "topk_method": "greedy"}
    | {"hidden_size": 2048, "intermediate_size": 10944, "num_attention_heads": 16, "num_hidden_layers": 27}
    | {"vocab_size": 102400, "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "n_routed_experts": 64}
    | {"n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1}
    | {"q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    | {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}},
    "deepseek-ai/DeepSeek-V2": {"model_type": "deepseek_v2", "tie_word_embeddings": False}
    | {"topk_method": "group_limited_greedy"}
    | {"hidden_size": 5120, "intermediate_size": 12288, "num_attention_heads": 128, "num_hidden_layers": 60}
    | {"vocab_size": 102400, "max_position_embeddings": 163840, "moe_intermediate_size": 1536, "n_routed_experts": 160}
    | {"n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1}
    | {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "deepseek-ai/DeepSeek-V3": {"model_type": "deepseek_v3", "tie_word_embeddings": False, "topk_method": "noaux_tc"}
    | {"hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 128, "num_hidden_layers": 61}
    | {"vocab_size": 129280, "max_position_embeddings": 163840, "moe_intermediate_size": 2048, "n_routed_experts": 256}
    | {"n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1}
    | {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    | {"num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8"}}
    | {"rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}},
    "moonshotai/Kimi-K2-Instruct": {"model_type": "kimi_k2", "tie_word_embeddings": False, "topk_method": "noaux_tc"}
    | {"hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 64, "num_hidden_layers": 61}
    | {"vocab_size": 163840, "max_position_embeddings": 131072, "moe_intermediate_size": 2048, "n_routed_experts": 384}
    | {"n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "moe_layer_freq": 1}
    | {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    "google/gemma-7b": {"model_type": "gemma", "hidden_act": "gelu"}
    | {"hidden_size": 3072, "intermediate_size": 24576, "num_attention_heads": 16, "num_hidden_layers": 28, "head_dim": 256}
    | {"num_key_value_heads": 16, "vocab_size": 256000, "max_position_embeddings": 8192},
    "google/gemma-2-9b": {"model_type": "gemma2", "sliding_window": 4096}
    | {"hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16, "num_hidden_layers": 42, "head_dim": 256}
    | {"num_key_value_heads": 8, "vocab_size": 256000, "max_position_embeddings": 8192},
    "google/gemma-3-1b-pt": {"model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 6}
    | {"hidden_size": 1152, "intermediate_size": 6912, "num_attention_heads": 4, "num_hidden_layers": 26, "head_dim": 256}
    | {"num_key_value_heads": 1, "vocab_size": 262144, "max_position_embeddings": 32768},
    "google/gemma-3-4b-pt": {
        "model_type": "gemma3",
        "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34}
        | {"sliding_window": 1024, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}},
        "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model"},
    },
    "openai/gpt-oss-20b": {"model_type": "gpt_oss", "tie_word_embeddings": False, "attention_bias": True}
    | {"hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64, "num_hidden_layers": 24, "head_dim": 64}
    | {"num_key_value_heads": 8, "vocab_size": 201088, "max_position_embeddings": 131072, "sliding_window": 128}
    | {"num_local_experts": 32, "num_experts_per_tok": 4}
    | {"layer_types": ["sliding_attention", "full_attention"] * 12},
    "openai/gpt-oss-120b": {"model_type": "gpt_oss", "tie_word_embeddings": False, "attention_bias": True}
    | {"hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64, "num_hidden_layers": 36, "head_dim": 64}
    | {"num_key_value_heads": 8, "vocab_size": 201088, "max_position_embeddings": 131072, "sliding_window": 128}
    | {"num_local_experts": 128, "num_experts_per_tok": 4}
    | {"layer_types": ["sliding_attention", "full_attention"] * 18},
    "openai-community/gpt2": {"model_type": "gpt2"}
    | {"n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257},
    "openai-community/gpt2-xl": {"model_type": "gpt2"}
    | {"n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257},
    "EleutherAI/gpt-neox-20b": {"model_type": "gpt_neox", "tie_word_embeddings": False}
    | {"hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 64, "num_hidden_layers": 44}
    | {"vocab_size": 50432, "max_position_embeddings": 2048},
    "EleutherAI/pythia-70m": {"model_type": "gpt_neox", "tie_word_embeddings": False}
    | {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 6}
    | {"vocab_size": 50304, "max_position_embeddings": 2048},
    "zai-org/GLM-4-9B-0414": {"model_type": "glm4", "tie_word_embeddings": False, "attention_bias": True}
    | {"hidden_size": 4096, "intermediate_size": 13696, "num_attention_heads": 32, "num_hidden_layers": 40, "head_dim": 128}
    | {"num_key_value_heads": 2, "vocab_size": 151552, "max_position_embeddings": 32768},
    "zai-org/glm-4-9b": {"model_type": "chatglm", "tie_word_embeddings": False, "add_qkv_bias": True, "add_bias_linear": False}
    | {"hidden_size": 4096, "ffn_hidden_size": 13696, "num_attention_heads": 32, "num_layers": 40, "kv_channels": 128}
    | {"multi_query_attention": True, "multi_query_group_num": 2, "padded_vocab_size": 151552, "seq_length": 8192}
    | {"rmsnorm": True},
    "zai-org/GLM-4.5-Air": {"model_type": "glm4_moe", "tie_word_embeddings": False, "attention_bias": True}
    | {"hidden_size": 4096, "intermediate_size": 10944, "num_attention_heads": 96, "num_hidden_layers": 46, "head_dim": 128}
    | {"num_key_value_heads": 8, "vocab_size": 151552, "max_position_embeddings": 131072, "moe_intermediate_size": 1408}
    | {"n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1}
    | {"use_qk_norm": False, "num_nextn_predict_layers": 1},
    "zai-org/GLM-4.5": {"model_type": "glm4_moe", "tie_word_embeddings": False, "attention_bias": True}
    | {"hidden_size": 5120, "intermediate_size": 12288, "num_attention_heads": 96, "num_hidden_layers": 92, "head_dim": 128}
    | {"num_key_value_heads": 8, "vocab_size": 151552, "max_position_embeddings": 131072, "moe_intermediate_size": 1536}
    | {"n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3}
    | {"use_qk_norm": True, "num_nextn_predict_layers": 1},
    "microsoft/Phi-3-mini-4k-instruct": {"model_type": "phi3", "tie_word_embeddings": False}
    | {"hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 32, "num_hidden_layers": 32}
    | {"num_key_value_heads": 32, "vocab_size": 32064, "max_position_embeddings": 4096, "sliding_window": 2047},
    "meta-llama/Llama-4-Scout-17B-16E": {
        "model_type": "llama4",
        "text_config": {"model_type": "llama4_text", "attention_chunk_size": 8192, "head_dim": 128, "hidden_size": 5120}
        | {"interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_attention_heads": 40}
        | {"max_position_embeddings": 262144, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8}
        | {"num_local_experts": 16, "vocab_size": 202048, "tie_word_embeddings": False},
    },
    "meta-llama/Llama-4-Maverick-17B-128E": {
        "model_type": "llama4",
        "text_config": {"model_type": "llama4_text", "attention_chunk_size": 8192, "head_dim": 128, "hidden_size": 5120}
        | {"interleave_moe_layer_step": 2, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_attention_heads": 40}
        | {"max_position_embeddings": 262144, "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8}
        | {"num_local_experts": 128, "vocab_size": 202048, "tie_word_embeddings": False},
    },
    "facebook/opt-125m": {"model_type": "opt", "do_layer_norm_before": True, "activation_function": "relu"}
    | {"hidden_size": 768, "ffn_dim": 3072, "num_attention_heads": 12, "num_hidden_layers": 12, "word_embed_proj_dim": 768}
    | {"vocab_size": 50272, "max_position_embeddings": 2048, "dropout": 0.1},
    "facebook/opt-6.7b": {"model_type": "opt", "do_layer_norm_before": True, "activation_function": "relu"}
    | {"hidden_size": 4096, "ffn_dim": 16384, "num_attention_heads": 32, "num_hidden_layers": 32, "word_embed_proj_dim": 4096}
    | {"vocab_size": 50272, "max_position_embeddings": 2048, "dropout": 0.1},
    "FacebookAI/roberta-base": {"model_type": "roberta", "architectures": ["RobertaModel"]}
    | {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
    | {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1},
    "Qwen/Qwen1.5-MoE-A2.7B": {"model_type": "qwen2_moe", "tie_word_embeddings": False, "use_sliding_window": False}
    | {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16, "num_hidden_layers": 24}
    | {"num_key_value_heads": 16, "vocab_size": 151936, "max_position_embeddings": 8192, "moe_intermediate_size": 1408}
    | {"num_experts": 60, "num_experts_per_tok": 4, "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1},
    "allenai/OLMo-2-1124-7B": {"model_type": "olmo2", "tie_word_embeddings": False}
    | {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32}
    | {"num_key_value_heads": 32, "vocab_size": 100352, "max_position_embeddings": 4096},
    "bigcode/starcoder2-3b": {"model_type": "starcoder2", "use_bias": True, "sliding_window": 4096}
    | {"hidden_size": 3072, "intermediate_size": 12288, "num_attention_heads": 24, "num_hidden_layers": 30}
    | {"num_key_value_heads": 2, "vocab_size": 49152, "max_position_embeddings": 16384},
    "bigscience/bloom-560m": {"model_type": "bloom", "hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880},
    "state-spaces/mamba-130m-hf": {"model_type": "mamba", "tie_word_embeddings": True, "use_bias": False}
    | {"hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 24, "state_size": 16, "conv_kernel": 4}
    | {"time_step_rank": 48, "use_conv_bias": True, "vocab_size": 50280},
    "mistralai/Mamba-Codestral-7B-v0.1": {"model_type": "mamba2", "tie_word_embeddings": False, "use_bias": False}
    | {"hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64, "expand": 2, "n_groups": 8}
    | {"state_size": 128, "conv_kernel": 4, "use_conv_bias": True, "vocab_size": 32768},
    "ai21labs/Jamba-v0.1": {"model_type": "jamba", "tie_word_embeddings": False, "mamba_proj_bias": False}
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32}
    | {"num_key_value_heads": 8, "vocab_size": 65536, "attn_layer_offset": 4, "attn_layer_period": 8}
    | {"expert_layer_offset": 1, "expert_layer_period": 2, "num_experts": 16, "num_experts_per_tok": 2}
    | {"mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2, "mamba_conv_bias": True},
    "nvidia/Nemotron-H-8B-Base-8K": {"model_type": "nemotron_h", "tie_word_embeddings": False, "use_conv_bias": True}
    | {"hidden_size": 4096, "intermediate_size": 21504, "num_attention_heads": 32, "num_hidden_layers": 52, "head_dim": 128}
    | {"num_key_value_heads": 8, "vocab_size": 131072, "max_position_embeddings": 8192, "use_bias": False, "mlp_bias": False}
    | {"hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "attention_bias": False}
    | {"mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "chunk_size": 128},
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {"model_type": "nemotron_h", "tie_word_embeddings": False, "use_bias": False}
    | {"hidden_size": 2688, "intermediate_size": 1856, "num_attention_heads": 32, "num_hidden_layers": 52, "head_dim": 128}
    | {"num_key_value_heads": 2, "vocab_size": 131072, "hybrid_override_pattern": "MEMEM*" + 4 * "EMEMEM*" + "EMEMEMEM*EMEMEMEME"}
    | {"mamba_num_heads": 64, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "chunk_size": 128}
    | {"n_routed_experts": 128, "num_experts_per_tok": 6, "moe_intermediate_size": 1856, "n_shared_experts": 1}
    | {"moe_shared_expert_intermediate_size": 3712, "mlp_bias": False, "attention_bias": False, "use_conv_bias": True},
    "ibm-granite/granite-4.0-h-small": {"model_type": "granitemoehybrid", "tie_word_embeddings": True}
    | {"hidden_size": 4096, "intermediate_size": 768, "num_attention_heads": 32, "num_hidden_layers": 40}
    | {"num_key_value_heads": 8, "vocab_size": 100352, "max_position_embeddings": 131072, "shared_intermediate_size": 1536}
    | {"num_local_experts": 72, "num_experts_per_tok": 10, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128}
    | {"mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256, "mamba_conv_bias": True}
    | {"layer_types": ["attention" if layer % 10 == 5 else "mamba" for layer in range(40)]},
    "ibm-ai-platform/Bamba-9B-v1": {"model_type": "bamba", "tie_word_embeddings": False, "attn_layer_indices": [9, 18, 27]}
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32}
    | {"num_key_value_heads": 8, "vocab_size": 128256, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128}
    | {"mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256, "mamba_conv_bias": True},
    "google/vit-base-patch16-224": {"model_type": "vit", "architectures": ["ViTForImageClassification"], "qkv_bias": True}
    | {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
    | {"image_size": 224, "patch_size": 16, "num_channels": 3, "id2label": {str(label): "" for label in range(1000)}},
    "google/vit-large-patch16-224": {"model_type": "vit", "architectures": ["ViTForImageClassification"], "qkv_bias": True}
    | {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24}
    | {"image_size": 224, "patch_size": 16, "num_channels": 3, "id2label": {str(label): "" for label in range(1000)}},
    "openai/whisper-small": {"model_type": "whisper", "d_model": 768, "num_mel_bins": 80, "vocab_size": 51865}
    | {"encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12, "decoder_attention_heads": 12}
    | {"encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072, "max_source_positions": 1500, "max_target_positions": 448},
    "openai/whisper-large-v3": {"model_type": "whisper", "d_model": 1280, "num_mel_bins": 128, "vocab_size": 51866}
    | {"encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20, "decoder_attention_heads": 20}
    | {"encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "max_source_positions": 1500, "max_target_positions": 448},
    "google-bert/bert-base-uncased": {"model_type": "bert", "architectures": ["BertForPreTraining"]}
    | {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12}
    | {"vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2},
    "google-bert/bert-large-uncased": {"model_type": "bert", "architectures": ["BertModel"]}
    | {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24}
    | {"vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2},
}
"""By repository, the fields."""

CHECKPOINTS: dict[str, int] = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen3-235B-A22B": 235_093_634_560,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 79_674_391_296,  # without the module that predicts further tokens
    "deepseek-ai/DeepSeek-V2-Lite": 15_706_484_224,
    "deepseek-ai/DeepSeek-V2": 235_741_434_880,
    "deepseek-ai/DeepSeek-V3": 671_026_419_200,  # without the module that predicts a further token
    "google/gemma-7b": 8_537_680_896,
    "google/gemma-2-9b": 9_241_705_984,
    "google/gemma-3-1b-pt": 999_885_952,
    "openai/gpt-oss-20b": 20_914_757_184,
    "openai/gpt-oss-120b": 116_829_156_672,
    "openai-community/gpt2": 124_439_808,
    "openai-community/gpt2-xl": 1_557_611_200,
    "EleutherAI/gpt-neox-20b": 20_554_567_680,
    "EleutherAI/pythia-70m": 70_426_624,
    "zai-org/GLM-4-9B-0414": 9_400_279_040,
    "zai-org/glm-4-9b": 9_399_951_360,
    "microsoft/Phi-3-mini-4k-instruct": 3_821_079_552,
    "meta-llama/Llama-4-Scout-17B-16E": 107_769_861_120,  # its language model
    "meta-llama/Llama-4-Maverick-17B-128E": 400_711_848_960,  # its language model
    "facebook/opt-125m": 125_239_296,
    "facebook/opt-6.7b": 6_658_473_984,
    "FacebookAI/roberta-base": 124_645_632,
    "Qwen/Qwen1.5-MoE-A2.7B": 14_315_784_192,
    "allenai/OLMo-2-1124-7B": 7_298_617_344,
    "bigcode/starcoder2-3b": 3_030_371_328,
    "bigscience/bloom-560m": 559_214_592,
    "state-spaces/mamba-130m-hf": 129_135_360,
    "mistralai/Mamba-Codestral-7B-v0.1": 7_285_403_648,
    "ai21labs/Jamba-v0.1": 51_570_323_328,
    "nvidia/Nemotron-H-8B-Base-8K": 8_100_852_736,
    "google/vit-base-patch16-224": 86_567_656,
    "google/vit-large-patch16-224": 304_326_632,
    "openai/whisper-small": 241_734_912,
    "openai/whisper-large-v3": 1_543_490_560,
    "google-bert/bert-base-uncased": 110_106_428,
    "google-bert/bert-large-uncased": 335_141_888,
}
"""By repository, the parameters, exactly."""

ROUNDED: dict[str, tuple[float, str]] = {
    "ibm-granite/granite-4.0-h-small": (32e9, "IBM 2025, model card: 32B parameters"),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6e9, "NVIDIA 2025, Nemotron 3 Nano: 31.6B parameters"),
    "ibm-ai-platform/Bamba-9B-v1": (9.78e9, "IBM, Princeton, CMU and UIUC 2024, model card: 9.78B parameters"),
    "moonshotai/Kimi-K2-Instruct": (1.04e12, "Kimi team 2025, arXiv 2507.20534, table 2: 1.04T, rounded up"),
    "zai-org/GLM-4.5": (355e9, "GLM-4.5 team 2025, arXiv 2508.06471, table 1, with the module that predicts a further token"),
    "zai-org/GLM-4.5-Air": (106e9, "GLM-4.5 team 2025, arXiv 2508.06471, table 1, with the module that predicts a further token"),
    "google/gemma-3-4b-pt": (3.88e9, "Gemma team 2025, arXiv 2503.19786, table 1: 675M embedding and 3209M other parameters"),
}
"""By repository, the parameters that a publication rounds, and the publication."""
