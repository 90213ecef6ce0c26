"""What a flash-attn needs of the environment that it is installed into."""

from __future__ import annotations

from flashdepot.model.target import Version

OLDEST_PYTHON = Version("3.9")
"""``python_requires`` of upstream's setup.py, and ``Requires-Python`` of the wheels that flashdepot makes."""

OLDEST_TORCH = Version("2.2")
"""The oldest that has all that upstream's Python files and our runtime use."""

IMPORTED = ("torch", "einops")
"""The distributions that ``import flash_attn`` needs: upstream's ``install_requires``."""
