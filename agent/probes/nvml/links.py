"""NVLinks, as NVML tells of each of their ends."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from agent.model.gpu import Gpu
from agent.model.nvlink import NvLink, PeerKind
from agent.model.pci import PciAddress
from agent.model.snapshot import ProbeIssue
from agent.probes.nvml import values
from agent.probes.nvml.session import Answer, Asker

FIRST_WITH_RECOVERY_EVENTS = 5
"""NVLink generation whose recoveries NVML counts in other fields (nvml.h, fields 162 and 214)."""


def links(asker: Asker, gpu: Gpu, handle: Any) -> tuple[NvLink, ...] | None:
    """Return the NVLinks of *gpu* by link number; ``None`` if NVML did not let us tell.

    State from ``nvmlDeviceGetNvLinkState``; far end from
    ``nvmlDeviceGetNvLinkRemotePciInfo_v2``, ``nvmlDeviceGetNvLinkRemoteDeviceType`` and field
    ``NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID``; speed from field ``NVML_FI_DEV_NVLINK_GET_SPEED``,
    recoveries from the field that :class:`agent.model.nvlink.NvLink` names;
    generation from the architecture, and where that is unknown from
    ``nvmlDeviceGetNvLinkVersion``. A link whose state alone failed is kept, with
    ``is_active=None``, if a higher one answered.
    """
    states = _states(asker, handle)
    if asker.is_lost or (states and all(state.value is None for state in states.values())):
        return None
    last = max((link for link, state in states.items() if state.value is not None), default=-1)
    found = [_link(asker, gpu, handle, n, s.value) for n, s in states.items() if n <= last]
    return tuple(_with_fields(asker, handle, found))


def are_links_as_known(asker: Asker, handle: Any, known: Sequence[NvLink]) -> bool:
    """Say whether the links of a GPU still are as up or down as *known*.

    One call reads field ``NVML_FI_DEV_NVLINK_GET_STATE`` of all. It knows more states than up
    and down, and older drivers do not know it: where it does not say the same as *known*,
    ``nvmlDeviceGetNvLinkState`` decides, as it did when they became known.
    """
    told = [link for link in known if link.is_active is not None]
    field = asker.nvml.NVML_FI_DEV_NVLINK_GET_STATE
    states = asker.fields(handle, [(field, link.link) for link in told])
    return not asker.is_lost and all(
        asker.field_value(state, values.field_value, link=link.link) == link.is_active
        or _state(asker, handle, link.link).value is link.is_active
        for link, state in zip(told, states, strict=True)
    )


def _states(asker: Asker, handle: Any) -> Mapping[int, Answer]:
    """Ask for every link number; drivers differ in how they refuse those without a link."""
    numbers = range(asker.nvml.NVML_NVLINK_MAX_LINKS)
    answers = {link: _state(asker, handle, link) for link in numbers}
    return {link: answer for link, answer in answers.items() if not answer.is_absent}


def _state(asker: Asker, handle: Any, link: int) -> Answer:
    return asker.answer(
        "nvmlDeviceGetNvLinkState",
        handle,
        link,
        convert=values.flag,
        absent=(asker.nvml.NVML_ERROR_INVALID_ARGUMENT,),
        link=link,
    )


def _link(asker: Asker, gpu: Gpu, handle: Any, link: int, is_active: bool | None) -> NvLink:
    def ask(call: str, convert: Any) -> Any:
        return asker.answer(call, handle, link, convert=convert, link=link).value

    version = values.NVLINK_GENERATION.get(gpu.architecture or "")
    if version is None:
        version = ask("nvmlDeviceGetNvLinkVersion", values.nvlink_generation)
    if not is_active:  # nothing answers from the far end of a link that is down
        return NvLink(gpu=gpu.index, link=link, is_active=is_active, version=version)
    return NvLink(
        gpu=gpu.index,
        link=link,
        is_active=is_active,
        version=version,
        peer=ask("nvmlDeviceGetNvLinkRemotePciInfo", values.peer_address),
        peer_kind=ask("nvmlDeviceGetNvLinkRemoteDeviceType", values.peer_kind),
    )


def _with_fields(asker: Asker, handle: Any, found: Sequence[NvLink]) -> Iterator[NvLink]:
    """Add what one ``nvmlDeviceGetFieldValues`` tells of all links that are up."""
    nvml = asker.nvml
    speed, far_link = nvml.NVML_FI_DEV_NVLINK_GET_SPEED, nvml.NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID
    recoveries = {link.link: _recoveries_field(nvml, link) for link in found if link.is_active}
    wanted = [(field, at) for at, own in recoveries.items() for field in (speed, far_link, own)]
    answers = dict(zip(wanted, asker.fields(handle, wanted), strict=True))
    for link in found:

        def ask(field: int, at: int = link.link) -> int | None:
            return asker.field_value(answers.get((field, at)), values.field_value, link=at)

        # 0 is the speed that drivers give where they do not know it; link 0 is a link.
        yield replace(
            link,
            speed_mbps=ask(speed) or None,
            peer_link=ask(far_link),
            recoveries=ask(recoveries[link.link]) if link.link in recoveries else None,
        )


def _recoveries_field(nvml: Any, link: NvLink) -> int:
    """Return the field that counts recoveries; nvml.h gives NVLink 5 and later one of their own."""
    is_newer = link.version is not None and link.version >= FIRST_WITH_RECOVERY_EVENTS
    return int(
        nvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS
        if is_newer
        else nvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY
    )


def with_peer_kinds(found: Sequence[NvLink], gpus: Sequence[Gpu]) -> tuple[NvLink, ...]:
    """Fill in the peer's kind where the library is too old to say and the far end is a GPU."""
    addresses = {gpu.pci for gpu in gpus if gpu.pci is not None}
    return tuple(
        replace(link, peer_kind=PeerKind.GPU)
        if link.peer_kind is None and link.peer in addresses
        else link
        for link in found
    )


def uneven(found: Sequence[NvLink], gpus: Sequence[Gpu]) -> tuple[ProbeIssue, ...]:
    """Return an issue for whatever the two ends of an NVLink connection tell differently.

    A pair of GPUs whose ends count different numbers of direct links that are up; a single
    link that is down at one end and up at the other; a GPU that has fewer links up to the
    NVSwitches than another one. The weaker end is what counts
    (:mod:`agent.topology.links`). GPUs that did not tell all of their links' states are not
    judged: why they did not is an issue already.
    """
    silent = {gpu.index for gpu in gpus if gpu.is_lost}
    silent |= {link.gpu for link in found if link.is_active is None}
    by_pci = {gpu.pci: gpu.index for gpu in gpus if gpu.pci and gpu.index not in silent}
    told = [link for link in found if link.gpu in by_pci.values()]
    return (
        *_half_down(told, by_pci),
        *_uneven_pairs(told, by_pci),
        *_fewer_to_switches(told),
    )


def _half_down(told: Sequence[NvLink], by_pci: Mapping[PciAddress, int]) -> Iterator[ProbeIssue]:
    down = {(link.gpu, link.link) for link in told if link.is_active is False}
    for far in told:
        near = by_pci.get(far.peer) if far.is_active and far.peer else None
        if near is not None and (near, far.peer_link) in down:
            yield ProbeIssue(
                probe="nvml",
                subject=f"GPU{near} NVLink {far.peer_link}",
                reason=f"down here, up at its far end, NVLink {far.link} of GPU{far.gpu}",
            )


def _uneven_pairs(told: Sequence[NvLink], by_pci: Mapping[PciAddress, int]) -> Iterator[ProbeIssue]:
    far = {link.peer: by_pci[link.peer] for link in told if link.peer in by_pci and link.peer}
    counts = Counter((n.gpu, far[n.peer]) for n in told if n.is_active and n.peer in far)
    # A GPU without any link in the list was refused the question, or cannot be a far end.
    for a, b in combinations(sorted({link.gpu for link in told}), 2):
        if counts[a, b] != counts[b, a]:
            yield ProbeIssue(
                probe="nvml",
                subject=f"GPU{a} GPU{b} NVLink",
                reason=f"links up between them: {counts[a, b]} by GPU{a}, {counts[b, a]} by GPU{b}",
            )


def _fewer_to_switches(told: Sequence[NvLink]) -> Iterator[ProbeIssue]:
    counts = Counter(n.gpu for n in told if n.is_active and n.peer_kind is PeerKind.SWITCH)
    most = max(counts.values(), default=0)
    for gpu in sorted({link.gpu for link in told}):
        if counts[gpu] < most:
            yield ProbeIssue(
                probe="nvml",
                subject=f"GPU{gpu} NVLink",
                reason=f"links up to the NVSwitches: {counts[gpu]}, other GPUs have {most}",
            )
