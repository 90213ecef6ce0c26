from html.parser import HTMLParser

import pytest

from flashdepot.catalog import Catalog, Collection, load_catalog
from flashdepot.catalog.matrix_page import page
from flashdepot.catalog.published_files import PublishedFile, to_wheels
from support.chromium import browser

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
        elif tag == "tr" and self._inside and attributes.get("id") != "filters":
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
    wheels = to_wheels(files, source=source, official=False)
    return Catalog(tuple(wheel._replace(seen=seen) for wheel in wheels), (collection,), ())


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
    assert [a["aria-label"].split()[-1] for a in table.has("input")][:3] == ["flash-attn", "torch", "CUDA"]
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


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_runs_off_the_side_of_a_window(whole_page, tab, width):
    tab.open(whole_page, width=width)
    assert tab.ask("document.documentElement.scrollWidth") <= width
    assert tab.ask(
        "[...document.querySelectorAll('#wheels a')].slice(0, 50).every((a) => a.getBoundingClientRect().right <= innerWidth)"
    )


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ({}, [0, 2, 3, 4, 5]),
        ({"torch": "2.5", "CUDA": "12.4"}, [3]),
        ({"torch": "2.8.0"}, [2]),
        ({"Python": "3.12"}, [0, 2]),
        ({"Python": "3.13t"}, [0]),
        ({"Platform": "Linux x86-64 (glibc 2.28"}, [3]),
        ({"Platform": "windows"}, [2]),
        ({"Machine code": "12.0"}, [0]),
        ({"flash-attn": "flash-attn-3", "torch": "2.8"}, [5]),
        ({"CUDA": "11.8", "Existence": "seen"}, [4]),
        ({"torch": "2.8", "C++11 ABI": "old"}, []),
    ],
)
def test_what_is_typed_above_a_column_hides_the_other_rows(tmp_path, tab, typed, shown):
    path = tmp_path / "matrix.html"
    path.write_text(page(catalog_of(NAMES)), encoding="utf-8")
    tab.open(path.as_uri())
    for column, text in typed.items():
        tab.ask(f"document.querySelector('[aria-label=\"Filter by {column}\"]').focus()")
        tab.send("Input.insertText", text=text)
    cells = tab.ask(
        "[...document.querySelectorAll('#wheels tbody tr:not([hidden])')].map((r) => [r.cells[0].innerText, r.cells[2].innerText])"
    )
    versions = {0: "12.8", 2: "12.6", 3: "12.4", 4: "11.8", 5: "12.8"}
    packages = {5: "flash-attn-3 3.0.0", 3: "2.7.2", 4: "2.0.6"}
    assert {tuple(cell) for cell in cells} == {(packages.get(n, "2.8.3"), versions[n]) for n in shown}
    assert tab.shown("[role=status]") == [f"{len(shown)} of 5 rows"]


def test_a_cuda_version_finds_the_wheels_that_name_only_its_major_one(tab, tmp_path):
    names = ["flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl", *NAMES[:1], NAMES[2]]
    (tmp_path / "matrix.html").write_text(page(catalog_of(names)), encoding="utf-8")
    tab.open((tmp_path / "matrix.html").as_uri())
    tab.ask("document.querySelector('[aria-label=\"Filter by CUDA\"]').focus()")
    tab.send("Input.insertText", text="12.8")
    assert tab.shown("[role=status]") == ["2 of 3 rows"]
