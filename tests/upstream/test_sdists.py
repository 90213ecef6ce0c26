import re

import pytest
from packaging.version import Version

from flashdepot.errors import UsageError
from flashdepot.model.selection import ALL_FEATURES, PROFILES, select
from support.upstreams import default_version, find_sdist, identify, known_versions


def test_the_known_versions_are_in_order_and_the_newest_is_the_default():
    versions = list(map(Version, known_versions()))
    assert versions == sorted(versions)
    assert default_version() == known_versions()[-1]
    assert {"2.7.4.post1", "2.8.0.post2", "2.8.1", "2.8.2", "2.8.3", "2.8.3.post1", "2.8.3.post2"} <= set(
        known_versions()
    )


@pytest.mark.parametrize("version", known_versions())
def test_each_version_is_pinned_and_has_kernels_of_every_profile(version):
    sdist = find_sdist(version)
    assert re.fullmatch(r"[0-9a-f]{64}", sdist.sha256)
    assert sdist.filename == f"flash_attn-{version}.tar.gz"
    assert sdist.features == ALL_FEATURES
    assert all(select(profile, sdist.units).units for profile in PROFILES.values())


@pytest.mark.parametrize(("version", "units", "has_160"), [("2.7.4.post1", 84, True), ("2.8.3.post2", 72, False)])
def test_the_units_are_those_of_the_version(version, units, has_160):
    sdist = find_sdist(version)
    assert len(sdist.units) == units
    assert (160 in {u.head_dim for u in sdist.units}) is has_160


def test_a_version_is_exactly_that_release(tmp_path):
    assert identify("2.8.3", tmp_path).id.version == "2.8.3"
    assert identify("2.8.3", tmp_path).id != identify("2.8.3.post2", tmp_path).id


def test_a_published_version_is_identified_without_network_or_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("FLASHDEPOT_OFFLINE", "1")
    found = identify("2.8.3.post2", tmp_path / "cache")
    assert found.id.commits == {}
    assert found.id.origin == "sdist"
    assert len(found.units) == 72
    assert not (tmp_path / "cache").exists()


def test_an_unknown_version_is_answered_with_those_that_are_known(tmp_path):
    with pytest.raises(UsageError, match=r"'2\.9\.9' is neither.*2\.7\.4\.post1.*2\.8\.3\.post2"):
        identify("2.9.9", tmp_path)
