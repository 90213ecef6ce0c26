"""One package index, and the files in it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pypi_simple
from requests.utils import urldefragauth

from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.system.download import Downloaded, Remote, download
from flashdepot.system.index_settings import IndexSettings
from flashdepot.system.index_transport import open_session
from flashdepot.system.net import Progress
from flashdepot.system.network_errors import network_errors
from flashdepot.system.patience import Note, patiently

_ELSEWHERE = "name another index: PIP_INDEX_URL=URL"

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
                page = patiently(lambda: self._client.get_project_page(project, timeout=self._timeout), lambda _: None)
            except pypi_simple.NoSuchProjectError:
                return []
            return page.packages

    def find(self, project: str, filename: str) -> pypi_simple.DistributionPackage | None:
        """Return the file of that exact name, or ``None``; raises as :meth:`packages` does."""
        return next((p for p in self.packages(project) if p.filename == filename), None)

    def download(
        self,
        package: pypi_simple.DistributionPackage,
        sha256: str,
        destination: Path,
        on_progress: Progress | None = None,
        on_note: Note = lambda _: None,
    ) -> Downloaded:
        """Fetch a file as :func:`flashdepot.system.download.download` does.

        :raises IntegrityError: when it has another SHA-256, or the index says that it has.
        :raises NetworkError: when it cannot be had.
        """
        declared = package.digests.get("sha256", sha256)
        if declared != sha256:
            raise IntegrityError(
                f"{package.filename} from {self.url} is not the published file: its SHA-256 is {declared}, "
                f"expected {sha256}.",
                hint="A mirror that rebuilds files cannot serve this one; name another index: PIP_INDEX_URL=URL",
            )
        return download(
            Remote(package.url, sha256),
            destination,
            self._client.s,
            timeout=self._timeout,
            elsewhere=_ELSEWHERE,
            on_progress=on_progress,
            on_note=on_note,
        )

    @contextlib.contextmanager
    def _explained(self, wanted: str) -> Iterator[None]:
        """Errors of the network, and of what answers as no index does, in plain words."""
        try:
            with network_errors(wanted, self.url, _ELSEWHERE):
                yield
        except (ValueError, pypi_simple.UnsupportedRepoVersionError) as error:
            raise NetworkError(
                f"{wanted} cannot be fetched: {self.url} does not answer as a package index does ({error}).",
                hint="Check the address: PIP_INDEX_URL, or 'pip config list'",
            ) from error
