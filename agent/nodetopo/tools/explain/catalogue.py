"""Every word that can be explained, from the tables that the program and its pages use."""

import re
from collections.abc import Iterable, Iterator
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
from nodetopo.tools.cluster.doctor.catalogue import RULES as OF_CLUSTERS
from nodetopo.tools.explain.alerts import ALERTS
from nodetopo.tools.explain.entry import Entry, Kind
from nodetopo.tools.explain.events import NODE_EVENTS, POD_EVENTS, EventReason
from nodetopo.tools.explain.readiness import READINESS
from nodetopo.tools.explain.words import (
    CAUSES,
    HAND_OVER,
    HCA_HEALTH,
    HEALTH,
    MESSAGES,
    REJECTIONS,
    TAINTS,
    VERDICTS,
    Word,
)
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
            _of_words(Kind.REJECTION, REJECTIONS, ""),
            _of_words(Kind.MESSAGE, MESSAGES, ""),
            _alerts(),
            _events(),
            _readiness(),
            _of_words(Kind.GPU_HEALTH, HEALTH, ""),
            _recovery_actions(),
            _of_words(Kind.HCA_HEALTH, HCA_HEALTH, "health.md#hcas"),
            _of_words(Kind.ALIGNMENT, VERDICTS, "../reference/alignment.md#verdicts"),
            _of_words(Kind.ALIGNMENT, CAUSES, "../reference/alignment.md#other-causes"),
            _of_words(Kind.TAINT, TAINTS, "dra.md#our-driver"),
            _of_words(Kind.HAND_OVER, HAND_OVER, "configuration.md#device-hand-over"),
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


def _page(target: str) -> str:
    return f"docs/{normpath(f'{_OPERATE}/{target}')}" if target else ""


def _linked(*texts: str) -> str:
    """Return the first page that *texts* link to."""
    for text in texts:
        for _, target in _LINK.findall(text):
            return _page(f"runbook.md{target}" if target.startswith("#") else target)
    return ""


def _of_words(kind: Kind, words: Iterable[Word], page: str) -> Iterator[Entry]:
    for word in words:
        yield Entry(
            kind=kind,
            name=word.name,
            aliases=word.aliases,
            meaning=plain(word.meaning),
            facts=(("what to do", plain(word.cure)),),
            page=_page(word.page or page),
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
    for alert in ALERTS:
        yield Entry(
            kind=Kind.ALERT,
            name=alert.name,
            meaning=plain(alert.means),
            facts=(
                ("impact", plain(alert.impact)),
                ("confirm", plain(alert.confirm)),
                ("what to do", plain(alert.cure)),
            ),
            page=f"docs/operate/runbook.md#{alert.name.lower()}",
        )


def _events() -> Iterator[Entry]:
    def entry(event: EventReason, name: str, about: str) -> Entry:
        return Entry(
            kind=Kind.EVENT,
            name=name,
            meaning=plain(event.when),
            facts=(
                ("type", f"{event.kind}, on the {about}"),
                ("what to do", plain(event.cure)),
            ),
            page=_linked(event.cure) or "docs/operate/runbook.md#events",
        )

    for about, table in (("Node", NODE_EVENTS), ("pod", POD_EVENTS)):
        for event in table:
            for name in event.names:
                yield entry(event, name, about)


def _readiness() -> Iterator[Entry]:
    for reason in READINESS:
        yield Entry(
            kind=Kind.READINESS,
            name=reason.name,
            meaning=plain(reason.meaning),
            facts=(("what to do", plain(reason.cure)),),
            page=_linked(reason.cure) or "docs/operate/runbook.md#readiness-and-liveness",
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
