"""``flashdepot.toml``: what a project needs, so that ``flashdepot get`` there takes no options."""

from __future__ import annotations

from pathlib import Path

from flashdepot.errors import UsageError
from flashdepot.model.library_request import LibraryRequest
from flashdepot.resolve.words import library_request
from flashdepot.system.toml import read_toml

NAME = "flashdepot.toml"
KEYS = ("upstream", "profile", "arch", "passes", "head-dims", "dtypes", "features", "cuda")


def find_project(folder: Path) -> Path | None:
    """The nearest ``flashdepot.toml``, from a folder upwards; ``None`` when there is none."""
    return next((p / NAME for p in (folder, *folder.parents) if (p / NAME).is_file()), None)


def read_project(path: Path) -> LibraryRequest:
    """What a project file asks, in the words of the command line; a list may stand for words joined by commas.

    :raises UsageError: for a key or a value that is not known; it names the file.
    """
    options = {}
    for key, value in read_toml(path).items():
        if key not in KEYS:
            raise UsageError(f"{path}: '{key}' is not a key of this file: there are {', '.join(KEYS)}.")
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(v, (str, int, float)) and not isinstance(v, bool) for v in values):
            raise UsageError(f"{path}: '{key}' must be a text, a number, or a list of these.")
        options[key.replace("-", "_")] = ",".join(str(v) for v in values)
    upstream = options.get("upstream", "")
    if upstream.startswith((".", "/")):
        options["upstream"] = str((path.parent / upstream).resolve())
    try:
        return library_request(**options)
    except UsageError as error:
        raise UsageError(f"{path}: {error.message}", hint=error.hint) from None
