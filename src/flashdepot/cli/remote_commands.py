"""``flashdepot remote add|ls|rm``."""

from __future__ import annotations

import click

from flashdepot.cli.app import Commands
from flashdepot.cli.common import (
    answer,
    configured_remotes,
    examples,
    json_option,
    options,
    print_json,
    quiet_option,
    say,
)
from flashdepot.model.codec import plain
from flashdepot.model.remote import PATIENCE, PublicKey, RemoteSettings, remote_settings
from flashdepot.remotes.user_settings import UserSettings


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def remote() -> None:
    """Name the places from which libraries and units are fetched: buckets, web servers, folders.

    They are asked in order, the project's (flashdepot.toml) before yours, whenever the depot lacks something.
    """


@remote.command(
    epilog=examples(
        "flashdepot remote add team s3://our-bucket/flashdepot --push",
        "flashdepot remote add public https://example.org/flashdepot --key ci:BASE64",
        "flashdepot remote add disk file:///mnt/share/flashdepot --unsigned",
    )
)
@click.argument("name")
@click.argument("url")
@click.option("--push", is_flag=True, help="Put there what is built here.")
@click.option("--key", "keys", multiple=True, metavar="NAME:BASE64", help="Trust this key's signatures there.")
@click.option(
    "--unsigned", is_flag=True, help="Accept what is there without signatures: anyone who writes there decides."
)
@click.option(
    "--builders",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Accept only what this many of your keys have signed.  [default: 1]",
)
@click.option("--anonymous", is_flag=True, help="Read a bucket without credentials.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=PATIENCE,
    metavar="SECONDS",
    help=f"How long it has to answer.  [default: {PATIENCE:g}]",
)
@json_option
@quiet_option
def add(
    name: str,
    url: str,
    builders: int,
    timeout: float,
    keys: tuple[str, ...],
    *,
    push: bool,
    unsigned: bool,
    anonymous: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Add a remote for this user, or change the one of that name.

    s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, https://SERVER/FOLDER or file:///FOLDER.
    Credentials come from where each cloud's own tools look for them, and from ~/.netrc for https.
    """
    added = remote_settings(
        name=name,
        url=url,
        push=push,
        unsigned=unsigned,
        builders=builders,
        anonymous=anonymous,
        keys=tuple(map(PublicKey.parse, keys)),
        timeout=timeout,
    )
    settings = UserSettings.of_this_user()
    settings.add_remote(added)
    if as_json:
        print_json({"status": "added", **plain(added)})
    elif not quiet:
        say(f"Added: {_line(added)}")
    if not (quiet or unsigned or keys or settings.trusted_keys()):
        say("Nothing from it is believed until you trust a key: flashdepot keys trust NAME:BASE64")


@remote.command("ls")
@options(json_option)
def list_remotes(*, as_json: bool) -> None:
    """List the remotes, in the order in which they are asked."""
    found = [opened.settings for opened in configured_remotes().all()]
    if as_json:
        print_json({"remotes": [plain(settings) for settings in found]})
        return
    for settings in found:
        answer(_line(settings))
    if not found:
        say("There is no remote. Add one: flashdepot remote add NAME URL")


@remote.command()
@click.argument("name")
@json_option
@quiet_option
def rm(name: str, *, as_json: bool, quiet: bool) -> None:
    """Forget one of your remotes. What was fetched from it stays in the depot."""
    UserSettings.of_this_user().remove_remote(name)
    if as_json:
        print_json({"status": "removed", "name": name})
    elif not quiet:
        say(f"The remote {name} is no longer asked.")


def _line(settings: RemoteSettings) -> str:
    words = [word for word in ("push", "unsigned", "anonymous") if getattr(settings, word)]
    if settings.builders > 1:
        words.append(f"{settings.builders} builders")
    words += [f"key {key.name}" for key in settings.keys]
    more = f"  ({', '.join(words)})" if words else ""
    return f"{settings.name:<12} {settings.url}{more}"
