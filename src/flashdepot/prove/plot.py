"""A picture of the speeds: one panel a head dim and causality, one line an implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flashdepot.errors import MissingToolError, UsageError


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a result of ``speed.py`` as PNG or SVG.

    :raises MissingToolError: when matplotlib is not installed.
    :raises UsageError: for another kind of file.
    """
    if path.suffix.lower() not in {".png", ".svg"}:
        raise UsageError(f"'{path}' is not a picture that can be written: its name must end in .png or .svg.")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (an extra, slow to import)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise MissingToolError("A plot needs matplotlib.", hint="pip install 'flashdepot[plot]'") from error
    panels: dict[str, list[Mapping[str, Any]]] = {}
    for row in document["rows"]:
        name = f"{row['pass']}, head dim {row['head_dim']}{', causal' if row['causal'] else ''}"
        panels.setdefault(name, []).append(row)
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(6 * columns, 3.4 * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for index, (name, rows) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(lines, columns, index)
        for rival in _rivals(rows):
            axes.plot(
                [r["length"] for r in rows if rival in r["tflops"]],
                [r["tflops"][rival] for r in rows if rival in r["tflops"]],
                marker="o",
                label=rival,
            )
        axes.set_title(name, fontsize=10)
        axes.set_xscale("log", base=2)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("sequence length")
        axes.set_ylabel("TFLOP/s")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.suptitle(f"{document['gpu']}, {document['dtype']}, torch {document['torch']}")
    figure.savefig(path, dpi=130)


def _rivals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row["tflops"]))
