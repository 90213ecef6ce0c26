"""Which compiler is taken on machines as users have them: what vswhere and cl print there, recorded.

The outputs of ``setups.json`` have the form that Microsoft documents for vswhere, and the banners that users post.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from flashdepot.errors import MissingToolError
from flashdepot.facts.compilers import msvc_limits
from flashdepot.host.msvc import installations, preferred, rank_installations
from flashdepot.model.target import Version
from flashdepot.toolchain.choose import compiler_for
from flashdepot.toolchain.msvc_environment import MsvcToolset, require_usable
from flashdepot.toolchain.nvcc import Nvcc, msvc_limit, oldest_msvc
from support.fake_cuda import make_host

SETUPS = json.loads(Path(__file__).with_name("setups.json").read_text(encoding="utf-8"))
CASES = [
    pytest.param(setup, release, expected, id=f"{setup['name']} with CUDA {release}")
    for setup in SETUPS
    for release, expected in setup["expected"].items()
]


def make_nvcc(release: str) -> Nvcc:
    first, limit = msvc_limits(Version(release))
    return Nvcc(Path("cuda"), Version(release), (), frozenset(), None, None, msvc_limit=limit, oldest_msvc=first)


@pytest.mark.parametrize(("setup", "release", "expected"), CASES)
def test_the_newest_compiler_that_nvcc_accepts_is_taken(setup: dict[str, Any], release: str, expected: str) -> None:
    folders = installations(json.dumps(setup["vswhere"]))
    installed = [program for program in setup["programs"] if any(program.startswith(folder) for folder in folders)]
    assert len(installed) == len(setup["programs"])
    found = rank_installations(preferred(setup["environment"]), installed, setup["programs"].get)
    host = make_host(platform="windows-x86_64", os_name="Windows 11", compilers=found)
    if expected.startswith("C:"):
        assert compiler_for(make_nvcc(release), host).path == expected
    else:
        with pytest.raises(MissingToolError, match=expected):
            compiler_for(make_nvcc(release), host)


@pytest.mark.parametrize(
    ("name", "release", "mend"),
    [
        ("nothing at all", "12.4", "winget install Microsoft.VisualStudio.2022.BuildTools"),
        (
            "Visual Studio 2022 Community",
            "12.3",
            r"\(v14\.39-17\.9\).*NVCC_CCBIN=PATH; or take a newer nvcc: --cuda 13\.0",
        ),
        ("Visual Studio 2026", "13.0", "MSVC v143 - VS 2022"),
    ],
)
def test_what_is_missing_is_named_as_the_installer_names_it(name: str, release: str, mend: str) -> None:
    setup = next(setup for setup in SETUPS if setup["name"] == name)
    found = rank_installations((), setup["programs"], setup["programs"].get)
    host = make_host(platform="windows-x86_64", os_name="Windows 11", compilers=found)
    with pytest.raises(MissingToolError) as caught:
        compiler_for(make_nvcc(release), host)
    assert re.search(mend, caught.value.hint)


def test_the_toolset_to_load_is_the_one_of_the_chosen_compiler() -> None:
    folder = r"C:\Program Files\Microsoft Visual Studio\2022\Community\VC"
    toolset = MsvcToolset.of_compiler(rf"{folder}\Tools\MSVC\14.29.30133\bin\Hostx64\x64\cl.exe")
    assert toolset == MsvcToolset(rf"{folder}\Auxiliary\Build\vcvarsall.bat", "14.29.30133")


def test_a_compiler_outside_of_visual_studio_has_no_environment_to_load() -> None:
    with pytest.raises(MissingToolError, match="not in a folder of Visual Studio"):
        MsvcToolset.of_compiler(r"D:\portable\cl.exe")


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"VSCMD_ARG_TGT_ARCH": "x86", "VSCMD_ARG_HOST_ARCH": "x86"}, "is for x86"),
        ({"VSCMD_ARG_TGT_ARCH": "arm64", "VSCMD_ARG_HOST_ARCH": "x64"}, "is for arm64"),
        ({"VSCMD_ARG_TGT_ARCH": "x64", "VSCMD_ARG_HOST_ARCH": "x86"}, "has the compilers of x86"),
        ({"PROCESSOR_ARCHITECTURE": "x86", "PROCESSOR_ARCHITEW6432": "AMD64"}, "32-bit program"),
    ],
)
def test_a_prompt_that_cannot_compile_the_kernels_is_refused(environment: dict[str, str], problem: str) -> None:
    environment["VCToolsInstallDir"] = r"C:\VS\VC\Tools\MSVC\14.29.30133"
    assert preferred(environment) == ()
    with pytest.raises(MissingToolError, match=problem) as caught:
        require_usable(environment)
    assert "x64 Native Tools Command Prompt" in caught.value.hint


@pytest.mark.parametrize(("release", "line"), [("12.3", (1910, 1940)), ("13.0", (1920, 1950)), ("13.5", (1920, 1960))])
def test_the_header_of_a_toolkit_says_what_the_table_says(release: str, line: tuple[int, int]) -> None:
    text = f"#if _MSC_VER < {line[0]} || _MSC_VER >= {line[1]}\n#error\n#endif\n"
    assert (oldest_msvc(text), msvc_limit(text)) == msvc_limits(Version(release)) == line
