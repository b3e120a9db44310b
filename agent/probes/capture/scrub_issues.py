"""An issue without the addresses and names that a network's answers hold."""

import re
from collections.abc import Iterable
from dataclasses import replace

from agent.model.pod import Pod
from agent.model.snapshot import ProbeIssue

_NETWORK_PROBES = ("pods", "podresources", "node", "rights", "kubelet")
_LEAST = 4
"""Shorter names are found inside of words."""
_IPV4 = re.compile(r"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9.])")
_IPV6 = re.compile(r"\[[0-9a-f:]+(?:%\w+)?\]", re.IGNORECASE)
_HOST = re.compile(r"(?<=https://)[^\s/:'\"]+|(?<=host=')[^']*|(?<=resolve ')[^']*")
"""Where URLs and urllib3's errors name a host."""


def scrub_issue(issue: ProbeIssue, pods: Iterable[Pod]) -> ProbeIssue:
    """Return *issue* without addresses, host names, and names of *pods*."""
    if issue.probe not in _NETWORK_PROBES:
        return issue
    names = sorted({name for pod in pods for name in _names(pod)}, key=len, reverse=True)
    return replace(
        issue, subject=_without(issue.subject, names), reason=_without(issue.reason, names)
    )


def without_names(text: str, pod: Pod) -> str:
    """Return a message about *pod* without its names, and without addresses."""
    return _without(text, sorted(_names(pod), key=len, reverse=True))


def _names(pod: Pod) -> list[str]:
    containers = [one.name for one in pod.containers if len(one.name) >= _LEAST]
    names = [pod.name, pod.namespace, pod.uid or "", pod.hostname or ""]
    return [name for name in names if name] + containers


def _without(text: str, names: Iterable[str]) -> str:
    text = _IPV4.sub("192.0.2.1", _IPV6.sub("[2001:db8::1]", _HOST.sub("host.example", text)))
    for name in names:
        text = text.replace(name, "…")
    return text
