"""Running ``vendor``, and libraries for other targets than this machine's."""

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flashdepot.model.host import HostRecord
from support.tools import flashdepot_here

FOLDER = "linux-x86_64-cu13-sm80-90"


vendor = partial(flashdepot_here, "vendor")


def vendored(library: Path, project: Path, *arguments: str) -> Path:
    """Vendor a library into ``prebuilt`` of a project and return the folder of its target."""
    done = vendor(*arguments, "--library", library, cwd=project)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def check(project: Path, *arguments: str | Path) -> tuple[int, Any]:
    """Run ``vendor --check --json``: its exit status and its document."""
    done = vendor(*arguments, "--check", "--json", cwd=project)
    return done.returncode, json.loads(done.stdout)


def for_target(library: Path, copy: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A copy of a library whose manifest says something else."""
    shutil.copytree(library, copy, symlinks=True)
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def save(record: HostRecord, path: Path) -> Path:
    path.write_text(json.dumps(record.to_json()))
    return path


def tree(folder: Path) -> dict[str, tuple[str, int]]:
    """Digest and time of every file."""
    return {
        p.relative_to(folder).as_posix(): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file()
    }
