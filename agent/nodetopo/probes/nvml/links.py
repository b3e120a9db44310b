"""NVLinks, as NVML reports each of their ends."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

from msgspec.structs import replace

from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.nvml import values
from nodetopo.probes.nvml.session import Caller, Reply

FIRST_WITH_RECOVERY_EVENTS = 5
"""NVLink generation whose recoveries NVML counts in other fields (nvml.h, fields 162 and 214)."""


def read_links(
    caller: Caller, gpu: Gpu, handle: Any, gpus: Sequence[Gpu]
) -> tuple[NvLink, ...] | None:
    """Return the NVLinks of *gpu*, one of *gpus*, by link number; ``None`` if NVML refused.

    State from ``nvmlDeviceGetNvLinkState``; far end from
    ``nvmlDeviceGetNvLinkRemotePciInfo_v2``, ``nvmlDeviceGetNvLinkRemoteDeviceType`` and field
    ``NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID``; speed from field ``NVML_FI_DEV_NVLINK_GET_SPEED``,
    recoveries from the field that :class:`nodetopo.model.nvlink.NvLink` names;
    generation from the architecture, and where that is unknown from
    ``nvmlDeviceGetNvLinkVersion``. A link whose state alone failed is kept, with
    ``is_active=None``, if the driver counts it or a higher one answered.
    """
    counts = (other.nvlink_count for other in gpus if other.product == gpu.product)
    count = max((number for number in counts if number is not None), default=None)
    states = _states(caller, gpu, handle, count)
    numbers = [n for n, state in states.items() if state is not None]
    if caller.is_lost or (states and not numbers):
        return None
    generation = values.NVLINK_GENERATION.get(gpu.architecture or "")
    links = []
    for number in (n for n in states if count or n <= numbers[-1]):

        def get(call: str, convert: Any, link: int = number) -> Any:
            return caller.call(call, handle, link, convert=convert, link=link).value

        version = generation
        if version is None:
            version = get("nvmlDeviceGetNvLinkVersion", values.nvlink_generation)
        link = NvLink(gpu=gpu.index, link=number, is_active=states[number], version=version)
        if link.is_active:  # nothing answers from the far end of a link that is down
            link = replace(
                link,
                peer=get("nvmlDeviceGetNvLinkRemotePciInfo", values.peer_address),
                peer_kind=get("nvmlDeviceGetNvLinkRemoteDeviceType", values.peer_kind),
            )
        links.append(link)
    return tuple(_with_fields(caller, handle, links))


def are_links_unchanged(caller: Caller, handle: Any, known: Sequence[NvLink]) -> bool:
    """Return whether the states of a GPU's links are still *known*'s.

    One call reads field ``NVML_FI_DEV_NVLINK_GET_STATE`` of all. It has more states than up and
    down, and older drivers lack it: if it differs from *known*, ``nvmlDeviceGetNvLinkState``
    decides, as in the first reading.
    """
    links = [link for link in known if link.is_active is not None]
    field = caller.nvml.NVML_FI_DEV_NVLINK_GET_STATE
    states = caller.fields(handle, [(field, link.link) for link in links])
    return not caller.is_lost and all(
        caller.number(state, link=link.link) == link.is_active
        or _state(caller, handle, link.link).value is link.is_active
        for link, state in zip(links, states, strict=True)
    )


def with_peer_kinds(links: Sequence[NvLink], gpus: Sequence[Gpu]) -> tuple[NvLink, ...]:
    """Fill in the peer's kind where the library is too old to say and the far end is a GPU."""
    addresses = {gpu.pci for gpu in gpus if gpu.pci is not None}
    return tuple(
        replace(link, peer_kind=PeerKind.GPU)
        if link.peer_kind is None and link.peer in addresses
        else link
        for link in links
    )


def uneven(links: Sequence[NvLink], gpus: Sequence[Gpu]) -> tuple[ProbeIssue, ...]:
    """Return an issue for each contradiction between the two ends of an NVLink connection.

    A single link that is down at one end and up at the other; a pair of GPUs whose ends count
    different numbers of direct links that are up; a GPU whose links lead to itself, or that has
    fewer links up to the NVSwitches than another one. The weaker end counts
    (:mod:`nodetopo.topology.links`). GPUs with a link of unknown state are left out: they already
    have an issue.
    """
    silent = {gpu.index for gpu in gpus if gpu.is_lost}
    silent |= {link.gpu for link in links if link.is_active is None}
    by_pci = {gpu.pci: gpu.index for gpu in gpus if gpu.pci and gpu.index not in silent}
    known = [link for link in links if link.gpu in by_pci.values()]
    # A GPU without any link in the list was refused the question, or cannot be a far end.
    ends = sorted({link.gpu for link in known})
    direct, to_switches = Counter[tuple[int, int]](), Counter[int]()
    issues = []

    down = {(link.gpu, link.link) for link in known if link.is_active is False}
    for link in known:
        if not link.is_active:
            continue
        peer = by_pci.get(link.peer) if link.peer else None
        if peer is not None:
            direct[link.gpu, peer] += 1
        if peer is not None and peer != link.gpu and (peer, link.peer_link) in down:
            reason = f"down here, up at its far end, NVLink {link.link} of GPU{link.gpu}"
            issues.append(ProbeIssue.of_call(f"GPU{peer}", f"NVLink {link.peer_link}", reason))
        to_switches[link.gpu] += link.peer_kind is PeerKind.SWITCH
    for gpu in ends:
        if count := direct[gpu, gpu]:
            reason = f"links up whose far end is the GPU itself: {count}"
            issues.append(ProbeIssue.of_call(f"GPU{gpu}", "NVLink", reason))
    for a, b in combinations(ends, 2):
        forth, back = direct[a, b], direct[b, a]
        if forth != back:
            reason = f"links up between them: {forth} by GPU{a}, {back} by GPU{b}"
            issues.append(ProbeIssue.of_call(f"GPU{a} GPU{b}", "NVLink", reason))
    most = max(to_switches.values(), default=0)
    for gpu in ends:
        if to_switches[gpu] < most:
            reason = f"links up to the NVSwitches: {to_switches[gpu]}, other GPUs have {most}"
            issues.append(ProbeIssue.of_call(f"GPU{gpu}", "NVLink", reason))
    return tuple(issues)


def _states(caller: Caller, gpu: Gpu, handle: Any, count: int | None) -> dict[int, bool | None]:
    """Return the state of each link that *gpu* has, by its number.

    Some libraries answer "inactive" for links that the product lacks, so only as many are read as
    it has, at any numbers: *count*, the highest field ``NVML_FI_DEV_NVLINK_LINK_COUNT`` of any GPU
    of the product. If the field differs between GPUs of a product, or is 0 although link 0 exists,
    it counts active links (as in NVIDIA's mock NVML). Without the field every possible number of
    the architecture is read, because drivers differ in how they refuse missing links.
    """
    most = values.MOST_NVLINKS.get(gpu.architecture or "", caller.nvml.NVML_NVLINK_MAX_LINKS)
    states: dict[int, bool | None] = {}
    for number in range(max(most, count or 0)):
        if count and len(states) == count:
            break
        reply = _state(caller, handle, number)
        if not reply.is_absent:
            states[number] = reply.value
        elif count == 0:
            break
    return states


def _state(caller: Caller, handle: Any, link: int) -> Reply:
    return caller.call(
        "nvmlDeviceGetNvLinkState",
        handle,
        link,
        convert=values.flag,
        absent=(caller.nvml.NVML_ERROR_INVALID_ARGUMENT,),
        link=link,
    )


def _with_fields(caller: Caller, handle: Any, links: Sequence[NvLink]) -> Iterator[NvLink]:
    """Add the fields of one ``nvmlDeviceGetFieldValues`` call to all active links."""
    nvml = caller.nvml
    speed, far_link = nvml.NVML_FI_DEV_NVLINK_GET_SPEED, nvml.NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID
    # nvml.h has a field of its own for the recoveries of NVLink 5 and later.
    recoveries = {
        link.link: nvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS
        if link.version is not None and link.version >= FIRST_WITH_RECOVERY_EVENTS
        else nvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY
        for link in links
        if link.is_active
    }
    wanted = [(field, at) for at, own in recoveries.items() for field in (speed, far_link, own)]
    answers = dict(zip(wanted, caller.fields(handle, wanted), strict=True))
    for link in links:

        def number(field: int | None, at: int = link.link) -> int | None:
            return caller.number(answers.get((field, at)), link=at)

        # 0 is the speed that drivers give where they do not know it; link 0 is a link.
        yield replace(
            link,
            speed_mbps=number(speed) or None,
            peer_link=number(far_link),
            recoveries=number(recoveries.get(link.link)),
        )
