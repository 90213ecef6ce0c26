"""Source trees of flash-attention: published sdists, folders and git commits."""

from flashdepot.upstream.licences import licences
from flashdepot.upstream.sdists import default_version, known_versions
from flashdepot.upstream.source import identify, obtain
from flashdepot.upstream.tree import Identified, SourceTree

__all__ = ["Identified", "SourceTree", "default_version", "identify", "known_versions", "licences", "obtain"]
