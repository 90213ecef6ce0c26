"""What is wrong with a machine for what somebody intends, why that matters, and the command that fixes it.

Typical usage::

    findings = examine(record, Intention.BUILD, library_request(arch="90"))
    sys.exit(verdict(findings))
"""

from flashdepot.diagnose.case import Intention, severity_word, to_json, verdict
from flashdepot.diagnose.examine import examine, forewarn

__all__ = ["Intention", "examine", "forewarn", "severity_word", "to_json", "verdict"]
