"""What a project's ``.cargo/config.toml`` says so that its builds take a library, read and written.

Cargo reads paths there from the folder that holds ``.cargo`` (The Cargo Book, "Configuration", ``[env]`` and ``[patch]``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from flashdepot.errors import UsageError
from flashdepot.link.candle_sources import CRATE
from flashdepot.link.candle_versions import Delivery
from flashdepot.system.files import write_atomic
from flashdepot.system.toml import read_toml

CONFIG = ".cargo/config.toml"
BUILD_DIR = "CANDLE_FLASH_ATTN_BUILD_DIR"
COMPUTE_CAP = "CUDA_COMPUTE_CAP"


class CandleSetup(msgspec.Struct, frozen=True):
    """How a project gets its library: the folder, absolute, and what the folder is.

    :param compute_cap: the ``CUDA_COMPUTE_CAP`` of a set-up that is about to be made, where nothing else sets it, and
        empty for a crate; of one that was read, what builds see, if anything.
    :param said_in: the file, or the variable, that says so; empty for a set-up that is about to be made.
    """

    delivery: Delivery
    folder: Path
    compute_cap: str = ""
    said_in: str = ""


def config_text(text: str, setup: CandleSetup, root: Path) -> str:
    """A ``.cargo/config.toml`` with the lines of a set-up added; everything else in it stays as it is.

    :param text: what is in the file now; empty when there is none.
    :raises UsageError: when it is not TOML, or says something else of the same build.
    """
    import tomlkit  # noqa: PLC0415  (only --write and the lines it would write need it)
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415

    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise UsageError(f"{CONFIG} is not valid TOML: {error}.") from error
    place = _from_root(setup.folder, root)
    if setup.delivery is Delivery.CRATE:
        _put(document, ("patch", "crates-io"), CRATE, {"path": place})
    else:
        relative = not Path(place).is_absolute()
        _put(document, ("env",), BUILD_DIR, {"value": place, "relative": True} if relative else place)
        if COMPUTE_CAP not in document.get("env", {}):
            _put(document, ("env",), COMPUTE_CAP, setup.compute_cap)
    return tomlkit.dumps(document)


def write_config(root: Path, setup: CandleSetup) -> Path:
    """Add the lines of a set-up to a project's ``.cargo/config.toml``; raises as :func:`config_text`."""
    path = root / CONFIG
    before = path.read_text("utf-8") if path.is_file() else ""
    after = config_text(before, setup, root)
    if after != before:
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, after.encode())
    return path


def read_setup(root: Path, variables: Mapping[str, str]) -> CandleSetup | None:
    """What the project and the environment say now; ``None`` when a build would compile.

    :raises UsageError: when a file of Cargo's is not TOML.
    """
    config = _read(root / CONFIG)
    env = _table(config, "env")
    cap = _variable(env, COMPUTE_CAP, variables)
    for name, file in ((CONFIG, config), ("Cargo.toml", _read(root / "Cargo.toml"))):
        patch = _table(_table(file, "patch"), "crates-io").get(CRATE)
        if isinstance(patch, dict) and isinstance(patch.get("path"), str):
            folder = _absolute(root, patch["path"])
            return CandleSetup(Delivery.CRATE, folder, cap, f"[patch.crates-io] in {name}")
    value = _variable(env, BUILD_DIR, variables)
    if not value:
        return None
    said_in = f"the variable {BUILD_DIR}" if value == variables.get(BUILD_DIR) else f"[env] in {CONFIG}"
    return CandleSetup(Delivery.FOLDER, _absolute(root, value), cap, said_in)


def _variable(env: Mapping[str, Any], name: str, variables: Mapping[str, str]) -> str:
    """What builds see: the variable itself, unless ``[env]`` forces its own (The Cargo Book, "Configuration")."""
    said = env.get(name)
    table = said if isinstance(said, dict) else {"value": said}
    if variables.get(name) and table.get("force") is not True:
        return variables[name]
    value = table.get("value")
    return value if isinstance(value, str) else ""


def _put(document: Any, tables: tuple[str, ...], key: str, value: dict[str, Any] | str) -> None:
    import tomlkit  # noqa: PLC0415

    inner = document
    for depth, name in enumerate(tables):
        if name not in inner:
            inner[name] = tomlkit.table(is_super_table=depth + 1 < len(tables))
        inner = inner[name]
    if key in inner and inner[key] != value:
        raise UsageError(
            f"{CONFIG} already says {key} = {inner[key].as_string()} in [{'.'.join(tables)}], and this set-up needs "
            f"{value!r}.",
            hint="Remove that line, or give this command the same folder with --build-dir.",
        )
    if key not in inner:
        if isinstance(value, dict):
            line = tomlkit.inline_table()
            line.update(value)
            inner[key] = line
        else:
            inner[key] = value


def _from_root(folder: Path, root: Path) -> str:
    return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else folder.as_posix()


def _absolute(root: Path, place: str) -> Path:
    return Path(os.path.abspath(root / place))  # noqa: PTH100  (links stay as they were typed)


def _read(path: Path) -> dict[str, Any]:
    return read_toml(path) if path.is_file() else {}


def _table(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}
