"""`flashdepot index --from`: the wheels of all that a remote has, and who has signed it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flashdepot.errors import NetworkError
from flashdepot.files.atomic import read_json
from flashdepot.model.index_record import RECORD_NAME
from flashdepot.remotes.trust import read_envelopes
from support.machines import Machine
from support.servers import Answer, RemoteServer


def test_a_machine_that_compiled_nothing_publishes_what_another_has_signed(
    builder: Machine, user: Machine, server: RemoteServer, tmp_path: Path
) -> None:
    line = builder.key("factory")
    builder.run("remote", "add", "team", server.url, "--push", "--timeout", "30")
    made = builder.get()
    user.run("remote", "add", "team", server.url, "--timeout", "30")
    public = tmp_path / "public"
    words = ("index", str(public), "--from", "team", "--depot", str(user.depot))
    with pytest.raises(Exception, match="There is no wheel for the index"):
        user.run(*words)
    assert "a key that you do not trust" in user.said

    user.run("keys", "trust", line)
    user.key("shop")
    (added,) = user.json(*words)["added"]
    (row,) = read_json(public / RECORD_NAME)["wheels"]
    assert row["recipe_key"] == made["recipe_key"]
    assert row["signers"] == ["factory", "shop"]
    signed = read_envelopes((public / "files" / f"{added}.signed.json").read_bytes())
    assert {json.loads(envelope.payload)["predicateType"] for envelope in signed} == {
        "urn:flashdepot:library:1",
        "urn:flashdepot:wheel:1",
    }
    assert '.signed.json">factory, shop</a>' in (public / "index.html").read_text()
    assert not (user.depot / "toolchains").exists(), "nothing was compiled"

    server.seen.clear()
    assert user.json(*words)["added"] == []
    assert not [path for method, path in server.seen if method == "PUT"]

    server.fault = lambda _method, _path: Answer(500)
    with pytest.raises(NetworkError, match="500"):
        user.run(*words)
    assert read_json(public / RECORD_NAME)["wheels"] == [row]
