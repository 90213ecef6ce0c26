"""Output of vswhere and cl as Microsoft documents it and as users post it; neither is run here."""

from __future__ import annotations

import json

import pytest

from flashdepot.host.tools import banner_version, installations
from flashdepot.model.target import Version

VSWHERE = r"""[
  {
    "instanceId": "0ac9f2b1",
    "installDate": "2025-03-02T10:11:12Z",
    "installationName": "VisualStudio/17.14.2+36109.1",
    "installationPath": "C:\\Program Files (x86)\\Microsoft Visual Studio\\2022\\BuildTools",
    "installationVersion": "17.14.36109.1",
    "productId": "Microsoft.VisualStudio.Product.BuildTools",
    "isComplete": true,
    "isLaunchable": true
  },
  {
    "instanceId": "7d21c4aa",
    "installationPath": "C:\\Program Files\\Microsoft Visual Studio\\18\\Community",
    "installationVersion": "18.0.11012.2"
  }
]"""


def test_the_folders_of_all_installations_are_read() -> None:
    assert installations(VSWHERE) == [
        r"C:\Program Files (x86)\Microsoft Visual Studio\2022\BuildTools",
        r"C:\Program Files\Microsoft Visual Studio\18\Community",
    ]


@pytest.mark.parametrize("answer", ["", "[]", "null", "Error 0x80070002: file not found", json.dumps([{"a": 1}])])
def test_an_answer_without_installations_has_none(answer: str) -> None:
    assert list(installations(answer)) == []


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ("Microsoft (R) C/C++ Optimizing Compiler Version 19.44.35211 for x64\nCopyright (C) Microsoft", "19.44.35211"),
        ("Microsoft (R) C/C++-Optimierungscompiler Version 19.29.30154 für x64", "19.29.30154"),
        ("用于 x64 的 Microsoft (R) C/C++ 优化编译器 19.39.33523 版", "19.39.33523"),
        ("Microsoft (R) C/C++ Optimizing Compiler Version 19.00.24215.1 for x64", "19.00.24215"),
        ("'cl' is not recognized as an internal or external command", None),
    ],
)
def test_the_version_is_read_from_a_banner_in_any_language(banner: str, version: str | None) -> None:
    assert banner_version(banner) == (Version(version) if version else None)
