"""Publishing: what a matrix file asks for, how each part was verified, and the report."""

from flashdepot.publish.matrix import PublishedPart, PublishMatrix, read_matrix
from flashdepot.publish.report import PartReport, PublishReport

__all__ = ["PartReport", "PublishMatrix", "PublishReport", "PublishedPart", "read_matrix"]
