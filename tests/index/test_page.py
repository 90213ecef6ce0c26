"""The page of an index: in a real browser, by mouse and by keys, with scripts and without, wide and narrow."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.facts.gpus import known_architectures
from flashdepot.index.page import page
from flashdepot.index.site import IndexSite
from flashdepot.index.subindexes import subindexes, wheels_for
from flashdepot.model.index_record import IndexRecord
from index.conftest import Publish, serve_site
from support.chromium import Tab, browser
from support.wheels import WheelMaker

EVIL = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
ADA, HOPPER, BLACKWELL = "RTX 40", "H100", "RTX 50"


@pytest.fixture
def site(maker: WheelMaker, publish: Publish) -> IndexSite:
    """Wheels that differ in GPU, system, driver and contents."""
    return publish(
        *(maker.make(sass).path for sass in ("80,90,120", "80", "90", "120")),
        maker.make("80,90,120", platform="windows-x86_64").path,
        maker.make("80,90", cuda="12.8").path,
        maker.make("90", profile="quick").path,
    )


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as opened:
        yield opened


def choose(tab: Tab, label: str) -> dict[str, str]:
    """Click the GPU with these words: the first command of each wheel that is shown then, by what is said of it."""
    tab.ask(
        f"[...document.querySelectorAll('summary')].forEach((s) => s.classList.toggle('wanted', s.innerText.includes('{label}')))"
    )
    tab.click("summary.wanted")
    return dict(zip(tab.shown(".answer h2"), tab.shown(".answer h2 + .command pre"), strict=True))


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize(("gpu", "code"), [(ADA, ".sm80-"), (HOPPER, ".sm90-"), (BLACKWELL, ".sm120-")])
def test_two_actions_lead_from_the_opened_page_to_the_copied_command(site, tab, gpu, code, width) -> None:
    with serve_site(site.path) as url:
        tab.open(url, width=width)
        assert tab.shown(".answer h2") == []
        command = next(iter(choose(tab, gpu).values()))
        tab.click(".answer button")
        assert tab.clipboard() == command
    assert command.startswith(f'pip install "flash-attn @ {url}files/flash_attn-9.9.9%2Bcu130.full')
    assert code in command
    assert "manylinux" in command
    assert tab.shown(".answer button")[0] == "Copied"


def test_it_works_with_only_the_keys(site, tab) -> None:
    tab.open((site.path / "index.html").as_uri())
    for _ in range(2):
        tab.press("Tab", 9)
    assert tab.ask("document.activeElement.tagName") == "SUMMARY"
    tab.press("Enter", 13)
    command = tab.shown(".answer pre")[0]
    for _ in range(2):
        tab.press("Tab", 9)
    assert tab.ask("document.activeElement.tagName") == "BUTTON"
    tab.press("Enter", 13)
    assert tab.clipboard() == command


def test_it_works_without_scripts(site, tab) -> None:
    tab.open((site.path / "index.html").as_uri(), scripts=False)
    (windows,) = (command for said, command in choose(tab, HOPPER).items() if said.startswith("Windows"))
    assert "win_amd64" in windows
    assert "https://ADDRESS-OF-THIS-PAGE/files/" in windows
    assert tab.shown(".answer button") == []


def test_of_wheels_that_serve_the_same_machine_the_smallest_of_the_newest_is_shown(site, tab) -> None:
    tab.open((site.path / "index.html").as_uri())
    shown = choose(tab, HOPPER)
    assert [said.split(", ")[0] for said in shown] == ["Linux x86-64"] * 3 + ["Windows x86-64"]
    first, older, quick, _ = shown.values()
    assert [".full.hd64.sm90-" in first, "cu128.full" in older, "cu130.quick.sm90" in quick] == [True] * 3
    needs = tab.shown(".answer p")
    assert ["driver 580" in text for text in needs[:2]] == [True, False]
    assert not any("quick" in command for command in choose(tab, ADA).values())


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_is_fetched_from_elsewhere_and_nothing_runs_off_the_side(site, tab, width) -> None:
    tab.requests.clear()
    tab.open((site.path / "index.html").as_uri(), width=width)
    assert {address for address in tab.requests if address != "about:blank"} == {(site.path / "index.html").as_uri()}
    assert tab.ask("document.documentElement.scrollWidth") <= width


def test_texts_of_others_stay_texts(site, tab, tmp_path) -> None:
    hostile = tuple(
        replace(wheel, filename=f"{wheel.filename[:-4]}{EVIL}.whl", tools=(EVIL,), flashdepot=EVIL)
        for wheel in site.record.wheels
    )
    record = IndexRecord(hostile)
    (tmp_path / "evil.html").write_text(page(record, subindexes(hostile)), encoding="utf-8")
    tab.open((tmp_path / "evil.html").as_uri())
    assert tab.ask("document.title") == "flash-attn: wheels to install"
    assert tab.ask("document.querySelectorAll('img').length") == 0
    assert any(
        EVIL in text for text in tab.ask("[...document.querySelectorAll('#files ~ div a')].map((a) => a.textContent)")
    )


def test_every_file_is_on_the_page_with_its_facts(site, tab) -> None:
    tab.open((site.path / "index.html").as_uri())
    rows = tab.ask("[...document.querySelectorAll('.files tbody tr')].map((r) => r.textContent)")
    assert len(rows) == len(site.record.wheels)
    for wheel in site.record.wheels:
        (row,) = (row for row in rows if row.startswith((wheel.filename, f"{wheel.filename} ")))
        assert all(text in row for text in (wheel.sha256, *wheel.tools, wheel.recipe_key[:12]))
    links = tab.ask(
        "[...document.querySelectorAll('.files a')].map((a) => decodeURIComponent(new URL(a.href).pathname))"
    )
    assert all(Path(link).is_file() for link in links)


def test_the_heat_map_has_for_each_gpu_the_smallest_file_that_runs_there(site, tab) -> None:
    tab.open((site.path / "index.html").as_uri())
    table = tab.ask("[...document.querySelectorAll('.heat tr')].map((r) => [...r.cells].map((c) => c.innerText))")
    columns = table[0]
    rows = {tuple(row[1:4]): dict(zip(columns, row, strict=True)) for row in table[1:]}
    quick = rows["a small one to try", "13.0", "Linux x86-64"]
    assert (quick["9.0"] != "none", quick["8.9"], quick["12.0"]) == (True, "none", "none")
    old = rows["everything (hd64)", "12.8", "Linux x86-64"]
    assert (old["8.9"] != "none", old["12.0"]) == (True, "none")


def test_only_gpus_that_a_wheel_has_code_for_are_offered(site) -> None:
    offered = {gpu.architecture.dotted for gpu in known_architectures() if wheels_for(gpu, site.record.wheels)}
    assert "9.0" in offered
    assert not offered & {"7.5", "8.7", "11.0"}
