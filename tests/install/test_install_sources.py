"""Whose wheel `flashdepot install` takes: decided over a catalog, pinned by a lock, never a silent build."""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from flashdepot.catalog.load import Collection, Listing, encode
from flashdepot.model.candidate import Candidate, Origin, PublishedWheel
from flashdepot.model.environment import Environment
from flashdepot.resolve.decide import candidate_of
from flashdepot.resolve.lock import LOCK_NAME, Lock, read_lock, write_lock
from flashdepot.resolve.wheel_files import WheelFile, pin
from support import forge
from support.servers import FileServer, serve_files
from support.tools import assert_ends, unchanged
from support.venvs import SET_DEVICE, SET_DEVICE_BEFORE_2_8, TAG

pytestmark = pytest.mark.parametrize("installer", ["uv"], indirect=True)

COLLECTIONS = ("official", "mjun0812", "nvidia-cosmos", "windreamer", "lldacing", "wildminder")
FITTING = "cu12torch2.9cxx11abiTRUE"


class Published:
    """A catalog in a depot, and the server that its wheels are on."""

    def __init__(self, depot: Path, server: FileServer, parts: Callable[[str], dict[str, bytes]], folder: Path) -> None:
        self.server = server
        self._listings = depot / "catalog" / "listings"
        self._listings.mkdir(parents=True)
        self._wheels: dict[str, list[PublishedWheel]] = {name: [] for name in COLLECTIONS}
        self._parts = parts
        self._folder = folder
        for name in COLLECTIONS:
            self._write(name)

    def add(
        self,
        collection: str,
        version: str,
        *,
        local: str = FITTING,
        exists: bool = True,
        seen: bool = True,
        symbol: str = SET_DEVICE,
        pinned: bool = True,
        folder: str = "",
    ) -> str:
        """Publish a wheel, or list one that is not there; gives its SHA-256."""
        path = forge.wheel(
            self._folder, self._parts(symbol), version=f"{version}+{local}", tag=TAG, metadata_version=version
        )
        place = f"/{folder or collection}/{path.name}"
        if exists:
            self.server.files[place] = path.read_bytes()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        python, abi, platform = TAG.split("-")
        torch = local.partition("torch")[2].partition("cxx")[0]
        self._wheels[collection].append(
            PublishedWheel(
                "flash-attn", version, "12" if "cu12" in local else "", torch, True, python, abi, platform, collection, self.server.url + place,
                path.stat().st_size if pinned else 0, digest if pinned else "", seen, ("80", "90", "100", "120"), "",
            )
        )  # fmt: skip
        self._write(collection)
        return digest

    def wheels(self, collection: str) -> list[PublishedWheel]:
        return self._wheels[collection]

    def _write(self, name: str) -> None:
        kind = "official" if name == "official" else "community"
        collection = Collection(name, kind, "https://example.org", "", "2099-01-01T00:00:00+00:00")
        data = encode([Listing(collection, tuple(self._wheels[name]))])
        (self._listings / f"{name}.json.z").write_bytes(data)


@pytest.fixture
def published(tmp_path: Path, parts: Callable[[str], dict[str, bytes]]) -> Iterator[Published]:
    (tmp_path / "dist").mkdir()
    with serve_files() as server:
        yield Published(tmp_path / "depot", server, parts, tmp_path / "dist")


def test_an_official_wheel_that_fits_is_taken_by_default(command, published, environment, tmp_path) -> None:
    published.add("official", "2.8.2")
    digest = published.add("official", "2.8.3")
    published.add("official", "2.8.4", local="cu12torch2.5cxx11abiTRUE", symbol=SET_DEVICE_BEFORE_2_8)
    published.add("mjun0812", "2.8.5")
    done = command("--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["source"], document["wheel"]["sha256"]) == ("official", digest)
    assert document["version"] == "2.8.3"
    assert environment.imports("flash_attn")


def test_a_listed_wheel_that_was_never_published_makes_room_for_the_next(command, published, environment) -> None:
    published.add("official", "2.8.2", seen=False)
    published.add("official", "2.8.3", seen=False, exists=False)
    done = command("--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["version"] == "2.8.2"
    assert "answers 404 Not Found. The next best is tried." in done.err


def test_when_none_of_them_was_published_nothing_is_built_instead(command, published, environment) -> None:
    published.add("official", "2.8.3", seen=False, exists=False)
    assert_refused(command, environment, 7, "answers 404")


def assert_refused(command, environment, code: int, said: str) -> None:
    """Nothing is installed, with that exit code and those words."""
    with unchanged(environment):
        done = command()
    assert_ends(done, code, said)


def test_wheels_of_others_are_taken_only_by_name(command, published, environment) -> None:
    digest = published.add("mjun0812", "2.8.3")
    with unchanged(environment):
        done = command("--arch", "90")
    assert_ends(done, 8, "Compiling this needs a yes")
    assert "A wheel of other people may fit, in about " in done.err
    assert ": --source community." in done.err
    done = command("--source", "community", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["source"] == "community:mjun0812"
    assert json.loads(done.out)["wheel"]["sha256"] == digest


@pytest.mark.parametrize("source", [[], ["--source", "ours"]])
def test_what_would_have_to_be_compiled_is_never_compiled_in_silence(command, published, environment, source) -> None:
    published.add("official", "2.8.3", local="cu12torch2.5cxx11abiTRUE", symbol=SET_DEVICE_BEFORE_2_8)
    with unchanged(environment):
        done = command(*source, "--arch", "90")
    assert_ends(done, 8, "Compiling this needs a yes. To compile: ", "To compile it: flashdepot ")
    planned = json.loads(command(*source, "--arch", "90", "--dry-run", "--json").out)
    assert planned["must_build"] is True
    assert "no stored library" in planned["why"] or source


def test_what_does_not_fit_is_known_by_the_nearest_and_what_a_name_does_not_tell_by_the_bytes(
    command, published, environment
) -> None:
    published.add("official", "2.8.3", local="cu12torch2.5cxx11abiTRUE", symbol=SET_DEVICE_BEFORE_2_8)
    published.add("mjun0812", "2.8.3")
    done = command("--source", "official")
    assert done.code == 4
    assert "None of 2 wheels fits here: It is built for torch 2.5" in done.err
    assert "Of other people 1 wheel may fit: --source community" in done.err
    published.add("official", "2.8.2", local="torch2.9cxx11abiTRUE", symbol=SET_DEVICE_BEFORE_2_8)
    before = environment.contents()
    done = command("--source", "official", "--dry-run")
    assert "its bytes must tell: Its name does not say for which CUDA it was built" in done.err
    done = command("--source", "official")
    assert_ends(done, 6, f"it takes {SET_DEVICE_BEFORE_2_8}")
    assert environment.contents() == before


RELEASES = "Dao-AILab/flash-attention/releases"


@pytest.fixture
def releases(published: Published, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Publish official wheels as they are on GitHub, in a catalog that has seen none of them and knows no digest."""
    monkeypatch.setenv("GITHUB_SERVER_URL", published.server.url)
    monkeypatch.setenv("GITHUB_API_URL", f"{published.server.url}/api")

    def release(version: str, *, recorded: str = "", exists: bool = True) -> str:
        """Its SHA-256; the record of the release has that, or ``recorded``."""
        folder = f"{RELEASES}/download/v{version}"
        digest = published.add("official", version, seen=False, exists=exists, pinned=False, folder=folder)
        wheels = [wheel for wheel in published.wheels("official") if f"/v{version}/" in wheel.url]
        shown = [
            {
                "name": unquote(wheel.url.rpartition("/")[2]),
                "size": len(published.server.files[wheel.url[len(published.server.url) :]]),
                "browser_download_url": wheel.url.replace("+", "%2B"),
                "digest": f"sha256:{recorded or digest}" if recorded != "none" else None,
            }
            for wheel in wheels
            if exists
        ]
        record = json.dumps({"tag_name": f"v{version}", "assets": shown}).encode()
        published.server.files[f"/api/repos/{RELEASES}/tags/v{version}"] = record
        return digest

    return release


def test_a_digest_that_the_catalog_lacks_is_that_of_the_releases_own_record(
    command, releases, published, environment, tmp_path
) -> None:
    """The default path, from an environment with torch to an import that was verified, in one command."""
    releases("2.8.4", exists=False)
    digest = releases("2.8.3")
    planned = command("--dry-run")
    assert planned.code == 0
    assert f"SHA-256 {digest}, as {published.server.url}/api/repos/{RELEASES}/tags/v2.8.3 records" in planned.err
    assert "has no flash_attn-2.8.4" in planned.err
    done = command("--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["version"], document["wheel"]["sha256"]) == ("2.8.3", digest)
    assert environment.imports("flash_attn")
    assert not (tmp_path / LOCK_NAME).exists()


@pytest.mark.parametrize("seen", [True, False])
def test_of_a_wheel_that_was_only_computed_it_is_said_that_nobody_has_seen_it(command, published, seen) -> None:
    published.add("official", "2.8.3", seen=seen)
    assert ("nobody has seen that it exists" in command("--dry-run").err) != seen


def test_other_bytes_than_the_record_names_are_refused(command, releases, environment) -> None:
    releases("2.8.3", recorded="0" * 64)
    assert_refused(command, environment, 6, f"expected {'0' * 64}")


def test_a_release_without_digests_leaves_one_question_and_a_flag(command, releases, environment) -> None:
    digest = releases("2.8.3", recorded="none")
    assert "install asks, or takes --accept-unverified" in command("--dry-run").err
    refused = command()
    assert_ends(refused, 6, "No SHA-256 is known", "--accept-unverified")
    done = command("--accept-unverified", "--json")
    assert json.loads(done.out)["wheel"]["sha256"] == digest


def test_a_record_that_cannot_be_fetched_is_said(command, releases, published, environment) -> None:
    releases("2.8.3")
    published.server.files[f"/api/repos/{RELEASES}/tags/v2.8.3"] = b"<html>a proxy</html>"
    done = command()
    assert_ends(done, 6, "does not answer like its API")


@pytest.mark.parametrize(("collection", "origin"), [("mjun0812", Origin.COMMUNITY), ("official", Origin.OFFICIAL)])
def test_an_unverified_wheel_is_pinned_when_it_is_accepted(
    command, published, environment, tmp_path, collection, origin
) -> None:
    digest = published.add(collection, "2.8.3", pinned=False)
    source = str(origin).partition(":")[0]
    with unchanged(environment):
        done = command("--source", source)
    assert_ends(done, 6, "No SHA-256 is known")
    done = command("--source", source, "--accept-unverified")
    assert_ends(done, 0, f"Its SHA-256 is recorded in {tmp_path / LOCK_NAME}")
    locked = read_lock(tmp_path / LOCK_NAME)
    assert (locked.wheel.sha256, locked.origin) == (digest, origin)
    installed = environment.contents()
    (place,) = published.server.files
    published.server.files[place] = published.server.files[place][:-1] + b"X"
    assert command("--locked").code == 0, "the bytes that were pinned are kept"
    for path in (tmp_path / "depot" / "downloads").rglob("*.whl"):
        path.unlink()
    done = command("--locked")
    assert_ends(done, 6, f"expected {digest}")
    assert environment.contents() == installed


def test_a_verified_wheel_writes_no_lock_unless_there_is_one_that_waits_for_its_digest(
    command, published, environment, tmp_path
) -> None:
    published.add("official", "2.8.3")
    assert command().code == 0
    assert not (tmp_path / LOCK_NAME).exists()
    (listed,) = published.wheels("official")
    listed = listed._replace(sha256="", size=0)
    wheel = listed._replace(url=listed.url.replace("http:", "https:"))
    lock = Lock.of(candidate_of(wheel), Environment())
    write_lock(tmp_path / LOCK_NAME, lock)
    installed = WheelFile("official", tmp_path / "any.whl", "ab" * 32, 7)
    assert "is recorded in" in pin(tmp_path / LOCK_NAME, lock, installed)
    found = read_lock(tmp_path / LOCK_NAME)
    assert (found.wheel.sha256, found.wheel.size) == ("ab" * 32, 7)
    assert pin(tmp_path / LOCK_NAME, found, installed) == ""


def test_a_lock_for_another_wheel_is_left_untouched(command, published, environment, tmp_path) -> None:
    (tmp_path / LOCK_NAME).write_text("# of somebody else\n")
    digest = published.add("mjun0812", "2.8.3", pinned=False)
    done = command("--source", "community", "--accept-unverified")
    assert_ends(done, 0, f"the SHA-256 of this one is {digest}")
    assert (tmp_path / LOCK_NAME).read_text() == "# of somebody else\n"


def test_a_lock_pins_a_stored_library_too(command, published, depot, environment, tmp_path) -> None:
    (manifest,) = depot.artifacts.manifests()
    wheel = PublishedWheel(
        "flash-attn", "9.9.9", "13.0", "", None, "py3", "none", "any", "ours", "", 0, "", True, ("80",), ""
    )
    stored = Candidate(Origin.DEPOT, "flash_attn-9.9.9-py3-none-any.whl", wheel, 0.0, recipe_key=manifest.recipe_key)
    write_lock(tmp_path / LOCK_NAME, Lock.of(stored, Environment()))
    planned = command("--locked", "--dry-run", "--json")
    assert json.loads(planned.out)["recipe_key"] == manifest.recipe_key
    depot.layout.artifact(manifest.recipe_key).unlink()
    done = command("--locked")
    assert_ends(done, 3, "flashdepot lock --upgrade")
