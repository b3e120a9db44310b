"""``cpu_manager_state``: kubernetes pkg/kubelet/cm/cpumanager/state/checkpoint.go.

Versions 2 (1.18) and 3 (1.36) have the same fields at the top; version 4 (1.37) repeats them in
a text ``data``, which is what counts. Version 1, of kubelets before 1.18, named containers by
the runtime's ids, and no pods.
"""

from typing import Any

from agent.errors import DecodeError
from agent.formats import json
from agent.formats.json_shape import json_map, json_text
from agent.model.kubelet_state import CpuState
from agent.model.numa import CpuSet

NONE = "none"
"""The policy under which the file has no CPUs."""

MAX_CPUS = 1 << 17
"""Most CPUs of all containers together. The CPUs of Linux are 8192 at most, and init containers
hand theirs on; 4 MiB of ``0-65535`` would fill the memory."""


def cpu_state(value: Any) -> CpuState:
    """Return what the file's JSON says.

    Raises:
        DecodeError: it is not of this form.
    """
    document = authoritative(value)
    policy = json_text(document.get("policyName"), "policyName")
    default = _cpus(document.get("defaultCpuSet"), "defaultCpuSet")
    return CpuState(
        policy=policy,
        default=None if policy == NONE else default,
        entries=_entries(document),
    )


def _entries(document: dict[str, Any]) -> dict[str, dict[str, CpuSet]]:
    found: dict[str, dict[str, CpuSet]] = {}
    count = 0
    for uid, containers in json_map(document.get("entries"), "entries").items():
        found[uid] = {}
        for container, value in json_map(containers, f"entries.{uid}").items():
            found[uid][container] = cpus = _cpus(value, f"entries.{uid}.{container}")
            count += len(cpus)
            if count > MAX_CPUS:
                raise DecodeError("entries", f"more than {MAX_CPUS} CPUs")
    return found


def authoritative(value: Any) -> dict[str, Any]:
    """Return the fields that a 1.37 kubelet goes by, which are those of ``data`` if it is there.

    Raises:
        DecodeError: it is no object.
    """
    document = dict(json_map(value, ""))
    if document.get("data"):
        try:
            return dict(json_map(json.load(json_text(document["data"], "data")), "data"))
        except ValueError as error:
            raise DecodeError("data", str(error)) from None
    return document


def _cpus(value: Any, path: str) -> CpuSet:
    try:
        return CpuSet.parse(json_text(value, path))
    except ValueError as error:
        raise DecodeError(path, str(error)) from None
