"""What the compilers make is compared with what is stored and claimed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.depot import Depot
from flashdepot.errors import IntegrityError
from remotes.machines import Machine
from remotes.test_read_through import share
from support.remote_server import RemoteServer


def replace_a_unit(machine: Machine, folder: Path) -> str:
    """Let a machine have another object for a unit, recorded as if its compiler had made it; :returns: the unit's name."""
    depot = Depot(machine.depot)
    record = next(
        r for path in depot.actions.files() if (r := depot.actions.read(path)) and r.name.startswith("flash_fwd_hdim64")
    )
    evil = folder / "evil.o"
    evil.write_bytes(b"an object that nobody compiled")
    depot.record_action(replace(record, outputs={}), evil)
    return record.name


def test_an_honest_machine_passes_and_a_unit_that_was_replaced_is_found(
    builder: Machine, user: Machine, server: RemoteServer, tmp_path: Path, new_machine: Callable[[str], Machine]
) -> None:
    line = share(builder, server)
    user.run("remote", "add", "team", server.url)
    user.run("keys", "trust", line)
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
