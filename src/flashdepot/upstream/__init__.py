"""Source trees: published sdists, folders and git commits. What is in them, the families know."""

from flashdepot.upstream.folder import source_digest, source_files
from flashdepot.upstream.layout import Layout
from flashdepot.upstream.source import Sources
from flashdepot.upstream.tree import Identified, SourceTree

__all__ = ["Identified", "Layout", "SourceTree", "Sources", "source_digest", "source_files"]
