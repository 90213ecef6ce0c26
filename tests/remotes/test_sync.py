"""`depot sync` and `depot audit`: each side gets what only the other has, and what is stored is compiled again and compared."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.api import sharing
from flashdepot.depot import Depot
from flashdepot.depot.verify import verify
from flashdepot.errors import IntegrityError, UsageError
from flashdepot.kernels.fa2 import published as published_sdists
from flashdepot.model.codec import digest_of
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import UpstreamId
from flashdepot.model.remote import RemoteSettings
from flashdepot.model.target import Platform
from remotes.test_read_through import share
from support.depots import store_library
from support.machines import Machine, Party
from support.servers import Answer, RemoteServer, answers


def published() -> dict[str, UpstreamId]:
    """A source that every flashdepot knows."""
    return {"fa2": published_sdists()["2.8.3.post2"].identified.id}


def put(party: Party, name: str, **more: object) -> Manifest:
    """A library of that source in the depot."""
    party.folder.mkdir(exist_ok=True)
    return store_library(party.depot, party.folder / "files", name=name, upstreams=published(), **more)


def synced(party: Party, *remotes: RemoteSettings, dry_run: bool = False) -> list[sharing.RemoteSync]:
    depot = Depot(party.depot.root, remotes=party.remotes(*remotes))
    return sharing.sync(dry_run=dry_run, depot=depot)


def here(party: Party) -> set[str]:
    return {manifest.recipe_key for manifest in party.depot.artifacts.manifests()}


@pytest.fixture
def team(server: RemoteServer) -> RemoteSettings:
    """It is given time: that it is slow is not what these tests are about."""
    return RemoteSettings("team", server.url, timeout=30)


@pytest.fixture
def writable(team: RemoteSettings) -> RemoteSettings:
    return replace(team, push=True)


def test_each_side_gets_what_only_the_other_has_and_then_there_is_nothing_to_do(
    pushed, maker, reader, writable, server
) -> None:
    maker.trust(reader.key("second"))
    own = reader.store("two", units=["fwd_hdim128_bf16"])
    before = dict(server.files)
    (planned,) = synced(reader, writable, dry_run=True)
    assert [manifest.recipe_key for manifest in planned.fetched] == [pushed.recipe_key]
    assert planned.pushed == (own,)
    assert server.files == before
    assert here(reader) == {own.recipe_key}, "a dry run changes nothing"

    (done,) = synced(reader, writable)
    assert done.fetched == (pushed,)
    assert done.sent is not None
    assert (done.sent.libraries, done.sent.units) == (1, 1)
    assert here(reader) == {pushed.recipe_key, own.recipe_key}
    assert verify(reader.depot).problems == ()

    (theirs,) = synced(maker, writable)
    assert theirs.fetched == (own,)
    server.seen.clear()
    (again,) = synced(reader, writable)
    assert (again.fetched, again.pushed, again.differing, again.problem) == ((), (), (), None)
    assert {method for method, _ in server.seen} == {"GET"}


def test_libraries_for_every_target_come_over(maker, reader, writable) -> None:
    reader.trust(maker.key())
    made = {put(maker, name, platform=Platform.parse(name)).recipe_key for name in ("linux-aarch64", "windows-x86_64")}
    synced(maker, writable)
    synced(reader, writable)
    assert here(reader) == made


def test_a_remote_that_is_only_read_gets_nothing(pushed, reader, team, server) -> None:
    own = reader.store("two")
    server.seen.clear()
    (done,) = synced(reader, team)
    assert (done.pushed, done.problem) == ((), None)
    assert {method for method, _ in server.seen} == {"GET"}
    assert here(reader) == {pushed.recipe_key, own.recipe_key}


def test_what_is_not_signed_by_somebody_trusted_does_not_come(maker, new_party, writable) -> None:
    maker.key()
    put(maker, "one")
    synced(maker, writable)
    stranger = new_party("stranger")
    stranger.key("mine")
    synced(stranger, writable)
    assert not here(stranger)
    assert "a key that you do not trust" in stranger.warnings[0]


def test_a_library_that_arrives_damaged_is_left_out_and_the_others_come(maker, reader, writable, server) -> None:
    reader.trust(maker.key())
    whole, damaged = put(maker, "whole"), put(maker, "damaged")
    synced(maker, writable)
    digest = max(damaged.files, key=lambda file: file.size).digest
    path = f"blobs/sha256/{digest[:2]}/{digest}"
    server.files[path] = b"\1" + server.files[path][1:]
    (done,) = synced(reader, writable)
    assert (done.fetched, done.refused) == ((whole,), (damaged.recipe_key,))
    assert here(reader) == {whole.recipe_key}


def test_other_bytes_under_one_recipe_are_reported_and_neither_side_is_changed(pushed, reader, team) -> None:
    own = store_library(reader.depot, reader.folder / "files", name="other", recipe_key=pushed.recipe_key)
    (done,) = synced(reader, team)
    assert done.differing == (pushed.recipe_key,)
    assert reader.depot.artifacts.load(own.recipe_key) == own


def test_a_remote_that_fails_keeps_nobody_from_the_others(builder, user, server, tmp_path) -> None:
    line = builder.key()
    builder.run("remote", "add", "team", server.url, "--push")
    made = builder.get()["recipe_key"]
    user.run("remote", "add", "dead", "http://127.0.0.1:9")
    user.run("remote", "add", "team", server.url)
    user.run("keys", "trust", line)
    done = user._invoke("depot", "sync", "--json", "--depot", str(user.depot))
    assert done.return_value == 7, "that of a network that is not there"
    dead, team = json.loads(done.stdout)["remotes"]
    assert (dead["fetched"], bool(dead["problem"])) == ([], True)
    assert [row["recipe_key"] for row in team["fetched"]] == [made]
    assert "warning: dead: " in user.said
    user.run("depot", "sync", "team", "--dry-run", "--depot", str(user.depot))
    assert "team: 0 would be fetched (0 bytes), 0 would be pushed" in user.said


def test_a_push_that_fails_leaves_what_came(pushed, reader, writable, server) -> None:
    reader.key("second")
    own = reader.store("two")
    server.fault = answers("blobs/", Answer(507), "PUT")
    (done,) = synced(reader, writable)
    assert done.problem is not None
    assert "507" in done.problem.message
    assert here(reader) == {pushed.recipe_key, own.recipe_key}
    assert digest_of("two") not in "".join(server.records())


def replace_a_unit(machine: Machine, folder: Path) -> str:
    """Let a machine have another object for a unit, recorded as if its compiler had made it; :returns: the unit's name."""
    depot = Depot(machine.depot)
    record = next(
        r for path in depot.actions.files() if (r := depot.actions.read(path)) and r.name.startswith("flash_fwd_hdim64")
    )
    evil = folder / "evil.o"
    evil.write_bytes(b"an object that nobody compiled")
    depot.actions.record(replace(record, outputs={}), evil)
    return record.name


def test_an_honest_machine_passes_and_a_unit_that_was_replaced_is_found(
    builder, user, server, tmp_path, new_machine
) -> None:
    line = share(builder, server)
    user.run("remote", "add", "team", server.url)
    user.run("keys", "trust", line)
    assert user.get("--all", "--dry-run", command="depot audit")["status"] == "planned"
    assert not (user.depot / "actions").exists()
    report = user.get("--all", command="depot audit")
    assert report["status"] == "same"
    assert report["compared"] == len(report["compiled"]) > 1
    assert not report["unclaimed"]
    assert not (user.depot / "actions").exists(), "an audit keeps nothing"

    name = replace_a_unit(builder, tmp_path)
    with pytest.raises(IntegrityError, match=f"{name}: the depot has"):
        builder.get("--all", command="depot audit")
    server.files.clear()
    builder.push()
    with pytest.raises(IntegrityError, match=f"{name}: the remote team has"):
        user.get("--all", command="depot audit")


def test_who_compiled_the_same_signs_too_and_counts_as_a_second_builder(
    builder, user, server, tmp_path, new_machine
) -> None:
    line = share(builder, server)
    with pytest.raises(UsageError, match="No remote is set to be pushed to"):
        user.get("--all", "--sign", command="depot audit")
    user.run("remote", "add", "team", server.url, "--push")
    user.run("keys", "trust", line)
    with pytest.raises(UsageError, match="no key to sign with"):
        user.get("--all", "--sign", command="depot audit")
    second = user.key("second")

    demanding = new_machine("demanding")
    demanding.run("remote", "add", "team", server.url, "--builders", "2")
    for key in (line, second):
        demanding.run("keys", "trust", key)
    report = user.get("--all", "--sign", command="depot audit")
    assert report["signed"] == {"team": len(report["compiled"])}
    assert user.get("--sample", "1", "--sign", command="depot audit")["signed"] == {"team": 0}
    got = demanding.get()
    assert (got["status"], got["units"]["compiled"]) == ("built", 0)

    before = dict(server.files)
    replace_a_unit(builder, tmp_path)
    with pytest.raises(IntegrityError, match="the depot has"):
        builder.get("--all", "--sign", command="depot audit")
    assert server.files == before, "who found other bytes signs nothing"
