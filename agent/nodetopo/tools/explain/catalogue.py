"""Every word that can be explained, from the pages and from the tables of the program."""

import re
from collections.abc import Iterator
from functools import cache
from posixpath import normpath

from nodetopo.checks.rule import Claim, Rule, needed
from nodetopo.components.gpus.health.recovery import ACTIONS
from nodetopo.components.labels.catalogue import CATALOGUE
from nodetopo.kernel.http.families import families
from nodetopo.kernel.http.family import PREFIX
from nodetopo.kernel.settings.declare import key, options, variable
from nodetopo.kernel.settings.explained import effect, explanation
from nodetopo.kernel.settings.nvidia.names import NAMES
from nodetopo.model.xid import CATALOGUE_URL, ROWS, UNLISTED, Row
from nodetopo.pages import RUNBOOK, WORDS, items, tables
from nodetopo.tools.cluster.doctor.catalogue import RULES as OF_CLUSTERS
from nodetopo.tools.explain.entry import Entry, Kind
from nodetopo.tools.node_rules import node_rules

CLOSE = 0.8
"""Least similarity of a suggestion (``difflib`` ratio): one letter of five."""

MOST_SUGGESTIONS = 3

MOST_XID = 999
"""The driver's own word for an unknown code; numbers above it are no XIDs."""

_UNLISTED = "not in the edition of NVIDIA's catalogue that this release knows"

_OPERATE = "operate"
"""The directory of the pages that texts are written for."""

_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
_XID = re.compile(r"(?:nvrm:? ?)?(?:xid)?[\s:_-]*([0-9]{1,4})")
_LOGGED = re.compile(r"xid \([^)]*\): ([0-9]{1,4})")
"""In the kernel log: ``NVRM: Xid (PCI:0000:4f:00): 79, …``."""

_CHECK = re.compile(r"([a-z]{3})-?([0-9]{1,3})")
_SAMPLE = re.compile(r"\{.*\}.*", re.DOTALL)
_PART = re.compile(r"<[^>]+>")


@cache
def entries() -> tuple[Entry, ...]:
    """Return every entry, by kind and then in the order of its table."""
    return tuple(
        entry
        for made in (
            _checks(),
            _xids(),
            _words(Kind.REJECTION, "Kubelet rejections"),
            _words(Kind.MESSAGE, "Messages of other programs"),
            _alerts(),
            _events(),
            _readiness(),
            _words(Kind.GPU_HEALTH, "GPU health"),
            _recovery_actions(),
            _words(Kind.HCA_HEALTH, "HCA health"),
            _words(Kind.ALIGNMENT, "Alignment"),
            _words(Kind.ALIGNMENT, "Causes of misalignment"),
            _words(Kind.TAINT, "DRA device taints"),
            _words(Kind.HAND_OVER, "Device hand-over"),
            _labels(),
            _settings(),
            _metrics(),
        )
        for entry in made
    )


def look_up(word: str) -> tuple[Entry, ...]:
    """Return every meaning of *word*: a name, or a line that begins with one.

    An XID is found as ``79``, ``XID-79`` and ``xid 79``; a setting by its key, flag and variable; a
    label by its key with and without prefix; a metric with and without its labels.
    """
    wanted = _normal(word)
    found = [entry for entry in entries() if wanted in map(_normal, entry.words())]
    if not found:
        found = [entry for entry in entries() if any(_fits(name, wanted) for name in entry.words())]
    if number := _XID.fullmatch(wanted) or _LOGGED.search(wanted):
        code = int(number[1])
        listed = [entry for entry in entries() if entry.name == f"XID-{code}"]
        if not listed and not found and 0 < code <= MOST_XID:
            listed = [_xid(Row(codes=(code,), meaning=_UNLISTED, action=None, kind=UNLISTED), code)]
        found = [*listed, *(entry for entry in found if entry.kind is not Kind.XID)]
    if not found and " " in wanted:  # a line of a log, or a message
        found = [
            entry for entry in entries() if any(_is_in(name, wanted) for name in entry.words())
        ]
    return tuple(dict.fromkeys(found))


def close_to(word: str) -> tuple[str, ...]:
    """Return the names that *word* can be a misspelling of, the closest first."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it, slow to import

    names = {_normal(name): name for entry in entries() for name in entry.words()}
    if code := _CHECK.fullmatch(_normal(word)):  # zeros are all that is wrong
        padded = f"{code[1]}-{int(code[2]):03}"
        if padded in names:
            return (names[padded],)
    near = get_close_matches(_normal(word), names, n=MOST_SUGGESTIONS, cutoff=CLOSE)
    return tuple(names[name] for name in near)


def names() -> tuple[str, ...]:
    """Return the words to offer for completion: every name without a part that varies."""
    return tuple(
        dict.fromkeys(
            entry.name for entry in entries() if "<" not in entry.name and " " not in entry.name
        )
    )


def _normal(word: str) -> str:
    """Return *word* as it is compared: no dashes before it, no labels of a metric after it."""
    word = _SAMPLE.sub("", word.strip().strip("`'\"").lstrip("-"))
    return " ".join(word.lower().split())


def _pattern(name: str) -> str:
    return r"\S+".join(map(re.escape, _PART.split(_normal(name))))


def _fits(name: str, wanted: str) -> bool:
    """Return whether *name* has a part that varies, and *wanted* is such a name."""
    return "<" in name and bool(re.fullmatch(_pattern(name), wanted))


def _is_in(name: str, line: str) -> bool:
    """Return whether *line* has *name* as a whole word, which no other text has by chance."""
    is_distinctive = bool(re.search(r"[a-z][A-Z]|\w[-_/ ][\w<]", name))
    return is_distinctive and bool(re.search(rf"(?<![\w-]){_pattern(name)}(?![\w-])", line))


def plain(text: str) -> str:
    """Return the Markdown *text* for a terminal: links by their words, `agent` of the runbook."""
    return _LINK.sub(r"\1", text).replace("`agent ", "`nodetopo ")


def _linked(text: str) -> str:
    """Return the first page that *text* links to, or nothing."""
    link = _LINK.search(text)
    if link is None:
        return ""
    target = f"runbook.md{link[2]}" if link[2].startswith("#") else link[2]
    return f"docs/{normpath(f'{_OPERATE}/{target}')}"


def _words(kind: Kind, section: str) -> Iterator[Entry]:
    (rows,) = tables(WORDS, section)
    for spellings, meaning, cure, more in rows:
        name, *aliases = spellings.strip("`").split("`, `")
        yield Entry(
            kind=kind,
            name=name,
            aliases=tuple(aliases),
            meaning=plain(meaning),
            facts=(("what to do", plain(cure)),),
            page=_linked(more),
        )


def _checks() -> Iterator[Entry]:
    claims: tuple[Claim, ...] = (*node_rules(), *OF_CLUSTERS)
    for claim in claims:
        needs = ", ".join(needed(claim)) if isinstance(claim, Rule) else ""
        yield Entry(
            kind=Kind.CHECK,
            name=claim.code,
            meaning=claim.claim,
            facts=(
                ("checked by", f"nodetopo {claim.command} --only {claim.area}"),
                ("severity", claim.severity.value),
                ("why", claim.why),
                *([("needs", needs)] if needs else []),
                ("what to do", claim.remedy),
                ("reference", claim.reference),
            ),
            page=claim.url,
        )


def _xids() -> Iterator[Entry]:
    for row in ROWS:
        for code in row.codes:
            yield _xid(row, code)


def _xid(row: Row, code: int) -> Entry:
    return Entry(
        kind=Kind.XID,
        name=f"XID-{code}",
        aliases=(f"xid {code}",),
        meaning=row.meaning,
        facts=(
            ("class", _CLASSES[row.kind.value]),
            ("NVIDIA's action", row.action or "none published"),
            *([("why", plain(row.why))] if row.why else []),
            ("reference", CATALOGUE_URL),
        ),
        page="docs/operate/health.md#xids",
    )


_CLASSES = {
    "app": "app: the GPU stays Healthy; inform the owner of the pod",
    "degraded": "degraded: the GPU is allocated last; reset it when it is idle",
    "reset": "reset: the GPU is Unhealthy until a reset",
    "reboot": "reboot: the GPU is Unhealthy until the node reboots",
    "rma": "rma: the GPU is Unhealthy until an operator clears it; have it replaced",
}
"""By the word of :class:`nodetopo.model.gpu_health.HealthClass`."""


def _alerts() -> Iterator[Entry]:
    for name, alert in items(RUNBOOK, "Alerts").items():
        yield Entry(
            kind=Kind.ALERT,
            name=name,
            meaning=plain(alert["Means"]),
            facts=(
                ("impact", plain(alert["Impact"])),
                ("confirm", plain(alert["Confirm"])),
                ("what to do", plain(alert["Do"])),
            ),
            page=f"docs/{RUNBOOK}#{name.lower()}",
        )


def _events() -> Iterator[Entry]:
    for about, table in zip(("Node", "pod"), tables(RUNBOOK, "Events"), strict=True):
        for names, kind, when, cure in table:
            for name in names.split(", "):
                yield Entry(
                    kind=Kind.EVENT,
                    name=name,
                    meaning=plain(when),
                    facts=(("type", f"{kind}, on the {about}"), ("what to do", plain(cure))),
                    page=_linked(cure) or f"docs/{RUNBOOK}#events",
                )


def _readiness() -> Iterator[Entry]:
    (rows,) = tables(RUNBOOK, "Readiness and liveness")
    for name, meaning, cure in rows:
        yield Entry(
            kind=Kind.READINESS,
            name=name,
            meaning=plain(meaning),
            facts=(("what to do", plain(cure)),),
            page=_linked(cure) or f"docs/{RUNBOOK}#readiness-and-liveness",
        )


def _recovery_actions() -> Iterator[Entry]:
    for reason in dict.fromkeys(action.reason for action in ACTIONS.values()):
        actions = [action for action in ACTIONS.values() if action.reason == reason]
        numbers = " or ".join(str(action.number) for action in actions)
        yield Entry(
            kind=Kind.GPU_HEALTH,
            name=reason,
            meaning=f"The driver asks {actions[0].said} (recovery action {numbers}).",
            facts=(("class", _CLASSES[actions[0].kind.value]),),
            page="docs/operate/health.md#recovery-actions",
        )


def _labels() -> Iterator[Entry]:
    for row in CATALOGUE:
        _prefix, slash, name = row.key.partition("/")
        yield Entry(
            kind=Kind.LABEL,
            name=row.key,
            aliases=(name,) if slash else (),
            meaning=plain(row.meaning),
            facts=(("source", plain(row.source)), ("values", plain(row.cardinality))),
            page="docs/reference/labels.md",
        )


def _settings() -> Iterator[Entry]:
    for field, option in options().items():
        yield Entry(
            kind=Kind.SETTING,
            name=key(field),
            aliases=(variable(field), field),
            meaning=explanation(field, option),
            facts=(
                ("set by", f"--{key(field)}, {variable(field)}, or {key(field)} in the file"),
                ("takes effect", "without a restart" if option.is_live else "at a restart"),
            ),
            page="docs/operate/configuration.md#all-settings",
        )
    ours = {key(field) for field in options()}
    for name in NAMES:
        words = [word.lstrip("-") for word in name.all_names()]
        others = tuple(word for word in words if word not in ours)
        if others:
            yield Entry(
                kind=Kind.SETTING,
                name=others[0],
                aliases=others[1:],
                meaning=f"a setting of NVIDIA's device plugin: {effect(name)}",
                page="docs/operate/configuration.md#all-settings-of-nvidias-plugin",
            )


def _metrics() -> Iterator[Entry]:
    for component, family in families():
        base = f"{PREFIX}{family.name}"
        spellings = (base, family.name, family.full_name.removeprefix(PREFIX))
        yield Entry(
            kind=Kind.METRIC,
            name=family.full_name,
            aliases=tuple(word for word in spellings if word != family.full_name),
            meaning=plain(family.text),
            facts=(
                ("type", family.kind.value),
                ("labels", ", ".join(family.labels) or "none"),
                ("component", component),
                *([("only", family.when)] if family.when else []),
            ),
            page="docs/reference/metrics.md#metrics",
        )
