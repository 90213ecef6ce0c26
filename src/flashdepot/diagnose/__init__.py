"""What is wrong with a machine for a build, an installation or a run, why, and the fix.

Typical usage::

    findings = examine(record, Intention.BUILD, library_request(arch="90"))
    sys.exit(verdict(findings))
"""

from flashdepot.diagnose.case import Intention, severity_word, to_json, verdict
from flashdepot.diagnose.examine import examine, forewarn

__all__ = ["Intention", "examine", "forewarn", "severity_word", "to_json", "verdict"]
