"""Python code for a child process that tells what it used."""

PEAK = "int(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
"""Kilobytes of memory at the peak, on Linux. ``ru_maxrss`` is no less than what the parent had when it forked."""
