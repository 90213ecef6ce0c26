import shlex

import pytest

from flashdepot.cli.app import app
from flashdepot.cli.mistakes import hint_for
from support.tools import assert_ends
from support.tools import flashdepot_here as flashdepot

INSTALL = "flashdepot install"
ONLY = "flashdepot installs only flash-attn. For others: pip install"
REMOVED = "What was installed is removed with: pip uninstall flash-attn"


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("flash-attn", INSTALL),
        ("pip install flash-attn", INSTALL),
        ("install flash-attn -U --no-build-isolation", INSTALL),
        ("install flash_attn[cuda]==2.8.3, --dry-run", "flashdepot install --upstream 2.8.3 --dry-run"),
        ("install flash_attn_3", "flashdepot install --names flash-attn-3"),
        ("install dist/own.whl", "flashdepot install --wheel dist/own.whl"),
        ("install -p .venv --version=2.8.3", "flashdepot install --python .venv --upstream=2.8.3"),
        ("install torch -U", f"{ONLY} torch"),
        ("install -r requirements.txt", f"{ONLY} -r requirements.txt"),
        ("install help", "flashdepot install --help"),
        ("-C 'my project' install -y", "cd 'my project' && flashdepot install -y"),
        ("install --index-url=http://m/simple", "export PIP_INDEX_URL=http://m/simple && flashdepot install"),
        ("uninstall", REMOVED),
        ("remove flash-attn", REMOVED),
        ("-y get --profile quick", "flashdepot get --profile quick -y"),
        ("--depot x get --jobs 2", "flashdepot get --jobs 2 --depot x"),
        ("get --profil quick -o out", "flashdepot get --profile quick --out out"),
        ("get -profile quick", "flashdepot get --profile quick"),
        ("get \u2014profile quick", "flashdepot get --profile quick"),
        ("get profile quick", "flashdepot get --profile quick"),
        ("get quick --no-build", "flashdepot get --profile quick --build=never"),
        ("get --arch 80 90 --memory 8 GB", "flashdepot get --arch 80,90 --memory 8GB"),
        ("GET --release", "flashdepot get"),
        ("'get --dry-run' --jobs 2", "flashdepot get --dry-run --jobs 2"),
        ("help gte", "flashdepot get --help"),
        ("help help", "flashdepot --help"),
        ("get --out quick-lib quick", "flashdepot get --out quick-lib --profile quick"),
        ("cache clean", "flashdepot depot clean"),
        ("search 2.8", "flashdepot catalog ls --version 2.8"),
        ("depot rm 3fa9", "flashdepot depot gc --remove 3fa9"),
        ("link candle 0.9.1", "flashdepot link candle --candle-version 0.9.1"),
        ("link cmake vendor/lib", "flashdepot link cmake --library vendor/lib"),
        ("vendor --out third_party", "flashdepot vendor third_party"),
        ("keys new --name me", "flashdepot keys new me"),
        ("resolve --torch 2.8 --cuda 12.8", "flashdepot resolve --torch 2.8 --torch-cuda 12.8"),
        ("get --torch 2.8", "What it takes: flashdepot get --help"),
        ("get --arch --profile quick", "What it takes: flashdepot get --help"),
        ("remote", "What it takes: flashdepot remote --help"),
    ],
)  # fmt: skip
def test_what_was_mistyped_gets_the_command_that_was_meant(line, meant, monkeypatch) -> None:
    monkeypatch.setattr("os.name", "posix")
    words = shlex.split(line)
    assert hint_for(app, words) == meant
    if meant.startswith("flashdepot ") and not meant.startswith(ONLY):
        again = shlex.split(meant)[1:]
        assert hint_for(app, again).startswith("What it takes"), "what is advised has no mistake that is known"


def test_a_word_that_several_groups_have_gets_each_of_them() -> None:
    said = flashdepot("list").stderr.splitlines()
    assert said[:3] == ["error: No such command 'list'.", "  Did you mean one of these?", "  flashdepot catalog ls"]


@pytest.mark.parametrize(
    ("line", "said", "meant"),
    [
        ("depot lst", "No such command 'lst'.", "flashdepot depot ls"),
        ("get --profile quik", "Did you mean 'quick'?", "flashdepot get --profile quick"),
        ("get --passes fw", "'fw' is not a pass", "flashdepot get --passes fwd"),
        ("get --features drop_out", "'drop_out' is not a feature", "flashdepot get --features dropout"),
        ("resolve --source oficial", "'oficial' is not a source", "flashdepot resolve --source official"),
        ("catalog ls --source oficial", "'oficial' is not a source", "flashdepot catalog ls --source official"),
        ("doctor instal", "'instal' is not one of", "flashdepot doctor install"),
        ("get --upstream v2.8.3", "'v2.8.3' is neither", "flashdepot get --upstream 2.8.3"),
        ("get --upstream flash-attn==2.8.3", "is neither", "flashdepot get --upstream 2.8.3"),
        ("get --upstream https://h/r", "h/r names no commit", "flashdepot get --upstream git+https://h/r@COMMIT"),
        ("get --arch 8.0+PTX,90", "is not a GPU architecture", "flashdepot get --arch 8.0,90"),
        ("get --arch all", "is not a GPU architecture", "flashdepot get --arch universal"),
        ("resolve --python-tag py312", "is not an interpreter's tag", "flashdepot resolve --python-tag cp312"),
        ("resolve --version v2.8.x", "is not a version", "flashdepot resolve --version '2.8.*'"),
        ("vendor check", "There is no folder 'check'.", "flashdepot vendor --check"),
        ("get --profile Quick --jobs 2", "'Quick' is not a profile", "flashdepot get --profile quick --jobs 2"),
        ("get --dtypes float16,bf16", "'float16' is not a dtype", "flashdepot get --dtypes fp16,bf16"),
        ("get --target x86_64-pc-windows-msvc", "not a target", "flashdepot get --target windows-x86_64"),
        ("resolve --allow=comunity", "'comunity' is not one of", "flashdepot resolve --allow=community"),
        ("build --jobs auto", "'auto' is not a number from 1 to 99999.", "What it takes: flashdepot build --help"),
        ("remote add a b --timeout nan", "not a number from 0.1", "What it takes: flashdepot remote add --help"),
        ("depot gc --older-than 9999999999", "is not a number from 0", "What it takes: flashdepot depot gc --help"),
        ("get --families fa1", "kernels: there are fa2, fa3, fa4.\n", "Name one, or all of them: --families all"),
        ("remote add s3://bucket/x", "a name and an address", "flashdepot remote add NAME s3://bucket/x"),
        ("remote add team", "a name and an address", "flashdepot remote add team s3://BUCKET/PREFIX"),
        ("get --arch", "Option '--arch' requires an argument.", "What it takes: flashdepot get --help"),
        ("get --arch --profile quick", "Option '--arch' requires an argument, and '--profile' follows it.", "get --help"),
    ],
)  # fmt: skip
def test_a_wrong_value_gets_the_command_with_the_right_one(line, said, meant, tmp_path) -> None:
    assert_ends(flashdepot(*line.split(), cwd=tmp_path), 2, said, f"{meant}\n")


def test_a_group_that_is_asked_for_help_before_its_command_shows_the_commands() -> None:
    assert flashdepot("--help", "install").stdout == flashdepot("install", "--help").stdout
