"""A claim that waits: what each node lacks of what it asks for."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agent.cluster.claims.claim import (
    EXPORT,
    Explained,
    Lack,
    Request,
    Verdict,
    equal_in,
    held_by,
    is_tainted,
)
from agent.formats.fields import Object, full_name
from agent.model.dra import DeviceKey, PublishedDevice


def waiting(
    claim: Object,
    requests: tuple[Request, ...],
    published: Mapping[str, Sequence[PublishedDevice]],
    others: Sequence[Object],
) -> Explained:
    """Return what each node lacks for *claim*, which waits, beside what the *others* have."""
    holders: dict[DeviceKey, str] = {}
    for other in others:
        holders |= dict.fromkeys(held_by(other), full_name(other))
    lacks = tuple(_lacks(claim, requests, published, holders))
    why: list[str] = []
    for request in requests:
        own = [lack for lack in lacks if lack.request == request.name]
        if not own:
            classes = " or ".join(request.device_classes)
            why.append(f"{request.name}: no node publishes devices that the class {classes} names")
        elif not any(lack.is_enough for lack in own):
            why.append(f"{request.name}: no node has {_wanted(request)} free as it asks")
    if not why:
        nodes = sorted({it.node for it in lacks if it.is_enough})
        why.append(
            f"by count {nodes[0] if len(nodes) == 1 else f'{len(nodes)} nodes'} would do: its "
            "selectors, other requests, or the pod that uses it are in the way"
        )
    cures = ["`kubectl describe pod` of a pod that uses it: the scheduler says what it tried"]
    is_short = not any(lack.is_enough for lack in lacks)
    if is_short and any(lack.largest and lack.free >= (lack.wanted or 1) for lack in lacks):
        cures.insert(0, f"alternatives take what is left where one place is too small: `{EXPORT}`")
    return Explained(
        claim=full_name(claim),
        verdict=Verdict.WAITING,
        node=None,
        requests=requests,
        why=tuple(why),
        cures=tuple(cures),
        lacks=lacks,
        unknown=("selectors of classes and requests, which are not evaluated here",),
    )


def _wanted(request: Request) -> str:
    return "all devices" if request.count is None else f"{request.count} devices"


def _lacks(
    claim: Object,
    requests: Sequence[Request],
    published: Mapping[str, Sequence[PublishedDevice]],
    holders: Mapping[DeviceKey, str],
) -> Iterator[Lack]:
    for request in requests:
        for node, devices in published.items():
            own = [it for it in devices if _may_match(it, request)]
            if not own:
                continue
            in_use = [it for it in own if it.key in holders]
            tainted = {
                it.key
                for it in own
                if it.key not in holders and not request.tolerates and is_tainted(it)
            }
            free = [it for it in own if it.key not in holders and it.key not in tainted]
            yield Lack(
                node=node,
                request=request.name,
                wanted=request.count,
                free=len(free),
                in_use=len(in_use),
                tainted=len(tainted),
                largest={
                    attribute: max(_counts(free, attribute), default=0)
                    for attribute in equal_in(claim, request.name)
                },
                holders=tuple(sorted({holders[it.key] for it in in_use})),
            )


def _counts(devices: Iterable[PublishedDevice], attribute: str) -> Iterable[int]:
    values = (device.attributes.get(attribute) for device in devices)
    return Counter(value for value in values if value is not None).values()


def _may_match(device: PublishedDevice, request: Request) -> bool:
    """Return whether *device* is of a driver that a class of *request* is named after.

    That is how NVIDIA, dranet and our own driver name theirs: the driver, or ``mig`` or ``gpus``
    and so on in its place. Classes of another name may be for any driver.
    """
    domain = device.driver.partition(".")[2]
    known = [it for it in request.device_classes if it.partition(".")[2] == domain]
    if not known:
        return not any("." in it for it in request.device_classes)
    kind = device.attributes.get(f"{device.driver}/type")
    heads = {it.partition(".")[0] for it in known}
    return kind is None or kind in heads or not heads & {"gpu", "mig", "vfio"}
