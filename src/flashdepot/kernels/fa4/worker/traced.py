"""What upstream's modules see while a kernel is traced, and how it is launched."""

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


class Instead:
    """A module, or a part of one, of which some names stand for something else."""

    def __init__(self, module, **others):
        self._module = module
        vars(self).update(others)

    def __getattr__(self, name):
        return getattr(self._module, name)


class Launched:
    """A kernel and its arguments, launched with some settings that differ from upstream's."""

    def __init__(self, made, **settings):
        self._made, self._settings = made, settings

    def launch(self, **config):
        self._made.launch(**{**config, **self._settings})
