"""How servers are reached: the user's settings of pip and uv, certificates, proxy, credentials, and file URLs."""

from __future__ import annotations

import configparser
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import url2pathname

import msgspec
import platformdirs
import requests
import urllib3
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_auth_from_url, get_netrc_auth, select_proxy, urldefragauth

from flashdepot.errors import UsageError
from flashdepot.net.errors import ProxyFailure

_CONFIG_NAME = "pip.ini" if os.name == "nt" else "pip.conf"
_SECTIONS = ("global", "install", "download")
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
_TIMEOUT = 30.0
_UV_INDEX = re.compile(r"(?:[\w.-]+=)?(.+)")


class IndexSettings(msgspec.Struct, frozen=True):
    """Package indexes in the order in which they are asked, and how to reach them.

    An index of ``None`` is the one that pypi-simple knows. ``certificates`` is a file or folder of certificate
    authorities, ``timeout`` is in seconds for a connection and for each wait for data.
    """

    indexes: tuple[str | None, ...] = (None,)
    certificates: str | None = None
    client_certificate: str | None = None
    proxy: str | None = None
    trusted_hosts: frozenset[str] = frozenset()
    timeout: float = _TIMEOUT


def read_index_settings() -> IndexSettings:
    """Read pip's configuration files, ``PIP_*``, uv's index variables and the usual certificate variables.

    The rules are pip's ("Configuration" in its user guide). uv's variables come between pip's files and pip's variables.
    """
    variables = {n[4:].lower().replace("_", "-"): v for n, v in os.environ.items() if n.startswith("PIP_") and v}
    files = _pip_files()
    pip = files | variables
    uv_default = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    default = variables.get("index-url") or _uv_url(uv_default) or files.get("index-url")
    uv_extra = f"{os.environ.get('UV_INDEX', '')} {os.environ.get('UV_EXTRA_INDEX_URL', '')}".split()
    extra = [*pip.get("extra-index-url", "").split(), *filter(None, map(_uv_url, uv_extra))]
    no_index = pip.get("no-index", "").strip().lower() in {"1", "true", "yes", "on", "y", "t"}
    certificates = next(filter(None, map(os.environ.get, _CERTIFICATES)), None)
    return IndexSettings(
        indexes=() if no_index else tuple(dict.fromkeys([default, *extra])),
        certificates=pip.get("cert") or certificates,
        client_certificate=pip.get("client-cert"),
        proxy=pip.get("proxy"),
        trusted_hosts=frozenset(pip.get("trusted-host", "").split()),
        timeout=_seconds(pip.get("timeout") or pip.get("default-timeout")),
    )


def _seconds(text: str | None) -> float:
    try:
        return float(text) if text else _TIMEOUT
    except ValueError as error:
        raise UsageError(
            f"pip's setting 'timeout' is '{text}': expected a number of seconds.",
            hint="Fix it: pip config set global.timeout 30",
        ) from error


def _uv_url(text: str | None) -> str | None:
    """Strip the name that uv lets an index have: ``internal=https://...``."""
    match = _UV_INDEX.fullmatch(text.strip()) if text else None
    return match[1] if match else None


def _pip_files() -> dict[str, str]:
    sections: dict[str, dict[str, str]] = {name: {} for name in _SECTIONS}
    for path in _config_files():
        parser = configparser.RawConfigParser()
        try:
            parser.read(path)
        except (configparser.Error, UnicodeDecodeError) as error:
            message = f"pip's configuration file {path} cannot be read: {error}."
            raise UsageError(
                message, hint="Fix it ('pip config debug' shows all of them), or set PIP_CONFIG_FILE."
            ) from error
        for section in filter(parser.has_section, _SECTIONS):
            sections[section].update((name.replace("_", "-"), value) for name, value in parser.items(section))
    return {name: value for section in _SECTIONS for name, value in sections[section].items()}


def _config_files() -> Iterator[Path]:
    """Yield pip's configuration files, the weakest first."""
    named = os.environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    for folder in _site_folders():
        yield folder / _CONFIG_NAME
    if not (named and Path(named).exists()):
        yield Path.home() / ("pip" if os.name == "nt" else ".pip") / _CONFIG_NAME
        yield _user_folder() / _CONFIG_NAME
    # The environment that is active is what the user configured, also when flashdepot itself runs from another.
    yield Path(os.environ.get("VIRTUAL_ENV") or sys.prefix) / _CONFIG_NAME
    if named:
        yield Path(named)


def _site_folders() -> list[Path]:
    if sys.platform == "darwin":
        return [Path(platformdirs.site_data_dir("pip", appauthor=False))]
    folders = platformdirs.site_config_dir("pip", appauthor=False, multipath=True).split(os.pathsep)
    return [Path(folder) for folder in (folders if os.name == "nt" else [*folders, "/etc"])]


def _user_folder() -> Path:
    if sys.platform == "darwin":
        folder = Path(platformdirs.user_data_dir("pip", appauthor=False))
        return folder if folder.is_dir() else Path.home() / ".config" / "pip"
    return Path(platformdirs.user_config_dir("pip", appauthor=False, roaming=True))


_CHUNK = 1 << 16
_LENGTH = re.compile(r"[0-9]{1,18}", re.ASCII)
_CONTENT_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)", re.ASCII)


def open_session(address: str, settings: IndexSettings, *others: str) -> requests.Session:
    """Open a session for an address, some others, and the servers that they refer to.

    A user and password in an address are sent only to that server. No answer may lead from https to anything else.
    """
    session = _Session()
    transport = _Transport(settings)
    session.mount("https://", transport)
    session.mount("http://", transport)
    session.mount("file://", _LocalFiles())
    if own := {_server(url): pair for url in (address, *others) if (pair := get_auth_from_url(url))[0]}:
        session.auth = _Credentials(own)
    return session


def read_body(response: requests.Response, longest: int) -> bytes:
    """The body of a streamed answer, decoded; :raises ValueError: when it has more than ``longest`` bytes."""
    body = bytearray()
    for chunk in response.iter_content(_CHUNK):
        body += chunk
        if len(body) > longest:
            raise ValueError(f"the answer has more than {longest >> 20} MiB")
    return bytes(body)


def raw_chunks(response: requests.Response, *, at_once: bool = False) -> Iterator[bytes]:
    """The bytes as they were sent, with ``at_once`` what has come; :raises requests.ConnectionError: when they end too early."""
    try:
        read = response.raw.read1 if at_once else response.raw.read
        yield from iter(lambda: read(_CHUNK, decode_content=False), b"")
    except (urllib3.exceptions.HTTPError, ValueError, OverflowError) as error:
        raise requests.ConnectionError(error) from error


def length_of(response: requests.Response) -> int | None:
    """What ``Content-Length`` says; ``None`` where it says nothing that could be a length."""
    text = response.headers.get("Content-Length", "").strip()
    return int(text) if _LENGTH.fullmatch(text) else None


def content_range(response: requests.Response) -> tuple[int | None, int | None, int | None]:
    """First byte, last byte and size (RFC 9110, 14.4), ``None`` where it does not say."""
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
    if match is None:
        return None, None, None
    first, last, total = (int(text) if text and text != "*" else None for text in match.groups())
    return first, last, total


class _Session(requests.Session):
    """A session whose requests fail as requests says they do, whatever a server answers, and that leaves https for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.hooks["response"].append(self._judge_redirect)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        try:
            return super().send(request, **kwargs)
        except requests.RequestException:
            raise
        except Exception as error:
            message = f"its answer cannot be used ({error})"
            raise requests.exceptions.InvalidURL(message, request=request) from error

    def _judge_redirect(self, response: requests.Response, *_: Any, **__: Any) -> None:
        """Refuse a redirect that leads off https, to this machine's files or to no address."""
        if not response.is_redirect:
            return
        try:
            old, new = str(response.url), urljoin(str(response.url), self.get_redirect_target(response))
            requests.PreparedRequest().prepare_url(new, None)
            allowed = {"https"} if old.startswith("https:") else {"http", "https"}
            if urlsplit(new).scheme not in allowed:
                message = f"it leads from {urldefragauth(old)} to {urldefragauth(new)}, which is refused"
                raise requests.exceptions.InvalidURL(message, response=response)  # noqa: TRY301
        except BaseException:
            if response.raw is not None:
                response.close()
            raise


class _Credentials(AuthBase):
    """Users and passwords, each only for its server; ``.netrc`` for any other that is asked."""

    def __init__(self, own: Mapping[tuple[str, str], tuple[str, str]]) -> None:
        self._own = own

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        url = str(request.url)
        pair = self._own.get(_server(url)) or get_netrc_auth(url)
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
        used = select_proxy(str(request.url), proxies)
        proxy = urldefragauth(used) if used else None
        try:
            response = super().send(
                request, stream, timeout, verify, self._settings.client_certificate or cert, proxies
            )
        except requests.exceptions.ProxyError as error:
            raise ProxyFailure(error, proxy or "") from error
        except OSError as error:
            if isinstance(error, requests.RequestException):
                raise
            # requests checks that certificate files exist, and says so with a bare OSError.
            raise requests.exceptions.SSLError(str(error), request=request) from error
        if proxy and url.scheme == "http" and not response.ok:  # either of them may have answered
            response.reason = f"{response.reason} (through the proxy {proxy})"
        return response


class _LocalFiles(BaseAdapter):
    """``file://`` indexes, as pip knows them: a folder's page is its ``index.html``."""

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        path = Path(url2pathname(urlsplit(str(request.url)).path))
        path = path / "index.html" if path.is_dir() else path
        response = requests.Response()
        response.request, response.url = request, str(request.url)
        body: IO[bytes] = io.BytesIO()
        try:
            body = path.open("rb")
        except OSError as error:
            response.status_code, response.reason = 404, str(error.strerror)
        else:
            response.status_code, response.reason = 200, "OK"
            response.headers["Content-Length"] = str(path.stat().st_size)
        response.headers["Content-Type"] = "text/html" if path.suffix == ".html" else "application/octet-stream"
        response.raw = urllib3.HTTPResponse(body, preload_content=False)
        return response

    def close(self) -> None:
        pass
