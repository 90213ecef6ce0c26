"""Source trees: published sdists, folders and git commits. What is in them, the families know."""

from flashdepot.upstream.source import Sources
from flashdepot.upstream.tree import Identified, SourceTree

__all__ = ["Identified", "SourceTree", "Sources"]
