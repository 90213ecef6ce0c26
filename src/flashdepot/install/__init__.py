"""A wheel into a Python environment: checked first, verified there, or undone."""
