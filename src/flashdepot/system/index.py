"""One package index: finding a file in it and downloading it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import pypi_simple
import requests
from requests.utils import urldefragauth

from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.system.index_settings import IndexSettings
from flashdepot.system.index_transport import open_session
from flashdepot.system.net import Progress

_WAITS = (0.5, 1.0, 2.0)
_TRANSIENT_STATUS = {408, 429, 500, 502, 503, 504}
_T = TypeVar("_T")

# Newer index pages only add fields; what is read here is in all of them.
warnings.filterwarnings("ignore", category=pypi_simple.UnexpectedRepoVersionWarning)


class PackageIndex:
    """A "simple" index (PEP 503, PEP 691), opened with a user's settings. Close it, or use it as a context manager.

    Typical usage::

        with PackageIndex(None, settings) as index:
            package = index.find("flash-attn", "flash_attn-2.8.3.tar.gz")
    """

    def __init__(self, url: str | None, settings: IndexSettings) -> None:
        endpoint = url or pypi_simple.PYPI_SIMPLE_ENDPOINT
        self.url = urldefragauth(endpoint)
        self._client = pypi_simple.PyPISimple(self.url, session=open_session(endpoint, settings))
        self._timeout = settings.timeout

    def __enter__(self) -> PackageIndex:  # noqa: PYI034  (Self is in typing from Python 3.11 on)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.s.close()

    def packages(self, project: str) -> list[pypi_simple.DistributionPackage]:
        """All files of a project; none when the index does not know it.

        :raises NetworkError: when the index cannot be reached or does not answer as one.
        """
        with self._explained(project):
            try:
                page = _patiently(lambda: self._client.get_project_page(project, timeout=self._timeout))
            except pypi_simple.NoSuchProjectError:
                return []
            return page.packages

    def find(self, project: str, filename: str) -> pypi_simple.DistributionPackage | None:
        """Return the file of that exact name, or ``None``; raises as :meth:`packages` does."""
        return next((p for p in self.packages(project) if p.filename == filename), None)

    def download(
        self, package: pypi_simple.DistributionPackage, sha256: str, path: Path, on_progress: Progress | None
    ) -> None:
        """Write a file's bytes to ``path``.

        :raises IntegrityError: when they have another SHA-256; nothing is kept.
        :raises NetworkError: when they cannot be had.
        """
        declared = package.digests.get("sha256", sha256)
        if declared != sha256:
            raise self._mismatch(package.filename, sha256, declared)
        pinned = dataclasses.replace(package, digests={"sha256": sha256})
        with self._explained(package.filename):
            try:
                _patiently(
                    lambda: self._client.download_package(
                        pinned,
                        path,
                        progress=lambda total: _Progress(on_progress, total),
                        timeout=self._timeout,
                        # Some servers call a .tar.gz "gzip-encoded", and a client that believes it stores other bytes.
                        headers={"Accept-Encoding": "identity"},
                    )
                )
            except pypi_simple.DigestMismatchError as error:
                raise self._mismatch(package.filename, sha256, error.actual_digest) from error

    def _mismatch(self, filename: str, wanted: str, found: str) -> IntegrityError:
        return IntegrityError(
            f"{filename} from {self.url} is not the published file: its SHA-256 is {found}, expected {wanted}.",
            hint="Nothing was kept. A mirror that rebuilds files cannot serve this one; "
            "name another index: PIP_INDEX_URL=URL",
        )

    @contextlib.contextmanager
    def _explained(self, wanted: str) -> Iterator[None]:
        """Errors of the network in plain words."""
        try:
            yield
        except requests.exceptions.SSLError as error:
            raise NetworkError(
                f"{wanted} cannot be fetched: the certificate of {self.url} is not trusted ({_innermost(error)}).",
                hint="Name your organisation's certificate authorities: PIP_CERT=FILE, or pip config set global.cert FILE",
            ) from error
        except requests.HTTPError as error:
            raise NetworkError(
                f"{wanted} cannot be fetched: {self.url} answers {_status(error)}.",
                hint="Try again later, check credentials in ~/.netrc, or name another index: PIP_INDEX_URL=URL",
            ) from error
        except requests.RequestException as error:
            raise NetworkError(
                f"{wanted} cannot be fetched: {self.url} cannot be reached ({_innermost(error)}).",
                hint="Check the network and the proxy (HTTPS_PROXY, PIP_PROXY), or name another index: PIP_INDEX_URL=URL",
            ) from error
        except (ValueError, pypi_simple.UnsupportedRepoVersionError) as error:
            raise NetworkError(
                f"{wanted} cannot be fetched: {self.url} does not answer as a package index does ({error}).",
                hint="Check the address: PIP_INDEX_URL, or 'pip config list'",
            ) from error


def _patiently(action: Callable[[], _T]) -> _T:
    """Try again, after a growing wait, while the failure is one that passes."""
    for wait in _WAITS:
        try:
            return action()
        except requests.RequestException as error:  # noqa: PERF203  (a loop of four)
            if not _passes(error):
                raise
            time.sleep(wait)
    return action()


def _passes(error: requests.RequestException) -> bool:
    if isinstance(error, requests.HTTPError):
        return error.response is not None and error.response.status_code in _TRANSIENT_STATUS
    if isinstance(error, (requests.exceptions.SSLError, requests.exceptions.ProxyError)):
        return False
    return isinstance(error, (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError))


def _status(error: requests.HTTPError) -> str:
    return f"{error.response.status_code} {error.response.reason}" if error.response is not None else str(error)


def _innermost(error: BaseException) -> str:
    """Unwrap requests' and urllib3's layers down to the reason: ``Connection refused``."""
    reason: object = error
    while isinstance(reason, BaseException):
        inner = getattr(reason, "reason", None) or (reason.args[0] if reason.args else None)
        if not isinstance(inner, BaseException):
            break
        reason = inner
    return getattr(reason, "strerror", None) or str(reason).rpartition(": ")[2]


class _Progress:
    """pypi-simple's progress protocol over a plain function."""

    def __init__(self, report: Progress | None, total: int | None) -> None:
        self._report, self._total, self._done = report, total, 0

    def __enter__(self) -> _Progress:  # noqa: PYI034
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, increment: int) -> None:
        self._done += increment
        if self._report:
            self._report(self._done, self._total)
