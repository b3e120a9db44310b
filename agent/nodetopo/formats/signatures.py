"""Recognises a file by its text: the tool that wrote it, and the command that reads it.

People give a reader another tool's output. :data:`FORMS` is the only table of such outputs: a
reader that refuses a text looks it up and names the form, together with the option that takes it or
the reason why none does. A text is searched, never parsed: no entity or document type of an XML is
read.

The words are those of the tools: nvidia-smi, hwloc's lstopo, GPU feature discovery, kubectl and the
kubelet; rdma-core (``ibv_devinfo``, ``rdma``), infiniband-diags (``ibstat``), pciutils, numactl,
util-linux (``lscpu``); NVIDIA/nccl, nccl-tests, nvbandwidth and cuda-samples; linux-rdma/perftest;
ROCm's rocm-smi and amd-smi, and the matrices of ppu-smi, npu-smi and xpu-smi.
"""

import re
from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct

LOOKED_AT = 64 * 1024
"""Characters from the start; comments of a licence can precede the root of an XML."""


class Reader(StrEnum):
    """A reader of files; its value tells how to call it."""

    SNAPSHOT = "use --snapshot, e.g. `nodetopo topo matrix --snapshot FILE`"
    TOPO_M = "use --topo-m, e.g. `nodetopo topo matrix --topo-m FILE`"
    NCCL_XML = "use --nccl-xml, e.g. `nodetopo topo tree --nccl-xml FILE`"
    LOG = "`nodetopo nccl check FILE` reads it"
    MANIFEST = (
        "`nodetopo admit --manifest FILE` and `nodetopo audit --manifest FILE` read pods, "
        "`nodetopo migrate FILE` reads configuration"
    )
    NODES = "`nodetopo doctor --nodes FILE` reads Nodes; for one node's topology use --snapshot"
    SLICES = "`nodetopo explain-claim --slices FILE` reads ResourceSlices"
    CLAIMS = "`nodetopo explain-claim --claim FILE` reads ResourceClaims"
    OBJECTS = "`nodetopo doctor --objects FILE` reads gangs and levels"
    MIGRATE = "`nodetopo migrate FILE` reads it"
    TABLE = "use --bandwidth-table, e.g. `nodetopo allocate --bandwidth-table FILE`"


_MATRIX = "save the output of `nvidia-smi topo -m` and name it with --topo-m"
_CAPTURE = "run `nodetopo capture -o FILE` on the node, and name FILE with --snapshot"
_ON_NODE = f"nodetopo reads it on the node itself: {_CAPTURE}"
LOGS = (
    "`nodetopo nccl check` reads the output of nccl-tests, perftest (ib_write_bw …), nvbandwidth "
    "and p2pBandwidthLatencyTest"
)
_TEXT = "give the text itself, as the tool printed it"
_NO_READER = "nodetopo reads nodes with NVIDIA GPUs only"


class Form(Struct, frozen=True):
    """A kind of file."""

    what: str  # follows "this is"
    is_in: Callable[[str], bool]  # of a text without leading blanks
    readers: tuple[Reader, ...] = ()  # take it; the first one is recommended
    reason: str = ""  # the right input instead, where no reader takes it

    @property
    def cure(self) -> str:
        """What to do with the file."""
        return self.reason or self.readers[0]


_BLANK = "\ufeff \t\r\n"
_QUOTE = r"\A(?:```|~~~).*|^[ \t]*> ?"
"""A fence before the text, and the marks of a quote."""


def log_form(text: str) -> Form | None:
    """Return the form of the bandwidth test whose results *text* holds anywhere, if any."""
    start = text.lstrip(_BLANK)
    return next((form for form in _LOG_FORMS if form.is_in(start)), None)


def other_form(text: str, reader: Reader | None) -> Form | None:
    """Return the form of *text*, which *reader* refused, or any reader of texts.

    ``None`` if no form is known, or if *reader* takes it: its own error then says more.
    """
    head = re.sub(_QUOTE, "", text[:LOOKED_AT].lstrip(_BLANK), flags=re.MULTILINE).lstrip(_BLANK)
    found = [form for form in FORMS if form.is_in(head)]
    is_own = any(reader in form.readers for form in found)
    return None if is_own or not found else found[0]


# Signs: functions from a text to whether it has a form.


def _has(*patterns: str) -> Callable[[str], bool]:
    """Return a function that tests whether a text contains all *patterns*."""
    return lambda head: all(re.search(pattern, head, re.MULTILINE) for pattern in patterns)


def _has_any(*patterns: str) -> Callable[[str], bool]:
    """Return a function that tests whether a text contains one of *patterns*.

    Each is searched alone: one that begins with plain letters is found fast in a long log.
    """
    return lambda head: any(re.search(pattern, head, re.MULTILINE) for pattern in patterns)


def _field(name: str) -> str:
    """Return the pattern of a field of a JSON object."""
    return rf'[{{,]\s*"{name}"\s*:'


def _report(*names: str) -> str:
    """Return the pattern of a text that is a JSON object with one of the fields *names*."""
    return rf'\A\{{[\s\S]*"(?:{"|".join(names)})"\s*:'


def _is_kind(names: str) -> Callable[[str], bool]:
    """Return a function that tests whether a text is an object of Kubernetes of a kind in *names*.

    Of a List the first item counts.
    """
    return lambda head: re.fullmatch(names, _first_kind(head)) is not None


def _first_kind(head: str) -> str:
    pattern = r'(?:^|[{,])[ \t-]*"?kind"?\s*:\s*"?([A-Za-z]{1,63})\b'
    kinds = (kind[1] for kind in re.finditer(pattern, head, re.MULTILINE))
    return next((kind for kind in kinds if kind != "List"), "")


def _is_root(name: str) -> Callable[[str], bool]:
    """Return a function that tests for an XML by its root, which also names the document type."""
    return lambda head: _root(head) == name


def _root(head: str) -> str:
    """Return the name of the first element or document type; empty without one.

    A prompt or a fence can precede it.
    """
    first = re.search(r"^[ \t]*(?=<[A-Za-z!?])", head, re.MULTILINE)
    at = first.end() if first else len(head)
    while match := re.compile(r"\s*(<\?|<!--)").match(head, at):
        ending = {"<?": "?>", "<!--": "-->"}[match[1]]
        end = head.find(ending, match.end(1))
        if end < 0:
            return ""
        at = end + len(ending)
    name = re.compile(r"\s*<(?:!DOCTYPE\s+)?([A-Za-z_][A-Za-z0-9_.-]{0,63})").match(head, at)
    return name[1] if name else ""


_FOREIGN = (
    (r"\bGPU[0-9]+\s.{0,300}\b(?:XGMI|PCIE)\b", "the matrix of an AMD GPU (rocm-smi, amd-smi)"),
    (
        r"ROCm System Management Interface|^GPU\[[0-9]+\]\s*:|\bAMD-SMI\b|^LINK TYPE TABLE:",
        "the output of rocm-smi or amd-smi, of AMD GPUs",
    ),
    (
        r"\bPPU[0-9]+\s|\bGPU[0-9]+\s.{0,300}\bICN[0-9]*\b",
        "the matrix of an Alibaba PPU (ppu-smi)",
    ),
    (
        r"\bNPU[0-9]+\s+(?:NPU[0-9]|X\s)|\bHCCS(?:_SW)?\b",
        "the matrix of a Huawei Ascend NPU (npu-smi)",
    ),
    (
        r"\bGPU ?[0-9/]+\s.{0,300}\b(?:MDF|XL[0-9]+)\b|^[ \t|]*GPU [0-9]+/[0-9]+[ |]",
        "the matrix of an Intel GPU (xpu-smi)",
    ),
)
"""Patterns of the look-alikes of `nvidia-smi topo -m`, from other vendors' manuals."""

_PATH_ROW = r"\bGPU[0-9]{1,4}[ \t|].{0,300}?[ \t|](?:PIX|PXB|PHB|NODE|SYS|SOC|NV[0-9]{1,3})\b"
_MATRIX_HEAD = r"\bGPU[0-9]{1,4}\b.{0,300}CPU Affinity"


def _is_matrix(head: str) -> bool:
    is_foreign = any(re.search(pattern, head, re.MULTILINE) for pattern, _ in _FOREIGN)
    return not is_foreign and _has_any(_PATH_ROW, _MATRIX_HEAD)(head)


def _forms() -> Iterator[Form]:
    yield from _of_bytes()
    yield from _of_nodetopo()
    yield from _of_xml()
    yield from _of_kubernetes()
    yield from _of_tests()
    yield from _of_nvidia()
    yield from _of_hosts()


def _of_bytes() -> Iterator[Form]:
    """Yield files that are no text, whose bytes are read as Latin-1."""
    archive = "name an archive of `nodetopo support` with --snapshot; unpack any other first"
    yield Form("a gzip archive", _has(r"\A\x1f\x8b"), (Reader.SNAPSHOT,), archive)
    yield Form("a zip archive", _has(r"\APK\x03\x04"), (), "unpack it, and name the file in it")
    yield Form("an image", _has(r"\A(?:\x89PNG|\xff\xd8\xff|GIF8)"), (), _TEXT)
    yield Form("a PDF", _has(r"\A%PDF-"), (), _TEXT)


def _of_nodetopo() -> Iterator[Form]:
    yield Form("a snapshot", _has(r'"schema"\s*:\s*"nodetopo/v[0-9]'), (Reader.SNAPSHOT,))
    answer = f"no command reads it back; {_CAPTURE}"
    yield Form(
        "an answer of nodetopo in JSON",
        _has(r'\A\{\s*"schema"\s*:\s*"nodetopo[./][a-z]'),
        (),
        answer,
    )
    table = r'^[ {]*"?kind"?\s*:\s*"?nodetopo-bandwidth-table'
    yield Form("a table of measured bandwidths", _has(table), (Reader.TABLE,))
    yield Form("a dump of `rdma_topo`", _has(r"\A\[", '"realpath"'), (), _CAPTURE)


def _of_xml() -> Iterator[Form]:
    yield Form("an NCCL topology", _is_root("system"), (Reader.NCCL_XML,))
    yield Form(
        "an NCCL graph (NCCL_GRAPH_FILE), which holds rings and trees, no topology",
        _is_root("graphs"),
        (),
        "give the file that NCCL_TOPO_DUMP_FILE or NCCL_TOPO_FILE names to --nccl-xml",
    )
    smi = "the output of `nvidia-smi -q -x`, which shows no paths"
    yield Form(smi, _is_root("nvidia_smi_log"), (), _MATRIX)
    yield Form("an hwloc topology (lstopo)", _is_root("topology"), (), _CAPTURE)


def _of_kubernetes() -> Iterator[Form]:
    for what, fields in (
        (
            "the kubelet's checkpoint of devices (kubelet_internal_checkpoint)",
            ("PodDeviceEntries",),
        ),
        ("the kubelet's cpu_manager_state", ("policyName", "defaultCpuSet")),
        ("the kubelet's memory_manager_state", ("policyName", "machineState")),
        ("an answer of the kubelet's /configz", ("kubeletconfig",)),
        ("an answer of the kubelet's PodResources", ("(?:pod_resources|podResources)",)),
    ):
        yield Form(what, _has(*map(_field, fields)), (), _ON_NODE)
    kubelet = _is_kind("Kubelet(?:Configuration|Config)")
    yield Form("a kubelet's configuration", kubelet, (Reader.MIGRATE,), _ON_NODE)
    for what, kinds, reader in (
        ("a Node of Kubernetes", "Node(?:List)?", Reader.NODES),
        ("a ResourceSlice of Kubernetes", "ResourceSlice(?:List)?", Reader.SLICES),
        ("a ResourceClaim of Kubernetes", "ResourceClaim(?:List)?", Reader.CLAIMS),
        ("a Pod of Kubernetes", "Pod(?:List)?", Reader.MANIFEST),
    ):
        yield Form(what, _is_kind(kinds), (reader, Reader.MIGRATE, Reader.OBJECTS))
    is_manifest = _is_kind(r"(?!(?:Node|ResourceSlice|ResourceClaim|Kubelet\w*)(?:List)?$)[A-Z]\w*")
    has_version = _has(r'(?:^|[{,])[ \t-]*"?apiVersion"?\s*:')
    yield Form(
        "a manifest of Kubernetes",
        lambda head: is_manifest(head) and has_version(head),
        (Reader.MANIFEST, Reader.MIGRATE, Reader.OBJECTS),
    )
    cdi = _has(r'^[ {]*"?cdiVersion"?\s*:|[{,]\s*"cdiVersion"\s*:')
    yield Form("a CDI specification", cdi, (), _ON_NODE)
    plugin = _has(r"^version:", "^(?:flags|sharing|resources|imex|mig-configs):")
    yield Form("a configuration of an NVIDIA program", plugin, (Reader.MIGRATE,))
    pools = _has(r'[{,]\s*"configList"')
    yield Form("a configuration of RDMA resources", pools, (Reader.MIGRATE,))
    yield Form(
        "the output of GPU feature discovery, labels without paths",
        _has(r'^[{ \t]*"?nvidia\.com/(?:gpu|cuda|gfd|mig|vgpu)[A-Za-z0-9._-]{0,63}"?\s*[=:]'),
        (),
        _CAPTURE,
    )
    for noun, columns, command in (
        ("nodes", r"STATUS\s+ROLES\s+AGE\s+VERSION", "`nodetopo doctor --nodes FILE` reads it"),
        ("pods", r"READY\s+STATUS\s+RESTARTS\s+AGE", "`nodetopo admit --manifest FILE` reads it"),
    ):
        table = rf"^(?:NAMESPACE\s+)?NAME\s+{columns}"
        cure = f"save `kubectl get {noun} -o json`: {command}"
        yield Form(f"the table of `kubectl get {noun}`", _has(table), (), cure)
    described = _has(r"^Name:\s", r"^(?:Allocated resources|Conditions|Tolerations):")
    cure = f"save `kubectl get … -o json`; of pods {Reader.MANIFEST}; {Reader.NODES}"
    yield Form("the output of `kubectl describe`", described, (), cure)
    yield Form("metrics of Prometheus", _has(r"^# (?:HELP|TYPE) [A-Za-z_]"), (), _CAPTURE)


def _log(tool: str, *patterns: str) -> Form:
    """Return the form of a log: by its preamble, the head of its table, or its JSON."""
    return Form(f"a log of {tool}", _has_any(*patterns), (Reader.LOG,))


NCCL_TESTS = _log(
    "nccl-tests",
    "# nThread [0-9]{1,4} nGpus [0-9]{1,4} ",
    r"#[ \t]+Rank[ \t]+[0-9]+ ",
    # From the last head before it: text of many heads would be searched 120 times as long.
    r"size[ \t|]+count[ \t](?:(?!size[ \t|]+count[ \t]).){0,120}\bbusbw\b",
    _report("average_bus_bandwidth", "bus_bw"),
)
NVBANDWIDTH = _log(
    "nvbandwidth",
    "nvbandwidth Version",
    r"memcpy (?:CE|SM) [CG]PU\(row\)",
    _report("nvbandwidth"),
)
P2P_TEST = _log(
    "p2pBandwidthLatencyTest",
    r"P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test",
    "directional P2P=",
)
PERFTEST = _log("perftest", r"#bytes.{0,500}BW average\[[A-Za-z]{1,4}/sec\]", r"Dual-port +: O")

_LOG_FORMS = (NCCL_TESTS, NVBANDWIDTH, P2P_TEST, PERFTEST)


def _of_tests() -> Iterator[Form]:
    yield from _LOG_FORMS
    times = _has_any(r"P2P=(?:Enabled|Disabled) Latency", r"#bytes.{0,500}t_avg\[usec\]")
    yield Form("a log of latencies, which no model predicts", times, (), LOGS)
    yield Form("a log of bandwidthTest (cuda-samples)", _has(r"\[CUDA Bandwidth Test\]"), (), LOGS)
    yield Form("a log of the OSU benchmarks", _has("^# OSU "), (), LOGS)


def _of_nvidia() -> Iterator[Form]:
    for pattern, what in _FOREIGN:
        yield Form(what, _has(pattern), (), _NO_READER)
    yield Form("`nvidia-smi topo -m`", _is_matrix, (Reader.TOPO_M,))
    p2p = r"\bGPU[0-9]{1,4}[ \t]+(?:X[ \t]+)?(?:OK|CNS|GNS|TNS|NS|DR|U)\b|\bOK\s+= Status Ok"
    may = "the output of `nvidia-smi topo -p2p`, which tells whether GPUs can copy, not their paths"
    yield Form(may, _has(p2p), (), _MATRIX)
    links = r"GPU [0-9]+: .{1,200}\n[ \t|]*(?:Link [0-9]+[:,]|NVML: Unable to retrieve NVLink)"
    counted = "the output of `nvidia-smi nvlink`, which does not tell where an NVLink leads"
    yield Form(counted, _has(links), (), f"{_MATRIX}, or {_CAPTURE}")
    quiet = "the output of `nvidia-smi -q`, which shows no paths"
    yield Form(quiet, _has("====NVSMI LOG===="), (), _MATRIX)
    yield Form("the output of plain `nvidia-smi`", _has(r"\| NVIDIA-SMI "), (), _MATRIX)
    listed = r"^[ \t$#]*GPU [0-9]+: .{1,200} \(UUID: "
    yield Form("the output of `nvidia-smi -L`", _has(listed), (), _MATRIX)
    yield Form(
        "NCCL's own log (NCCL_DEBUG) without the results of a test",
        _has(r"\bNCCL (?:INFO|WARN|TRACE|VERSION) |\bNCCL version [0-9]"),
        (),
        f"{LOGS}; for the topology that NCCL saw, set NCCL_TOPO_DUMP_FILE=FILE and use --nccl-xml",
    )


def _of_hosts() -> Iterator[Form]:
    ports = "which lists ports of HCAs and no paths"
    places = "which does not show the NVLinks"
    memory = "which shows neither GPUs nor HCAs"
    lspci = (
        r"^[ \t]*(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] "
        r'(?:[A-Z0-9][^:\n]{4,80}: |"[^"\n]{2,80}"|[0-9a-f]{4}: )|^Slot:\s+[0-9a-f:.]+\nClass:'
    )
    for tool, shows, sign in (
        ("ibstat", ports, r"^[ \t]*CA '[^'\s]{1,64}'[ \t]*$|^[ \t]*CA type: "),
        ("ibstatus", ports, r"Infiniband device '\S{1,64}' port [0-9]+ status"),
        ("ibv_devinfo", ports, r"\bhca_id:\s+\S"),
        ("ibdev2netdev", ports, r" port [0-9]+ ==> \S{1,64} \((?:Up|Down)\)"),
        ("rdma link", ports, r"\blink \S{1,64}/[0-9]+ state [A-Z]"),
        ("lspci -t", places, r"-\[[0-9a-f]{4}(?::[0-9a-f]{2})?[-0-9a-f]*\]-"),
        ("lspci", places, lspci),
        ("numactl", memory, r"\bavailable: [0-9]+ nodes? \(|^[ \t]*physcpubind: "),
        ("lscpu", memory, r"\bNUMA node[0-9]+ CPU\(s\):|^CPU op-mode\(s\):"),
        ("lstopo", places, r"\b(?:NUMANode|Package|Socket|PU) [LP]#[0-9]"),
    ):
        yield Form(f"the output of `{tool}`, {shows}", _has(sign), (), _CAPTURE)


FORMS = tuple(_forms())
"""Every form; where a text has several, the first is named."""
