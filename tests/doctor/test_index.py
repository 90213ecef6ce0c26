"""What a package index has decides what is advised: which release, which Python, and that there is no such project."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from doctor.logs import RECORD
from flashdepot import api
from flashdepot.diagnose.explain import Files, IndexQuestion, explain
from flashdepot.diagnose.explain.releases import IndexPages

NONE = "ERROR: Could not find a version that satisfies the requirement {0} (from versions: none)\nERROR: No matching distribution found for {0}\n"
POETRY = "  Unable to find installation candidates for onnxruntime ({0})\n"
BUILT = (
    "Collecting lap=={0}\n  Preparing metadata (setup.py): started\nBuilding wheels for collected packages: lap\n"
    "  error: Microsoft Visual C++ 14.0 or greater is required.\n  ERROR: Failed building wheel for lap\n"
)
UV = "error: No solution found when resolving dependencies\n  cause: Because {0} was not found in the package registry and you require {0}==1, we can conclude\n"
MANY = "manylinux_2_17_x86_64.manylinux2014_x86_64"
HERE = replace(RECORD, programs={"uv": "/usr/bin/uv"})


class File(msgspec.Struct):
    filename: str
    requires_python: str | None = None
    is_yanked: bool = False

    @property
    def version(self) -> str:
        return self.filename.split("-")[1].removesuffix(".tar.gz")


def wheels(name: str, version: str, *pythons: int, platform: str = MANY) -> list[File]:
    return [File(f"{name}-{version}-cp3{n}-cp3{n}-{platform}.whl") for n in pythons]


OLD, NEW = wheels("onnxruntime", "1.16.3", 8, 9, 10, 11), wheels("onnxruntime", "1.23.2", 10, 11, 12, 13)
LAP = [*wheels("lap", "0.5", 9, 10, 11, 12), File("lap-0.4.tar.gz")]
MAC = wheels("triton", "3.0.0", 10, 11, 12)


def fix(
    log: str,
    pages: Mapping[str, Sequence[File]],
    command: str = "pip install -r requirements.txt",
    files: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[str, ...]:
    for name, text in (files or {}).items():
        assert folder
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYENV_ROOT", raising=False)
        if folder:
            patch.chdir(folder)
        report = explain(
            io.BytesIO(f"{log}Python 3.12\n".encode()),
            HERE,
            command,
            Files(here=bool(folder)),
            lambda _: IndexPages(pages),
        )
    return (*(report.findings[0].fix if report.findings else ()), *report.next_steps)


@pytest.mark.parametrize(
    ("log", "pages", "command", "files", "said"),
    [
        (NONE.format("onnxruntime==1.16.3"), {"onnxruntime": [*OLD, *NEW]}, "pip install -r requirements.txt", {}, ["uv venv --seed --python 3.11 .venv-new && . .venv-new/bin/activate   # PyPI has wheels of onnxruntime 1.16.3 for Python 3.8 to 3.11", "pip install onnxruntime==1.23.2 "]),
        (NONE.format("onnxruntime==1.16.3"), {"onnxruntime": [*OLD, *NEW]}, "pip install -r requirements.txt", {"requirements.txt": "onnxruntime==1.16.3\n"}, ["uv venv --seed --python 3.11", "sed -i.bak '1s|.*|onnxruntime==1.23.2|' requirements.txt"]),
        (POETRY.format("1.16.3"), {"onnxruntime": [*OLD, *NEW]}, "poetry install", {}, ["poetry env use 3.11 "]),
        (POETRY.format("1.16.3"), {"onnxruntime": [*OLD, *NEW]}, "poetry install", {"pyproject.toml": '[tool.poetry.dependencies]\npython = ">=3.12,<4"\n', "x.txt": ""}, ["poetry add onnxruntime@latest "]),
        (NONE.format("onnxruntime==1.16.3"), {"onnxruntime": [*OLD, *NEW]}, "uv sync", {"pyproject.toml": '[project]\nname = "x"\nrequires-python = ">=3.10"\n'}, ["uv python pin 3.11 "]),
        (NONE.format("onnxruntime==1.16.3"), {"onnxruntime": OLD}, "pip install -r r.txt", {"Dockerfile": "FROM python:3.12-slim\nRUN pip install -r r.txt\n"}, ["sed -i.bak '1s|.*|FROM python:3.11-slim|' Dockerfile"]),
        (NONE.format("onnxruntime==1.23.2+cu126"), {"onnxruntime": NEW}, "pip install onnxruntime==1.23.2+cu126", {}, ["pip install onnxruntime==1.23.2   # PyPI has this release without +cu126"]),
        (BUILT.format("0.4"), {"lap": LAP}, "pip install lap==0.4", {}, ["call ", "pip install lap==0.5 "]),
        (BUILT.format("0.5"), {"lap": wheels("lap", "0.5", 9)}, "pip install lap==0.5", {}, ["uv venv --seed --python 3.9 "]),
        (NONE.format("onnxruntime"), {"onnxruntime": NEW}, "pip install -i http://127.0.0.1:9/simple onnxruntime", {}, ["pip install --extra-index-url http://127.0.0.1:9/simple onnxruntime   # PyPI has wheels of onnxruntime for this Python"]),
        (NONE.format("triton==3.0.0"), {"triton": MAC}, "pip install -r requirements.txt", {"requirements.txt": "triton==3.0.0\n"}, ["sed -i.bak '1s|.*|triton-windows|' requirements.txt"]),
        ("error: No solution found when resolving dependencies\n  cause: Because the requested Python version (>=3.9) does not satisfy Python>=3.11 and networkx>=3.5 depends on Python>=3.11, we can conclude\n", {"networkx": [File("networkx-3.5-py3-none-any.whl", ">=3.11")]}, "uv sync", {"pyproject.toml": '[project]\nname = "x"\nrequires-python = ">=3.9"\n'}, ["sed -i.bak '3s|.*|requires-python = \">=3.11\"|' pyproject.toml"]),
    ],
)  # fmt: skip
def test_what_the_index_has_stands_first(tmp_path, log, pages, command, files, said) -> None:
    given = fix(log, pages, command, files, tmp_path)
    assert [got for got, want in zip(given, said, strict=False) if not got.startswith(want)] == []


def test_no_command_repeats_a_name_that_the_index_does_not_have(tmp_path) -> None:
    given = fix(
        NONE.format("pygpu==0.6.4"),
        {"pygpu": []},
        "pip install -r requirements.txt",
        {"requirements.txt": "six\npygpu==0.6.4\n"},
        tmp_path,
    )
    assert given[0].startswith("sed -i.bak 2d requirements.txt")
    assert [command for command in given if "install" in command and "pygpu" in command] == []
    assert any("pip install -U pygpu" in command for command in fix(NONE.format("pygpu==0.6.4"), {}))


def test_a_python_serves_all_that_was_asked_for_with_it() -> None:
    log = f"Collecting grpcio==1.50.0\n{NONE.format('onnxruntime==1.16.3')}"
    pages = {"onnxruntime": OLD, "grpcio": wheels("grpcio", "1.50.0", 7, 8, 9, 10)}
    assert "--python 3.10 " in fix(log, pages)[0]
    assert "--python 3.11 " in fix(log, {"onnxruntime": OLD})[0]


def test_of_what_came_from_elsewhere_the_index_says_little() -> None:
    wheel = "ERROR: xformers-0.0.14.dev0-cp37-cp37m-linux_x86_64.whl is not a supported wheel on this platform.\n"
    for files in ([], wheels("xformers", "0.0.35", 10, platform="win_amd64")):
        given = fix(wheel, {"xformers": files}, "pip install x.whl", folder=Path())
        assert given[0] == fix(wheel, {}, "pip install x.whl", folder=Path())[0]
        assert [command for command in given if "xformers==" in command or "has no" in command] == []


def test_what_no_python_of_this_system_has_is_not_advised() -> None:
    given = fix(NONE.format("lap==0.5"), {"lap": wheels("lap", "0.5", 11, 12, platform="macosx_11_0_arm64")})
    assert given[0].startswith("PyPI has wheels of lap==0.5 for darwin, none for this Python and system: ")
    assert [command for command in given if "uv venv" in command or "install lap" in command] == []


@pytest.mark.parametrize(
    ("log", "asked"),
    [
        (NONE.format("secret-kernels==1"), IndexQuestion(others=("secret-kernels",))),
        (NONE.format("numpy==99"), IndexQuestion(public=("numpy",))),
        (f"Looking in indexes: https://other.example/simple\n{NONE.format('secret-kernels==1')}", IndexQuestion(others=("secret-kernels",), index="https://other.example/simple")),
        ("$ pip install ./secret\nProcessing ./secret\nBuilding wheels for collected packages: secret\n  error: Microsoft Visual C++ 14.0 or greater is required.\n", None),
        ("$ pip install git+ssh://x/secret\nCollecting secret@ git+ssh://x/secret\n  Preparing metadata (setup.py): started\n  error: Microsoft Visual C++ 14.0 or greater is required.\n", None),
        ("ERROR: secret-1.0-cp36-cp36m-linux_x86_64.whl is not a supported wheel on this platform.\n", IndexQuestion()),
        ("Traceback (most recent call last):\nModuleNotFoundError: No module named 'numpy'\n", None),
        ("$ pip install flash-attn\nCollecting flash-attn\n  Preparing metadata (setup.py): started\n  ModuleNotFoundError: No module named 'torch'\n", None),
        (BUILT.format("0.4"), IndexQuestion(others=("lap",))),
    ],
)  # fmt: skip
def test_only_names_that_an_index_was_asked_for_may_be_sent(log, asked) -> None:
    questions: list[IndexQuestion] = []
    explain(io.BytesIO(log.encode()), HERE, ask=lambda question: questions.append(question) or IndexPages())
    assert questions == ([] if asked is None else [asked])


def test_the_users_own_index_is_asked_and_switched_off(tmp_path, monkeypatch, no_system_settings) -> None:
    page = tmp_path / "simple/onnxruntime/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("".join(f'<a href="{file.filename}">{file.filename}</a>\n' for file in [*OLD, *NEW]))
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    log = f"Using cached cp312-cp312\n{NONE.format('onnxruntime==1.16.3')}"

    def first(text: str) -> tuple[str, Mapping[str, bool | None]]:
        report = api.explain(io.BytesIO(text.encode()), HERE)
        return report.findings[0].fix[0], report.asked

    assert "--python 3.11 " not in first(log)[0]
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "")
    command, asked = first(log)
    assert "wheels of onnxruntime 1.16.3 for Python 3.8 to 3.11" in command
    assert asked == {"onnxruntime": True}
    assert first(NONE.format("nothing-of-that-name==1"))[1] == {"nothing-of-that-name": False}
    assert first(f"Looking in indexes: https://other.example/simple\n{NONE.format('nothing==1')}")[1] == {
        "nothing": None
    }


def test_an_index_that_does_not_answer_changes_nothing(monkeypatch, no_system_settings) -> None:
    log = NONE.format("onnxruntime==1.16.3").encode()
    said = api.explain(io.BytesIO(log), HERE).findings[0].fix
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert api.explain(io.BytesIO(log), HERE).findings[0].fix == said
