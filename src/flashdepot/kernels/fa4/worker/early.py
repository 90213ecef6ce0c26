"""Kernels of a backward pass that are launched before the one ahead of them has ended.

Upstream does so for the first two. Here each lets the next one be launched once its own blocks are there, and those that
follow wait for what is ahead of them before they read: what is saved is the time between two kernels.
"""

import cutlass.cute as cute
from traced import Launched


def _told(scheduler, *, waits):
    """A scheduler at whose start the next kernel's launch is allowed, and with waits the one ahead is waited for."""

    class Told(scheduler):
        @staticmethod
        def create(*arguments, **named):
            cute.arch.griddepcontrol_launch_dependents()
            if waits:
                cute.arch.griddepcontrol_wait()
            return scheduler.create(*arguments, **named)

    return Told


def followed(kernel_class):
    """A backward kernel of upstream's, during which the kernel after it is launched."""

    class Followed(kernel_class):
        def kernel(self, *arguments):
            is_scheduler = [
                isinstance(argument, type) and hasattr(argument, "get_grid_shape") for argument in arguments
            ]
            told = (_told(a, waits=False) if yes else a for a, yes in zip(arguments, is_scheduler, strict=True))
            return super().kernel(*told)

    return Followed


def following(kernel_class):
    """A kernel of upstream's whose last argument is its scheduler: launched early, as the kernel after it may be."""

    class Following(kernel_class):
        def kernel(self, *arguments):
            *others, scheduler = arguments
            return Launched(super().kernel(*others, _told(scheduler, waits=True)), use_pdl=True)

    return Following
