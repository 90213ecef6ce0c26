"""A matrix file: which combinations it makes, and what it says of a mistake."""

import json
from pathlib import Path

import pytest

from flashdepot.errors import UsageError
from flashdepot.publish import PublishMatrix, read_matrix
from support.tools import flashdepot_in, posix


def read(folder: Path, text: str) -> PublishMatrix:
    path = folder / "publish.toml"
    path.write_text(text)
    return read_matrix(path)


def test_every_combination_is_made_but_those_that_are_excluded_and_the_others_come_last(tmp_path) -> None:
    found = read(
        tmp_path,
        """
        out = "wheels"
        index = "public"
        url = "https://wheels.example.org/"
        remotes = ["team"]

        [matrix]
        upstream = "2.8.3.post2"
        target = ["linux-x86_64", "windows-x86_64"]
        profile = ["inference", "quick"]
        arch = ["80,90", [90, 120]]

        [[exclude]]
        target = "windows-x86_64"
        profile = "quick"

        [[include]]
        profile = "quick"
        arch = "universal"
        """,
    )
    assert [part.name for part in found.parts] == [
        "upstream=2.8.3.post2 target=linux-x86_64 profile=inference arch=80,90",
        "upstream=2.8.3.post2 target=linux-x86_64 profile=inference arch=90,120",
        "upstream=2.8.3.post2 target=linux-x86_64 profile=quick arch=80,90",
        "upstream=2.8.3.post2 target=linux-x86_64 profile=quick arch=90,120",
        "upstream=2.8.3.post2 target=windows-x86_64 profile=inference arch=80,90",
        "upstream=2.8.3.post2 target=windows-x86_64 profile=inference arch=90,120",
        "profile=quick arch=universal",
    ]
    assert (found.out, found.index) == (tmp_path / "wheels", tmp_path / "public")
    assert (found.url, found.remotes) == ("https://wheels.example.org/", ("team",))


def test_a_part_that_is_named_twice_is_made_once(tmp_path) -> None:
    found = read(tmp_path, '[matrix]\narch = ["90", "90"]\n[[include]]\narch = "90"\n')
    assert [part.name for part in found.parts] == ["arch=90"]
    assert found.out == tmp_path / "dist"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "asks for nothing"),
        ('[matrix]\narch = "90"\n[[exclude]]\narch = "90"\n', "asks for nothing"),
        ('[matrix]\nprofile = "quick"\n', "names no GPUs with 'arch'"),
        ('[matrix]\narch = "native"\n', "names no GPUs with 'arch'"),
        ('[matrix]\narch = ["90", "ninety"]\n', "arch=ninety: "),
        ('[matrix]\narch = "90"\nprofil = "quick"\n', "'profil' is not a key in \\[matrix\\].*Did you mean 'profile'"),
        ('[matrix]\narch = "90"\ntarget = "linux-arm64"\n', "Did you mean 'linux-aarch64'"),
        ('[matrx]\narch = "90"\n', "'matrx' is not a key.*Did you mean 'matrix'"),
        ('[matrix]\narch = "90"\n[[exclude]]\nprofile = "quick"\n', "names 'profile', which is not a key of"),
        ("[matrix]\narch = []\n", "'arch' is an empty list"),
        ("[matrix]\narch = [true]\n", "'arch' must be texts or numbers"),
        ("[matrix]\narch = [{}]\n", "'arch' must be texts or numbers"),
        ("matrix = 3\n", "matrix is 3: expected a table"),
        ("include = 3\n", "include is 3: expected a list"),
        ('remotes = "team"\n[matrix]\narch = "90"\n', "remotes is 'team': expected a list"),
        ('names = ["flash-attn-5"]\n[matrix]\narch = "90"\n', "'flash-attn-5' is not a name that"),
        ('out = 3\n[matrix]\narch = "90"\n', "out is 3: expected a text"),
        (f"[matrix]\narch = {['90'] * 40}\nprofile = {['quick'] * 40}\n", "makes 1600 combinations"),
        ("[matrix\n", "is not valid TOML"),
    ],
)
def test_a_mistake_is_reported_with_the_file_and_the_word(text, said, tmp_path) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        read(tmp_path, text)
    assert "publish.toml" in refused.value.message


def test_a_matrix_file_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml cannot be read") as refused:
        read_matrix(tmp_path / "none.toml")
    assert "docs/publishing.md" in refused.value.hint


@posix("nvcc that flashdepot could start")
def test_parts_for_several_systems_are_foreseen_with_one_compile_of_the_device_code(tmp_path) -> None:
    file = tmp_path / "publish.toml"
    file.write_text('[matrix]\ntarget = ["linux-x86_64", "linux-aarch64"]\nprofile = "quick"\narch = ["90", "120"]\n')
    words = ("publish", file, "--dry-run", "--json", "--depot", tmp_path / "depot")
    done = flashdepot_in(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    parts = [part["plan"]["units"]["compiled"] for part in json.loads(done.stdout)["parts"]]
    assert parts == [2, 2, 0, 0]
    said = flashdepot_in(tmp_path, *[word for word in words if word != "--json"]).stdout.splitlines()
    assert said[-2] == "All parts together"
    assert said[-1].startswith("  To compile: 4 kernels; the device code of 4 more is compiled for another part")
