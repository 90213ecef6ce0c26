"""The figures that documents give are those of the result files of benchmarks/results."""

import csv
import json
from collections.abc import Iterable
from statistics import geometric_mean
from typing import Any

import pytest

from support.documents import ROOT

RESULTS = ROOT / "benchmarks/results"
HEAD_DIMS = ("64", "80", "96", "128", "192", "256")
BEHIND = 0.97
PASSES = (("forward", "fwd"), ("backward", "bwd"))


def page(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def result(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def speeds(kind: str, rival: str, **wanted: str) -> list[float]:
    """What the rival took over what ours took, for each problem that both have."""
    return [
        float(row[rival]) / float(row["ours"])
        for row in rows("attention_speed_h200.csv")
        if row["pass"] == kind and row[rival] and all(row[name] == value for name, value in wanted.items())
    ]


def mean(speeds: Iterable[float], digits: int = 3) -> str:
    return f"{geometric_mean(speeds):.{digits}f}"


@pytest.mark.parametrize(("name", "kind"), PASSES)
def test_fa4_is_as_much_faster_as_its_page_says(name, kind) -> None:
    cells = (
        f"{mean(of)} | {min(of):.2f} | {sum(speed < BEHIND for speed in of)} of {len(of)}"
        for of in (speeds(kind, rival) for rival in ("cudnn", "fa3", "torch flash"))
    )
    by_dim = (mean(speeds(kind, "cudnn", dim=dim)) for dim in HEAD_DIMS)
    assert f"| {name} | {' | '.join(cells)} |" in page("benchmarks/fa4.md")
    assert f"| {name} | {' | '.join(by_dim)} |" in page("benchmarks/fa4.md")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("README.md", "[{} times the speed forward and {} backward]"),
        ("README.RU.md", "[в {} раза на прямом проходе и в {} на обратном]"),
        ("docs/fa4.md", "[{} times as fast forward and {} times backward]"),
    ],
)
def test_fa4_is_as_much_faster_than_fa2_as_a_document_says(document, said) -> None:
    figures = [mean(speeds(kind, "torch flash"), 2) for _, kind in PASSES]
    figures = [figure.replace(".", ",") for figure in figures] if "RU" in document else figures
    assert said.format(*figures) in page(document)


def test_a_full_build_takes_what_the_page_says() -> None:
    full, said = result("build_full.json"), page("benchmarks/README.md")
    for line in (
        f"| wall time | {full['wall_seconds']:.0f} s |",
        f"| CPU-seconds of compilers | {full['cpu_seconds_of_compilers']:,.0f} |",
        f"({full['seconds_until_tail']:.0f} s) | {full['share_of_core_time_until_tail']:.1%} |".replace("%", " %"),
        f"| {full['highest_memory_of_compilers_gb']:.1f} GB |",
        f"| {full['largest_single_process_gb']:.1f} GB |",
        *(f"| `{name.split('/')[-1]}` | {size / 1e6:.1f} MB |" for name, size in full["sizes"].items() if size),
    ):
        assert line in said
    warm = result("build_warm.json")
    assert f"takes {warm['flashdepot']['median']} s" in said
    assert f"in {warm['ccache']['median']} s" in said


def test_one_front_end_pass_saves_what_the_page_says() -> None:
    said = page("benchmarks/README.md")
    for file in ("front_end.json", "front_end_small.json"):
        for unit, seconds in result(file)["cpu_seconds"].items():
            figures = f"{seconds['ours']:.0f} | {seconds['upstream']:.0f} | {seconds['ratio']:.3f} |"
            assert f"| {unit.removesuffix('_sm80')}" in said
            assert figures in said
    for file, name in (("front_end_speed.json", "of the time forward"), ("front_end_speed_backward.json", "backward")):
        ratios = [row["native_over_shared"] for row in result(file)["rows"]]
        assert f"{min(ratios):.3f} to {max(ratios):.3f} {name}" in said


def test_jax_takes_what_its_page_says() -> None:
    found = rows("jax.csv")
    for forward, gradients in zip(found[::2], found[1::2], strict=True):
        heads = f"{forward['heads']}/{forward['heads_k']}"
        causal = ", causal" if forward["causal"] == "true" else ""
        cells = [f"{forward['batch']} x {int(forward['length']):,}, {heads}{causal}"]
        for row in (forward, gradients):
            ours, cudnn = float(row["flashdepot_ms"]), float(row["cudnn_ms"])
            cells += [f"{ours:.3f}, {cudnn:.3f} ms", f"{cudnn / ours:.2f}"]
        assert f"| {' | '.join(cells)} |" in page("benchmarks/jax.md")


def test_a_call_takes_the_host_as_long_as_its_page_says() -> None:
    found, said = result("host_time.json"), page("benchmarks/names.md")
    fastest = {when: {name: min(runs) for name, runs in calls.items()} for when, calls in found.items()}
    rows = {
        "flash_attn_func": "SDPA",
        "flash_attn_varlen_func": "SDPA",
        "flash_attn_qkvpacked_func": "SDPA",
        "flash_attn_with_kvcache": "SDPA",
        "flash_attn_with_kvcache, append": "SDPA",
        "flash_attn_func, gradient": "SDPA, gradient",
        "flash_attn_func, backward": "SDPA, backward",
    }
    for name, rival in rows.items():
        cells = (fastest["before"][name], fastest["now"][name], fastest["now"][rival])
        assert f"| {' | '.join(f'{cell:.1f}' for cell in cells)} |" in said, name
    parts = [
        ours / theirs
        for name, rival in rows.items()
        if rival == "SDPA"
        for ours, theirs in zip(found["now"][name], found["now"][rival], strict=True)
    ]
    assert f"{min(parts):.2f} to {max(parts):.2f} of its time" in said


def test_the_first_call_of_flashattention_4_takes_what_its_page_says() -> None:
    rows = [json.loads(line) for line in (RESULTS / "first_call_h200.jsonl").read_text().splitlines()]
    said = page("benchmarks/names.md")
    for who, digits in (("ours", 3), ("upstream", 1)):
        taken = [row["import"] for row in rows if row["process"] in {f"{who}-{n}" for n in (1, 2, 3)}]
        assert f"{min(taken):.{digits}f} to {max(taken):.{digits}f} s" in said
    compiled = [row["first"] for row in rows if row["process"] in {f"upstream-{n}" for n in (1, 2, 3)}]
    assert f"{min(compiled):.1f} to {max(compiled):.1f} s" in said
    ours = [row["first"] * 1000 for row in rows if row["process"] in {f"ours-{n}" for n in (1, 2, 3)}]
    assert f"{min(ours):.1f} to {max(ours):.1f} ms" in said
