"""The version, the build tag and the tags of our wheel, from the manifest of its library."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from flashdepot.errors import UsageError
from flashdepot.model.codec import digest_of
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import DEFAULT_FAMILY, HALVES, PROFILES, Dtype, Feature, Pass, Profile, Selection
from flashdepot.model.wheel import platform_tag

DISTRIBUTION = "flash_attn"
"""Upstream's name, as wheel and dist-info names spell it (PEP 427)."""

_ALL_HEAD_DIMS = (32, 64, 96, 128, 192, 256)
"""Those that upstream compiles (``HEAD_DIMENSIONS`` in its ``generate_kernels.py``)."""

_SELECTION_DIGITS = 6
_BUILD_DIGITS = 8


def wheel_version(manifest: Manifest) -> str:
    """Upstream's version with a local part (PEP 440) that says what is in the wheel: ``2.8.3+cu130.full.sm80.sm90``.

    It is the same for all systems. Wheels that differ in CUDA, families, selection or architectures differ in it; what
    else may differ, another build of the same, is distinguished by :func:`wheel_build`.
    """
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415  (a name is made when there is a library)

    try:
        version = Version(manifest.upstream.version)
    except InvalidVersion as error:
        raise UsageError(
            f"The source calls its version '{manifest.upstream.version}', and a wheel must have one such as 2.8.3.",
            hint="Set __version__ in flash_attn/__init__.py of that source.",
        ) from error
    local = [version.local] if version.local else []
    return str(Version(f"{version.public}+{'.'.join([*local, *wheel_words(manifest)])}"))


def wheel_words(manifest: Manifest) -> tuple[str, ...]:
    """CUDA, families if there are others than fa2, contents, architectures: ``("cu130", "inference", "sm90")``."""
    families = manifest.selection.families
    return (
        "cu" + "".join(manifest.toolchain.cuda.text.split(".")[:2]),
        *(families if families != (DEFAULT_FAMILY,) else ()),
        *contents_words(manifest.selection),
        *(architecture.sm.replace("_", "") for architecture in manifest.sass),
    )


def contents_words(selection: Selection) -> Iterator[str]:
    """The profile, else passes, dtype and lacking features; head dims that are not upstream's.

    A digest comes last where these words do not determine the units.
    """
    dims = tuple(sorted({unit.head_dim for unit in selection.units}))
    if name := next((n for n, p in PROFILES.items() if p.head_dims == frozenset(dims) and _has(selection, p)), ""):
        yield name
    else:
        named = next((n for n, p in PROFILES.items() if p.head_dims is None and _has(selection, p)), "")
        yield from (named,) if named else _parts(selection)
        yield from (f"hd{dim}" for dim in dims if dims != _ALL_HEAD_DIMS)
    if not _is_regular(selection):
        yield f"x{digest_of(selection.to_json())[:_SELECTION_DIGITS]}"


def _has(selection: Selection, profile: Profile) -> bool:
    return (
        {unit.pass_ for unit in selection.units} == (profile.passes or {*Pass})
        and {unit.dtype for unit in selection.units} - {Dtype.E4M3} == (profile.dtypes or {*HALVES})
        and selection.features == profile.features
    )


def _parts(selection: Selection) -> Iterator[str]:
    yield from (str(p) for p in Pass if any(unit.pass_ is p for unit in selection.units))
    dtypes = [str(d) for d in Dtype if any(unit.dtype is d for unit in selection.units)]
    yield from dtypes if not {*HALVES} <= {unit.dtype for unit in selection.units} else ()
    yield from (f"no{feature.value.replace('_', '')}" for feature in Feature if feature not in selection.features)


def _is_regular(selection: Selection) -> bool:
    """Whether it has one family, and of that every unit of its passes, head dims and dtypes."""
    units = selection.units
    every = itertools.product(
        {u.pass_ for u in units}, {u.head_dim for u in units}, {u.dtype for u in units}, {u.causal for u in units}
    )
    held = {(u.pass_, u.head_dim, u.dtype, u.causal) for u in units}
    return len(selection.families) == 1 and held == {*every} and len({u.causal for u in units}) > 1


def wheel_build(manifest: Manifest) -> str:
    """The build tag: the beginning of the manifest's digest, after what a build tag must begin with (PEP 427)."""
    return f"0x{digest_of(manifest.to_json())[:_BUILD_DIGITS]}"


def wheel_tag(manifest: Manifest) -> str:
    """``py3-none-manylinux_2_35_x86_64``: any Python 3, any ABI, from the C library that the library needs (PEP 600)."""
    return f"py3-none-{platform_tag(manifest.platform, manifest.libc_floor)}"


def wheel_name(manifest: Manifest) -> str:
    """The file name of the wheel, which no wheel of another library has."""
    return f"{DISTRIBUTION}-{wheel_version(manifest)}-{wheel_build(manifest)}-{wheel_tag(manifest)}.whl"


def dist_info(manifest: Manifest) -> str:
    """The name of the folder with the wheel's metadata."""
    return f"{DISTRIBUTION}-{wheel_version(manifest)}.dist-info"
