"""How many whole GPUs a pod asks for."""

from collections.abc import Iterable, Mapping
from typing import Any

from agent.formats.dig import dig, mappings

GPU = "nvidia.com/gpu"


def pod_gpus(template: Mapping[str, Any]) -> int | None:
    """Return the GPUs that a pod of *template* needs at once; ``None`` where that is not told.

    As the scheduler counts: containers together, or the largest init container if that is
    more (Kubernetes "Init Containers", resource sharing). Devices by claim are not counted,
    so a pod that asks for these alone is unknown.
    """
    own = [_asked(one) for one in mappings(template, "spec", "containers")]
    first = [_asked(one) for one in mappings(template, "spec", "initContainers")]
    amounts = [amount for amount in (*own, *first) if amount is not None]
    if not own or len(amounts) < len(own) + len(first):
        return None
    needed = max(sum(amounts[: len(own)]), *amounts[len(own) :], 0)
    return needed or (None if dig(template, "spec", "resourceClaims") else 0)


def together(parts: Iterable[tuple[int, int | None]]) -> tuple[int, int | None]:
    """Return how many pods need GPUs and how many each, of *parts*: pods and GPUs of a pod.

    Pods without GPUs find room beside the others and are not counted. ``None`` for the GPUs
    where they are not told, or not alike.
    """
    known = tuple(parts)
    with_gpus = [part for part in known if part[1] != 0]
    counted = with_gpus or known
    amounts = {gpus for _pods, gpus in counted}
    size = sum(pods for pods, _gpus in counted)
    return size, amounts.pop() if len(amounts) == 1 else None


def amount(quantity: Any) -> int | None:
    """Return a number of GPUs as Kubernetes writes it, ``8`` or ``"8"``; ``None`` if it is none."""
    if isinstance(quantity, str) and quantity.isascii() and quantity.isdigit():
        return int(quantity[:9])
    return quantity if type(quantity) is int else None


def _asked(container: Mapping[str, Any]) -> int | None:
    """Return the GPUs of one container; limits and requests of GPUs are equal where both are."""
    for kind in ("limits", "requests"):
        quantity = dig(container, "resources", kind, GPU)
        if quantity is not None:
            return amount(quantity)
    return 0
