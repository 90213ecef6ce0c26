"""Write ``examples/publishing/requirements.txt``: what flashdepot needs there, by version and SHA-256.

    python scripts/write_publishing_pins.py

Only wheels for the Python and the systems of the templates are in it: on another pip refuses, and installs nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from flashdepot.files.documents import read_toml

ROOT = Path(__file__).parents[1]
OUT = ROOT / "examples" / "publishing" / "requirements.txt"
PYTHON = "3.12"
SYSTEMS = ("manylinux_2_28_x86_64", "win_amd64")
HEAD = f"# What flashdepot needs on Python {PYTHON}, Linux and Windows. Written by scripts/write_publishing_pins.py.\n"


def resolved(system: str) -> dict[str, str]:
    """The SHA-256 of each wheel for a system, by requirement."""
    platforms = [system, *(system.replace("2_28", older) for older in ("2_17", "2_5") if "2_28" in system)]
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    words += ["--only-binary", ":all:", "--python-version", PYTHON, "--target", "nowhere", "--no-compile"]
    words += [word for platform in platforms for word in ("--platform", platform)]
    # pip judges markers by the system it runs on, and click needs this one on Windows.
    wanted = [*requirements(), *(["colorama"] if system.startswith("win") else [])]
    done = subprocess.run([*words, *wanted], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    found = {}
    for package in json.loads(done.stdout)["install"]:
        about = package["metadata"]
        found[f"{about['name'].lower()}=={about['version']}"] = package["download_info"]["archive_info"]["hashes"][
            "sha256"
        ]
    return found


def requirements() -> list[str]:
    """What flashdepot and its buckets need, and what its own wheel is built with."""
    project = read_toml(ROOT / "pyproject.toml")
    wanted = project["project"]
    return [*wanted["dependencies"], *wanted["optional-dependencies"]["remote"], *project["build-system"]["requires"]]


def main() -> None:
    """Write the file."""
    pins: dict[str, set[str]] = {}
    for system in SYSTEMS:
        for requirement, sha256 in resolved(system).items():
            pins.setdefault(requirement, set()).add(sha256)
    rows = []
    for requirement, digests in sorted(pins.items()):
        rows.append(" \\\n".join([requirement, *(f"    --hash=sha256:{digest}" for digest in sorted(digests))]))
    OUT.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
