"""The status page as HTML: no script, no external content, all foreign text escaped."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from html import escape
from urllib.parse import urlsplit

from nodetopo.components.page.rows import FindingRow, GpuRow, ReportRow, SizeRow, Summary, View
from nodetopo.components.page.style import MARKS, STYLE, band, mark, whole_class
from nodetopo.components.page.view import WITHHELD
from nodetopo.drawing.node import figure
from nodetopo.drawing.pieces import links, pieces
from nodetopo.formats.harmless import harmless
from nodetopo.model.snapshot import Snapshot

LONGEST_TEXT = 2000
"""Characters of one text; of a longer one the page has the start and the end."""

_ADMITTED: Mapping[bool | None, tuple[str, str]] = {
    True: ("good", "✓ admitted"),
    False: ("bad", "✗ rejected"),
    None: ("faint", "? unknown"),
}

_TITLES: Mapping[str, str] = {
    "drawing": "Node",
    "gpus": "GPUs",
    "findings": "Findings",
    "sizes": "Requests that fit now",
    "allocations": "Recent allocations",
    "resources": "Device plugin",
    "labels": "Labels",
    "xids": "XID errors",
}
"""The sections in order; one without content is left out."""


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
    sections = {name: body for name, part in parts.items() if (body := "".join(part))}
    yield from _header(view, refresh_s, sections)
    yield "<main>\n"
    for name, body in sections.items():
        yield f'<section id="{name}" aria-labelledby="{name}-title">\n'
        yield f'<h2 id="{name}-title">{_TITLES[name]}</h2>\n{body}</section>\n'
    yield "</main>\n<footer>\n"
    yield f"<p>nodetopo {text(view.version)}. This page shows data from the daemon's memory, also "
    yield 'as <a href="/status.json">JSON</a>. See also <a href="/metrics">metrics</a> and '
    yield '<a href="/readyz">readiness</a>.</p>\n'
    yield "</footer>\n</body>\n</html>\n"


def _header(view: View, refresh_s: int | None, sections: Iterable[str]) -> Iterator[str]:
    yield f"<header>\n<h1>{text(view.node)}</h1>\n"
    yield f'<p class="verdict">{" · ".join(_summary(view))}</p>\n'
    if view.simulated is not None:
        yield _p(
            f"SIMULATED machine {view.simulated}: neither this hardware nor a pod in the namespace "
            "simulated exists.",
            "warn",
        )
    if view.not_ready:
        yield "<ul>\n"
        for line in view.not_ready:
            yield f"<li>{text(line)}</li>\n"
        yield "</ul>\n"
    if view.nvml_problem is not None:
        yield _p(f"NVML cannot be read: {view.nvml_problem}", "bad")
    if view.gpus_missing is not None:
        yield _p(view.gpus_missing, "bad")
    scanned = f"Node scanned {view.scanned_at}" if view.scanned_at else "First scan of the node"
    listed = f"pods listed {view.pods_listed_at}" if view.pods_listed_at else "pods not listed"
    yield _p(f"{scanned} · {listed}", "faint")
    if view.settings:
        shown = (f"{text(name)} <code>{text(value)}</code>" for name, value in view.settings)
        yield f'<p class="faint">{" · ".join(shown)}</p>\n'
    if refresh_s is not None:
        yield _p(f"This page reloads every {refresh_s} s.", "faint")
    links = "".join(f'<li><a href="#{name}">{_TITLES[name]}</a></li>' for name in sections)
    if links:
        yield f'<nav aria-label="Sections"><ul>{links}</ul></nav>\n'
    yield "</header>\n"


def _summary(view: View) -> Iterator[str]:
    """Yield the parts of the first line: readiness, GPUs, pods, alignment, checks."""
    found = view.summary
    yield _span("good", "✓ Ready") if view.is_ready else _span("bad", "✗ Not ready")
    if found.gpus is None:
        yield _span("faint", "? GPUs unknown")
    elif not found.gpus:
        yield "no GPU"
    else:
        kind = "good" if found.healthy == found.gpus else "faint" if found.unknown else "bad"
        kind = "bad" if found.unhealthy else "warn" if found.degraded else kind
        parts = [f"{found.healthy} of {_counted(found.gpus, 'GPU')} healthy"]
        others = (found.unhealthy, "unhealthy"), (found.degraded, "degraded")
        parts += [
            f"{count} {name}" for count, name in (*others, (found.unknown, "unknown")) if count
        ]
        yield _span(kind, ", ".join(parts))
    if found.gpus != 0:
        yield from _pods(found)
    if found.failed is None:
        yield _span("faint", "? checks unknown")
    else:
        kind = "bad" if found.failed else "warn" if found.warned else "good"
        parts = [f"{_counted(found.failed, 'check')} failed"]
        parts += [f"{found.warned} warned"] if found.warned else []
        parts += [f"{found.undecided} unknown"] if found.undecided else []
        yield _span(kind, ", ".join(parts))


def _pods(found: Summary) -> Iterator[str]:
    yield _span("faint", "? pods unknown") if found.pods is None else _counted(found.pods, "pod")
    if found.misaligned is None:
        yield _span("faint", "? alignment unknown")
    else:
        kind = "warn" if found.misaligned else "good"
        unknown = f", {found.unmeasured} unknown" if found.unmeasured else ""
        yield _span(kind, f"{found.misaligned} misaligned{unknown}")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _span(kind: str, sentence: str) -> str:
    return f'<span class="{kind}">{text(sentence)}</span>'


def _drawing(view: View, snapshot: Snapshot | None) -> Iterator[str]:
    """Yield the drawing in two forms, of which the style sheet shows the one that fits."""
    if snapshot is None or not view.gpus:
        return
    marks = {}
    for row in view.gpus:
        colour = band(row.number, is_held=bool(row.holders))
        marks[row.index] = mark(row.state, _band_text(row), colour)
    about = "; ".join(f"{row.name}: {_state(row)}, {_holder(row)}" for row in view.gpus)
    picture, width = figure(snapshot, marks, about)
    region = 'role="region" aria-label="Drawing of the node" tabindex="0"'
    yield f'<div class="drawing {whole_class(width)}" {region}>\n{picture}</div>\n'
    yield '<div class="drawing pieces">\n'
    yield from pieces(snapshot, marks)
    yield f"<ul>{''.join(f'<li>{text(line)}</li>' for line in links(snapshot))}</ul>\n</div>\n"


def _gpus(view: View) -> Iterator[str]:
    if not view.gpus:
        yield _p("This node has no GPU." if view.scanned_at else "The first scan has not ended.")
        return
    classes = {"healthy": "good", "degraded": "warn", "unhealthy": "bad", "unknown": "faint"}
    products = {row.product for row in view.gpus}
    (same,) = products if len(products) == 1 else (None,)
    yield from _table(
        f"{len(view.gpus)} x {same}" if same else _counted(len(view.gpus), "GPU"),
        (
            *("GPU", "State", "Held by", "Reason", "NUMA node", "Nearest HCA", "PCI address"),
            *("Product", "UUID"),
        ),
        (
            (
                text(row.name),
                _span(classes[row.state], _state(row)),
                text(_holder(row)),
                text(row.reason or ""),
                text("unknown" if row.numa_node is None else row.numa_node),
                text(_nearest(row)),
                f"<code>{text(row.pci or 'unknown')}</code>",
                "" if same else text(row.product or "unknown"),
                f"<code>{text(row.uuid or 'unknown')}</code>",
            )
            for row in view.gpus
        ),
        brief=frozenset(row.name for row in view.gpus if row.state == "healthy"),
    )


def _nearest(row: GpuRow) -> str:
    if row.nearest_hcas is None:
        return "unknown"
    names = ", ".join(row.nearest_hcas)
    return f"{names} ({row.hca_distance})" if names else "none"


def _state(row: GpuRow) -> str:
    return MARKS[row.state][0]


def _holder(row: GpuRow) -> str:
    if row.holders is None:
        return "unknown"
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
    for report in view.reports:
        yield _counts(report)
    for row in view.findings:
        yield from _finding(row)
    for report in view.reports:
        if report.missing:
            yield (
                f"<details>\n<summary><code>{text(report.report)}</code> could not evaluate "
                f"{_counted(report.unknown, 'check')}</summary>\n"
            )
            yield from _table(
                f"Missing inputs of {report.report}",
                ("Input", "Reason", "Checks"),
                (
                    (text(what), text(why or "unknown"), text(codes))
                    for what, why, codes in report.missing
                ),
            )
            yield "</details>\n"


def _counts(report: ReportRow) -> str:
    counts = (
        (report.failed, "bad", "✗ failed"),
        (report.warned, "warn", "! warned"),
        (report.unknown, "faint", "? unknown"),
        (report.waived, "faint", "waived"),
        (report.passed, "good", "✓ passed"),
        (report.skipped, "faint", "not applicable"),
    )
    shown = ", ".join(_span(kind, f"{count} {word}") for count, kind, word in counts if count)
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
        yield f"<li>{_counted(withheld, 'finding')} {text(WITHHELD)}</li>\n"
    if row.more:
        yield f"<li>and {row.more} more</li>\n"
    yield f"</ul>\n<dl>\n<dt>Why</dt><dd>{text(row.why)}</dd>\n"
    yield f"<dt>Fix</dt><dd>{text(row.remedy)}</dd>\n"
    yield f"<dt>More</dt><dd><code>nodetopo explain {text(row.code)}</code>, "
    yield f"<code>{text(row.page)}</code>, {_reference(row.reference)}</dd>\n"
    yield "</dl>\n</article>\n"


def _reference(reference: str) -> str:
    shown = text(reference)
    if urlsplit(reference).scheme == "https":
        return f'<a href="{shown}" rel="noreferrer noopener">{shown}</a>'
    return shown


def _sizes(view: View) -> Iterator[str]:
    if not view.sizes:
        return
    yield _p(
        "Whether the kubelet would admit a pod with one container that requests these devices and "
        "nothing else." + (f" {view.kubelet}." if view.kubelet else ""),
        "faint",
    )
    yield from _table(
        "Admission by number of devices",
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
        return
    yield from _table(
        "Latest first",
        ("Time", "Resource", "Devices", "Chosen by", "Why"),
        (
            tuple(map(text, (row.at, row.resource, row.devices, row.by, row.text)))
            for row in view.allocations
        ),
    )


def _resources(view: View) -> Iterator[str]:
    if view.resources:
        yield from _table(
            "Resources advertised to the kubelet",
            (
                "Resource",
                "Devices",
                "Registration",
                "Socket or error",
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
                    f"{row.allocations} since the daemon started",
                )
                for row in view.resources
            ),
        )
    elif view.gpus:
        yield _p("No resource is advertised to the kubelet.")
    for reason in view.refusals:
        yield _p(f"Not advertised: {reason}", "warn")


def _labels(view: View) -> Iterator[str]:
    if not view.labels:
        return
    count, outputs = _counted(len(view.labels), "label"), ", ".join(view.label_outputs)
    whither = f"published to {outputs}" if outputs else "computed, not published"
    yield f"<details>\n<summary>{count}, {text(whither)}</summary>\n"
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
        return
    yield from _table(
        "Since the daemon started",
        ("GPU", "XID", "Count", "Meaning", "NVIDIA's recommended action"),
        (
            tuple(map(text, (row.gpu, row.code, row.count, row.meaning, row.action)))
            for row in view.xids
        ),
    )


def _p(sentence: str, kind: str = "") -> str:
    return f'<p class="{kind}">{text(sentence)}</p>\n' if kind else f"<p>{text(sentence)}</p>\n"


def _table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    brief: Container[str] = (),
) -> Iterator[str]:
    """Yield a table of *rows*, cells of HTML, without columns that are empty in all rows.

    On a narrow page each row is a block, and the rows whose first cell is in *brief* are one line
    of three cells. The roles keep it a table for screen readers there.
    """
    rows = tuple(rows)
    kept = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    yield f'<table role="table">\n<caption>{text(caption)}</caption>\n'
    yield '<thead role="rowgroup"><tr role="row">'
    yield "".join(f'<th role="columnheader" scope="col">{text(heads[at])}</th>' for at in kept)
    yield '</tr></thead>\n<tbody role="rowgroup">\n'
    for row in rows:
        kind = ' class="brief"' if row[0] in brief else ""
        yield f'<tr role="row"{kind}><th role="rowheader" scope="row">{row[0]}</th>'
        for at in kept[1:]:
            empty = "" if row[at] else ' class="none"'
            yield f'<td role="cell" data-label="{text(heads[at])}"{empty}>{row[at]}</td>'
        yield "</tr>\n"
    yield "</tbody>\n</table>\n"
