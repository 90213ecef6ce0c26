"""One package index, and the files in it."""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import pypi_simple
from msgspec.structs import replace
from requests.utils import urldefragauth

from flashdepot.errors import IntegrityError, NetworkError
from flashdepot.events import Download
from flashdepot.net.download import Remote, download
from flashdepot.net.errors import network_errors, patiently
from flashdepot.net.transport import IndexSettings, open_session, read_body
from flashdepot.net.waiting import each, within
from flashdepot.process.run import trace

_LONGEST_PAGE = 16 << 20
_MOST_TAGS = 200_000
"""Three tags a file; a tag takes a kilobyte of memory when the page is read."""
PAGE_TIMEOUTS = 4
"""The user's timeout is for each wait for data; a page must be there whole, with all tries, within so many of them."""

_ELSEWHERE = "name another index: PIP_INDEX_URL=URL"

# Newer index pages only add fields; what is read here is in all of them.
warnings.filterwarnings("ignore", category=pypi_simple.UnexpectedRepoVersionWarning)


class PackageIndex:
    """A "simple" index (PEP 503, PEP 691), opened with a user's settings; closed as a context manager."""

    def __init__(self, url: str | None, settings: IndexSettings) -> None:
        endpoint = url or pypi_simple.PYPI_SIMPLE_ENDPOINT
        self.url = urldefragauth(endpoint)
        self._client = pypi_simple.PyPISimple(self.url, session=open_session(endpoint, settings))
        self._timeout = settings.timeout

    def __enter__(self) -> PackageIndex:  # noqa: PYI034  (Self is in typing from Python 3.11 on)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.s.close()

    def packages(self, project: str) -> list[pypi_simple.DistributionPackage]:
        """All files of a project; none when the index does not know it. At most 16 MiB of its page are read."""
        with self._explained(project):
            seconds = PAGE_TIMEOUTS * self._timeout
            page = within(seconds, self.url, lambda: patiently(lambda: self._page(project)))
            return page.packages if page else []

    def _page(self, project: str) -> pypi_simple.ProjectPage | None:
        """The page of a project, read no further than a page can be; ``None`` when there is none."""
        address = self._client.get_project_url(project)
        headers = {"Accept": self._client.accept}
        with self._client.s.get(address, headers=headers, timeout=self._timeout, stream=True) as answer:
            if answer.status_code == HTTPStatus.NOT_FOUND:
                return None
            answer.raise_for_status()
            body = read_body(answer, _LONGEST_PAGE)
            kind = answer.headers.get("Content-Type", "text/html")
            if "json" in kind:
                return pypi_simple.ProjectPage.from_json_data(json.loads(body), str(answer.url))
            if body.count(b"<") > _MOST_TAGS:
                raise ValueError(f"the page has more than {_MOST_TAGS} tags")
            return pypi_simple.ProjectPage.from_html(project, body, str(answer.url), answer.encoding)

    def fetch(
        self, project: str, filename: str, sha256: str, destination: Path, on_progress: Download | None = None
    ) -> Path | None:
        """Fetch the file of that exact name, as :func:`flashdepot.net.download.download` does; ``None`` without one."""
        package = next((p for p in self.packages(project) if p.filename == filename), None)
        if package is None:
            return None
        declared = package.digests.get("sha256", sha256)
        if declared != sha256:
            raise IntegrityError(
                f"{filename} from {self.url} is not the published file: its SHA-256 is {declared}, expected {sha256}.",
                hint="A mirror that rebuilds files cannot serve this one; name another index: PIP_INDEX_URL=URL",
            )
        return download(
            Remote(package.url, sha256, package.size or 0),
            destination,
            self._client.s,
            timeout=self._timeout,
            elsewhere=_ELSEWHERE,
            on_progress=on_progress,
        ).path

    @contextlib.contextmanager
    def _explained(self, wanted: str) -> Iterator[None]:
        """Say what went wrong, also of what answers as no index does."""
        try:
            with network_errors(wanted, self.url, _ELSEWHERE):
                yield
        except (ValueError, TypeError, LookupError, RecursionError, pypi_simple.UnsupportedRepoVersionError) as error:
            raise NetworkError(
                f"{wanted} cannot be fetched: {self.url} is not a package index ({error}).",
                hint="Check the address: PIP_INDEX_URL, or 'pip config list'",
            ) from error


def with_indexes(settings: IndexSettings, added: Sequence[str]) -> IndexSettings:
    """The settings with more indexes behind the user's own, each once."""
    own = _addresses(settings)
    return replace(settings, indexes=(*settings.indexes, *(url for url in added if url.rstrip("/") not in own)))


def _addresses(settings: IndexSettings) -> frozenset[str]:
    return frozenset((url or pypi_simple.PYPI_SIMPLE_ENDPOINT).rstrip("/") for url in settings.indexes)


def listed(
    projects: Sequence[str], others: Sequence[str], index: str, settings: IndexSettings, seconds: float
) -> Mapping[str, Sequence[pypi_simple.DistributionPackage]]:
    """The files of projects on the user's own indexes, none of one that they do not have; without those that none answered for.

    :param others: more projects, which are asked for only where ``index``, if it is named, is one of the user's.
    :param seconds: how long all of it may take.
    """
    settings = replace(settings, timeout=seconds)
    own = _addresses(settings)
    names = [*projects, *(others if not index or index.rstrip("/") in own else ())]
    if not own or not names:
        return {}
    trace(f"Asking {', '.join(sorted(map(urldefragauth, own)))} for {', '.join(names)}")

    def of(name: str) -> Sequence[pypi_simple.DistributionPackage] | None:
        files = []
        for url in settings.indexes:
            with PackageIndex(url, settings) as one, contextlib.suppress(NetworkError):
                files += one.packages(name)
                continue
            return None
        return files

    try:
        pages = zip(names, each(names, of, "The package index", seconds=seconds), strict=True)
    except NetworkError as error:
        trace(f"{error}: advice is given without it")
        return {}
    return {name: files for name, files in pages if files is not None}
