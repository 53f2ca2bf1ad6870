"""Published iteration times of Megatron-LM on A100 against kernels, collectives and pipeline put together."""
