"""What upstream's modules see while a kernel is traced."""

from contextlib import contextmanager


@contextmanager
def seeing(module, **others):
    """A module of upstream's, of which some names stand for something else."""
    before = {name: getattr(module, name) for name in others}
    vars(module).update(others)
    try:
        yield
    finally:
        vars(module).update(before)
