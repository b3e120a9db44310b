"""Rules on the keys of the kubelet's files: whether what they state takes effect."""

import re
from collections.abc import Iterator

from agent.checks.inputs import Inputs, because
from agent.checks.kubelet.inputs import starting, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet_keys import (
    KEYS,
    MAX_ODD_KEYS,
    NEWEST,
    OLDEST,
    SINCE,
    Keys,
    OddKey,
    closest,
    spelled,
)
from agent.model.kubernetes import Release, release
from agent.model.snapshot import Snapshot

PLACEMENT = frozenset(
    """
    cpuManagerPolicy cpuManagerPolicyOptions memoryManagerPolicy topologyManagerPolicy
    topologyManagerScope topologyManagerPolicyOptions reservedSystemCPUs reservedMemory
    systemReserved kubeReserved evictionHard featureGates
    """.split()  # noqa: SIM905 - as prose
)
"""Keys that decide which CPUs, memory and devices a pod gets, with all that is inside them."""

NEAR = 0.9
"""How alike two names are of which one is a slip of the other: one letter of a dozen. No key is as
near to one of placement, so that a newer release has hardly one either."""

_FLAGS = {"reservedcpus": "reservedSystemCPUs", "podmaxpids": "podPidsLimit"}
"""Flags whose key has another name (cmd/kubelet/app/options/options.go), without dashes."""

_UNKNOWN = "unknown to the kubelet, without effect"
_INDEX = re.compile(r"\[[0-9]+\]")
_TASK = "https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/"
_REMEDY = (
    "write the key as the kubelet has it, or take it out (`journalctl -u kubelet | grep strict` "
    "names those of the file of --config), then restart the kubelet; where that changes the policy "
    "of a manager: drain the node, stop the kubelet, delete the manager's state file, start the "
    "kubelet"
)


def _kept(snapshot: Snapshot) -> tuple[OddKey, ...] | None:
    """Return the odd keys; ``None`` where they are not known, or more than any capture has."""
    settings = starting(snapshot)
    odd = settings.odd_keys if settings else None
    return odd if odd is not None and len(odd) <= MAX_ODD_KEYS else None


def _keys(snapshot: Snapshot) -> tuple[OddKey, ...]:
    return _kept(snapshot) or ()


def _missing(snapshot: Snapshot) -> Inputs:
    if _kept(snapshot) is not None:
        return ()
    return (f"keys of the kubelet's files{because(snapshot, 'kubelet')}",)


def _release(snapshot: Snapshot) -> Release | None:
    return release(version(snapshot))


def _needs_release(snapshot: Snapshot) -> Inputs:
    """Need a known release where a key's meaning depends on it."""
    found, absent = _release(snapshot), _missing(snapshot)
    if found is not None and found < OLDEST:
        return (*absent, f"keys of kubelets before {_words(OLDEST)}")
    dated = [odd for odd in _keys(snapshot) if _is_dated(odd)]
    if found is None:
        return (*absent, *(("version of the kubelet",) if dated else ()))
    if found <= NEWEST:
        return absent
    return (*absent, *(f"{odd.path}, unknown here" for odd in dated if _name(odd) is None))


def _is_dated(odd: OddKey) -> bool:
    """Return whether the release decides what the kubelet makes of a key."""
    if odd.is_repeated or _slip(odd) is not None:
        return False
    name = _name(odd)
    return name is None or name in SINCE


def _object(odd: OddKey) -> Keys:
    """Return the keys of the object that has *odd*."""
    known = KEYS
    for name in filter(None, _INDEX.sub("", odd.within).split(".")):
        known = known.get(name, {})
    return known


def _name(odd: OddKey) -> str | None:
    """Return the key that the kubelet takes *odd* for; ``None`` where it knows none."""
    return spelled(odd.key, _object(odd), any_case=odd.is_drop_in)


def _bare(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


def _slip(odd: OddKey) -> str | None:
    """Return the way down to the key of which *odd* is surely a slip, in whatever release."""
    if _name(odd) is not None:
        return None
    beside, bare = _object(odd), _bare(odd.key)
    found = next((name for name in beside if _bare(name) == bare), None)
    if found is None and not odd.within:
        found = _FLAGS.get(bare)
    found = found or closest(odd.key, beside, NEAR)
    if found is None:
        return next((name for name in PLACEMENT if _bare(name) == bare), None)
    return f"{_INDEX.sub('', odd.within)}.{found}" if odd.within else found


def _guess(odd: OddKey) -> str | None:
    """Return the way down to a key that may be meant."""
    bare = _bare(odd.key)
    elsewhere = [path for path, name in _paths(KEYS) if _bare(name) == bare]
    return elsewhere[0] if len(elsewhere) == 1 else closest(odd.key, _object(odd))


def _paths(known: Keys, lead: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in known.items():
        yield f"{lead}{name}", name
        yield from _paths(inner, f"{lead}{name}.")


def _misspelt(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(found for odd in _keys(snapshot) if (found := _misspelling(odd)) is not None)


def _misspelling(odd: OddKey) -> Finding | None:
    """Find a key that was to be one of placement, and has no effect."""
    if odd.is_repeated:
        return None
    name, meant = _name(odd), _slip(odd)
    if name in PLACEMENT and odd.is_overridden:
        observed = f"another case of letters, and hidden by {name}, stated or by default"
        return _finding(odd, observed, name)
    if meant is None or meant.split(".", maxsplit=1)[0] not in PLACEMENT:
        return None
    return _finding(odd, _UNKNOWN, meant)


def _passed_over(snapshot: Snapshot) -> tuple[Finding, ...]:
    found = _release(snapshot)
    judged = (_other(odd, found) for odd in _keys(snapshot) if _misspelling(odd) is None)
    return tuple(finding for finding in judged if finding is not None)


def _other(odd: OddKey, found: Release | None) -> Finding | None:
    """Find a key that has no effect, or another one than it seems."""
    if odd.is_repeated:
        return _finding(odd, "stated twice, of which the last counts", "stated once")
    name, meant = _name(odd), _slip(odd)
    if name is not None and name != odd.key:
        observed = f"another case of letters, which in drop-ins hides {name} or is hidden by it"
        return _finding(odd, observed, name)
    since = None if name is None else SINCE.get(name)
    if since is not None:
        if found is None or found >= since:
            return None
        observed = f"unknown to Kubernetes {_words(found)}, without effect"
        return _finding(odd, observed, f"Kubernetes {_words(since)} or newer")
    if meant is None and (found is None or not OLDEST <= found <= NEWEST):
        return None
    guess = _guess(odd)
    expected = f"perhaps {guess}" if guess else "a key of KubeletConfiguration v1beta1"
    return _finding(odd, _UNKNOWN, meant or expected)


def _finding(odd: OddKey, observed: str, expected: str) -> Finding:
    return Finding(subject=f"{odd.path} in {odd.file}", observed=observed, expected=expected)


def _words(found: Release) -> str:
    return f"{found[0]}.{found[1]}"


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-030",
        claim="no key of the kubelet's files misspells one that decides placement",
        why="The kubelet starts with a key that it does not know, and goes by the default of the "
        "one that was meant: of the file of --config its log has one line, of drop-ins none.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing,
        check=_misspelt,
        remedy=_REMEDY,
        reference=_TASK,
    ),
    Rule(
        code="KUB-031",
        claim="every key of the kubelet's files takes effect",
        why="The kubelet passes over a key that its release does not know, all but the last of a "
        "key that is stated twice, and in drop-ins what is hidden by the same key in another case.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_release,
        check=_passed_over,
        remedy=_REMEDY,
        reference=_TASK,
    ),
)
