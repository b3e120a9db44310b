"""What an HCA is called for good: udev renames RDMA devices, and pods take them away and back."""

from collections import Counter
from collections.abc import Sequence

from agent.model.hca import Hca


def hca_keys(hcas: Sequence[Hca]) -> tuple[str, ...]:
    """Return a key of each of *hcas*, in their order, that survives a renaming.

    It is the PCI address, with the number of a subfunction (``0000:18:00.0/sf4``): other names
    change when rdma-core's rules rename the device, and addresses do not while the machine runs.
    Where several RDMA devices share a function, or there is none, it is the name.
    """
    places = [_place(hca) for hca in hcas]
    count = Counter(places)
    return tuple(
        hca.name if place is None or count[place] > 1 else place
        for hca, place in zip(hcas, places, strict=True)
    )


def _place(hca: Hca) -> str | None:
    if hca.pci is None:
        return None
    return str(hca.pci) if hca.subfunction is None else f"{hca.pci}/sf{hca.subfunction}"
