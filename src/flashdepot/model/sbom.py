"""A bill of materials: what a library is made of and by what, in CycloneDX 1.6.

https://cyclonedx.org/docs/1.6/json/. The same manifest gives the same bytes: there is no time in it, and its serial
number follows from its contents.
"""

from __future__ import annotations

import uuid
from typing import Any

from flashdepot.model.canonical import canonical_json, digest_of
from flashdepot.model.manifest import Manifest
from flashdepot.model.parts import Part, licence_expression, parts
from flashdepot.model.recipe import Tool

PLACE = "share/sbom/libflashattention.cdx.json"
"""Where it lies in a library."""

_NAMESPACE = uuid.UUID("6f6b2f0e-94a1-5d1c-9c55-3f2b8f0a7c11")


def sbom(manifest: Manifest, name: str, version: str, purl: str = "") -> bytes:
    """The document for a library, or for something under another name that holds it, such as a wheel."""
    inside = parts(manifest)
    root: dict[str, Any] = {
        "type": "library",
        "bom-ref": name,
        "name": name,
        "version": version,
        "licenses": [{"expression": licence_expression(manifest)}],
        **({"purl": purl} if purl else {}),
        "properties": [{"name": f"flashdepot:{key}", "value": value} for key, value in _properties(manifest)],
    }
    components = [_component(part) for part in inside]
    tools = [_tool(tool) for tool in dict.fromkeys(manifest.toolchain.tools)]
    maker = {"type": "application", "bom-ref": "flashdepot", "name": "flashdepot", "version": manifest.flashdepot}
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root, "tools": {"components": [maker, *tools]}},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [component["bom-ref"] for component in components]}],
    }
    serial = uuid.uuid5(_NAMESPACE, digest_of(document))
    return canonical_json({**document, "serialNumber": f"urn:uuid:{serial}"})


def _properties(manifest: Manifest) -> list[tuple[str, str]]:
    return [
        ("recipe_key", manifest.recipe_key),
        ("selection", str(manifest.selection)),
        ("platform", str(manifest.platform)),
        ("sass", ",".join(map(str, manifest.sass))),
        ("front_end", manifest.front_end),
        *((f"flags:{family}", " ".join(flags)) for family, flags in sorted(manifest.flags.items())),
        *((f"action:{name}", key) for name, key in sorted(manifest.actions.items())),
    ]


def _component(part: Part) -> dict[str, Any]:
    references = [{"type": "vcs", "url": part.origin}] if part.origin else []
    return {
        "type": "library",
        "bom-ref": f"part:{part.name}",
        "name": part.name,
        **({"version": part.version or part.commit} if part.version or part.commit else {}),
        "licenses": [{"expression": part.licence}],
        **({"purl": part.purl} if part.purl else {}),
        **({"hashes": [_hash(part.digest)]} if part.digest else {}),
        **({"externalReferences": references} if references else {}),
        **({"properties": [{"name": "flashdepot:commit", "value": part.commit}]} if part.commit else {}),
    }


def _tool(tool: Tool) -> dict[str, Any]:
    return {
        "type": "application",
        "bom-ref": f"tool:{tool.name}:{tool.digest[:12]}",
        "name": tool.name,
        "version": tool.version,
        "hashes": [_hash(tool.digest)],
    }


def _hash(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest}
