"""Whether an installed flash_attn is right, and how fast it is, in the environment that it is installed in."""
