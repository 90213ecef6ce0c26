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


def wrong_of(logs: list[Row]) -> list[Row]:
    return [row for row in logs if not is_right(row) and row["answer"] != "unknown"]


POSSIBLE = {row["thread"]: row["possible"].split(" or ") for row in rows("explain_possible.csv")}


def is_listed(row: Row) -> bool:
    """Whether a right class stands in the list of what is possible, first or later."""
    return is_right(row) or not set(POSSIBLE.get(row["thread"], ())).isdisjoint(row["class"].split(" or "))


def of_first_sight(sets: list[Row]) -> str:
    wrong = wrong_of(sets)
    certain = sum(row["how"] == "certain" for row in wrong)
    unknown = sum("unknown" in row["class"].split(" or ") for row in sets)
    right = sum(map(is_right, sets))
    return f"{len(sets)} | {unknown} | {share(right, len(sets))} | {share(len(wrong), len(sets))} | {certain} |"


NAMES = list(dict.fromkeys(row["set"] for row in FIRST_SIGHT))
GROUPS = rows("explain_sets.csv")


def of_group(group: Row) -> list[str]:
    first, _, last = group["sets"].partition(" to ")
    return NAMES[NAMES.index(first) : NAMES.index(last or first) + 1]


ROUNDS = [group for group in GROUPS if (len(group["sets"].split()[0]), group["sets"]) > (5, "L")]
NEWEST = of_group(ROUNDS[-1])
DOMAINS = {"own": "FlashAttention", "neighbour": "neighbours"}


@pytest.mark.parametrize("name", NEWEST)
def test_a_new_set_has_the_figures_of_its_answers(name: str) -> None:
    for domain, said in DOMAINS.items():
        if logs := [row for row in FIRST_SIGHT if (row["set"], row["domain"]) == (name, domain)]:
            assert f"| {name} | {said} | {of_first_sight(logs)} {sum(map(is_listed, logs))} |" in PAGE


@pytest.mark.parametrize("group", ROUNDS, ids=lambda row: row["sets"])
def test_a_round_has_the_sums_of_its_sets(group: Row) -> None:
    for domain, said in DOMAINS.items():
        if logs := [row for row in FIRST_SIGHT if row["domain"] == domain and row["set"] in of_group(group)]:
            assert f"| {group['sets']} | {said} | {of_first_sight(logs)} {sum(map(is_listed, logs))} |" in PAGE


@pytest.mark.parametrize("group", GROUPS, ids=lambda row: row["sets"])
def test_sets_have_the_figures_of_their_logs(group: Row) -> None:
    if group["right"]:  # counted when they ran
        first, _, last = group["sets"].partition(" to ")
        threads = rows("explain_threads.csv")
        names = list(dict.fromkeys(row["set"] for row in threads))
        logs = [row for row in threads if row["set"] in names[names.index(first) : names.index(last) + 1]]
        unknown = sum("unknown" in row["class"].split(" or ") for row in logs)
        right, wrong = (share(int(group[kind]), len(logs)) for kind in ("right", "wrong"))
        line = f"{len(logs)} | {unknown} | {right} | {wrong} |"
    else:
        logs = [row for row in FIRST_SIGHT if row["set"] in of_group(group)]
        line = " | ".join(of_first_sight(logs).split(" | ")[:4]) + " |"
    assert f"| {group['sets']} | {group['chosen']} | {line}" in PAGE


def test_no_thread_of_today_was_in_an_earlier_set() -> None:
    assert not {row["thread"] for row in FIRST_SIGHT} & {row["thread"] for row in rows("explain_threads.csv")}


def test_failures_that_were_made_have_the_figures_of_their_table() -> None:
    made, rounds = rows("explain_failures.csv"), rows("explain_made.csv")
    begins = [[row["failure"] for row in made].index(one["first"]) for one in rounds]
    for one, begin, end in zip(rounds, begins, [*begins[1:], len(made)], strict=True):
        some = made[begin:end]
        right, wrong = share(sum(map(is_right, some)), len(some)), len(wrong_of(some))
        advice = f"{one['works']} of {one['tried']}" if one["tried"] else "-"
        line = f"{len(some)} | {right} | {wrong} | {one['now'] or '-'} | {advice} |"
        assert f"| {one['first']} | {one['when']} | {one['tools']} | {line}" in PAGE
    right = share(sum(map(is_right, made)), len(made))
    assert (
        f"Of {len(made)} failures, {right} were named rightly at first sight and {len(wrong_of(made))} wrongly" in PAGE
    )


DRAWN = ("first", "second", "third")


@pytest.mark.parametrize("drawn", DRAWN)
@pytest.mark.parametrize("domain", DOMAINS)
def test_failures_that_were_drawn_have_the_figures_of_their_table(drawn: str, domain: str) -> None:
    some = [row for row in rows("explain_drawn.csv") if (row["round"], row["domain"]) == (drawn, domain)]
    answers = {row["failure"]: is_right(row) for row in rows("explain_failures.csv")}
    named = share(sum(answers[row["failure"]] for row in some), len(some))
    tried = [row["works"] for row in some if row["works"]]
    works = f"{sum(map(str.isdigit, tried))} of {len(tried)}"
    assert f"| {drawn} | {DOMAINS[domain]} | {len(some)} | {named} | {works} |" in PAGE


def test_failures_that_were_drawn_have_the_figures_of_their_first_commands() -> None:
    works = [[row["works"] for row in rows("explain_drawn.csv") if row["round"] == n] for n in DRAWN]
    *first, last = [f"{some.count('1')} of the {sum(map(str.isdigit, some))}" for some in works]
    assert f"{', '.join(first)} and {last} were fixed by the first command" in PAGE


def test_the_page_counts_the_classes_and_patterns_that_there_are() -> None:
    files = [tomllib.loads(path.read_text(encoding="utf-8")) for path in RULES.glob("*.toml")]
    rules = [rule for file in files for rule in (file, *file.get("cases", ()))]
    patterns = sum(len(rule.get(kind, ())) for rule in rules for kind in ("patterns", "likely", "listed", "in_step"))
    assert f"There are {len(files)} classes now, with {patterns:,} patterns" in " ".join(PAGE.split())


@pytest.mark.parametrize("part", ["first", "second", "third"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_sentences_have_the_figures_of_their_answers(part: str, domain: str) -> None:
    asked = [row for row in rows("explain_sentences.csv") if (row["set"], row["domain"]) == (part, domain)]
    unknown = sum("unknown" in row["class"].split(" or ") for row in asked)
    figures = []
    for answers in ("before", "answer"):
        as_answered = [{**row, "answer": row[answers]} for row in asked if row[answers]]
        right, wrong = sum(map(is_right, as_answered)), len(wrong_of(as_answered))
        figures.append(
            f"{share(right, len(asked))} | {share(wrong, len(asked))}" if as_answered else "written with it | "
        )
    assert (
        f"| {part} | {DOMAINS[domain]} | {len(asked)} | {unknown} | {' | '.join(figures)} |".replace("  |", " |")
        in PAGE
    )
