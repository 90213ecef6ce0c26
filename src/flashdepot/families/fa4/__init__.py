"""FlashAttention-4: kernels for Hopper and Blackwell, compiled ahead of time from CuTe DSL."""
