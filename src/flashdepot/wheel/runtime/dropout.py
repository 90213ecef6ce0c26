"""Random numbers of dropout: where those of a call begin, and generators that move on by what it takes."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import torch

_lock = threading.Lock()
"""torch's own lock of a generator cannot be held over two calls."""

_64_BITS = (1 << 64) - 1


class Philox(NamedTuple):
    """Where a call's random numbers begin, in the order of the fields of fa_fwd_args."""

    seed: int = 0
    offset: int = 0
    seed_pointer: int = 0
    offset_pointer: int = 0
    offset_intragraph: int = 0


def reserve(generator: Any, device: int, batch: int, heads: int) -> Philox:
    """Take the random numbers of one call from a generator, and advance it by what upstream advances it.

    :param generator: of that device; None for torch's default one.
    :raises RuntimeError: while a CUDA graph is captured and this torch has no Generator.philox_state.
    """
    if generator is None:
        generator = torch.cuda.default_generators[device]
    increment = batch * heads * 32  # a multiple of 4, as the generator wants it
    with torch.cuda.device(device):  # whose stream may be the one that is captured
        if hasattr(generator, "philox_state"):
            return _from_state(*generator.philox_state(increment))
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                f"dropout in a CUDA graph needs torch.Generator.philox_state, which torch {torch.__version__} does "
                "not have: use torch 2.15 or newer, dropout_p=0.0, or leave this call out of the graph"
            )
    with _lock:
        offset = generator.get_offset()
        generator.set_offset(offset + increment)
    return Philox(generator.initial_seed() & _64_BITS, offset)


def _from_state(seed: Any, offset: Any, intragraph: Any) -> Philox:
    """In a graph seed and offset live on the device, where each replay sets them anew."""
    if seed.is_cuda:
        return Philox(0, 0, seed.data_ptr(), offset.data_ptr(), intragraph.item() & _64_BITS)
    return Philox(seed.item() & _64_BITS, offset.item() & _64_BITS)
