"""From a library to a Python wheel: upstream's package, our ``flash_attn_2_cuda``, and the library inside it."""

from flashdepot.wheel.builder import Wheel, build_wheel

__all__ = ["Wheel", "build_wheel"]
