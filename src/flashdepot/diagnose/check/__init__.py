"""Does a binary fit an environment? Decided by its bytes: nothing is loaded, nothing imported, no GPU needed."""

from flashdepot.diagnose.check.evidence import Evidence, Outcome, Report
from flashdepot.diagnose.check.run import check_file

__all__ = ["Evidence", "Outcome", "Report", "check_file"]
