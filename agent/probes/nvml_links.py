"""NVLinks and pairs of GPUs, as NVML tells of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from agent.model.gpu import Gpu
from agent.model.nvlink import NvLink, PeerKind, ReportedPair
from agent.model.snapshot import ProbeIssue
from agent.probes import nvml_values as values
from agent.probes.nvml_ask import Answer, Asker


def fields(asker: Asker, handle: Any, wanted: Sequence[tuple[int, int]]) -> list[int | None]:
    """Return the values of the fields (id, scope), ``nvmlDeviceGetFieldValues``, in one call.

    Older drivers answer INVALID_ARGUMENT for a field that they do not know yet.
    """
    call = "nvmlDeviceGetFieldValues"
    answers = asker.ask(call, handle, list(wanted)) if wanted else None
    if answers is None:
        return [None] * len(wanted)
    return [_field(asker, call, answer) for answer in answers]


def _field(asker: Asker, call: str, field: Any) -> int | None:
    if field.nvmlReturn != asker.nvml.NVML_SUCCESS:
        asker.refused(call, field.nvmlReturn, absent=(asker.nvml.NVML_ERROR_INVALID_ARGUMENT,))
        return None
    try:
        return values.field_value(field)
    except ValueError as error:
        asker.unusable(call, error)
        return None


def links(asker: Asker, gpu: int, handle: Any) -> tuple[NvLink, ...] | None:
    """Return the NVLinks of a GPU by link number; ``None`` if NVML did not let us tell.

    State from ``nvmlDeviceGetNvLinkState``, generation from ``nvmlDeviceGetNvLinkVersion``,
    far end from ``nvmlDeviceGetNvLinkRemotePciInfo_v2`` and
    ``nvmlDeviceGetNvLinkRemoteDeviceType``, speed from field ``NVML_FI_DEV_NVLINK_GET_SPEED``.
    A link whose state alone failed is kept, with ``is_active=None``, if a higher one answered.
    """
    states = _states(asker, handle)
    if asker.is_lost or (states and all(state.value is None for state in states.values())):
        return None
    last = max((link for link, state in states.items() if state.value is not None), default=-1)
    found = [_link(asker, gpu, handle, n, s.value) for n, s in states.items() if n <= last]
    return tuple(_with_speeds(asker, handle, found))


def _states(asker: Asker, handle: Any) -> Mapping[int, Answer]:
    """Ask for every link number; drivers differ in how they refuse those without a link."""
    nvml = asker.nvml
    answers = {
        link: asker.answer(
            "nvmlDeviceGetNvLinkState",
            handle,
            link,
            convert=values.flag,
            absent=(nvml.NVML_ERROR_INVALID_ARGUMENT,),
            link=link,
        )
        for link in range(nvml.NVML_NVLINK_MAX_LINKS)
    }
    return {link: answer for link, answer in answers.items() if not answer.is_absent}


def _link(asker: Asker, gpu: int, handle: Any, link: int, is_active: bool | None) -> NvLink:
    def ask(call: str, convert: Any) -> Any:
        return asker.answer(call, handle, link, convert=convert, link=link).value

    version = ask("nvmlDeviceGetNvLinkVersion", values.nvlink_generation)
    if not is_active:  # nothing answers from the far end of a link that is down
        return NvLink(gpu=gpu, link=link, is_active=is_active, version=version)
    return NvLink(
        gpu=gpu,
        link=link,
        is_active=is_active,
        version=version,
        peer=ask("nvmlDeviceGetNvLinkRemotePciInfo", values.peer_address),
        peer_kind=ask("nvmlDeviceGetNvLinkRemoteDeviceType", values.peer_kind),
    )


def _with_speeds(asker: Asker, handle: Any, found: Sequence[NvLink]) -> Iterator[NvLink]:
    field = asker.nvml.NVML_FI_DEV_NVLINK_GET_SPEED
    active = [link for link in found if link.is_active]
    speeds = fields(asker, handle, [(field, link.link) for link in active])
    by_link = {link.link: speed for link, speed in zip(active, speeds, strict=True)}
    for link in found:
        # 0 is what drivers give where they do not know
        yield replace(link, speed_mbps=by_link.get(link.link) or None)


def with_what_gpus_tell(found: Sequence[NvLink], gpus: Sequence[Gpu]) -> tuple[NvLink, ...]:
    """Fill in what follows from the GPUs at the ends.

    The peer's kind where the library is too old to say and the far end is a GPU; the
    generation from the architecture where that is known.
    """
    addresses = {gpu.pci for gpu in gpus if gpu.pci is not None}
    generations = {gpu.index: values.NVLINK_GENERATION.get(gpu.architecture or "") for gpu in gpus}
    return tuple(
        replace(
            link,
            version=generations.get(link.gpu) or link.version,
            peer_kind=link.peer_kind or (PeerKind.GPU if link.peer in addresses else None),
        )
        for link in found
    )


def pairs(
    nvml: Any,
    handles: Mapping[int, Any],
) -> tuple[tuple[ReportedPair, ...], tuple[ProbeIssue, ...]]:
    """Return what NVML says of every two GPUs of *handles*, by index.

    Closeness from ``nvmlDeviceGetTopologyCommonAncestor``, peer access from
    ``nvmlDeviceGetP2PStatus`` with the NVLink capability. A pair of which neither is known
    is left out.
    """
    found: list[ReportedPair] = []
    issues: list[ProbeIssue] = []
    for a, b in combinations(sorted(handles), 2):
        asker = Asker(nvml, f"GPU{a} GPU{b}")
        found.append(_pair(asker, (a, b), (handles[a], handles[b])))
        issues.extend(asker.issues)
    known = (p for p in found if p.closeness is not None or p.p2p_nvlink is not None)
    return tuple(known), tuple(issues)


def _pair(asker: Asker, names: tuple[int, int], handles: tuple[Any, Any]) -> ReportedPair:
    level = "nvmlDeviceGetTopologyCommonAncestor"
    status, capability = "nvmlDeviceGetP2PStatus", asker.nvml.NVML_P2P_CAPS_INDEX_NVLINK
    return ReportedPair(
        a=f"GPU{names[0]}",
        b=f"GPU{names[1]}",
        closeness=asker.ask(level, *handles, convert=values.closeness),
        p2p_nvlink=asker.ask(status, *handles, capability, convert=values.is_p2p_allowed),
    )
