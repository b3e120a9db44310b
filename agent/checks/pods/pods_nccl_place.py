"""A container with GPUs where it is: the values of its NCCL variables, and what it could use."""

import re
from dataclasses import dataclass

from agent.checks.pods.inputs import is_rdma, others, whole_gpus
from agent.checks.pods.pods_spread import is_spread
from agent.model.pod import Container, Pod
from agent.model.snapshot import Snapshot

LONGEST = 4096
"""Characters of a value that are looked at."""

SHOWN = 60
"""Characters of a value that a finding repeats."""

_NUMBER = re.compile(r"\s*(?P<sign>[+-]?)(?P<digits>0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Place:
    """A container of a pod, and the node that it is on."""

    snapshot: Snapshot
    pod: Pod
    container: Container

    def value(self, name: str) -> str:
        """Return the value of *name* as NCCL finds it; empty where it is unset or not known."""
        found = (self.container.environment or {}).get(name)
        return "" if found is None else found[:LONGEST]

    def shown(self, name: str) -> str:
        """Return *name* with its value, as a finding repeats it."""
        return f"{name}={self.value(name)[:SHOWN]}"

    def number(self, name: str) -> int | None:
        """Return the number that NCCL takes the value for; ``None`` where there is no value.

        What begins with no number is 0, as ``true`` is (``strtoll``, NVIDIA/nccl v2.30.7-1
        ``src/misc/param.cc``).
        """
        value = self.value(name)
        return number(value) if value else None

    def is_off(self, name: str) -> bool:
        """Return whether the value of *name* is 0 to NCCL."""
        return self.number(name) == 0

    def is_on(self, name: str) -> bool:
        """Return whether the value of *name* is any other number."""
        return self.number(name) not in (None, 0)

    @property
    def has_peers(self) -> bool:
        """Whether it has several whole GPUs."""
        return whole_gpus(self.container) > 1

    @property
    def asks_for_rdma(self) -> bool:
        """Whether it asks for HCAs that NCCL itself speaks to; EFA needs a plugin of its own."""
        names = others(self.container)
        return any(is_rdma(name) and "efa" not in name for name in names)

    @property
    def is_of_the_host(self) -> bool:
        """Whether it is a part of a job of several pods that lives in the host's network."""
        return bool(self.pod.uses_host_network) and is_spread(self.pod)

    @property
    def has_plugin(self) -> bool:
        """Whether another network than NCCL's own comes first, which may read no such variable."""
        return self.value("NCCL_NET_PLUGIN").casefold() not in ("", "none")


def number(text: str) -> int:
    """Return the number that *text* begins with, as ``strtoll`` of base 0 does; else 0."""
    found = _NUMBER.match(text)
    if found is None:
        return 0
    digits = found["digits"]
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    return int(digits, base) * (-1 if found["sign"] == "-" else 1)
