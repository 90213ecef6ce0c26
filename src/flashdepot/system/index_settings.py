"""Which package indexes to ask, and how: what the user has already told pip or uv."""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import platformdirs

from flashdepot.errors import UsageError

_CONFIG_NAME = "pip.ini" if os.name == "nt" else "pip.conf"
_SECTIONS = ("global", "install", "download")
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

    The rules are pip's ("Configuration" in its user guide): global file, user file, that of the virtual environment,
    ``PIP_CONFIG_FILE``, then variables; a later one replaces an earlier one. uv's variables stand between pip's files
    and pip's variables.

    :raises UsageError: for a configuration file or a value that cannot be read.
    """
    files, variables = _pip_files(), _pip_variables()
    pip = files | variables
    uv_default = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL")
    default = variables.get("index-url") or _uv_url(uv_default) or files.get("index-url")
    uv_extra = f"{os.environ.get('UV_INDEX', '')} {os.environ.get('UV_EXTRA_INDEX_URL', '')}".split()
    extra = [*pip.get("extra-index-url", "").split(), *filter(None, map(_uv_url, uv_extra))]
    return IndexSettings(
        indexes=() if _is_set(pip.get("no-index", "")) else tuple(dict.fromkeys([default, *extra])),
        certificates=pip.get("cert") or _first_variable("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
        client_certificate=pip.get("client-cert"),
        proxy=pip.get("proxy"),
        trusted_hosts=frozenset(pip.get("trusted-host", "").split()),
        timeout=_seconds(pip.get("timeout") or pip.get("default-timeout")),
    )


def _first_variable(*names: str) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _is_set(text: str) -> bool:
    return text.strip().lower() in {"1", "true", "yes", "on", "y", "t"}


def _seconds(text: str | None) -> float:
    try:
        return float(text) if text else _TIMEOUT
    except ValueError as error:
        message = f"pip's setting 'timeout' is '{text}': expected a number of seconds."
        raise UsageError(message, hint="Fix it: pip config set global.timeout 30") from error


def _uv_url(text: str | None) -> str | None:
    """Strip the name that uv lets an index have: ``internal=https://...``."""
    match = _UV_INDEX.fullmatch(text.strip()) if text else None
    return match[1] if match else None


def _pip_variables() -> dict[str, str]:
    names = (name for name in os.environ if name.startswith("PIP_"))
    return {name[4:].lower().replace("_", "-"): os.environ[name] for name in names if os.environ[name]}


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
