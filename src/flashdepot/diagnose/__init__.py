"""What is wrong with a machine for what somebody intends, why that matters, and the command that fixes it.

Typical usage::

    findings = examine(record, Intention.BUILD, library_request(arch="90"))
    sys.exit(verdict(findings))
"""

from flashdepot.diagnose.case import Finding, Intention, Severity, verdict
from flashdepot.diagnose.examine import examine, forewarn

__all__ = ["Finding", "Intention", "Severity", "examine", "forewarn", "verdict"]
