"""A simulated trace as bars, SVG or PNG; the only module that uses matplotlib."""

import os
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from nodetopo.cli.output import clean
from nodetopo.cli.writing import replace_file
from nodetopo.drawing.canvas import FAINT, INK
from nodetopo.errors import InputError
from tests.bench.traces.contest import OURS
from tests.bench.traces.text import Study, heading

FORMATS = (".svg", ".png")

PANELS = (
    ("mean_of_best", "Bandwidth reached", "of the best set, more is better"),
    ("numa_split", "Split over NUMA nodes", "of the jobs, fewer are better"),
    ("rejected", "Rejected", "under single-numa-node, fewer are better"),
)
"""Figure, title, denominator of the share."""

OUR_COLOR, THEIR_COLOR = "#0072b2", "#b8b8b0"
"""Okabe and Ito's blue, and a grey; the names say the same."""

DOTS_PER_INCH = 150

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "nodetopo",  # else ids differ from run to run
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # a $ in the name of a node is a $
}


def check(name: str) -> None:
    """Hold that a plot can be written to *name*.

    Raises:
        InputError: the ending is neither .svg nor .png, the place cannot be written, or
            matplotlib is not installed.
    """
    if Path(name).suffix.lower() not in FORMATS:
        raise InputError(f"--plot: {name!r} is no plot", "name a file that ends in .svg or .png")
    try:
        problem = _obstacle(Path(name))
    except OSError as error:
        problem = error.strerror
    if problem is not None:
        raise InputError(f"cannot write {name}: {problem}", "check the path")
    if find_spec("matplotlib") is None:
        raise InputError("plots need matplotlib", "pip install matplotlib")


def _obstacle(target: Path) -> str | None:
    folder = target.parent
    if target.is_dir():
        return "it is a directory"
    if not folder.exists():
        return f"{folder} does not exist"
    if not folder.is_dir():
        return f"{folder} is not a directory"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"no permission to write in {folder}"
    return None


def write(study: Study, name: str) -> None:
    """Draw *study* to the file *name*, whole or not at all.

    Raises:
        InputError: the place cannot be written.
    """
    target = Path(name)
    picture = draw(study, target.suffix.lower().removeprefix("."))
    try:
        replace_file(target, picture)
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}", "check the path") from None


def draw(study: Study, kind: str) -> bytes:
    """Return the picture; *kind* is ``svg`` or ``png``. The same study gives the same bytes."""
    # 57 MiB that only this flag needs.
    from matplotlib import figure, rc_context, rcdefaults, rcParams  # noqa: PLC0415

    with rc_context():
        rcdefaults()  # a user's matplotlibrc would change the picture
        rcParams.update(STYLE)
        height = 2.0 + 0.34 * len(study.rows)
        chart = figure.Figure(figsize=(11, height), dpi=DOTS_PER_INCH, layout="constrained")
        machine, jobs = heading(study)
        title = f"{clean(machine)}\n{clean(jobs)}"
        chart.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
        for axes, panel in zip(chart.subplots(1, len(PANELS), sharey=True), PANELS, strict=True):
            _panel(axes, study, *panel)
        # No date: the same run gives the same file.
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        buffer = BytesIO()
        chart.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def _panel(axes: Any, study: Study, name: str, title: str, unit: str) -> None:
    rows = study.rows
    values = [getattr(row.total, name) for row in rows]
    colors = [OUR_COLOR if row.policy in OURS else THEIR_COLOR for row in rows]
    places = range(len(rows))
    axes.barh(places, [100 * (value or 0) for value in values], color=colors, height=0.7)
    for place, value in zip(places, values, strict=True):
        text = "not measured" if value is None else f"{100 * value:.1f} %"
        axes.annotate(
            text,
            (100 * (value or 0), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=INK,
        )
    axes.set_yticks(places, [row.policy for row in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 122)
    axes.set_xticks((0, 25, 50, 75, 100))
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.set_xlabel(f"% {unit}", loc="left", fontsize=9, color=FAINT)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.grid(axis="x", color="#e4e4df", linewidth=0.7)
    axes.set_axisbelow(True)
