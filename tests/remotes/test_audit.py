"""`depot audit`: what is stored is compiled again and compared."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.errors import IntegrityError, UsageError
from remotes.test_read_through import share
from support.machines import Machine


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
