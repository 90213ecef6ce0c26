"""An archive fetched by the user's index, and the proxies, certificates and passwords on the way."""

import base64
import hashlib
import os
import socket
import ssl
from pathlib import Path

import pytest
import requests

from flashdepot.errors import IntegrityError, MissingToolError, NetworkError, UsageError
from flashdepot.net.errors import UnreachableError, network_errors
from flashdepot.net.fetch import fetch
from flashdepot.net.transport import read_index_settings
from support.tools import posix, write_files

NAME = "demo-1.0.tar.gz"
CONTENT = os.urandom(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
OTHER = hashlib.sha256(b"other").hexdigest()


@pytest.fixture
def destination(tmp_path):
    return tmp_path / "depot" / NAME


def left(destination: Path) -> list[str]:
    return [p.name for p in destination.parent.iterdir()] if destination.parent.is_dir() else []


@pytest.mark.parametrize("as_json", [True, False])
def test_a_published_file_arrives_whole_with_progress(index, destination, as_json):
    index.files[NAME], index.as_json = CONTENT, as_json
    seen = []
    assert fetch("demo", NAME, DIGEST, destination, on_progress=lambda *step: seen.append(step)) == destination
    assert destination.read_bytes() == CONTENT
    assert left(destination) == [NAME]
    assert seen[-1] == (len(CONTENT), len(CONTENT))


def test_a_file_that_is_there_is_taken_without_the_network(index, destination, monkeypatch):
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    destination.parent.mkdir()
    destination.write_bytes(CONTENT)
    assert fetch("demo", NAME, DIGEST, destination).read_bytes() == CONTENT
    assert index.requests == []


def test_a_damaged_file_on_disk_is_replaced(index, destination):
    index.files[NAME] = CONTENT
    destination.parent.mkdir()
    destination.write_bytes(CONTENT[:-1])
    assert fetch("demo", NAME, DIGEST, destination).read_bytes() == CONTENT


def test_offline_forbids_the_network_and_says_so(index, destination, monkeypatch):
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    with pytest.raises(NetworkError, match=f"{NAME} needs the network, and --offline or FLASHDEPOT_OFFLINE forbids it"):
        fetch("demo", NAME, DIGEST, destination)
    assert index.requests == []


@pytest.mark.parametrize("is_declared", [True, False])
def test_other_bytes_under_the_same_name_are_refused_and_not_kept(index, destination, is_declared):
    index.files[NAME] = b"other"
    if not is_declared:
        index.declared[NAME] = DIGEST
    with pytest.raises(IntegrityError) as caught:
        fetch("demo", NAME, DIGEST, destination)
    assert DIGEST in caught.value.message
    assert OTHER in caught.value.message
    assert left(destination) == []
    assert caught.value.exit_code == 6


@pytest.mark.parametrize("statuses", [[500], [503, 429]])
def test_failures_that_pass_are_tried_again(index, destination, statuses):
    index.files[NAME] = CONTENT
    index.statuses = statuses
    assert fetch("demo", NAME, DIGEST, destination).read_bytes() == CONTENT


@pytest.mark.parametrize(("status", "requests"), [(503, 3), (403, 1)])
def test_a_server_that_keeps_failing_is_named_with_its_answer_and_a_refusal_is_not_tried_again(
    index, destination, status, requests
):
    index.statuses = [status] * 9
    with pytest.raises(NetworkError, match=rf"127\.0\.0\.1.* answers {status}"):
        fetch("demo", NAME, DIGEST, destination)
    assert len(index.requests) == requests


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize("project", ["demo", "unheard-of"])
def test_a_file_that_no_index_has_is_an_error_about_the_indexes(destination, project):
    with pytest.raises(NetworkError, match=rf"No package index has {NAME} of {project}: asked http://127") as caught:
        fetch(project, NAME, DIGEST, destination)
    assert "PIP_INDEX_URL" in caught.value.hint


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("http://127.0.0.1:{}", r"cannot be reached \(.*refused\)\.$"),
        ("http://nowhere.invalid:{}", r"cannot be reached \(Failed to resolve [^()]*\(.*\)\)\.$"),
    ],
)
@pytest.mark.usefixtures("index")
def test_a_refused_connection_is_named_in_a_plain_sentence(destination, monkeypatch, server, said):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.format(unused.getsockname()[1])}/simple")
        with pytest.raises(NetworkError, match=said):
            fetch("demo", NAME, DIGEST, destination)


@pytest.mark.parametrize(
    ("reason", "said", "helps"),
    [
        ("certificate is not yet valid", r"not valid at this time .*this machine's clock says \d{4}-", "set it"),
        ("certificate has expired", r"not valid at this time .*this machine's clock says \d{4}-", "set it"),
        ("unable to get local issuer certificate", "is not trusted", "PIP_CERT"),
    ],
)
def test_a_certificate_of_another_time_is_blamed_on_a_clock_and_not_on_authorities(reason, said, helps):
    refused = ssl.SSLCertVerificationError(1, f"certificate verify failed: {reason} (_ssl.c:997)")
    with pytest.raises(NetworkError, match=said) as caught, network_errors("demo", "https://x", "wait"):
        raise requests.exceptions.SSLError(refused)
    assert helps in caught.value.hint


def test_an_extra_index_serves_what_the_first_lacks_or_has_changed(index, destination, monkeypatch, tmp_path):
    folder = tmp_path / "offline" / "demo"
    folder.mkdir(parents=True)
    (folder / NAME).write_bytes(CONTENT)
    (folder / "index.html").write_text(f'<a href="{NAME}#sha256={DIGEST}">{NAME}</a>')
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{(tmp_path / 'nowhere').as_uri()} {folder.parent.as_uri()}")
    index.files[NAME] = b"other"
    assert fetch("demo", NAME, DIGEST, destination).read_bytes() == CONTENT


def test_credentials_of_the_index_are_used_and_never_shown(index, destination, monkeypatch):
    index.files[NAME] = CONTENT
    index.authorization = "Basic " + base64.b64encode(b"me:s3cret/").decode()
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("://", "://me:s3cret%2F@"))
    assert fetch("demo", NAME, DIGEST, destination).read_bytes() == CONTENT
    index.authorization = "another"
    with pytest.raises(NetworkError, match="answers 401") as caught:
        fetch("demo", NAME, OTHER, destination.with_name("second"))
    assert "s3cret" not in caught.value.message + caught.value.hint


def test_netrc_is_used(index, destination, settings_free):
    index.files[NAME] = CONTENT
    index.authorization = "Basic " + base64.b64encode(b"me:from-netrc").decode()
    netrc = settings_free / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password from-netrc\n")
    netrc.chmod(0o600)
    assert fetch("demo", NAME, DIGEST, destination).read_bytes() == CONTENT


def test_the_proxy_of_pip_is_used(index, destination, monkeypatch):
    # The index has a name that only the proxy could resolve; the proxy is asked for the whole URL.
    monkeypatch.setenv("PIP_INDEX_URL", "http://index.invalid/simple")
    monkeypatch.setenv("PIP_PROXY", index.url.removesuffix("/simple/"))
    with pytest.raises(NetworkError, match="No package index has"):
        fetch("demo", NAME, DIGEST, destination)
    assert index.requests == ["http://index.invalid/simple/demo/"]


@pytest.mark.parametrize(
    ("scheme", "status", "said", "hint"),
    [
        ("https", 403, "answers 403 Forbidden and does not lead to https://index.invalid", "allow that server"),
        (
            "https",
            407,
            "answers 407 .* and does not lead to https://index.invalid",
            "HTTPS_PROXY=http://USER:PASSWORD@",
        ),
        ("https", None, r"cannot be reached \(.*refused\)", "HTTPS_PROXY"),
        ("http", 403, r"answers 403 Forbidden \(through the proxy", "~/.netrc"),
        ("http", 407, r"answers 407 .* \(through the proxy", "HTTPS_PROXY=http://USER:PASSWORD@"),
    ],
)
def test_a_proxy_that_refuses_is_named_and_not_the_server(index, destination, monkeypatch, scheme, status, said, hint):
    index.statuses = [status] * 9
    proxy = index.url.removesuffix("/simple/") if status else "http://127.0.0.1:1"  # where nobody listens
    monkeypatch.setenv("PIP_INDEX_URL", f"{scheme}://index.invalid/simple")
    monkeypatch.setenv("PIP_PROXY", proxy.replace("//", "//me:secret@"))
    with pytest.raises(NetworkError, match=said) as caught:
        fetch("demo", NAME, DIGEST, destination)
    assert f"the proxy {proxy}" in caught.value.message
    assert isinstance(caught.value, UnreachableError) == (
        status is None
    )  # a proxy that answers is one that was reached
    assert hint in caught.value.hint
    assert "secret" not in caught.value.message + caught.value.hint


def test_a_certificate_file_that_is_not_there_is_named(index, destination, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("http://", "https://"))
    monkeypatch.setenv("PIP_CERT", "/nowhere/ca.pem")
    with pytest.raises(NetworkError, match="certificate") as caught:
        fetch("demo", NAME, DIGEST, destination)
    assert "/nowhere/ca.pem" in caught.value.message
    assert "PIP_CERT" in caught.value.hint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
@posix("device that is always full")
def test_a_full_disk_is_named(index, destination):
    index.files[NAME] = CONTENT
    destination.parent.mkdir()
    destination.with_name(f".{NAME}.download.tmp").symlink_to("/dev/full")
    with pytest.raises(MissingToolError, match="is full"):
        fetch("demo", NAME, DIGEST, destination)


PIP_FILE, USER, USER_OLD = (
    ("pip.ini", Path("pip"), Path("pip")) if os.name == "nt" else ("pip.conf", Path(".config/pip"), Path(".pip"))
)
USERS, SITE = f"{USER}/{PIP_FILE}", f"etc/{PIP_FILE}"


def test_without_settings_the_default_index_is_asked():
    settings = read_index_settings()
    assert settings.indexes == (None,)
    assert settings.certificates is None


@pytest.mark.parametrize(
    "place", [f"etc/{PIP_FILE}", f"{USER_OLD}/{PIP_FILE}", f"{USER}/{PIP_FILE}", f"python/{PIP_FILE}"]
)
def test_each_of_pips_files_is_read(settings_free, place):
    write_files(settings_free, {place: "[global]\nindex-url = https://a/simple\n"})
    assert read_index_settings().indexes == ("https://a/simple",)


def test_a_later_file_wins_and_a_command_section_wins_over_global(settings_free):
    site = "[global]\nindex-url = https://site/\ntimeout = 7\n[install]\ncert = /c.pem\n"
    write_files(settings_free, {SITE: site, USERS: "[global]\nindex_url = https://user/\ncert = /weaker.pem\n"})
    settings = read_index_settings()
    assert settings.indexes == ("https://user/",)
    assert settings.certificates == "/c.pem"
    assert settings.timeout == 7


@pytest.mark.parametrize(
    ("files", "variables", "indexes"),
    [
        ({USERS: "extra-index-url = https://user/", "mine.conf": "index-url = https://mine/"},
         {"PIP_CONFIG_FILE": "HOME/mine.conf"}, ("https://mine/",)),
        ({SITE: "index-url = https://site/"}, {"PIP_CONFIG_FILE": os.devnull}, (None,)),
        ({f"venv/{PIP_FILE}": "index-url = https://venv/"}, {"VIRTUAL_ENV": "HOME/venv"}, ("https://venv/",)),
        ({USERS: "index-url = https://user/\nextra-index-url =\n    https://b/\n    https://c/"},
         {"PIP_INDEX_URL": "https://variable/"}, ("https://variable/", "https://b/", "https://c/")),
        ({USERS: "index-url = https://user/"},
         {"UV_DEFAULT_INDEX": "main=https://uv/", "UV_INDEX": "https://one/?a=b two=https://two/"},
         ("https://uv/", "https://one/?a=b", "https://two/")),
        ({}, {"PIP_NO_INDEX": "1"}, ()),
    ],
    ids=["a file that is named", "no file", "an environment's file", "variables before files", "uv's", "no index"],
)  # fmt: skip
def test_variables_choose_the_file_and_win_over_it(settings_free, monkeypatch, files, variables, indexes):
    write_files(settings_free, {place: f"[global]\n{text}\n" for place, text in files.items()})
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("HOME", str(settings_free)))
    assert read_index_settings().indexes == indexes


@pytest.mark.parametrize("variable", ["PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_certificates_come_from_the_usual_variables(monkeypatch, variable):
    monkeypatch.setenv(variable, "/ca.pem")
    assert read_index_settings().certificates == "/ca.pem"


def test_proxy_client_certificate_and_trusted_hosts_are_read(settings_free):
    said = "[global]\nproxy = http://p:1\nclient-cert = /me.pem\ntrusted-host = a.example b.example:8\n"
    write_files(settings_free, {USERS: said})
    settings = read_index_settings()
    assert settings.proxy == "http://p:1"
    assert settings.client_certificate == "/me.pem"
    assert settings.trusted_hosts == {"a.example", "b.example:8"}


def test_a_broken_file_is_named(settings_free):
    write_files(settings_free, {USERS: "index-url = https://user/\n"})
    with pytest.raises(UsageError, match="cannot be read"):
        read_index_settings()


def test_a_timeout_that_is_not_a_number_is_named(monkeypatch):
    monkeypatch.setenv("PIP_TIMEOUT", "soon")
    with pytest.raises(UsageError, match="'soon': expected a number"):
        read_index_settings()
