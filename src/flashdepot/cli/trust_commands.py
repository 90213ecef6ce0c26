"""``flashdepot trust``, ``remote`` and ``keys``: which project files, which places and whose signatures are trusted."""

from __future__ import annotations

import sys
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from flashdepot.cli.app import Commands
from flashdepot.cli.common import Number, command, configured_remotes, flag, option
from flashdepot.cli.output import View, say
from flashdepot.cli.output import ask as ask_on_terminal
from flashdepot.errors import MissingToolError, UsageError
from flashdepot.files.trust import Consents, users_consents
from flashdepot.model.codec import plain
from flashdepot.model.limits import joined
from flashdepot.model.remote import PATIENCE, PublicKey, RemoteSettings, TrustedKey, remote_settings
from flashdepot.model.wheel import INDEX
from flashdepot.remotes import keys as keyring
from flashdepot.remotes.stores import open_store
from flashdepot.remotes.user_settings import UserSettings, today
from flashdepot.resolve.project import NAME, Project, find_project, read_project


@command(
    "flashdepot trust                       (the flashdepot.toml of this project)",
    "flashdepot trust ../flashdepot.toml",
    "flashdepot trust --list",
    "flashdepot trust --remove ../flashdepot.toml",
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@flag("--list  Show what is trusted.", to="list_all")
@flag("--remove  Stop trusting it.")
def trust(file: Path | None, *, list_all: bool, remove: bool) -> View:
    """Allow a flashdepot.toml to run a compiler that it names, or to take source or libraries from elsewhere.

    Only the file's present content is trusted: if it changes, you are asked again. Versions and selections need no trust.
    """
    consents = users_consents()
    if list_all:
        rows = [(path, _state(Path(path), digest)) for path, digest in consents.all().items()]
        return View(
            {"trusted": [{"path": path, "state": state} for path, state in rows]},
            [f"{state:<10} {path}" for path, state in rows],
            then=[] if rows else ["Nothing is trusted."],
        )
    path = file or find_project(Path.cwd())
    if path is None:
        raise UsageError(f"There is no {NAME} here or above.", hint=f"Name it: flashdepot trust DIR/{NAME}")
    if remove:
        if not consents.withdraw(path):
            raise UsageError(f"{path} was not trusted.", hint="See what is: flashdepot trust --list")
        return View({"status": "removed", "path": str(path.resolve())}, said=[f"{path} is no longer trusted."])
    project = read_project(path)
    for objection in project.objections():
        say(objection)
    give(project, consents)
    return View({"status": "trusted", "path": str(path.resolve())}, said=[f"{path} is trusted as it is now."])


def ask(project: Project, consents: Consents, objections: tuple[str, ...]) -> None:
    """Ask on a terminal whether a project file is to be trusted; elsewhere do nothing."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    say(f"{project.path}:")
    for objection in objections:
        say(f"  {objection}")
    if ask_on_terminal("Do you trust it, as it is now?"):
        give(project, consents)


def give(project: Project, consents: Consents) -> None:
    """Allow a project file as it is now; the keys of its remotes count as keys that this user has trusted."""
    if any(remote.keys for remote in project.remotes):
        UserSettings.of_this_user().demand_signatures()
    consents.give(project.path, project.digest)


def _state(path: Path, digest: str) -> str:
    try:
        return "unchanged" if sha256(path.read_bytes()).hexdigest() == digest else "changed"
    except OSError:
        return "gone"


@click.group(cls=Commands)
def remote() -> None:
    """Name the places from which libraries and units are fetched: buckets, web servers, folders.

    They are asked in order, the project's (flashdepot.toml) before yours, whenever the depot lacks something.
    """


@command(
    "flashdepot remote add team s3://our-bucket/flashdepot --push",
    "flashdepot remote add public https://example.org/flashdepot --key ci:BASE64",
    "flashdepot remote add disk file:///mnt/share/flashdepot --unsigned",
    of=remote,
)
@click.argument("name")
@click.argument("url", required=False)
@flag("--push  Also push there what is built here.")
@option("--key NAME:BASE64  Trust this key's signatures there.", to="keys", multiple=True)
@flag("--unsigned  Accept unsigned libraries from there: anyone who may write there decides what you run.")
@option("--builders N  Accept only what this many of your keys have signed.  [default: 1]", type=Number(1), default=1)
@flag("--anonymous  Read a bucket without credentials.")
@option(
    f"--timeout SECONDS  How long to wait for its answer.  [default: {PATIENCE:g}]", type=Number(0.1), default=PATIENCE
)
def add(name: str, url: str | None, keys: tuple[str, ...], **settings: Any) -> View:
    """Add a remote for this user, or change the one of that name.

    s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, https://SERVER/FOLDER, file:///FOLDER or a
    folder that is there. Credentials come from where each cloud's own tools look for them, and from ~/.netrc for https.
    """
    if url is None:
        raise UsageError(
            f"A remote has a name and an address, and '{name}' is one word.",
            hint=f"Choose a name: {joined(['flashdepot', 'remote', 'add', 'NAME', name])}"
            if "/" in name
            else f"Name its address: flashdepot remote add {name} s3://BUCKET/PREFIX",
        )
    if Path(url).is_dir():
        url = Path(url).resolve().as_uri()
    added = remote_settings(name=name, url=url, keys=tuple(map(PublicKey.parse, keys)), **settings)
    users = UserSettings.of_this_user()
    said = [f"Added: {_line(added)}", *(f"Instead of: {_line(old)}" for old in users.remotes() if old.name == name)]
    users.add_remote(added)
    try:
        open_store(added)
    except MissingToolError as error:  # others may have the package
        said.append(f"{error.message} {error.hint}")
    if not (added.unsigned or keys or users.trusted_keys()):
        said.append("Nothing from it is trusted until you trust a key: flashdepot keys trust NAME:BASE64")
    return View({"status": "added", **plain(added)}, said=said)


@command(of=remote, name="ls")
def list_remotes() -> View:
    """List the remotes, in the order in which they are asked."""
    found = [opened.settings for opened in configured_remotes().all()]
    return View(
        {"remotes": [plain(settings) for settings in found]},
        map(_line, found),
        then=[] if found else ["There is no remote. Add one: flashdepot remote add NAME URL"],
    )


@command(of=remote)
@click.argument("name")
def rm(name: str) -> View:
    """Forget one of your remotes. What was fetched from it stays in the depot."""
    UserSettings.of_this_user().remove_remote(name)
    return View({"status": "removed", "name": name}, said=[f"The remote {name} is no longer asked."])


def _line(settings: RemoteSettings) -> str:
    words = [word for word in ("push", "unsigned", "anonymous") if getattr(settings, word)]
    if settings.builders > 1:
        words.append(f"{settings.builders} builders")
    words += [f"key {key.name}" for key in settings.keys]
    more = f"  ({', '.join(words)})" if words else ""
    return f"{settings.name:<12} {settings.url}{more}"


def _day(_context: click.Context, _option: click.Parameter, text: str | None) -> date | None:
    try:
        day = date.fromisoformat(text) if text else None
    except ValueError:
        raise UsageError(f"'{text}' is not a day: expected YYYY-MM-DD.") from None
    if day and day < today():
        raise UsageError(
            f"{day} is over: this machine's clock says {today()}, and nothing would be trusted.",
            hint="To end trust in a key: flashdepot keys revoke NAME. If the clock is wrong, set it.",
        )
    return day


_expires_option = option("--expires YYYY-MM-DD  The last day on which it is trusted.  [default: no end]", callback=_day)


@click.group(cls=Commands)
def keys() -> None:
    """Make the key that signs what you push, and choose whose signatures are trusted.

    A machine that tests other people's code needs no key: it reads remotes and writes to none.
    """


@command("flashdepot keys new", "flashdepot keys new ci --expires 2027-12-31", of=keys)
@click.argument("name", required=False)
@_expires_option
def new(name: str | None, expires: date | None) -> View:
    """Make a key to sign with, and trust it here. Prints the line that readers need.

    The private half stays in a file that only you can read, in your configuration folder.
    """
    made = keyring.new_key(UserSettings.of_this_user(), name or keyring.default_name(), expires)
    said = f"The private key is in {made.path}. Readers: flashdepot keys trust {made.public}"
    return View(_document("made", made.public), [str(made.public)], [said])


@command("flashdepot keys trust ci:BASE64", "flashdepot keys trust ci:BASE64 --remote team", of=keys, name="trust")
@click.argument("line", metavar="NAME:BASE64")
@option("--remote NAME|URL  Only for this remote, or index (repeatable).", to="remotes", multiple=True)
@_expires_option
def trust_key(line: str, remotes: tuple[str, ...], expires: date | None) -> View:
    """Trust what a key has signed. Get its line in a way that you trust."""
    key = PublicKey.parse(line)
    UserSettings.of_this_user().trust(TrustedKey(key, remotes, expires))
    until = f"until {expires}" if expires else "from now on"
    only = f", only in {', '.join(remotes)}" if remotes else ""
    return View(_document("trusted", key), said=[f"What {key.name} has signed is trusted {until}{only}."])


@command(of=keys, name="ls")
def list_keys() -> View:
    """List the keys that you trust, and which of them are yours to sign with."""
    settings = UserSettings.of_this_user()
    own, unsigned = keyring.own_ids(settings), list(settings.unsigned_indexes())
    documents, lines = [], []
    for key in settings.trusted_keys():
        state, is_own = keyring.state(key, today()), key.key.id in own
        document = {
            "key": str(key.key),
            "id": key.key.id,
            "state": state,
            "own": is_own,
            "remotes": list(key.remotes),
            "expires": key.expires.isoformat() if key.expires else None,
        }
        documents.append(document)
        only = f"  only for {', '.join(key.remotes)}" if key.remotes else ""
        lines.append(f"{state:<20} {key.key}  {key.key.id[:12]}{'  (yours)' if is_own else ''}{only}")
    none = "No key is trusted. Make yours: flashdepot keys new. Trust another: flashdepot keys trust NAME:BASE64"
    return View(
        {"keys": documents, "unsigned": unsigned},
        [*lines, *(f"{'unsigned':<20} {address}" for address in unsigned)],
        then=[] if documents else [none],
    )


@command("flashdepot keys unsigned https://wheels.example.org/", "flashdepot keys unsigned public --remove", of=keys)
@click.argument("address", metavar="URL|DIR")
@flag("--remove  Require a signature again.")
def unsigned(address: str, *, remove: bool) -> View:
    """Accept one index without a signature: anyone who may write there decides what you run.

    Without this, every index must be signed once you have trusted a key, even after you have revoked it.
    """
    from flashdepot.resolve.own_indexes import index_source  # noqa: PLC0415

    place = index_source(f"{INDEX}{address.removeprefix(INDEX)}").removeprefix(INDEX)
    UserSettings.of_this_user().set_unsigned(place, unsigned=not remove)
    said = f"{place} {'must be signed again' if remove else 'is taken without a signature from now on'}."
    return View({"status": "signed" if remove else "unsigned", "index": place}, said=[said])


@command(of=keys)
@click.argument("key", metavar="NAME|ID")
def revoke(key: str) -> View:
    """Never trust a key again: it was lost, or its owner is no longer trusted.

    What it signed and was fetched already stays in the depot; 'flashdepot depot audit' checks that.
    """
    revoked = UserSettings.of_this_user().revoke(key)
    said = f"The key {revoked.key.name} ({revoked.key.id[:12]}) is not trusted any more."
    stays = "What it signed and was fetched already stays in the depot; 'flashdepot depot audit' checks that."
    return View(_document("revoked", revoked.key), said=[said, stays])


@command("flashdepot keys rotate ci", "flashdepot keys rotate ci --days 7", of=keys)
@click.argument("name", required=False)
@option("--days N  Trust the old key's signatures for this long.  [default: 30]", type=Number(0), default=30)
@_expires_option
def rotate(name: str | None, days: int, expires: date | None) -> View:
    """Replace one of your keys by a new one. Prints the new line that readers need.

    Records that the old one has signed get the new signature with the next 'flashdepot depot push'.
    """
    made = keyring.rotate_key(UserSettings.of_this_user(), name, days, expires)
    said = [
        f"The new private key is in {made.path}; the old one is deleted, and trusted for {days} days more.",
        f"Sign again what you have pushed: flashdepot depot push. Readers: flashdepot keys trust {made.public}",
    ]
    return View(_document("rotated", made.public), [str(made.public)], said)


def _document(status: str, key: PublicKey) -> dict[str, str]:
    return {"status": status, "key": str(key), "id": key.id}
