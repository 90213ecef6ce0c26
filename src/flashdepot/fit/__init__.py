"""Does it fit? One judge, one table of rules, and the ways to what a thing needs: its name, its manifest, its bytes.

Typical usage::

    reasons = judge(needs_of_manifest(manifest), facts)
    if verdict_of(reasons) is Verdict.FITS:
        ...
"""

from flashdepot.fit.needs import Needs
from flashdepot.fit.requests import needs_of_manifest
from flashdepot.fit.rules import RULES, Rule, ask, judge, served_cuda

__all__ = ["RULES", "Needs", "Rule", "ask", "judge", "needs_of_manifest", "served_cuda"]
