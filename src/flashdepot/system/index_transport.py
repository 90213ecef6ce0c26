"""How an index is reached: certificates, proxy, credentials, and folders in place of servers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_auth_from_url, get_netrc_auth

from flashdepot.system.index_settings import IndexSettings


def open_session(index: str, settings: IndexSettings) -> requests.Session:
    """Open a session for an index and the servers that it refers to.

    A user and password in the index's URL are sent to that server alone.
    """
    session = requests.Session()
    transport = _Transport(settings)
    session.mount("https://", transport)
    session.mount("http://", transport)
    session.mount("file://", _LocalFiles())
    user, password = get_auth_from_url(index)
    if user:
        session.auth = _Credentials(index, user, password)
    return session


class _Credentials(AuthBase):
    """An index's user and password for that server alone; ``.netrc`` for any other that it refers to."""

    def __init__(self, index: str, user: str, password: str) -> None:
        self._server, self._own = _server(index), (user, password)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        url = str(request.url)
        pair = self._own if _server(url) == self._server else get_netrc_auth(url)
        return HTTPBasicAuth(*pair)(request) if pair else request


def _server(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]


class _Transport(HTTPAdapter):
    """HTTP with pip's certificate and proxy settings, which requests would let its own variables override."""

    def __init__(self, settings: IndexSettings) -> None:
        super().__init__()
        self._settings = settings
        if settings.trusted_hosts:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: dict[str, str] | None = None,
    ) -> requests.Response:
        url = urlsplit(str(request.url))
        if not self._settings.trusted_hosts.isdisjoint({url.hostname, url.netloc}):
            verify = False
        elif self._settings.certificates:
            verify = self._settings.certificates
        if proxy := self._settings.proxy:
            proxies = {"http": proxy, "https": proxy}
        try:
            return super().send(request, stream, timeout, verify, self._settings.client_certificate or cert, proxies)
        except OSError as error:
            if isinstance(error, requests.RequestException):
                raise
            # requests checks that certificate files exist, and says so with a bare OSError.
            raise requests.exceptions.SSLError(str(error), request=request) from error


class _LocalFiles(BaseAdapter):
    """``file://`` indexes, as pip knows them: a folder's page is its ``index.html``."""

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,  # noqa: ARG002
        timeout: Any = None,  # noqa: ARG002
        verify: bool | str = True,  # noqa: ARG002
        cert: Any = None,  # noqa: ARG002
        proxies: dict[str, str] | None = None,  # noqa: ARG002
    ) -> requests.Response:
        path = Path(url2pathname(urlsplit(str(request.url)).path))
        path = path / "index.html" if path.is_dir() else path
        response = requests.Response()
        response.request, response.url = request, str(request.url)
        try:
            content = path.read_bytes()
        except OSError as error:
            response.status_code, response.reason, content = 404, str(error.strerror), b""
        else:
            response.status_code, response.reason = 200, "OK"
        response.headers["Content-Length"] = str(len(content))
        response.headers["Content-Type"] = "text/html" if path.suffix == ".html" else "application/octet-stream"
        response.raw = io.BytesIO(content)
        return response

    def close(self) -> None:
        pass
