"""flashdepot: FlashAttention fetched in seconds instead of compiled for twenty minutes."""

__version__ = "0.1.0"
