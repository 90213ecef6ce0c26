"""The figures of benchmarks/explain.md are those of its result files."""

import csv
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).parents[2]
RULES = ROOT / "src/flashdepot/diagnose/explain/rules"
PAGE = (ROOT / "benchmarks/explain.md").read_text(encoding="utf-8")
Row = dict[str, str]


def rows(name: str) -> list[Row]:
    with (ROOT / "benchmarks/results" / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


FIRST_SIGHT = rows("explain_first_sight.csv")


def share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / whole:.1f} %)"


def is_right(row: Row) -> bool:
    return row["answer"] in row["class"].split(" or ")


def of_first_sight(sets: list[Row]) -> str:
    wrong = [row for row in sets if not is_right(row) and row["answer"] != "unknown"]
    certain = sum(row["how"] == "certain" for row in wrong)
    unknown = sum("unknown" in row["class"].split(" or ") for row in sets)
    right = sum(map(is_right, sets))
    return f"{len(sets)} | {unknown} | {share(right, len(sets))} | {share(len(wrong), len(sets))} | {certain} |"


@pytest.mark.parametrize("name", sorted({row["set"] for row in FIRST_SIGHT}))
def test_a_set_of_today_has_the_figures_of_its_answers(name: str) -> None:
    logs = [row for row in FIRST_SIGHT if row["set"] == name]
    domain = {"own": "FlashAttention", "neighbour": "neighbours"}[logs[0]["domain"]]
    assert f"| {name} | {domain} | {of_first_sight(logs)}" in PAGE


@pytest.mark.parametrize(("domain", "said"), [("own", "FlashAttention"), ("neighbour", "neighbours")])
def test_a_domain_has_the_sum_of_its_sets(domain: str, said: str) -> None:
    assert f"| all | {said} | {of_first_sight([row for row in FIRST_SIGHT if row['domain'] == domain])}" in PAGE


@pytest.mark.parametrize("group", rows("explain_sets.csv"), ids=lambda row: row["sets"])
def test_a_set_of_before_has_as_many_logs_as_threads(group: Row) -> None:
    threads = rows("explain_threads.csv")
    names = list(dict.fromkeys(row["set"] for row in threads))
    first, _, last = group["sets"].partition(" to ")
    meant = names[names.index(first) : names.index(last) + 1]
    classes = [row["class"].split(" or ") for row in threads if row["set"] in meant]
    unknown = sum("unknown" in said for said in classes)
    right = share(int(group["right"]), len(classes))
    line = f"| {group['sets']} | {group['chosen']} | {len(classes)} | {unknown} | {right} | {group['wrong']} |"
    assert line in PAGE


def test_no_thread_of_today_was_in_an_earlier_set() -> None:
    assert not {row["thread"] for row in FIRST_SIGHT} & {row["thread"] for row in rows("explain_threads.csv")}


def test_failures_that_were_made_have_the_figures_of_their_table() -> None:
    made = rows("explain_failures.csv")
    wrong = [row for row in made if not is_right(row) and row["answer"] != "unknown"]
    right = sum(map(is_right, made))
    assert (
        f"Of {len(made)} failures, {share(right, len(made))} were named rightly at first sight and {len(wrong)} wrongly"
        in PAGE
    )


def test_the_page_counts_the_classes_and_patterns_that_there_are() -> None:
    files = [tomllib.loads(path.read_text(encoding="utf-8")) for path in RULES.glob("*.toml")]
    patterns = sum(len(rule.get(kind, ())) for rule in files for kind in ("patterns", "likely", "in_step"))
    assert f"There are {len(files)} classes now, with {patterns:,} patterns" in " ".join(PAGE.split())
