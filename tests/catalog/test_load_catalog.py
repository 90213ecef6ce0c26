import pytest

from flashdepot.catalog import Collection, Listing, load_catalog
from flashdepot.catalog.load import encode, refreshed_path
from flashdepot.catalog.published_files import PublishedFile, to_wheels
from flashdepot.files.atomic import write_atomic
from support.servers import wheel_name

SHIPPED = load_catalog()


@pytest.fixture
def refreshed(tmp_path):
    """Write a listing of one wheel, as a refresh leaves it."""

    def write(source, listed):
        url = f"https://example.org/{wheel_name()}"
        wheels = to_wheels([PublishedFile(wheel_name(), url, 0, "")], source=source, official=False)
        collection = Collection(source, "community", "https://example.org/", "", listed)
        path = refreshed_path(tmp_path, source)
        write_atomic(path, encode([Listing(collection, wheels)]))
        return path

    return write


def wheels_of(catalog, source):
    return sum(wheel.source == source for wheel in catalog.wheels)


@pytest.mark.parametrize(("listed", "newer"), [("2001-01-01T00:00:00Z", False), ("2101-01-01T00:00:00Z", True)])
def test_of_the_shipped_and_the_refreshed_listing_the_newer_counts(refreshed, tmp_path, listed, newer):
    refreshed("wildminder", listed)
    catalog = load_catalog(tmp_path)
    assert wheels_of(catalog, "wildminder") == (1 if newer else wheels_of(SHIPPED, "wildminder"))
    assert wheels_of(catalog, "mjun0812") == wheels_of(SHIPPED, "mjun0812")
    assert [c.name for c in catalog.collections].count("wildminder") == 1


def test_a_source_that_is_not_shipped_is_added(refreshed, tmp_path):
    refreshed("ours", "2001-01-01T00:00:00Z")
    assert wheels_of(load_catalog(tmp_path), "ours") == 1


def test_a_damaged_listing_is_moved_aside_with_a_note_and_the_shipped_one_is_used(refreshed, tmp_path):
    path = refreshed("wildminder", "2101-01-01T00:00:00Z")
    path.write_bytes(path.read_bytes()[:-20])
    catalog = load_catalog(tmp_path)
    assert wheels_of(catalog, "wildminder") == wheels_of(SHIPPED, "wildminder") > 1
    (note,) = catalog.notes
    assert "wildminder.json.z is damaged" in note
    assert "flashdepot catalog update" in note
    assert [p.name for p in path.parent.iterdir()] == ["wildminder.json.damaged"]
    assert load_catalog(tmp_path).notes == ()


def test_a_listing_that_cannot_be_read_is_noted_and_left(tmp_path):
    refreshed_path(tmp_path, "wildminder").mkdir(parents=True)
    catalog = load_catalog(tmp_path)
    assert "cannot be read: Is a directory" in catalog.notes[0]
    assert wheels_of(catalog, "wildminder") == wheels_of(SHIPPED, "wildminder") > 1


def test_a_depot_that_was_never_refreshed_has_the_shipped_catalog(tmp_path):
    assert load_catalog(tmp_path / "nothing") == load_catalog()
