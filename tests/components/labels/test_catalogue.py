"""The catalogue as a whole, and when its labels' absence is proof."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from nodetopo.components.labels.catalogue import CATALOGUE, GFD_KEYS, is_complete, labels
from nodetopo.components.labels.levels import MAX_TIERS
from nodetopo.components.labels.rules import LabelRules, SharedLabel
from nodetopo.kernel.settings.values import label_prefix
from nodetopo.machines.bundled import machine, names
from nodetopo.model.gpu import Fabric, FabricState
from nodetopo.model.pci import VgpuHost
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.gfd_machines import NVIDIA, PARTLY, all_divided, with_gpus
from tests.strategies import damaged, machines, snapshots

VALUE = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
NAME = re.compile(r"nvidia\.com/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""Label values that are not empty, and keys in NVIDIA's domain (k8s.io/apimachinery validation)."""

any_machine = st.one_of(snapshots(), machines(), damaged(machines()))
shared = st.builds(SharedLabel, replicas=st.integers(2, 9), is_renamed=st.booleans())
any_rules = st.builds(
    LabelRules,
    mig=st.sampled_from(["none", "single", "mixed"]),
    shared=st.dictionaries(st.just("nvidia.com/gpu"), shared),
)


@pytest.mark.parametrize("subject", ["", "GPU3 nvmlDeviceGetMemoryInfo"])
def test_anything_that_nvml_withheld_makes_a_snapshot_incomplete(subject: str) -> None:
    issue = ProbeIssue(probe="nvml", subject=subject, reason="timeout")
    assert not is_complete(structs.replace(machine("dgx-h100"), issues=(issue,)))


def test_what_other_probes_could_not_read_leaves_a_snapshot_complete() -> None:
    issue = ProbeIssue(probe="pcie", subject="0000:1b:00.0 config", reason="EPERM")
    assert is_complete(structs.replace(machine("dgx-h100"), issues=(issue,)))


def test_a_lost_gpu_makes_a_snapshot_incomplete() -> None:
    assert not is_complete(with_gpus(machine("dgx-h100"), is_lost=True))


def test_a_fabric_still_registering_makes_a_snapshot_incomplete() -> None:
    registering = Fabric(state=FabricState.IN_PROGRESS)
    assert not is_complete(with_gpus(machine("dgx-h100"), fabric=registering))


def test_a_bundled_machine_is_complete() -> None:
    assert [name for name in names() if not is_complete(machine(name))] == []


def everything() -> Iterator[str]:
    """Yield every key that any machine here has by any rules."""
    host = VgpuHost(driver_version="580.95.02", driver_branch="r580_95")
    guest = machine("h100-vm-8")
    functions = [gpu.function for gpu in guest.gpus if gpu.function is not None]
    virtual = with_gpus(guest, function=structs.replace(functions[0], vgpu_host=host))
    halves = all_divided(PARTLY, "3g.40gb")
    yield from (key for name in names() for key in labels(machine(name)))
    yield from labels(virtual)
    yield from labels(halves, LabelRules(mig="single"))
    yield from labels(halves, LabelRules(mig="mixed"))


def test_every_key_of_a_machine_is_in_the_catalogue_and_every_row_about_gpus_is_met() -> None:
    keys = {key for key in everything() if key.startswith(NVIDIA)}
    rows = {row.key for row in CATALOGUE if row.key.startswith(NVIDIA)}
    assert {key.replace("3g.40gb", "<profile>") for key in keys} == rows


def test_no_two_rows_have_the_same_key() -> None:
    assert len({row.key for row in CATALOGUE}) == len(CATALOGUE)


def test_no_key_is_longer_than_schedulers_take() -> None:
    # Grove takes 63 characters for prefix and name together.
    assert [row.key for row in CATALOGUE if len(row.key) > 63] == []


def test_labels_come_sorted_by_key_under_any_prefix() -> None:
    found = labels(machine("dgx-h100"), LabelRules(prefix="zz.example/"))
    assert list(found) == sorted(found)
    assert any(key.startswith("zz.example/") for key in found)


@pytest.mark.parametrize("name", names())
def test_without_the_keys_of_gfd_all_others_stay(name: str) -> None:
    every, own = labels(machine(name)), labels(machine(name), LabelRules(has_gfd=False))
    assert own == {key: value for key, value in every.items() if key not in GFD_KEYS}
    assert {key for key in own if key.startswith(NVIDIA)} <= {
        "nvidia.com/nvswitch.present",
        "nvidia.com/nvlink.version",
    }
    assert len(own) < len(every)


def test_a_node_without_gpus_has_none_of_gfds_labels() -> None:
    empty = structs.replace(PARTLY, gpus=(), nvlinks=(), pairs=(), nvswitches=())
    found = labels(empty, LabelRules(mig="mixed"))
    assert [key for key in found if key.startswith(NVIDIA)] == []


@given(any_machine, any_rules)
def test_every_label_of_any_machine_is_one_that_the_api_server_takes(
    snapshot: Snapshot, rules: LabelRules
) -> None:
    found = {key: text for key, text in labels(snapshot, rules).items() if key.startswith(NVIDIA)}
    assert [item for item in found.items() if not VALUE.fullmatch(item[1])] == []
    assert [key for key in found if not NAME.fullmatch(key)] == []


@given(any_machine)
def test_which_model_is_described_does_not_depend_on_the_order_of_gpus(snapshot: Snapshot) -> None:
    turned = structs.replace(snapshot, gpus=snapshot.gpus[::-1])
    one, other = labels(snapshot), labels(turned)
    keys = ("nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/gpu.replicas")
    assert [one.get(key) for key in keys] == [other.get(key) for key in keys]


def own(prefix: str, of: str) -> list[str]:
    """Return the keys of our own that the machine *of* has with every tier."""
    rules = LabelRules(prefix=prefix, levels={f"tier-{n}": "x" for n in range(MAX_TIERS)})
    return [key for key in labels(machine(of), rules) if key.startswith(prefix)]


@pytest.mark.parametrize("name", names())
def test_a_node_never_has_more_than_forty_labels_of_our_own(name: str) -> None:
    assert MAX_TIERS < len(own("gpu.topology/", name)) <= 40


def test_under_the_longest_prefix_a_key_has_no_more_than_grove_takes() -> None:
    prefix = f"{'x' * 40}.com/"
    assert label_prefix(prefix) == prefix
    assert max(map(len, own(prefix, "dgx-h100"))) == 63
    with pytest.raises(ValueError, match="longer than 45 characters"):
        label_prefix(f"x{prefix}")
