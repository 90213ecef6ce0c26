"""Running ``vendor``, and libraries for other targets than this machine's."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flashdepot.model.host import HostRecord

FOLDER = "linux-x86_64-cu13-sm80-90"


def vendor(*arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flashdepot", "vendor", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def vendored(library: Path, project: Path, *arguments: str) -> Path:
    """Vendor a library into ``prebuilt`` of a project and return the folder of its target."""
    done = vendor(*arguments, "--library", library, cwd=project)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def check(project: Path, *arguments: str | Path) -> tuple[int, Any]:
    """Run ``vendor --check --json``: its exit status and its document."""
    done = vendor(*arguments, "--check", "--json", cwd=project)
    assert "Traceback" not in done.stderr, done.stderr
    assert "Internal error" not in done.stderr, done.stderr
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
