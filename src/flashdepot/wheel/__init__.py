"""From a library to a Python wheel: upstream's package, our ``flash_attn_2_cuda``, and the library inside it."""

from flashdepot.wheel.builder import Wheel, build_jax_wheel, build_wheel, jax_wheel_name
from flashdepot.wheel.names import NAMES, Name, build_names, parse_names, pin_names, require_names, write_kernels

__all__ = [
    "NAMES",
    "Name",
    "Wheel",
    "build_jax_wheel",
    "build_names",
    "build_wheel",
    "jax_wheel_name",
    "parse_names",
    "pin_names",
    "require_names",
    "write_kernels",
]
