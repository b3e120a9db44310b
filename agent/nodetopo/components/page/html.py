"""The status page as HTML: no script, no external content, all foreign text escaped."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from urllib.parse import urlsplit

from nodetopo.components.page.style import MARKS, STYLE, band, mark
from nodetopo.components.page.view import WITHHELD, FindingRow, GpuRow, ReportRow, SizeRow, View
from nodetopo.drawing.node import figure
from nodetopo.formats.harmless import harmless
from nodetopo.model.snapshot import Snapshot

LONGEST_TEXT = 2000
"""Characters of one text; of a longer one the page has the start and the end."""

_ADMITTED: Mapping[bool | None, tuple[str, str]] = {
    True: ("good", "✓ admitted"),
    False: ("bad", "✗ rejected"),
    None: ("faint", "? not known"),
}

_SECTIONS = (
    ("drawing", "Node"),
    ("gpus", "GPUs"),
    ("findings", "Findings"),
    ("sizes", "What fits now"),
    ("allocations", "Last allocations"),
    ("resources", "Device plugin"),
    ("labels", "Labels"),
    ("xids", "XIDs"),
)


def page(view: View, snapshot: Snapshot | None, refresh_s: int | None) -> str:
    """Return the whole page; it loads itself again every *refresh_s* seconds, if given."""
    return "".join(_page(view, snapshot, refresh_s))


def text(value: object) -> str:
    """Return *value* as text of a page, in one line, without controls and direction marks."""
    return escape(harmless(str(value), LONGEST_TEXT))


def _page(view: View, snapshot: Snapshot | None, refresh_s: int | None) -> Iterator[str]:
    again = "" if refresh_s is None else f'<meta http-equiv="refresh" content="{refresh_s}">\n'
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'{again}<link rel="icon" href="data:,">\n'
        f"<title>{text(view.node)} · nodetopo</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )
    yield from _header(view, refresh_s)
    yield "<main>\n"
    parts = {
        "drawing": _drawing(view, snapshot),
        "gpus": _gpus(view),
        "findings": _findings(view),
        "sizes": _sizes(view),
        "allocations": _allocations(view),
        "resources": _resources(view),
        "labels": _labels(view),
        "xids": _xids(view),
    }
    for name, title in _SECTIONS:
        yield f'<section id="{name}" aria-labelledby="{name}-title">\n'
        yield f'<h2 id="{name}-title">{title}</h2>\n'
        yield from parts[name]
        yield "</section>\n"
    yield "</main>\n<footer>\n"
    yield f"<p>nodetopo {text(view.version)}. "
    yield 'The same as <a href="/status.json">JSON</a>; <a href="/metrics">metrics</a>, '
    yield '<a href="/readyz">readiness</a>. This page shows what the daemon has in memory.</p>\n'
    yield "</footer>\n</body>\n</html>\n"


def _header(view: View, refresh_s: int | None) -> Iterator[str]:
    yield f"<header>\n<h1>{text(view.node)}</h1>\n"
    if view.simulated is not None:
        yield _p(f"Simulated machine {view.simulated}: none of this hardware is here.", "warn")
    if view.is_ready:
        yield '<p class="verdict"><span class="good">✓ Ready</span></p>\n'
    else:
        yield '<p class="verdict"><span class="bad">✗ Not ready</span></p>\n<ul>\n'
        for line in view.not_ready:
            yield f"<li>{text(line)}</li>\n"
        yield "</ul>\n"
    if view.nvml_problem is not None:
        yield _p(f"NVML gives no reading: {view.nvml_problem}", "bad")
    if view.gpus_missing is not None:
        yield _p(view.gpus_missing, "bad")
    scanned = f"node read {view.scanned_at}" if view.scanned_at else "the node is being read"
    listed = view.pods_listed_at
    pods = f"pods listed {listed}" if listed else "pods not listed"
    yield _p(f"{scanned}; {pods}", "faint")
    if view.settings:
        shown = (f"{text(name)} <code>{text(value)}</code>" for name, value in view.settings)
        yield f'<p class="faint">{"; ".join(shown)}</p>\n'
    if refresh_s is not None:
        yield _p(f"This page loads itself again every {refresh_s} s.", "faint")
    links = (f'<li><a href="#{name}">{title}</a></li>' for name, title in _SECTIONS)
    yield f'<nav aria-label="Sections"><ul>{"".join(links)}</ul></nav>\n</header>\n'


def _drawing(view: View, snapshot: Snapshot | None) -> Iterator[str]:
    if snapshot is None:
        yield _p("The node has not been read yet.")
        return
    marks = {}
    for row in view.gpus:
        is_held = bool(row.holders)
        colour = band(row.number, is_held=is_held)
        marks[row.index] = mark(row.state, _band_text(row), colour)
    about = "; ".join(f"{row.name}: {_state(row)}, {_holder(row)}" for row in view.gpus)
    yield '<div class="drawing" role="region" aria-label="Drawing of the node" tabindex="0">\n'
    yield figure(snapshot, marks, about or "This node has no GPU.")
    yield "</div>\n"
    if view.gpus:
        legend = "; ".join(word for word, _, _ in MARKS.values())
        held = "the band below says which pod has the GPU" if view.pods_listed_at else ""
        yield _p("; ".join(filter(None, (f"GPUs: {legend}", held))), "faint")


def _gpus(view: View) -> Iterator[str]:
    if not view.gpus:
        is_read = view.scanned_at is not None
        yield _p("This node has no GPU." if is_read else "The node has not been read yet.")
        return
    classes = {"healthy": "good", "degraded": "warn", "unhealthy": "bad", "unknown": "faint"}
    yield from _table(
        "GPUs, how they are, and who has them",
        ("GPU", "State", "Reason", "Held by", "Product", "UUID"),
        (
            (
                text(row.name),
                f'<span class="{classes[row.state]}">{text(_state(row))}</span>',
                text(row.reason or ""),
                text(_holder(row)),
                text(row.product or "not known"),
                f"<code>{text(row.uuid or 'not known')}</code>",
            )
            for row in view.gpus
        ),
    )


def _state(row: GpuRow) -> str:
    return MARKS[row.state][0]


def _holder(row: GpuRow) -> str:
    """Return who has the GPU, in words."""
    if row.holders is None:
        return "not known"
    if not row.holders:
        return "free"
    names = ", ".join(row.holders)
    return f"{names} ({row.held_parts} of {row.parts} parts)" if row.parts else names


def _band_text(row: GpuRow) -> str | None:
    """Return the same as short as a card is narrow; ``None`` if unknown."""
    if row.holders is None:
        return None
    if row.parts:
        return f"{row.held_parts} of {row.parts} held"
    if len(row.holders) > 1:
        return f"{len(row.holders)} pods"
    return row.holders[0].rpartition("/")[2] if row.holders else "free"


def _findings(view: View) -> Iterator[str]:
    if not view.reports:
        yield _p("No check has been made yet.")
    for report in view.reports:
        yield _summary(report)
    for row in view.findings:
        yield from _finding(row)
    for report in view.reports:
        if report.missing:
            yield (
                f"<details>\n<summary>What <code>{text(report.report)}</code> could not judge: "
                f"{report.unknown} checks</summary>\n"
            )
            yield from _table(
                f"Inputs that {report.report} lacks",
                ("Input", "Why it is missing", "Checks"),
                (
                    (text(what), text(why or "not known"), text(codes))
                    for what, why, codes in report.missing
                ),
            )
            yield "</details>\n"


def _summary(report: ReportRow) -> str:
    counts = (
        (report.failed, "bad", "✗ failed"),
        (report.warned, "warn", "! warned"),
        (report.unknown, "faint", "? unknown"),
        (report.waived, "faint", "waived"),
        (report.passed, "good", "✓ passed"),
        (report.skipped, "faint", "not applicable"),
    )
    shown = ", ".join(
        f'<span class="{kind}">{count} {word}</span>' for count, kind, word in counts if count
    )
    return f"<p><code>{text(report.report)}</code>: {shown or 'no check'}</p>\n"


def _finding(row: FindingRow) -> Iterator[str]:
    symbol, kind = ("✗", "bad") if row.verdict == "fail" else ("!", "warn")
    name = row.code.lower()
    yield f'<article class="card {text(row.verdict)}" aria-labelledby="{text(name)}">\n'
    yield f'<h3 id="{text(name)}"><span class="{kind}">{symbol} {text(row.verdict)}</span> '
    yield f"{text(row.code)}: {text(row.claim)}</h3>\n<ul>\n"
    withheld = sum(not any(finding) for finding in row.findings)
    for subject, observed, expected in row.findings:
        if subject or observed or expected:
            yield f"<li>{text(subject)}: {text(observed)}; expected {text(expected)}</li>\n"
    if withheld:
        yield f"<li>{withheld} of them {text(WITHHELD)}</li>\n"
    if row.more:
        yield f"<li>and {row.more} more</li>\n"
    yield f"</ul>\n<dl>\n<dt>Why</dt><dd>{text(row.why)}</dd>\n"
    yield f"<dt>Cure</dt><dd>{text(row.remedy)}</dd>\n"
    yield f"<dt>More</dt><dd><code>nodetopo explain {text(row.code)}</code>, "
    yield f"<code>{text(row.page)}</code>, {_reference(row.reference)}</dd>\n"
    yield "</dl>\n</article>\n"


def _reference(reference: str) -> str:
    shown = text(reference)
    if urlsplit(reference).scheme == "https":
        return f'<a href="{shown}" rel="noreferrer noopener">{shown}</a>'
    return shown


def _sizes(view: View) -> Iterator[str]:
    yield _p(
        "A pod whose one container asks for so many devices, and for nothing else, would be "
        "answered like this. " + (f"{view.kubelet}." if view.kubelet else ""),
        "faint",
    )
    if not view.sizes:
        yield _p("Nothing is offered to the kubelet.")
        return
    yield from _table(
        "Which requests the kubelet would admit now",
        ("Resource", "Devices", "Answer", "Details"),
        ((text(row.resource), _size(row), _verdict(row), text(row.text)) for row in view.sizes),
    )


def _size(row: SizeRow) -> str:
    return str(row.first) if row.first == row.last else f"{row.first} to {row.last}"


def _verdict(row: SizeRow) -> str:
    kind, word = _ADMITTED[row.admitted]
    return f'<span class="{kind}">{word}</span>'


def _allocations(view: View) -> Iterator[str]:
    if not view.allocations:
        yield _p("No container was given devices since the daemon started.")
        return
    yield from _table(
        "The latest first",
        ("Time", "Resource", "Devices", "Chosen by", "Why"),
        (
            tuple(map(text, (row.at, row.resource, row.devices, row.by, row.text)))
            for row in view.allocations
        ),
    )


def _resources(view: View) -> Iterator[str]:
    if view.resources:
        yield from _table(
            "Resources that are offered to the kubelet",
            (
                "Resource",
                "Devices",
                "Registration",
                "Socket or problem",
                "Placement",
                "Allocations",
            ),
            (
                (
                    text(row.name),
                    f"{row.healthy} healthy, {row.unhealthy} unhealthy",
                    '<span class="good">✓ registered</span>'
                    if row.registered
                    else '<span class="bad">✗ not registered</span>',
                    text(row.problem or row.socket or "none"),
                    text(row.placement),
                    f"{row.allocations} since the start",
                )
                for row in view.resources
            ),
        )
    else:
        yield _p("Nothing is offered to the kubelet.")
    for reason in view.refusals:
        yield _p(f"Not offered: {reason}", "warn")


def _labels(view: View) -> Iterator[str]:
    if view.labels is None:
        yield _p("No labels are published.")
        return
    outputs = ", ".join(view.label_outputs)
    yield f"<details>\n<summary>{len(view.labels)} labels, to {text(outputs)}</summary>\n"
    yield from _table(
        "Labels",
        ("Key", "Value"),
        (
            (f"<code>{text(key)}</code>", f"<code>{text(value)}</code>")
            for key, value in view.labels.items()
        ),
    )
    yield "</details>\n"


def _xids(view: View) -> Iterator[str]:
    if not view.xids:
        yield _p("No XID was reported since the daemon started.")
        return
    yield from _table(
        "Errors that the driver reported since the daemon started",
        ("GPU", "XID", "Times", "Meaning", "What NVIDIA says to do"),
        (
            tuple(map(text, (row.gpu, row.code, row.count, row.meaning, row.action)))
            for row in view.xids
        ),
    )


def _p(sentence: str, kind: str = "") -> str:
    return f'<p class="{kind}">{text(sentence)}</p>\n' if kind else f"<p>{text(sentence)}</p>\n"


def _table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table of *rows*, cells of HTML; on a narrow page each row is a block.

    The roles keep it a table for screen readers there, where its boxes are none.
    """
    yield f'<table role="table">\n<caption>{text(caption)}</caption>\n'
    yield '<thead role="rowgroup"><tr role="row">'
    yield "".join(f'<th role="columnheader" scope="col">{text(head)}</th>' for head in heads)
    yield '</tr></thead>\n<tbody role="rowgroup">\n'
    for first, *others in rows:
        yield f'<tr role="row"><th role="rowheader" scope="row">{first}</th>'
        for head, cell in zip(heads[1:], others, strict=True):
            empty = "" if cell else ' class="none"'
            yield f'<td role="cell" data-label="{text(head)}"{empty}>{cell}</td>'
        yield "</tr>\n"
    yield "</tbody>\n</table>\n"
