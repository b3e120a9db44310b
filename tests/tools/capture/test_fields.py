"""Each text field of the model is declared as kept, or replaced; a new one is replaced."""

import types
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from itertools import count
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import Struct
from msgspec.structs import fields, replace

from nodetopo.model.codec import decode, encode
from nodetopo.model.host import DriverHolder, DriverHolders, HostSettings
from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress
from nodetopo.model.pod import Container, Pod
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture import scrub
from nodetopo.tools.capture.fields import KEPT, RULES
from nodetopo.tools.capture.scrub import Substitutes, scrubbed

NUMBERS = count()
FIELD_OF: dict[str, str] = {}


def marked(field: str) -> str:
    """Return a name that no source has, remembered with the field that gets it."""
    text = f"zqmark{next(NUMBERS)}zq"
    FIELD_OF[text] = field
    return text


def filled(kind: Any, field: str) -> Any:
    """Return a value of the type *kind* with a marked name for each text."""
    arguments = get_args(kind)
    if isinstance(kind, types.UnionType) or type(None) in arguments:
        return filled(next(it for it in arguments if it is not type(None)), field)
    if get_origin(kind) is tuple:
        return tuple(filled(it, field) for it in arguments if it is not Ellipsis)
    if get_origin(kind) is Mapping:
        return {filled(arguments[0], field): filled(arguments[1], field)}
    if kind is str:
        return marked(field)
    if kind is CpuSet:
        return CpuSet.of([0])
    if kind is PciAddress:
        return PciAddress.parse("0000:1b:00.0")
    if kind is datetime:
        return datetime(2026, 1, 2, tzinfo=UTC)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return record(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    return kind(1)


def record(kind: type) -> Any:
    hints = get_type_hints(kind)
    values = {
        each.name: filled(hints[each.name], f"{kind.__name__}.{each.name}") for each in fields(kind)
    }
    return kind(**values)


def texts(value: Any) -> Iterator[str]:
    if type(value) is str:
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from texts(item)
    elif isinstance(value, Mapping):
        for pair in value.items():
            yield from texts(pair)
    elif isinstance(value, Struct):
        for each in fields(value):
            yield from texts(getattr(value, each.name))


def test_no_text_of_a_field_is_left_unless_the_field_is_declared_as_kept() -> None:
    whole = record(Snapshot)
    assert len(set(texts(whole)) & set(FIELD_OF)) > 150
    after, _ = scrubbed(whole, Substitutes())
    left = {FIELD_OF[mark] for mark in FIELD_OF if any(mark in text for text in texts(after))}
    declared = set(" ".join(KEPT.values()).split())
    # The keys of these maps are fields, NUMA nodes, labels and variables of NCCL and CUDA.
    declared |= {"KubeletSettings.origins", "HeldDevices.ids", "DeviceState.registered"}
    declared |= {"NodeStatus.label_writers", "Container.environment"}
    assert left - declared == set()


def test_every_rule_is_of_a_field_of_the_model() -> None:
    record(Snapshot)
    known = set(FIELD_OF.values())
    assert set(RULES) - known == set()


def test_a_field_that_nobody_declared_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(Snapshot, frozen=True, kw_only=True):
        extra: Mapping[str, tuple[str, ...]] | None = None

    after, _ = scrubbed(Newer(extra={"acme": ("acme", "other")}), Substitutes())
    assert str(after.extra) == "{'text-0': ('text-0', 'text-1')}"  # type: ignore[attr-defined]
    monkeypatch.setattr(scrub, "RULES", {})
    assert "marker" not in str(scrubbed(Snapshot(product_name="marker"), Substitutes())[0])


SECRET = Snapshot(
    node="dgx-07",
    host=HostSettings(
        interfaces=("enp170s0f0np0", "enxb03af2b6059f", "lo", "ens0c42a1123456", "acme0"),
        driver_holders=DriverHolders(
            processes=(
                DriverHolder(pid=1, name="train_acme.py", container="0123456789ab"),
                DriverHolder(pid=2, name="nvidia-persistenced"),
                DriverHolder(pid=3, name="nvidia-acme"),
            )
        ),
    ),
    pods=(
        Pod(
            namespace="bigbank",
            name="p",
            containers=(Container(name="c", id="0123456789ab" + "cdef" * 13),),
        ),
    ),
    issues=(
        ProbeIssue(probe="podresources", subject="pod bigbank/p", reason="p and 10.20.30.40."),
        ProbeIssue(
            probe="config",
            subject="/home/jane.doe/.kube/acme-prod",
            reason="cannot use /data/users/jane/acme: no such file",
        ),
        ProbeIssue(probe="pcie", subject="0000:1b:00.0", reason="read 12 of 64 bytes"),
        ProbeIssue(probe="nvml", subject="GPU3 nvmlDeviceGetMemoryInfo", reason="Unknown Error"),
    ),
)


def test_names_of_devices_programs_and_containers_tell_nothing_of_an_owner() -> None:
    after, _ = scrubbed(SECRET, Substitutes())
    text = encode(after)
    hidden = ("b03af2b6059f", "0c42a1", "acme", "jane", "0123456789ab", "bigbank", "10.20")
    assert [name for name in hidden if name in text] == []
    assert decode(text).snapshot == after
    assert after.host is not None
    assert after.host.driver_holders is not None
    holders = after.host.driver_holders.processes
    assert [holder.name for holder in holders] == ["program-0", "nvidia-persistenced", "program-1"]
    (container,) = (after.pods or ())[0].containers
    assert (container.id or "").startswith(holders[0].container or "?")
    assert (after.host.interfaces or ())[:3:2] == ("enp170s0f0np0", "lo")


def test_an_issue_keeps_its_words_its_device_and_its_place() -> None:
    pods, config, pcie, nvml = scrubbed(SECRET, Substitutes())[0].issues
    assert (pods.subject, pods.reason) == ("pod namespace-0/pod-0", "p and ….")
    assert (config.subject, config.reason) == ("/…", "cannot use /…: no such file")
    assert (pcie, nvml) == SECRET.issues[2:]


def test_scrubbed_snapshots_stay_as_they_are() -> None:
    once, _ = scrubbed(replace(SECRET, gpus=()), Substitutes())
    assert [issue.reason for issue in scrubbed(once, Substitutes())[0].issues] == [
        issue.reason for issue in once.issues
    ]
