"""Recognises files without a topology: other tools' output that people mistake for one.

Only the form of a text's start is examined: nothing is parsed, and no entity or document type of an
XML is read. The forms are the output of these tools: nvidia-smi, hwloc's lstopo, GPU feature
discovery, the kubelet's files and endpoints, kubectl.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_LOOKED_AT = 64 * 1024
"""Characters from the start; comments of a licence can precede the root of an XML."""

_MATRIX = "save the output of `nvidia-smi topo -m` and name it with --topo-m"
_CAPTURE = "run `nodetopo capture -o FILE` on the node, and name FILE with --snapshot"
_NODES = "`nodetopo doctor --nodes FILE` reads Nodes; for one node's topology use --snapshot"
_MANIFEST = "`nodetopo audit --manifest FILE` reads pods; for a topology use --snapshot"


@dataclass(frozen=True, slots=True)
class OtherFile:
    """The kind of a text, in words that follow "this is", and the right input instead."""

    what: str
    cure: str


def recognise(text: str) -> OtherFile | None:
    """Return what *text* is; ``None`` where it is none of the files that are known."""
    head = text[:_LOOKED_AT].lstrip("\ufeff \t\r\n")
    if head.startswith("<"):
        return ROOTS.get(_root(head))
    if _OWN.match(head):
        return None
    return next((other for is_it, other in _FORMS if is_it(head)), None)


ROOTS: dict[str, OtherFile] = {
    "graphs": OtherFile(
        "an NCCL graph (NCCL_GRAPH_FILE), which holds rings and trees, no topology",
        "give the file that NCCL_TOPO_DUMP_FILE or NCCL_TOPO_FILE names",
    ),
    "nvidia_smi_log": OtherFile("the output of `nvidia-smi -q -x`, which says no paths", _MATRIX),
    "topology": OtherFile("an hwloc topology (lstopo)", _CAPTURE),
}
"""Kinds of XML by the root element, which is also the name of the document type."""


def _root(head: str) -> str:
    """Return the name of the root element or document type; empty without one."""
    at = 0
    while match := _PROLOG.match(head, at):
        end = head.find(_ENDS[match[1]], match.end(1))
        if end < 0:
            return ""
        at = end + len(_ENDS[match[1]])
    name = _ROOT.match(head, at)
    return name[1] if name else ""


_PROLOG = re.compile(r"\s*(<\?|<!--)")
_ENDS = {"<?": "?>", "<!--": "-->"}
_ROOT = re.compile(r"\s*<(?:!DOCTYPE\s+)?([A-Za-z_][A-Za-z0-9_.-]{0,63})")

_OWN = re.compile(r'\{\s*"schema"\s*:\s*"nodetopo/')


def _has(*patterns: str) -> Callable[[str], bool]:
    """Return a function that tests whether a text contains all *patterns*."""
    compiled = [re.compile(pattern, re.MULTILINE) for pattern in patterns]
    return lambda head: all(pattern.search(head) for pattern in compiled)


def _field(name: str) -> str:
    """Return the pattern of a field of a JSON object."""
    return rf'[{{,]\s*"{name}"\s*:'


def _kind(name: str) -> str:
    """Return the pattern of an object of Kubernetes, in JSON or YAML."""
    return rf'(?:^|[{{,])\s*"?kind"?\s*:\s*"?{name}\b'


def _of_kubelet(what: str) -> OtherFile:
    return OtherFile(what, f"nodetopo reads it on the node itself: {_CAPTURE}")


_FORMS: tuple[tuple[Callable[[str], bool], OtherFile], ...] = (
    (
        _has(_field("PodDeviceEntries")),
        _of_kubelet("the kubelet's checkpoint of devices (kubelet_internal_checkpoint)"),
    ),
    (
        _has(_field("policyName"), _field("defaultCpuSet")),
        _of_kubelet("the kubelet's cpu_manager_state"),
    ),
    (
        _has(_field("policyName"), _field("machineState")),
        _of_kubelet("the kubelet's memory_manager_state"),
    ),
    (_has(_field("kubeletconfig")), _of_kubelet("an answer of the kubelet's /configz")),
    (
        _has(_field("(?:pod_resources|podResources)")),
        _of_kubelet("an answer of the kubelet's PodResources"),
    ),
    (
        _has(_kind("Kubelet(?:Configuration|Config)")),
        _of_kubelet("a kubelet's configuration"),
    ),
    (_has(_kind("Node(?:List)?")), OtherFile("a Node of Kubernetes", _NODES)),
    (_has(_kind("Pod(?:List)?")), OtherFile("a Pod of Kubernetes", _MANIFEST)),
    (
        _has(r'^[{\s]*"?nvidia\.com/(?:gpu|cuda|gfd|mig|vgpu)[A-Za-z0-9._-]{0,63}"?\s*[=:]'),
        OtherFile("the output of GPU feature discovery, labels that say no paths", _CAPTURE),
    ),
    (
        _has("^=+NVSMI LOG=+"),
        OtherFile("the output of `nvidia-smi -q`, which says no paths", _MATRIX),
    ),
    (_has(r"^\| NVIDIA-SMI "), OtherFile("the output of plain `nvidia-smi`", _MATRIX)),
    (_has(r"\AGPU [0-9]+: "), OtherFile("the output of `nvidia-smi -L`", _MATRIX)),
)
"""Tests of a file's form, with its kind; the first match counts."""
