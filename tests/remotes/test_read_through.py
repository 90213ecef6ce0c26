"""Two machines and a remote between them, with the command line as a user types it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flashdepot.errors import UsageError
from flashdepot.files.folders import contents
from support.machines import VERSION, Machine
from support.servers import Answer, RemoteServer
from support.upstreams import cutlass_files, tree_files, write_files


def share(builder: Machine, server: RemoteServer) -> str:
    """Let a machine push what it builds; :returns: the line of its key."""
    line = builder.key()
    builder.run("remote", "add", "team", server.url, "--push")
    assert builder.get()["status"] == "built"
    assert server.records()
    return line


def test_a_library_that_one_machine_pushed_is_fetched_by_another(
    builder: Machine, user: Machine, server: RemoteServer, tmp_path: Path
) -> None:
    line = share(builder, server)
    user.run("remote", "add", "team", server.url)
    user.run("keys", "trust", line)
    planned = user.get("--dry-run")
    assert planned["status"] == "offered"
    assert planned["size"] > 0
    assert not list(user.depot.glob("artifacts/*")), "a dry run fetches nothing"
    got = user.get()
    assert planned["recipe_key"] == got["recipe_key"]
    assert got["status"] == "fetched"
    assert got["units"]["compiled"] == 0
    theirs, ours = (next((m.depot / "libraries").iterdir()) for m in (builder, user))
    assert contents(theirs) == contents(ours)
    assert not (user.depot / "toolchains").exists()

    server.seen.clear()
    (user.settings / "flashdepot" / "remotes.toml").write_text("this is not TOML")
    assert user.get()["status"] == "hit", "a hit reads no settings"
    assert not server.seen

    (user.settings / "flashdepot" / "remotes.toml").write_text(f'[[remote]]\nname = "team"\nurl = "{server.url}"\n')
    shutil.rmtree(user.depot)
    assert user.get("--out", str(tmp_path), command="wheel")["status"] == "fetched"
    shutil.rmtree(user.depot)
    assert user.get(command="depot pull")["status"] == "fetched"


def test_after_a_change_of_one_source_the_other_units_are_fetched(
    builder: Machine, user: Machine, server: RemoteServer, tmp_path: Path
) -> None:
    line = share(builder, server)
    user.run("remote", "add", "dead", "http://127.0.0.1:9")
    user.run("remote", "add", "team", server.url)
    user.run("keys", "trust", line)
    source = write_files(tmp_path / "changed", tree_files(VERSION) | cutlass_files("csrc/cutlass/"))
    unit = source / "csrc/flash_attn/src/flash_fwd_hdim64_bf16_sm80.cu"
    unit.write_text(unit.read_text() + "\n// changed\n")
    got = user.get("--upstream", str(source), command="build")
    assert got["status"] == "built"
    assert (got["units"]["compiled"], got["units"]["reused"]) == (1, got["units"]["total"] - 1)
    assert "The remote dead is not used from here on" in user.said


def test_a_remote_that_fails_in_every_way_never_stops_a_build(
    builder: Machine, user: Machine, server: RemoteServer
) -> None:
    share(builder, server)
    server.fault = lambda _method, path: Answer(body=b"junk") if path.startswith("signed") else Answer(500)
    user.key()
    user.run("remote", "add", "team", server.url, "--push")
    got = user.get()
    assert got["status"] == "built"
    assert any(told in user.said for told in ("was not pushed to team", "team is not used from here on")), user.said


def test_a_projects_remote_needs_consent_as_the_rest_of_its_file_does(
    user: Machine, builder: Machine, server: RemoteServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = share(builder, server)
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "flashdepot.toml").write_text(f'[[remote]]\nname = "theirs"\nurl = "{server.url}"\nkeys = ["{line}"]\n')
    server.seen.clear()
    with pytest.raises(UsageError, match=f"It takes libraries from {server.url}, signed by ci") as refused:
        user.get()
    assert "flashdepot trust" in refused.value.hint
    assert not server.seen
    user.run("trust")
    assert user.get()["status"] == "fetched"
    assert user.json("remote", "ls")["remotes"][0]["name"] == "theirs"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[remote]]\nname = "a"\nurl = "ftp://x/y"\n', "not the address of a remote"),
        ('[[remote]]\nname = "a"\nurl = "https://me:secret@x/y"\n', "credentials"),
        ('[[remote]]\nname = "a"\nurl = "https://x/y"\nsigned = false\n', "not a key of this file"),
        ('[[remote]]\nname = "a/b"\nurl = "https://x/y"\n', "not a name for a remote"),
        ("remote = 1\n", "remote is 1"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_file(
    text: str, said: str, user: Machine, new_machine: Callable[[str], Machine]
) -> None:
    (user.settings / "flashdepot").mkdir(parents=True)
    (user.settings / "flashdepot" / "remotes.toml").write_text(text)
    with pytest.raises(UsageError, match=said) as refused:
        user.run("remote", "ls")
    assert "remotes.toml" in refused.value.message
    assert "secret" not in refused.value.message
