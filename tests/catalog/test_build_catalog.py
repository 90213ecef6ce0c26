import csv
import subprocess
import sys
from pathlib import Path

import pytest

from flashdepot.catalog.load import decode
from support.servers import wheel_name

SCRIPT = Path(__file__).parents[2] / "scripts/build_catalog.py"
OFFICIAL = "https://github.com/Dao-AILab/flash-attention/releases/download/v2.8.3/"
COMMUNITY = "https://github.com/mjun0812/flash-attention-prebuild-wheels/releases/download/v0.7.16/"


@pytest.fixture
def build(tmp_path):
    """Run the script on tables and give the bytes that it writes."""

    def run(**tables):
        arguments = []
        for option, rows in tables.items():
            path = tmp_path / f"{option}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, rows[0])
                writer.writeheader()
                writer.writerows(rows)
            arguments += [f"--{option}", str(path)]
        output = tmp_path / "catalog"
        command = [sys.executable, str(SCRIPT), "--date", "2026-01-02", "--output", str(output), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return output.read_bytes() if done.returncode == 0 else done.stderr

    return run


def test_tables_become_a_catalog_that_tells_what_was_seen_from_what_is_expected(build):
    seen = [
        {"url": COMMUNITY + wheel_name("cp312"), "sha256": ""},
        {"url": COMMUNITY + wheel_name("cp311"), "sha256": ""},
    ]
    expected = [{"expected_url": OFFICIAL + wheel_name("cp312", cuda="12")}]
    digests = [{"release_tag": "v0.7.16", "filename": wheel_name("cp311"), "size_bytes": 5, "sha256": "ab" * 32}]
    data = build(seen=seen, expected=expected, digests=digests)
    wheels = {w.python + w.source: w for listing in decode(data, name="it") for w in listing.wheels}
    assert [(w.seen, w.size, w.sha256) for _, w in sorted(wheels.items())] == [
        (True, 5, "ab" * 32),
        (True, 0, ""),
        (False, 0, ""),
    ]
    assert wheels["cp312official"].sass == ("80", "90", "100", "120")


def test_the_order_of_a_table_changes_nothing(build):
    rows = [{"url": COMMUNITY + wheel_name(f"cp3{minor}")} for minor in (9, 10, 11, 12)]
    assert build(seen=rows) == build(seen=rows[::-1])


def test_a_url_of_no_source_is_refused(build):
    assert "no source of sources.toml has https://example.org/" in build(
        seen=[{"url": f"https://example.org/{wheel_name()}"}]
    )
