"""Whether compilers may start: decided here for every command and every function of the API."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from flashdepot.errors import ConsentError, UsageError
from flashdepot.events import Events, Forecast
from flashdepot.files.trust import read_settings, user_config
from flashdepot.model.limits import BUILD_VARIABLE, Compiling, Limits, duration, size

SETTINGS = "settings.toml"
"""In the user's configuration folder; its only key is ``build``."""


def require_consent(forecast: Forecast, limits: Limits, events: Events) -> None:
    """Before anything is fetched or compiled: ask where it takes long, and tell ``events`` what begins."""
    may, said_in = may_compile(limits)
    if may is Compiling.NEVER:
        raise ConsentError(
            f"No stored library fits, and {said_in} forbids compiling. {sentence(forecast)}",
            hint='To compile it: build="always".',
        )
    if may is Compiling.ALWAYS or not forecast.is_long:
        events.note(sentence(forecast))
        return
    ask = "It can be stopped and resumed at any time. Compile it now?"
    if not (answer := events.confirm("\n".join([sentence(forecast), *smaller(forecast), ask]))):
        needed = f"Compiling this needs a yes. {sentence(forecast)}"
        raise ConsentError(
            needed if answer is None else "Nothing was compiled.",
            hint=f'To compile it: build="always", or {BUILD_VARIABLE}=always.',
            smaller=tuple(smaller(forecast)) if answer is None else (),
        )


def may_compile(limits: Limits) -> tuple[Compiling, str]:
    """Whether compilers may start, and what says so; :raises UsageError: for a variable or settings that are wrong."""
    if limits.build is not None:
        return limits.build, f'build="{limits.build.value}"'
    if word := os.environ.get(BUILD_VARIABLE):
        return Compiling.parse(word, BUILD_VARIABLE), f"{BUILD_VARIABLE}={word}"
    path = user_config() / SETTINGS
    settings = read_settings(path, dict[str, Any])
    if not settings:
        return Compiling.ASK, "the default"
    if unknown := sorted(settings.keys() - {"build"}):
        raise UsageError(f"{path}: '{unknown[0]}' is not a setting: there is only 'build'.")
    return Compiling.parse(str(settings["build"]), f"{path}: build"), str(path)


def together(forecasts: Sequence[Forecast]) -> Forecast:
    """Several builds, one after the other, as one; each thing that must be fetched is fetched once."""
    return Forecast(
        units=sum(one.units for one in forecasts),
        compiled=sum(one.compiled for one in forecasts),
        jobs=max(one.jobs for one in forecasts),
        seconds=sum(one.seconds for one in forecasts),
        memory=max(one.memory for one in forecasts),
        memory_limit=min(one.memory_limit for one in forecasts),
        disk=sum(one.disk for one in forecasts),
        fetches=tuple(dict.fromkeys(fetch for one in forecasts for fetch in one.fetches)),
        is_exact=all(one.is_exact for one in forecasts),
        host_sides=sum(one.host_sides for one in forecasts),
        source=forecasts[-1].source,
        load=max(one.load for one in forecasts),
    )


def smaller(forecast: Forecast) -> list[str]:
    """What takes less time, a line each under a headline; nothing where there is none."""
    width = max((len(other.options) for other in forecast.alternatives), default=0)
    lines = [f"  {other.options:<{width}}  about {duration(other.seconds)}" for other in forecast.alternatives]
    return ["Smaller builds:", *lines] if lines else []


def sentence(forecast: Forecast) -> str:
    """All of it in one line."""
    left, around = forecast.units - forecast.compiled, forecast.host_sides
    compilers = "one compiler" if forecast.jobs == 1 else f"{forecast.jobs} compilers at a time"
    busy = f", and longer while other programs are busy here (load {forecast.load:.0f})" if forecast.load else ""
    takes = f"about {duration(forecast.seconds)} with {compilers}{busy}"
    if not left and not around:
        what = "only the C layer is to be compiled, and linked" if forecast.memory else "only linking is left"
        rest = f"{what}; {takes}" if forecast.memory else f"{what}, about {duration(forecast.seconds)}"
        return f"All {forecast.units} kernels are compiled already: {rest}."
    parts = [f"To compile: {left} kernels"]
    if not left:
        all_of_it = f"The device code of all {forecast.units} kernels {forecast.source}"
        parts = [f"{all_of_it}. To compile: the host side of {around}, and the C layer"]
    elif around:
        parts.append(
            f"the device code of {forecast.compiled} more {forecast.source}, the host side of {around} of them is not"
        )
    elif forecast.compiled:
        parts.append(f"{forecast.compiled} more are compiled already")
    parts.append(takes)
    beyond = f", more than the {size(forecast.memory_limit)} that may be used: one compiler uses all of it"
    too_much = beyond if forecast.memory > forecast.memory_limit else ""
    parts += [f"up to {size(forecast.memory)} of memory{too_much}", f"{size(forecast.disk)} of disk"]
    if forecast.fetches:
        from flashdepot.net.fetch import offline  # noqa: PLC0415  (a hit fetches nothing)

        forbidden = ", which --offline or FLASHDEPOT_OFFLINE forbids" if offline() else ""
        what = ", ".join(f"{fetch.what} {size(fetch.size)}" for fetch in forecast.fetches)
        parts.append(f"and first to fetch {size(sum(fetch.size for fetch in forecast.fetches))} ({what}){forbidden}")
    return f"{'; '.join(parts)}."
