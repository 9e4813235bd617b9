"""Plots of an experiment: lines over one parameter, as files of SVG that need no server and no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure


def write_lines(
    path: Path, title: str, parameter: str, at: Sequence[float], lines: Mapping[str, Sequence[float]], *, unit: str
) -> None:
    """Write a plot with one line for each series.

    Args:
        path: of the file, which is replaced.
        title: above the plot.
        parameter: with its unit, below the plot.
        at: the values of the parameter, ascending.
        lines: title of a series -> its value at each of them.
        unit: of the values, at the left.

    Raises:
        OSError: the file cannot be written.
    """
    # With a salt of its own, one run gives one file, byte by byte.
    with mpl.rc_context({"svg.hashsalt": "waypost", "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.add_subplot()
        for name, values in lines.items():
            axes.plot(at, values, marker="o", label=name)
        axes.set(title=title, xlabel=parameter, ylabel=unit, xticks=at)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
        figure.savefig(path, format="svg", metadata={"Date": None})
