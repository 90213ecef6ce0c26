"""A remote in a bucket: S3 and what speaks like it, Google Cloud Storage, Azure Blob Storage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashdepot.errors import IntegrityError, MissingToolError, NetworkError
from flashdepot.model.remote import RemoteSettings
from flashdepot.remotes.stores import DeniedError, Received

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CHUNK = 1 << 18
_MACHINES_IDENTITY = "169.254.169.254"
"""Where clouds tell a machine of theirs who it is: asked last, when nothing else says so."""

_STALLED = timedelta(seconds=10)
_LONGEST = timedelta(hours=6)


class BucketStore:
    """Objects of a bucket. Credentials come from where the cloud's own tools look: variables, files, the machine."""

    def __init__(self, remote: RemoteSettings) -> None:
        try:
            import obstore  # noqa: PLC0415  (of an extra)
            from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError  # noqa: PLC0415
            from obstore.store import from_url  # noqa: PLC0415
        except ImportError as error:
            raise MissingToolError(
                f"The remote {remote.name} is a bucket, and the package that speaks with buckets is not installed.",
                hint="Install it: pip install 'flashdepot[remote]'",
            ) from error
        self._obstore = obstore
        self._errors, self._not_there, self._denied = BaseError, NotFoundError, PermissionDeniedError
        self._url = remote.url.rstrip("/")

        def opened(timeout: timedelta, tries: int) -> ObjectStore:
            patience = timedelta(seconds=remote.timeout)
            client: Any = {
                "connect_timeout": min(patience, timeout),
                "read_timeout": min(_STALLED, timeout),
                "timeout": timeout,
                "allow_http": True,
            }
            retry: Any = {"max_retries": tries, "retry_timeout": timeout}
            more: Any = {"skip_signature": True} if remote.anonymous else {}
            if not remote.anonymous and self._url.startswith("s3:"):
                more |= _by_profile()
            store: ObjectStore = from_url(self._url, client_options=client, retry_config=retry, **more)
            return store

        with self._explained("opened"):
            self._records = opened(timedelta(seconds=remote.timeout), 0)
            self._blobs = opened(_LONGEST, 2)

    def read(self, place: str, longest: int) -> bytes | None:
        """See :class:`Store`."""
        try:
            with self._explained("read"):
                result = self._obstore.get(self._records, place)
                if result.meta["size"] > longest:
                    raise IntegrityError(f"{self._url}/{place} has more than {longest} bytes.")
                return bytes(result.bytes())
        except FileNotFoundError:
            return None

    def fetch(self, place: str, destination: Path, received: Received) -> None:
        """See :class:`Store`."""
        have = destination.stat().st_size if destination.exists() else 0
        with self._explained("read"), destination.open("ab", buffering=0) as file:
            if have and have >= self._obstore.head(self._blobs, place)["size"]:
                return
            options: Any = {"range": {"offset": have}} if have else None
            for chunk in self._obstore.get(self._blobs, place, options=options).stream(min_chunk_size=_CHUNK):
                file.write(chunk)
                received(len(chunk))

    def size(self, place: str) -> int | None:
        """See :class:`Store`."""
        try:
            with self._explained("read"):
                return int(self._obstore.head(self._blobs, place)["size"])
        except FileNotFoundError:
            return None

    def write(self, place: str, source: Path | bytes) -> None:
        """See :class:`Store`."""
        with self._explained("written"):
            self._obstore.put(self._blobs, place, source)

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
                raise DeniedError(
                    "access is denied",
                    hint="Use credentials that may read and list it: without the right to list a bucket, S3 says the "
                    "same of what is not there.",
                ) from error
            raise NetworkError(
                f"{self._url} cannot be {done}: access is denied",
                hint="Use credentials that may write there, or take 'push' from this remote.",
            ) from error
        except (self._errors, ValueError) as error:
            if _MACHINES_IDENTITY in str(error):
                raise NetworkError(
                    f"no credentials were found for {self._url}",
                    hint="Set the variables of the cloud, as docs/remotes.md says; or, for a public bucket, read it with "
                    "--anonymous.",
                ) from error
            raise NetworkError(f"{self._url} cannot be {done}: {_first_line(error)}") from error


def _by_profile() -> dict[str, Any]:
    """The AWS credentials of a profile or of SSO, where botocore is there to read them; obstore reads variables itself."""
    import os  # noqa: PLC0415

    if "AWS_ACCESS_KEY_ID" in os.environ or not (Path.home() / ".aws").is_dir():
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415

        return {"credential_provider": Boto3CredentialProvider()}
    except (ImportError, ValueError):
        return {}


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return text[:300]
