"""Source trees: published sdists, folders and git commits. What is in them, the families know."""

from flashdepot.upstream.source import Identified, Sources, SourceTree

__all__ = ["Identified", "SourceTree", "Sources"]
