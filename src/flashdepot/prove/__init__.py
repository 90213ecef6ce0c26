"""Proof and speed of an installed flash_attn, in the environment that it is installed in."""
