"""Bills of materials, judged by CycloneDX's own schema."""

from __future__ import annotations


def schema_errors(text: str) -> object:
    """What the schema of CycloneDX 1.6 has against a document; ``None`` when nothing."""
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415  (two seconds, which only these tests should wait)
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
