import re
from html.parser import HTMLParser

import pytest

from flashdepot.catalog import Catalog, Collection, load_catalog
from flashdepot.catalog.matrix_page import page
from flashdepot.catalog.published_files import PublishedFile, to_wheels
from support.chromium import browser, chromium
from support.tools import flashdepot_here, run_program

NAMES = [
    "flash_attn-2.8.3+cu128torch2.8-cp312-cp312-linux_x86_64.whl",
    "flash_attn-2.8.3+cu128torch2.8-cp313-cp313t-linux_x86_64.whl",
    "flash_attn-2.8.3+cu126torch2.8.0cxx11abiTRUE-cp312-cp312-win_amd64.whl",
    "flash_attn-2.7.2+cu124torch2.5cxx11abiFALSE-cp310-cp310-manylinux_2_28_x86_64.whl",
    "flash_attn-2.0.6+cu118torch2.0-cp310-cp310-linux_x86_64.whl",
    "flash_attn_3-3.0.0+cu128torch2.8-cp39-abi3-linux_x86_64.whl",
]


class Table(HTMLParser):
    """What a page has: its elements with their attributes, and the cells, links and visibility of each row."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.rows, self._cell, self._ids, self._inside = [], [], False, set(), False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if tag == "table":
            self._inside = attributes.get("id") == "wheels"
        elif tag == "tr" and self._inside:
            self.rows.append(([], [], "hidden" not in attributes))
        elif tag in {"td", "th"} and self._inside:
            self.rows[-1][0].append("")
        elif tag == "a" and self._inside:
            self.rows[-1][1].append(attributes["href"])
        self._cell = tag in {"td", "th", "a", "em"} and self._inside

    def handle_endtag(self, tag):
        if tag in {"table", "td", "th"}:
            self._cell = False

    def handle_data(self, data):
        if self._cell and self.rows:
            self.rows[-1][0][-1] += data.rstrip("\n")

    def shown(self):
        return [cells for cells, _, shown in self.rows[1:] if shown]

    def has(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag and wanted.items() <= a.items()]


def catalog_of(names, *, seen=True, source="ours"):
    place = "https://example.org/releases/download/v1/"
    files = [PublishedFile(name, place + name.replace("+", "%2B"), 0, "") for name in names]
    collection = Collection(source, "community", "https://example.org/", "", "2026-01-02T00:00:00Z")
    return Catalog(to_wheels(files, source=source, official=False, seen=seen), (collection,), ())


@pytest.fixture(scope="module")
def shipped():
    loaded = load_catalog()
    return loaded, page(loaded)


def test_the_whole_table_is_there_without_scripts_and_is_not_too_large(shipped):
    loaded, text = shipped
    table = Table(text)
    assert len(text.encode()) < 2_000_000
    assert len(table.shown()) == len(table.rows) - 1
    assert sum(len(cells[4].split(", ")) for cells in table.shown()) == len(loaded.wheels)
    linked = {link for _, links, _ in table.rows for link in links}
    assert {wheel.url for wheel in loaded.wheels if wheel.seen} <= linked
    assert not {wheel.url for wheel in loaded.wheels if not wheel.seen} & linked


def test_nothing_is_fetched_from_elsewhere(shipped):
    table = Table(shipped[1])
    assert not [tag for tag, a in table.elements if "src" in a or tag in {"link", "img", "iframe"}]
    assert table.has("meta", **{"http-equiv": "Content-Security-Policy"})


def test_a_screen_reader_hears_what_everything_is(shipped):
    table = Table(shipped[1])
    assert len(table.has("th", scope="col")) >= 9
    assert len(table.has("th", scope="row")) >= len(table.shown())
    assert {a["for"] for a in table.has("label")} == {a["id"] for a in table.has("select")}
    assert len(table.has("select")) == 9
    assert table.has("p", role="status")
    assert table.has("caption")
    assert table.has("html", lang="en")


def test_a_row_says_what_the_wheels_have_in_common_and_links_to_each():
    (cells, links, _) = Table(page(catalog_of(NAMES[:2]))).rows[1]
    assert cells == [
        "2.8.3", "2.8", "12.8", "not said", "3.12, 3.13t", "Linux x86-64", "8.0, 9.0, 10.0, 12.0", "ours", "seen",
    ]  # fmt: skip
    assert [link.rpartition("/")[2] for link in links] == [name.replace("+", "%2B") for name in NAMES[:2]]


def test_what_was_not_seen_leads_to_the_release_instead_of_a_file():
    (cells, links, _) = Table(page(catalog_of(NAMES[:2], seen=False))).rows[1]
    assert (cells[4], cells[8]) == ("3.12, 3.13t", "expected")
    assert links == ["https://example.org/releases/tag/v1"]


def test_texts_of_others_cannot_become_markup():
    evil = '<script>alert("&")</script>'
    catalog = catalog_of(NAMES, source=evil)
    collection = Collection(evil, evil, '"><script>', evil, evil)
    text = page(Catalog(catalog.wheels, (collection,), ()))
    assert text.count("<script>") == 1
    assert Table(text).rows[1][0][7] == evil


def test_an_empty_catalog_has_an_empty_table():
    assert Table(page(Catalog((), (), ()))).shown() == []


@pytest.fixture(scope="module")
def tab():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def whole_page(shipped, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "matrix.html"
    path.write_text(shipped[1], encoding="utf-8")
    return path.as_uri()


def choose(tab, name, label):
    """Choose an option by the beginning of its words: one action."""
    tab.ask(
        f"(() => {{ const s = document.querySelector('select[name={name}]');"
        f"s.value = [...s.options].find((o) => o.textContent.startsWith('{label}')).value;"
        "s.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("gpu", ["8.0", "9.0"], ids=["RTX 4090", "H100"])
def test_four_actions_lead_from_the_opened_page_to_the_copied_command(whole_page, tab, gpu, width):
    tab.open(whole_page, width=width)
    assert tab.shown(".take button") == []
    assert len(tab.shown("select")) == 5
    assert "More filters" in tab.shown("summary")
    choose(tab, "torch", "2.8.*")
    choose(tab, "cuda", "12.8")
    choose(tab, "python", "3.12")
    tab.click(".take button")
    command = tab.clipboard()
    assert re.fullmatch(r'pip install "https://.*cu12\d?torch2.8.*-cp312-cp312-[a-z0-9_]*linux\w*_x86_64.whl"', command)
    assert gpu in tab.shown("#why")[0].partition("machine code for ")[2].rstrip(".").split(", ")
    assert command == tab.shown(".take pre")[0]


def test_the_copied_command_names_the_wheel_that_resolve_names(whole_page, tab):
    tab.open(whole_page)
    for name, label in [("torch", "2.8.*"), ("cuda", "12.8"), ("python", "3.12")]:
        choose(tab, name, label)
    asked = [
        "resolve", "--torch", "2.8.0+cu128", "--python-tag", "3.12", "--platform", "linux-x86_64", "--glibc", "2.35",
        "--gpu", "9.0", "--driver", "580", "--source", "official", "--offline",
    ]  # fmt: skip
    answer = flashdepot_here(*asked)
    assert answer.stdout.split()[-1] == tab.shown(".take pre")[0].replace('"', "").split()[-1]


def test_where_only_others_have_a_wheel_the_page_offers_to_ask_resolve(whole_page, tab):
    tab.open(whole_page)
    for name, label in [("torch", "2.9.*"), ("cuda", "13.0"), ("python", "3.12"), ("gpu", "9.0")]:
        choose(tab, name, label)
    assert "no official wheel" in tab.shown("#why")[0]
    assert tab.shown(".take pre") == [
        "flashdepot resolve --torch 2.9 --torch-cuda 13.0 --python-tag 3.12 --platform linux-x86_64 --gpu 9.0 --allow community"
    ]


def test_no_row_of_others_and_none_for_another_abi_has_a_file_to_install(shipped):
    rows = re.findall(r'<tr data-file="([^"]+)">(.*)', shipped[1])
    assert rows
    for file, cells in rows:
        assert "<td>official<td>" in cells
        assert "/Dao-AILab/flash-attention/" in file
        torch = int(re.search(r"torch2\.(\d+)", file)[1]) if "torch2." in file else 0
        assert ("TRUE" in file) == (torch >= 7), file


def test_of_a_chosen_python_only_its_links_are_shown_and_they_come_back(whole_page, tab):
    tab.open(whole_page)
    count = (
        "[...document.querySelectorAll('#wheels tbody tr:not([hidden]) td:nth-child(5) a')].map((a) => a.textContent)"
    )
    before = len(tab.ask(count))
    choose(tab, "python", "3.12")
    assert {label.partition(" in ")[0] for label in tab.ask(count)} <= {
        "3.12",
        "3.9+",
        "3.8+",
        "3.10+",
        "3.11+",
        "3.12+",
    }
    tab.ask("document.querySelector('form').reset()")
    choose(tab, "platform", "Linux x86-64")
    assert len(tab.ask(count)) == before


def test_a_cuda_version_finds_the_wheels_that_name_only_its_major_one(tab, tmp_path):
    names = ["flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl", NAMES[0]]
    (tmp_path / "matrix.html").write_text(page(catalog_of(names)), encoding="utf-8")
    tab.open((tmp_path / "matrix.html").as_uri())
    choose(tab, "cuda", "12.8")
    assert tab.ask("[...document.querySelectorAll('#wheels tbody tr:not([hidden])')].length") == 2


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_runs_off_the_side_of_a_window(whole_page, tab, width):
    tab.open(whole_page, width=width)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask(
        "[...document.querySelectorAll('#wheels a')].slice(0, 50).every((a) => a.getBoundingClientRect().right <= innerWidth)"
    )


@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        ("", [0, 3, 4, 5]),  # the system that the browser runs on
        ("torch=2.5&cuda=12.4", [3]),
        ("torch=2.8.0", [2]),
        ("python=3.12", [0, 2, 5]),
        ("python=3.13t", [0]),
        ("platform=Linux+x86-64+(glibc+2.28)", [3]),
        ("gpu=gpu+8.9", [0, 2, 3, 5]),
        ("gpu=gpu+12.0", [0]),
        ("version=flash-attn-3+3.0.0&torch=2.8&gpu=gpu+9.0", [5]),
        ("cuda=12&abi=old&source=ours&existence=seen&platform=Linux+x86-64", [3]),
        ("torch=2.8&platform=Windows+x86-64&gpu=gpu+12.0", []),
        ("torch=no-such", [0, 2, 3, 4, 5]),
    ],
)
def test_filters_hide_what_was_not_chosen_in_a_browser(tmp_path, chosen, shown):
    path = tmp_path / "matrix.html"
    path.write_text(page(catalog_of(NAMES)), encoding="utf-8")
    command = [
        chromium(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        "--dump-dom", f"{path.as_uri()}#{chosen}",
    ]  # fmt: skip
    said = run_program(command, timeout=60)
    table = Table(said)
    versions = {0: "12.8", 2: "12.6", 3: "12.4", 4: "11.8", 5: "12.8"}
    packages = {5: "flash-attn-3 3.0.0", 3: "2.7.2", 4: "2.0.6"}
    assert {(cells[0], cells[2]) for cells in table.shown()} == {(packages.get(n, "2.8.3"), versions[n]) for n in shown}
    assert not table.has("form", hidden="")
    assert (f"{len(shown)} of 5 rows" if shown else "No wheel is published for that") in said
