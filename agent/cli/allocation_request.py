"""A request of the command line, in the ids of the devices that it is about."""

from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.allocation.allocator import Allocation, Allocator
from agent.allocation.requests import resolve, usable
from agent.allocation.rules import TERMS, Model, Policy, Rules
from agent.cli.measured_file import measured
from agent.errors import InputError
from agent.model.snapshot import Snapshot

MOST_REPLICAS = 128
"""Beyond what a GPU is shared by; NVIDIA's plugin sets no limit."""


class Places(Protocol):
    """What :class:`Allocator` and its counterpart for shared GPUs have in common."""

    def allocate(
        self, *, available: Collection[str], required: Collection[str] = (), size: int
    ) -> Allocation:
        """Return the best set."""

    def describe(
        self, chosen: Collection[str], available: Collection[str] | None = None
    ) -> Allocation:
        """Return what a set is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of whom.

    Attributes:
        devices: the GPU id by device id, in device order; equal for whole GPUs.
        available, required: device ids; *available* in the order given.
        terms: the fields of a score in the order in which they are compared.
    """

    snapshot: Snapshot
    allocator: Places
    rules: Rules
    devices: Mapping[str, str]
    available: tuple[str, ...]
    required: tuple[str, ...]
    size: int
    terms: tuple[str, ...]

    @property
    def is_shared(self) -> bool:
        """Whether it is about MIG instances or replicas."""
        return any(device != gpu for device, gpu in self.devices.items())

    def name(self, device: str) -> str:
        """Return what people call *device*: ``GPU5`` for a whole GPU, its id for a part."""
        names = {} if self.is_shared else {gpu.id: gpu.name for gpu in self.snapshot.gpus}
        return names.get(device, device)


def request(snapshot: Snapshot, args: Namespace, policy: Policy) -> Request:
    """Return the request that *args* hold.

    Raises:
        InputError: a device is unknown, or the bandwidth table cannot be used.
    """
    rules = Rules(
        policy=policy, model=Model(args.bandwidth_model), measured=measured(args, snapshot)
    )
    devices = _devices(snapshot, args)
    is_shared = args.replicas is not None or args.mig is not None
    allocator, terms = _shared(snapshot, devices, rules, args) if is_shared else (None, ())
    return Request(
        snapshot=snapshot,
        allocator=allocator or Allocator(snapshot, rules),
        rules=rules,
        devices=devices,
        available=ids(snapshot, devices, args.available) if args.available else tuple(devices),
        required=ids(snapshot, devices, args.required),
        size=args.size,
        terms=terms or TERMS[policy],
    )


def ids(
    snapshot: Snapshot, devices: Mapping[str, str], arguments: Sequence[str]
) -> tuple[str, ...]:
    """Return the ids that *arguments* name, by comma: of devices, or of GPUs for all of theirs.

    Raises:
        InputError: there is none of that name.
    """
    texts = [text.strip() for argument in arguments for text in argument.split(",")]
    found = [name for text in texts if text for name in _named(snapshot, devices, text)]
    return tuple(dict.fromkeys(found))


def _named(snapshot: Snapshot, devices: Mapping[str, str], text: str) -> list[str]:
    if text in devices:
        return [text]
    name, separator, number = text.partition("::")
    gpu = resolve(snapshot, name).id
    if not separator:
        own = [device for device, parent in devices.items() if parent == gpu]
        return own or [gpu]  # a GPU that is lost, or has none of these devices
    if f"{gpu}::{number}" not in devices:
        raise InputError(f"unknown device {text!r}", "replicas are GPU0::0, GPU0::1, and so on")
    return [f"{gpu}::{number}"]


def _devices(snapshot: Snapshot, args: Namespace) -> Mapping[str, str]:
    if args.mig is not None:
        return _instances(snapshot, args.mig)
    gpus = usable(snapshot)
    if args.replicas is None:
        return {gpu: gpu for gpu in gpus}
    if not 1 <= args.replicas <= MOST_REPLICAS:
        raise InputError(
            f"--replicas: {args.replicas} is out of range", f"give 1 to {MOST_REPLICAS}"
        )
    return {f"{gpu}::{number}": gpu for gpu in gpus for number in range(args.replicas)}


def _instances(snapshot: Snapshot, profile: str) -> Mapping[str, str]:
    """Return the MIG instances of *profile* on GPUs that are not lost.

    Raises:
        InputError: there is none.
    """
    there = [
        (instance, gpu.id)
        for gpu in snapshot.gpus
        if gpu.mig is not None and not gpu.is_lost
        for instance in gpu.mig.instances
    ]
    wanted = profile.removeprefix("mig-")
    found = {instance.uuid: gpu for instance, gpu in there if instance.profile == wanted}
    if not found:
        profiles = sorted({instance.profile or "?" for instance, _ in there})
        raise InputError(
            f"no MIG instance has the profile {profile!r}",
            f"this node has {', '.join(profiles)}" if there else "this node has no MIG instances",
        )
    return found


def _shared(
    snapshot: Snapshot, devices: Mapping[str, str], rules: Rules, args: Namespace
) -> tuple[Places, tuple[str, ...]]:
    from agent.allocation.shared.allocator import SharedAllocator  # noqa: PLC0415 - only here
    from agent.allocation.shared.terms import shared_terms  # noqa: PLC0415 - only here

    # NVIDIA's plugin spreads replicas by default; contention is what counts there. MIG
    # instances do not disturb each other, and packed they leave whole GPUs whole.
    spread = args.replicas is not None
    allocator = SharedAllocator(snapshot, devices, rules, spread=spread)
    return allocator, shared_terms(rules.policy, spread=spread)
