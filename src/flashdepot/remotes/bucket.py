"""A remote in a bucket: S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flashdepot.errors import MissingToolError, NetworkError
from flashdepot.model.limits import install_extra
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.stores import DeniedError, Opened

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CHUNK = 1 << 18
_MACHINES_IDENTITY = "169.254.169.254"
"""Where clouds tell their machines who they are: asked last, when nothing else says so."""

_STALLED = timedelta(seconds=10)
_LONGEST = timedelta(hours=6)
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_NOWHERE = "http://127.0.0.1:1"
"""A proxy that is not there: obstore follows redirects with session tokens, and so they lead to nobody."""

_CLOUDS = {
    "s3": ("amazonaws.com", "amazonaws.com.cn", "169.254.170.2", "169.254.170.23"),
    "gs": ("googleapis.com", "metadata.google.internal", "metadata"),
    "az": ("windows.net", "microsoftonline.com", "chinacloudapi.cn", "usgovcloudapi.net", "microsoftonline.us"),
}
"""The servers of each cloud, those of its identities included."""

_ENDPOINT = re.compile(r"(AWS|AZURE|GOOGLE|IDENTITY|MSI)_.*(ENDPOINT|AUTHORITY|URI|URL).*|(IDENTITY|MSI)_ENDPOINT")


class BucketBackend:
    """Objects of a bucket. Credentials come from where the cloud's own tools look: variables, files, the machine."""

    def __init__(self, remote: RemoteSettings) -> None:
        try:
            import obstore  # noqa: PLC0415  (of an extra)
            from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError  # noqa: PLC0415
            from obstore.store import from_url  # noqa: PLC0415
        except ImportError as error:
            raise MissingToolError(
                f"The remote {remote.name} is a bucket, and the package for buckets is not installed.",
                hint=f"Install it: {install_extra('remote')}",
            ) from error
        self._obstore = obstore
        self._errors, self._not_there, self._denied = BaseError, NotFoundError, PermissionDeniedError
        self._url = remote.url.rstrip("/")
        patience = timedelta(seconds=remote.timeout)
        client: Any = {
            "connect_timeout": patience,
            "read_timeout": _STALLED,
            "timeout": _LONGEST,
            **confined(self._url.partition(":")[0], os.environ),
        }
        retry: Any = {"max_retries": 2, "retry_timeout": patience / 2}
        more: Any = {"skip_signature": True} if remote.anonymous else {}
        if not remote.anonymous and self._url.startswith("s3:"):
            more |= _by_profile()
        with self._explained("opened"):
            self._store: ObjectStore = from_url(self._url, client_options=client, retry_config=retry, **more)

    def open(self, name: str, start: int) -> Opened:
        """See :class:`Backend`. A server that ignores a range, which is an error to obstore, is asked for the whole file."""
        with self._explained("read"):
            if start:
                with contextlib.suppress(self._errors):
                    ranged = self._obstore.get(self._store, name, options={"range": {"offset": start}})
                    if ranged.range[0] == start:
                        return Opened(start, self._chunks(ranged))
            return Opened(0, self._chunks(self._obstore.get(self._store, name)))

    def size(self, name: str) -> int | None:
        """See :class:`Backend`."""
        with self._explained("read"):
            return int(self._obstore.head(self._store, name)["size"])

    def write(self, name: str, source: Path | bytes) -> None:
        """See :class:`Backend`."""
        with self._explained("written"):
            self._obstore.put(self._store, name, source)

    def _chunks(self, result: Any) -> Generator[bytes, None, None]:
        with self._explained("read"):
            yield from map(bytes, result.stream(min_chunk_size=_CHUNK))

    @contextlib.contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        """Obstore's errors as ours; :raises FileNotFoundError: when something is not there."""
        try:
            yield
        except (self._not_there, FileNotFoundError) as error:
            if done == "read":
                raise FileNotFoundError(self._url) from None
            raise NetworkError(
                f"{self._url} cannot be {done}: there is no such bucket", hint="Make the bucket, or correct its name."
            ) from error
        except self._denied as error:
            if done == "read":
                hint = "Use credentials that may read and list it: without the second, S3 denies what is not there."
                raise DeniedError("access is denied", hint=hint) from error
            raise NetworkError(
                f"{self._url} cannot be {done}: access is denied",
                hint="Use credentials that may write there, or add the remote again without --push.",
            ) from error
        except (self._errors, ValueError) as error:
            if _MACHINES_IDENTITY in str(error):
                raise NetworkError(
                    f"no credentials were found for {self._url}",
                    hint="Set the variables of the cloud, as docs/remotes.md says; or, for a public bucket, read it with "
                    "--anonymous.",
                ) from error
            said = str(error).strip().partition("\n")[0][:300]
            raise NetworkError(f"{self._url} cannot be {done}: {said}") from error


def confined(cloud: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Options of obstore's client that keep it at the servers of a cloud, or of the endpoints that variables name.

    Plain HTTP is spoken only where one of these names it. Who has a proxy reaches all servers through it, and decides there.
    """
    named = [urlsplit(value) for name, value in environment.items() if _ENDPOINT.fullmatch(name) and "://" in value]
    options: dict[str, Any] = {"allow_http": any(url.scheme == "http" for url in named)}
    if not any(environment.get(name) for proxy in _PROXIES for name in (proxy, proxy.lower())):
        hosts = [_MACHINES_IDENTITY, *_CLOUDS[cloud], *(url.hostname for url in named if url.hostname)]
        options |= {"proxy_url": _NOWHERE, "proxy_excludes": ",".join(hosts)}
    return options


def _by_profile() -> dict[str, Any]:
    """The AWS credentials of a profile or of SSO, where botocore is there to read them; obstore reads variables itself."""
    if "AWS_ACCESS_KEY_ID" in os.environ or not (Path.home() / ".aws").is_dir():
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415

        return {"credential_provider": Boto3CredentialProvider()}
    except (ImportError, ValueError):
        return {}
