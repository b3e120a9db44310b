"""One line of the tree."""

from collections.abc import Callable, Iterator
from typing import Any

from agent.cli.render import clean

GROUPS = {
    "PIX": "at most one PCIe switch",
    "PXB": "PCIe switches below one root port",
    "PHB": "one host bridge",
}
"""What the closeness of devices says of the place they share, where no PCI tree is known."""


def title(branch: dict[str, Any]) -> str:
    """Return what the tree says of *branch*, an object of the JSON answer."""
    describe = _DESCRIBE.get(branch["kind"], _device)
    return clean(" · ".join(filter(None, describe(branch))))


def _numa(branch: dict[str, Any]) -> Iterator[str | None]:
    memory = branch["memory_mib"]
    yield f"NUMA {'?' if branch['name'] is None else branch['name']}"
    yield f"CPUs {branch['cpus']}" if branch["cpus"] else None
    yield f"{memory / 1024:.0f} GiB" if memory is not None else None


def _root(branch: dict[str, Any]) -> Iterator[str | None]:
    yield branch["name"]


def _bridge(branch: dict[str, Any]) -> Iterator[str | None]:
    yield f"{'switch' if branch['kind'] == 'switch' else 'PCI bridge'} {branch['name']}"
    yield f"PCIe {branch['link']}" if branch["link"] else None


def _group(branch: dict[str, Any]) -> Iterator[str | None]:
    yield f"{GROUPS[branch['name']]} ({branch['name']})"


def _mig(branch: dict[str, Any]) -> Iterator[str | None]:
    ids = (("GI", branch["gpu_instance"]), ("CI", branch["compute_instance"]))
    memory = branch["memory_mib"]
    yield f"MIG {branch['name'] or '?'}"
    yield " ".join(f"{what} {number}" for what, number in ids if number is not None)
    yield f"{memory / 1024:.1f} GiB" if memory is not None else None


def _device(branch: dict[str, Any]) -> Iterator[str | None]:
    label = branch["label"] if branch["label"] != branch["name"] else None
    yield " ".join(filter(None, (branch["name"], label, branch["pci"], branch["product"])))
    yield _mark(branch)
    yield f"PCIe {branch['link']}" if branch["link"] else None
    yield from branch["ports"]


def _mark(branch: dict[str, Any]) -> str | None:
    match branch:
        case {"lost": True}:
            return "lost"
        case {"kind": "nvlink-management"}:
            return "manages NVLink, not for jobs"
        case {"kind": "data-direct", "serves": serves}:
            return "Data Direct" + (f" of {', '.join(serves)}" if serves else "")
        case {"mig": True, "children": []}:
            return "MIG on, no instances"
        case {"part": ("virtual-function" | "subfunction" | "bond" | "software") as part}:
            return str(part).replace("-", " ")
    return None


_DESCRIBE: dict[str, Callable[[dict[str, Any]], Iterator[str | None]]] = {
    "numa": _numa,
    "root": _root,
    "switch": _bridge,
    "bridge": _bridge,
    "group": _group,
    "mig": _mig,
}
