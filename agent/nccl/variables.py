"""The environment variables that NCCL reads, and which it does not."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType

from agent.nccl.nccl_documented import CONFIGURATION, DEBUGGING, Releases
from agent.nccl.nccl_undocumented import UNDOCUMENTED

PREFIX = "NCCL_"
"""How the names of NCCL's variables begin."""

NEWEST = "2.30.7"
"""The newest release whose sources were read."""

LONGEST = 100
"""Characters of a name that is compared with the known ones; the longest of those has 57."""

CLOSE = 0.8
"""How alike two names must be for one to be a slip for the other (``difflib`` ratio)."""


class Standing(StrEnum):
    """What NCCL's User Guide says of a variable."""

    CONFIGURATION = "configuration"
    DEBUGGING = "debugging"
    UNDOCUMENTED = "undocumented"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable that NCCL reads, or once did.

    Attributes:
        since: the first release that reads it; ``2.3.5`` stands for that or any older one.
        until: the last one; ``None`` if :data:`NEWEST` does.
    """

    name: str
    standing: Standing
    since: str
    until: str | None = None


def _named(standing: Standing, releases: Iterable[Releases]) -> Iterator[Variable]:
    for since, until, names in releases:
        for name in names.split():
            yield Variable(name=f"{PREFIX}{name}", standing=standing, since=since, until=until)


KNOWN: Mapping[str, Variable] = MappingProxyType(
    {
        one.name: one
        for standing, releases in (
            (Standing.CONFIGURATION, CONFIGURATION),
            (Standing.DEBUGGING, DEBUGGING),
            (Standing.UNDOCUMENTED, UNDOCUMENTED),
        )
        for one in _named(standing, releases)
    },
)
"""All of them, by name."""

ELSEWHERE = frozenset(
    {
        # PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp and NCCLUtils.cpp: the old
        # names of its TORCH_NCCL_ variables.
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DESYNC_DEBUG",
        "NCCL_ENABLE_TIMING",
        "NCCL_NONBLOCKING_TIMEOUT",
        "NCCL_USE_COMM_NONBLOCKING",
        # What images and builds tell of the library (nvidia/cuda images, CMake's FindNCCL).
        "NCCL_HOME",
        "NCCL_INCLUDE_DIR",
        "NCCL_INSTALL_PATH",
        "NCCL_LIB_DIR",
        "NCCL_LIBRARY",
        "NCCL_ROOT",
        "NCCL_ROOT_DIR",
        "NCCL_VERSION",
        # Google Cloud's builds and plugins (its guides to GPUDirect-TCPX and TCPXO).
        "NCCL_DYNAMIC_CHUNK_SIZE",
        "NCCL_TELEMETRY_MODE",
        "NCCL_TUNER_CONFIG_PATH",
    },
)
"""Variables that begin like NCCL's and that other programs read."""

FAMILIES = (
    "NCCL_CTRAN_",
    "NCCL_FASTRAK_",
    "NCCL_GPUDIRECTTCPX_",
    "NCCL_IBEXT_",
    "NCCL_PLUGIN_",
    "NCCL_SHARP_",
    "NCCL_SHIMNET_",
    "NCCL_TESTS_",
    "NCCL_UCX_",
)
"""How the names of whole families begin that network plugins, other builds and nccl-tests read."""

REAL_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "NCCL_IB_CUDA_SUPPORT": "NCCL_NET_GDR_LEVEL",
        "NCCL_IB_GDR_LEVEL": "NCCL_NET_GDR_LEVEL",
        "NCCL_LL_THRESHOLD": "NCCL_PROTO",
        "NCCL_PORT_RANGE": "the sysctl net.ipv4.ip_local_port_range in the pod's securityContext, "
        "from which NCCL's ports come",
        "NCCL_TIMEOUT": "the timeout of the framework, such as that of "
        "torch.distributed.init_process_group",
        "NCCL_TREE_THRESHOLD": "NCCL_ALGO",
    },
)
"""What does the work of variables that are no more, or that guides name and that never were."""


def is_foreign(name: str) -> bool:
    """Return whether another program than NCCL reads *name*, which may begin like NCCL's."""
    return not name.startswith(PREFIX) or name in ELSEWHERE or name.startswith(FAMILIES)


def instead_of(name: str) -> str | None:
    """Return what a person who set *name*, which NCCL does not read, will have meant."""
    if name in REAL_ANSWERS:
        return REAL_ANSWERS[name]
    if name in KNOWN or len(name) > LONGEST:
        return None
    close = get_close_matches(name, KNOWN, n=1, cutoff=CLOSE)
    return close[0] if close else None
