"""The version and the tags of a wheel of ours, from the manifest of its library."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from flashdepot.errors import UsageError
from flashdepot.model.canonical import digest_of
from flashdepot.model.manifest import Manifest
from flashdepot.model.selection import DEFAULT_FAMILY, PROFILES, Dtype, Feature, Pass, Profile, Selection
from flashdepot.model.wheel_tag import platform_tag

DISTRIBUTION = "flash_attn"
"""Upstream's name, as wheel and dist-info names spell it (PEP 427)."""

_ALL_HEAD_DIMS = (32, 256)
"""The smallest and the largest that upstream compiles (``HEAD_DIMENSIONS`` in its ``generate_kernels.py``)."""

_ID_DIGITS = 8


def wheel_version(manifest: Manifest) -> str:
    """Upstream's version with a local part (PEP 440) that says what is in the wheel: ``2.8.3+cu130.full.sm90.id1f0c22ab``.

    CUDA, families if there are others than fa2, the profile or else what it is made of, the architectures, and the
    beginning of the manifest's digest. The words are for people. The digest is what keeps two wheels apart: whatever
    differs in their libraries, they never have one version.

    :raises UsageError: when the source tree gives itself no version that a wheel could have.
    """
    try:
        version = Version(manifest.upstream.version)
    except InvalidVersion as error:
        raise UsageError(
            f"The source calls its version '{manifest.upstream.version}', and a wheel must have one such as 2.8.3.",
            hint="Set __version__ in flash_attn/__init__.py of that source.",
        ) from error
    local = [version.local] if version.local else []
    return str(Version(f"{version.public}+{'.'.join([*local, *wheel_words(manifest), wheel_id(manifest)])}"))


def wheel_words(manifest: Manifest) -> tuple[str, ...]:
    """What a wheel is for and what is in it, as its local version says it: ``("cu130", "inference", "sm90")``."""
    families = manifest.selection.families
    return (
        "cu" + "".join(manifest.toolchain.cuda.text.split(".")[:2]),
        *(families if families != (DEFAULT_FAMILY,) else ()),
        *contents_words(manifest.selection),
        *(architecture.sm.replace("_", "") for architecture in manifest.sass),
    )


def wheel_id(manifest: Manifest) -> str:
    """What no wheel of another library has in its version. It begins with letters: PEP 440 drops zeros of a number."""
    return f"id{digest_of(manifest.to_json())[:_ID_DIGITS]}"


def contents_words(selection: Selection) -> Iterator[str]:
    """The name of the profile, else passes, dtype and lacking features; and head dims that are not upstream's range."""
    dims = sorted({unit.head_dim for unit in selection.units})
    exact = next((name for name, profile in PROFILES.items() if profile.head_dims == frozenset(dims)), "")
    if exact and _has(selection, PROFILES[exact]):
        yield exact
        return
    named = next((n for n, p in PROFILES.items() if p.head_dims is None and _has(selection, p)), "")
    yield from (named,) if named else _parts(selection)
    if dims and (dims[0], dims[-1]) != _ALL_HEAD_DIMS:
        yield f"hd{dims[0]}" if len(dims) == 1 else f"hd{dims[0]}to{dims[-1]}"


def _has(selection: Selection, profile: Profile) -> bool:
    """Whether passes, dtypes and features are a profile's."""
    return (
        {unit.pass_ for unit in selection.units} == (profile.passes or {*Pass})
        and {unit.dtype for unit in selection.units} == (profile.dtypes or {*Dtype})
        and selection.features == profile.features
    )


def _parts(selection: Selection) -> Iterator[str]:
    yield from (str(p) for p in Pass if any(unit.pass_ is p for unit in selection.units))
    dtypes = [str(d) for d in Dtype if any(unit.dtype is d for unit in selection.units)]
    yield from dtypes if len(dtypes) < len(Dtype) else ()
    yield from (f"no{feature.value.replace('_', '')}" for feature in Feature if feature not in selection.features)


def wheel_tag(manifest: Manifest) -> str:
    """``py3-none-manylinux_2_35_x86_64``: any Python 3, any ABI, from the C library that the library needs (PEP 600)."""
    return f"py3-none-{platform_tag(manifest.platform, manifest.libc_floor)}"


def wheel_name(manifest: Manifest) -> str:
    """The file name of the wheel."""
    return f"{DISTRIBUTION}-{wheel_version(manifest)}-{wheel_tag(manifest)}.whl"


def dist_info(manifest: Manifest) -> str:
    """The name of the folder with the wheel's metadata."""
    return f"{DISTRIBUTION}-{wheel_version(manifest)}.dist-info"
