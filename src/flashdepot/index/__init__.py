"""A package index as static files: what pip, uv, ``flashdepot install`` and people need to find our wheels."""

from flashdepot.index.site import IndexSite, Seals, write_site

__all__ = ["IndexSite", "Seals", "write_site"]
