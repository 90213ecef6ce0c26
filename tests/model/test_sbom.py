import json
from typing import Any

import pytest
from msgspec.structs import replace
from packaging.licenses import canonicalize_license_expression

from flashdepot.build.sbom import licence_expression, parts, sbom
from flashdepot.model.manifest import Manifest
from flashdepot.model.recipe import Tool, ToolchainId, UpstreamId
from flashdepot.model.target import Platform, Version
from support.depots import make_manifest


def made_by_zig(platform: str = "linux-x86_64", **changes: Any) -> Manifest:
    tools = (Tool("nvcc", "13.0.88", "a" * 64), Tool("zig", "0.14.1", "b" * 64))
    toolchain = ToolchainId(Version("13.0.88"), tools)
    return replace(make_manifest(**changes), toolchain=toolchain, platform=Platform.parse(platform))


MANIFESTS = {
    "published": made_by_zig(),
    "windows": made_by_zig("windows-x86_64"),
    "folder": made_by_zig(upstreams={"fa2": UpstreamId("2.8.3+mine", "d" * 64, "folder")}),
    "commit": made_by_zig(
        upstreams={
            "fa2": UpstreamId("2.8.3", "d" * 64, "git+https://host/x.git", {".": "e" * 40, "csrc/cutlass": "f" * 40}),
            "fa4": UpstreamId("4.0.0", "9" * 64),
        },
    ),
}


@pytest.fixture(params=MANIFESTS.values(), ids=list(MANIFESTS))
def manifest(request: pytest.FixtureRequest) -> Manifest:
    return request.param  # type: ignore[no-any-return]


def test_it_is_what_the_schema_of_cyclonedx_wants(manifest) -> None:
    text = sbom(manifest, "flash-attn", "2.8.3+cu13.sm90", "pkg:pypi/flash-attn@2.8.3%2Bcu13.sm90").decode()
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415  (two seconds, which only this test should wait)
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_every_part_is_in_it_with_its_licence_and_every_tool_with_its_digest(manifest) -> None:
    document = json.loads(sbom(manifest, "flash-attn", "2.8.3"))
    listed = {part["name"]: part["licenses"][0]["expression"] for part in document["components"]}
    assert listed == {part.name: part.licence for part in parts(manifest)}
    tools = {
        (t["name"], t["hashes"][0]["content"]) for t in document["metadata"]["tools"]["components"] if "hashes" in t
    }
    assert tools == {(tool.name, tool.digest) for tool in manifest.toolchain.tools}
    (dependencies,) = document["dependencies"]
    assert dependencies["dependsOn"] == [part["bom-ref"] for part in document["components"]]


def test_the_same_library_gives_the_same_bytes_and_another_one_another_serial_number(manifest) -> None:
    first = sbom(manifest, "flash-attn", "2.8.3")
    assert sbom(manifest, "flash-attn", "2.8.3") == first
    other = sbom(replace(manifest, recipe_key="0" * 64), "flash-attn", "2.8.3")
    assert json.loads(other)["serialNumber"] != json.loads(first)["serialNumber"]


def test_the_licence_expression_is_one_that_metadata_may_have(manifest) -> None:
    expression = licence_expression(manifest)
    assert canonicalize_license_expression(expression) == expression


def test_the_run_times_of_zig_are_named_and_none_of_nvidia() -> None:
    names = {part.name for part in parts(MANIFESTS["commit"])}
    own = {"flash-attn", "flash-attn-4", "cutlass", "flashdepot-c-layer"}
    assert names == {*own, "libc++", "zig-compiler-rt"}


def test_a_commit_is_named_with_its_repository_and_that_of_its_submodule() -> None:
    found = {part.name: part for part in parts(MANIFESTS["commit"])}
    assert (found["flash-attn"].origin, found["flash-attn"].commit) == ("https://host/x.git", "e" * 40)
    assert found["cutlass"].commit == "f" * 40
