"""The page of an index: in a real browser, by mouse and by keys, with scripts and without, wide and narrow."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from flashdepot.index.page import page
from flashdepot.index.site import IndexSite
from flashdepot.index.subindexes import answers, best_for, contents_of, questions, subindexes
from flashdepot.model.index_record import IndexedWheel, IndexRecord
from flashdepot.model.target import Architecture
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


def choose(tab: Tab, label: str) -> None:
    """Click the option with these words."""
    tab.ask(
        f"[...document.querySelectorAll('label')].forEach((l) => l.classList.toggle('wanted', l.innerText.includes('{label}')))"
    )
    tab.click("label.wanted")


def only_answer(tab: Tab) -> str:
    """The command of the one answer that is shown."""
    titles = tab.shown(".answer h2")
    assert len(titles) == 1, titles
    return tab.shown(".answer pre")[0]


@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize(("gpu", "code"), [(ADA, ".sm80-"), (HOPPER, ".sm90-"), (BLACKWELL, ".sm120-")])
def test_two_actions_lead_from_the_opened_page_to_the_copied_command(site, tab, gpu, code, width) -> None:
    tab.open((site.path / "index.html").as_uri(), width=width)
    assert tab.shown(".answer h2") == []
    choose(tab, gpu)
    command = only_answer(tab)
    tab.click(".answer button")
    assert tab.clipboard() == command
    assert command.startswith(f'pip install "flash-attn @ {site.path.as_uri()}/files/flash_attn-9.9.9%2Bcu130.full')
    assert code in command
    assert "manylinux" in command
    assert tab.shown(".answer button")[0] == "Copied"


def test_it_works_with_only_the_keys(site, tab) -> None:
    tab.open((site.path / "index.html").as_uri())
    for _ in range(2):
        tab.press("Tab", 9)
    tab.press("ArrowDown", 40)
    assert tab.ask("document.activeElement.name") == "gpu"
    command = only_answer(tab)
    for _ in range(9):
        tab.press("Tab", 9)
        if tab.ask("document.activeElement.tagName") == "BUTTON":
            break
    tab.press("Enter", 13)
    assert tab.clipboard() == command


def test_it_works_without_scripts(site, tab) -> None:
    tab.open((site.path / "index.html").as_uri(), scripts=False)
    choose(tab, HOPPER)
    choose(tab, "Windows")
    assert "win_amd64" in only_answer(tab)
    assert "https://ADDRESS-OF-THIS-PAGE/files/" in only_answer(tab)
    assert tab.shown(".answer button") == []


def test_every_question_changes_the_answer_and_an_older_driver_gets_what_it_can_run(site, tab) -> None:
    tab.open((site.path / "index.html").as_uri())
    choose(tab, HOPPER)
    choose(tab, "525 to 579")
    assert "cu128.full" in only_answer(tab)
    choose(tab, "580 or newer")
    choose(tab, "a small one to try")
    assert "cu130.quick.sm90" in only_answer(tab)
    choose(tab, ADA)
    assert tab.shown(".answer h2") == ["No wheel here serves that"]
    assert tab.shown(".answer pre") == ["flashdepot install -y"]


def test_what_was_chosen_stands_in_the_address(site, tab) -> None:
    with serve_site(site.path) as url:
        tab.open(url)
        choose(tab, HOPPER)
        choose(tab, "525 to 579")
        command, address = only_answer(tab), tab.ask("location.href")
        assert command.startswith(f'pip install "flash-attn @ {url}files/')
        tab.open(address)
        assert only_answer(tab) == command


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_is_fetched_from_elsewhere_and_nothing_runs_off_the_side(site, tab, width) -> None:
    tab.requests.clear()
    tab.open((site.path / "index.html").as_uri(), width=width)
    assert {address for address in tab.requests if address != "about:blank"} == {(site.path / "index.html").as_uri()}
    assert tab.ask("document.documentElement.scrollWidth") <= width


def test_texts_of_others_stay_texts(site, tab, tmp_path) -> None:
    hostile = tuple(
        replace(wheel, filename=f"{wheel.filename[:-4]}{EVIL}.whl", tools=(EVIL,), signers=(EVIL,), flashdepot=EVIL)
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
        assert all(text in row for text in (wheel.sha256, "nobody", *wheel.tools, wheel.recipe_key[:12]))
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


def test_each_combination_has_one_answer_and_it_runs_there(site) -> None:
    asked, found = questions(site.record.wheels), answers(site.record.wheels)
    combinations = [combination for answer in found for combination in answer.combinations]
    total = 1
    for question in asked:
        total *= len(question.options)
    assert len(combinations) == len({*combinations}) == total
    for answer in found:
        for gpu, system, driver, contents in answer.combinations:
            expected = best_for(site.record.wheels, Architecture.parse(gpu), system, int(driver), contents)
            if answer.wheel is None:
                assert not any(serves(wheel, gpu, system, driver, contents) for wheel in site.record.wheels)
            else:
                assert expected == answer.wheel
                assert serves(answer.wheel, gpu, system, driver, contents)


def serves(wheel: IndexedWheel, gpu: str, system: str, driver: str, contents: str) -> bool:
    runs = any(code.runs_on(Architecture.parse(gpu)) for code in wheel.sass)
    return (
        runs
        and (str(wheel.platform), contents_of(wheel)) == (system, contents)
        and wheel.driver_floor.major <= int(driver)
    )


def test_only_gpus_that_a_wheel_has_code_for_are_offered(site) -> None:
    offered = [option.value for option in questions(site.record.wheels)[0].options]
    assert "9.0" in offered
    assert "8.7" not in offered or any(wheel.platform.machine == "aarch64" for wheel in site.record.wheels)
    for gpu in offered:
        assert any(code.runs_on(Architecture.parse(gpu)) for wheel in site.record.wheels for code in wheel.sass), gpu
