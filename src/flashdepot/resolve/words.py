"""Words that ask for a library, as options of the command line and keys of ``flashdepot.toml`` have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flashdepot.errors import UsageError, did_you_mean
from flashdepot.facts.gpus import parse_architectures
from flashdepot.families import parse_families
from flashdepot.model.library_request import AnyCuda, CudaChoice, GpuChoice, Gpus, LibraryRequest
from flashdepot.model.selection import (
    parse_dtypes,
    parse_features,
    parse_head_dims,
    parse_passes,
    parse_profile,
)
from flashdepot.model.target import Platform, Version


def library_request(**words: str | None) -> LibraryRequest:
    """Read a request; ``None`` says nothing. The names are those of :class:`LibraryRequest`.

    :raises UsageError: for a word that is not known.
    """
    if unknown := words.keys() - _PARSE.keys():
        word = min(unknown)
        known = ", ".join(_PARSE)
        raise UsageError(f"'{word}' is nothing that a library has: there are {known}.{did_you_mean(word, _PARSE)}")
    return LibraryRequest(**{name: _PARSE[name](word) for name, word in words.items() if word is not None})


def _parse_arch(text: str) -> GpuChoice:
    word = text.strip().lower()
    return Gpus(word) if word in {g.value for g in Gpus} else parse_architectures(text)


def _parse_cuda(text: str) -> CudaChoice:
    word = text.strip()
    if word.lower() == AnyCuda.AUTO.value:
        return AnyCuda.AUTO
    if "/" in word or "\\" in word:
        return Path(word)
    try:
        return Version.parse(word)
    except UsageError:
        raise UsageError(
            f"'{text}' is not a choice of CUDA: expected 'auto', a version such as 13.0, or a toolkit's folder.",
            hint=f"If it is a folder: --cuda ./{text}",
        ) from None


def _parse_target(text: str) -> Platform:
    from flashdepot.targets import parse_target  # noqa: PLC0415  (who names no target needs none of them)

    return parse_target(text).platform


_PARSE: Mapping[str, Callable[[str], Any]] = {
    "upstream": str,
    "profile": parse_profile,
    "arch": _parse_arch,
    "passes": parse_passes,
    "head_dims": parse_head_dims,
    "dtypes": parse_dtypes,
    "features": parse_features,
    "families": parse_families,
    "cuda": _parse_cuda,
    "target": _parse_target,
}
