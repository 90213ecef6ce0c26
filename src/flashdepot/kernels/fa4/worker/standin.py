"""What FlashAttention-4's modules import and its kernels do not use: torch, and the packages' own front doors.

The kernel classes name torch's types and nothing more of it. flash_attn.cute and quack import, in their __init__, all
that a user of theirs may call; kernels live in submodules, which a bare package with the same path serves.
"""

import sys
import types
from pathlib import Path

_TORCH = ("torch", "torch.cuda", "torch._subclasses", "torch._subclasses.fake_tensor")


class _TypesOnly(types.ModuleType):
    """Any name of it is a type of its own, good for annotations and as a key, and for nothing else."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {})
        setattr(self, name, made)
        return made


def install(cute_dsl: Path, upstream: Path) -> None:
    """Puts the stand-ins into sys.modules; the folders hold quack, and the modules of flash_attn.cute."""
    for name in _TORCH:
        module = _TypesOnly(name)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    sys.modules["torch.cuda"].is_available = lambda: False  # type: ignore[attr-defined]
    for name, folder in (("quack", cute_dsl / "quack"), ("flash_attn", None), ("flash_attn.cute", upstream)):
        package = types.ModuleType(name)
        package.__path__ = [] if folder is None else [str(folder)]
        sys.modules[name] = package
