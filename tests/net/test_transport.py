import os
from pathlib import Path

import pytest

from flashdepot.errors import UsageError
from flashdepot.net.transport import read_index_settings

NAME, USER, USER_OLD = (
    ("pip.ini", Path("pip"), Path("pip")) if os.name == "nt" else ("pip.conf", Path(".config/pip"), Path(".pip"))
)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_settings_the_default_index_is_asked():
    settings = read_index_settings()
    assert settings.indexes == (None,)
    assert settings.certificates is None


@pytest.mark.parametrize("place", [f"etc/{NAME}", f"{USER_OLD}/{NAME}", f"{USER}/{NAME}", f"python/{NAME}"])
def test_each_of_pips_files_is_read(settings_free, place):
    write(settings_free / place, "[global]\nindex-url = https://a/simple\n")
    assert read_index_settings().indexes == ("https://a/simple",)


def test_a_later_file_wins_and_a_command_section_wins_over_global(settings_free):
    write(settings_free / "etc" / NAME, "[global]\nindex-url = https://site/\ntimeout = 7\n[install]\ncert = /c.pem\n")
    write(settings_free / USER / NAME, "[global]\nindex_url = https://user/\ncert = /weaker.pem\n")
    settings = read_index_settings()
    assert settings.indexes == ("https://user/",)
    assert settings.certificates == "/c.pem"
    assert settings.timeout == 7


def test_the_file_that_is_named_replaces_the_users(settings_free, monkeypatch):
    write(settings_free / USER / NAME, "[global]\nextra-index-url = https://user/\n")
    write(settings_free / "mine.conf", "[global]\nindex-url = https://mine/\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings_free / "mine.conf"))
    assert read_index_settings().indexes == ("https://mine/",)


def test_the_null_device_as_file_turns_all_files_off(settings_free, monkeypatch):
    write(settings_free / "etc" / NAME, "[global]\nindex-url = https://site/\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert read_index_settings().indexes == (None,)


def test_the_active_environments_file_is_read(settings_free, monkeypatch):
    write(settings_free / "venv" / NAME, "[global]\nindex-url = https://venv/\n")
    monkeypatch.setenv("VIRTUAL_ENV", str(settings_free / "venv"))
    assert read_index_settings().indexes == ("https://venv/",)


def test_variables_win_over_files_and_extra_indexes_follow(settings_free, monkeypatch):
    write(
        settings_free / USER / NAME,
        "[global]\nindex-url = https://user/\nextra-index-url =\n    https://b/\n    https://c/\n",
    )
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable/")
    assert read_index_settings().indexes == ("https://variable/", "https://b/", "https://c/")


def test_uvs_variables_are_read(settings_free, monkeypatch):
    write(settings_free / USER / NAME, "[global]\nindex-url = https://user/\n")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "main=https://uv/")
    monkeypatch.setenv("UV_INDEX", "https://one/?a=b two=https://two/")
    assert read_index_settings().indexes == ("https://uv/", "https://one/?a=b", "https://two/")


def test_no_index_leaves_none(monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert read_index_settings().indexes == ()


@pytest.mark.parametrize("variable", ["PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_come_from_the_usual_variables(monkeypatch, variable):
    monkeypatch.setenv(variable, "/ca.pem")
    assert read_index_settings().certificates == "/ca.pem"


def test_proxy_client_certificate_and_trusted_hosts_are_read(settings_free):
    write(
        settings_free / USER / NAME,
        "[global]\nproxy = http://p:1\nclient-cert = /me.pem\ntrusted-host = a.example b.example:8\n",
    )
    settings = read_index_settings()
    assert settings.proxy == "http://p:1"
    assert settings.client_certificate == "/me.pem"
    assert settings.trusted_hosts == {"a.example", "b.example:8"}


def test_a_broken_file_is_named(settings_free):
    write(settings_free / USER / NAME, "index-url = https://user/\n")
    with pytest.raises(UsageError, match="cannot be read"):
        read_index_settings()


def test_a_timeout_that_is_not_a_number_is_named(monkeypatch):
    monkeypatch.setenv("PIP_TIMEOUT", "soon")
    with pytest.raises(UsageError, match="'soon': expected a number"):
        read_index_settings()
