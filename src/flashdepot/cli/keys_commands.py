"""``flashdepot keys new|trust|ls|unsigned|revoke|rotate``."""

from __future__ import annotations

from datetime import date

import click

from flashdepot.cli.app import Commands
from flashdepot.cli.common import answer, examples, json_option, print_json, quiet_option, say
from flashdepot.errors import UsageError
from flashdepot.model.candidate import INDEX
from flashdepot.model.remote import PublicKey, TrustedKey
from flashdepot.remotes import keys as keyring
from flashdepot.remotes.user_settings import UserSettings, today

_DAY = "YYYY-MM-DD"


def _day(_context: click.Context, _option: click.Parameter, text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise UsageError(f"'{text}' is not a day: expected {_DAY}.") from None


_expires_option = click.option(
    "--expires", metavar=_DAY, callback=_day, help="The last day on which it is trusted.  [default: no end]"
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def keys() -> None:
    """Make the key that signs what you push, and choose whose signatures are trusted.

    A machine that tests what strangers send needs no key: it reads remotes, and writes to none.
    """


@keys.command(epilog=examples("flashdepot keys new", "flashdepot keys new ci --expires 2027-12-31"))
@click.argument("name", required=False)
@_expires_option
@json_option
@quiet_option
def new(name: str | None, expires: date | None, *, as_json: bool, quiet: bool) -> None:
    """Make a key to sign with, and trust it here. Prints the line that readers need.

    The private half stays in a file that only you can read, in your configuration folder.
    """
    made = keyring.new_key(UserSettings.of_this_user(), name or keyring.default_name(), expires)
    if as_json:
        print_json(_document("made", made.public))
        return
    if not quiet:
        say(f"The private key is in {made.path}. Readers: flashdepot keys trust {made.public}")
    answer(str(made.public))


@keys.command(epilog=examples("flashdepot keys trust ci:BASE64", "flashdepot keys trust ci:BASE64 --remote team"))
@click.argument("line", metavar="NAME:BASE64")
@click.option(
    "--remote", "remotes", multiple=True, metavar="NAME|URL", help="Only for this remote, or index (repeatable)."
)
@_expires_option
@json_option
@quiet_option
def trust(line: str, remotes: tuple[str, ...], expires: date | None, *, as_json: bool, quiet: bool) -> None:
    """Trust what a key has signed. Get its line in a way that you trust."""
    key = PublicKey.parse(line)
    UserSettings.of_this_user().trust(TrustedKey(key, remotes, expires))
    if as_json:
        print_json(_document("trusted", key))
    elif not quiet:
        say(f"What {key.name} has signed is believed from now on.")


@keys.command()
@json_option
def ls(*, as_json: bool) -> None:
    """List the keys that you trust, and which of them are yours to sign with."""
    settings = UserSettings.of_this_user()
    own = keyring.own_ids(settings)
    rows = [(key, keyring.state(key, today()), key.key.id in own) for key in settings.trusted_keys()]
    if as_json:
        print_json(
            {
                "keys": [
                    {
                        "key": str(key.key),
                        "id": key.key.id,
                        "state": state,
                        "own": is_own,
                        "remotes": list(key.remotes),
                        "expires": key.expires.isoformat() if key.expires else None,
                    }
                    for key, state, is_own in rows
                ],
                "unsigned": list(settings.unsigned_indexes()),
            }
        )
        return
    for key, state, is_own in rows:
        only = f"  only for {', '.join(key.remotes)}" if key.remotes else ""
        answer(f"{state:<20} {key.key}  {key.key.id[:12]}{'  (yours)' if is_own else ''}{only}")
    for address in settings.unsigned_indexes():
        answer(f"{'unsigned':<20} {address}")
    if not rows:
        say("No key is trusted. Make yours: flashdepot keys new. Trust another: flashdepot keys trust NAME:BASE64")


@keys.command(
    epilog=examples("flashdepot keys unsigned https://wheels.example.org/", "flashdepot keys unsigned public --remove")
)
@click.argument("address", metavar="URL|DIR")
@click.option("--remove", is_flag=True, help="Demand a signature of it again.")
@json_option
@quiet_option
def unsigned(address: str, *, remove: bool, as_json: bool, quiet: bool) -> None:
    """Take one index without a signature, although you trust keys: anyone who writes there decides what you run.

    Once you have trusted a key, an index must be signed by one that you trust, also after you have revoked it.
    """
    from flashdepot.resolve.own_indexes import index_source  # noqa: PLC0415

    place = index_source(f"{INDEX}{address.removeprefix(INDEX)}").removeprefix(INDEX)
    UserSettings.of_this_user().set_unsigned(place, unsigned=not remove)
    if as_json:
        print_json({"status": "signed" if remove else "unsigned", "index": place})
    elif not quiet:
        say(f"{place} {'must be signed again' if remove else 'is taken without a signature from now on'}.")


@keys.command()
@click.argument("key", metavar="NAME|ID")
@json_option
@quiet_option
def revoke(key: str, *, as_json: bool, quiet: bool) -> None:
    """Never trust a key again: it was lost, or its owner is no longer trusted.

    What it signed and was fetched already stays in the depot; 'flashdepot depot audit' checks that.
    """
    revoked = UserSettings.of_this_user().revoke(key)
    if as_json:
        print_json(_document("revoked", revoked.key))
    elif not quiet:
        say(f"The key {revoked.key.name} ({revoked.key.id[:12]}) is not believed any more.")


@keys.command(epilog=examples("flashdepot keys rotate ci", "flashdepot keys rotate ci --days 7"))
@click.argument("name", required=False)
@click.option(
    "--days",
    type=click.IntRange(min=0),
    default=30,
    metavar="N",
    help="Trust the old key's signatures for this long.  [default: 30]",
)
@_expires_option
@json_option
@quiet_option
def rotate(name: str | None, days: int, expires: date | None, *, as_json: bool, quiet: bool) -> None:
    """Replace one of your keys by a new one. Prints the new line that readers need.

    Records that the old one has signed get the new signature with the next 'flashdepot depot push'.
    """
    made = keyring.rotate_key(UserSettings.of_this_user(), name, days, expires)
    if as_json:
        print_json(_document("rotated", made.public))
        return
    if not quiet:
        say(f"The new private key is in {made.path}; the old one is deleted, and believed for {days} days more.")
        say(f"Sign again what you have pushed: flashdepot depot push. Readers: flashdepot keys trust {made.public}")
    answer(str(made.public))


def _document(status: str, key: PublicKey) -> dict[str, str]:
    return {"status": status, "key": str(key), "id": key.id}
