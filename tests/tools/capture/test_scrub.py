"""Scrubbing: nothing that identifies stays, and what was equal stays equal."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.model.gpu import Fabric, FabricState, Gpu, Mig, MigInstance
from nodetopo.model.hca import Gid, Hca, HcaPort
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.pod import AssignedDevices, Container, Pod
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Kernel, Snapshot
from nodetopo.probes.sysfs.pci_config import is_nvlink_management, parse_vpd
from nodetopo.tools.capture.archive import Entry
from nodetopo.tools.capture.fields import command_line
from nodetopo.tools.capture.raw import RawCapture
from nodetopo.tools.capture.scrub import Substitutes, scrubbed
from nodetopo.tools.capture.scrub_files import scrub_raw
from tests.probes.kubelet.kubelet_host import CONFIG, read_whole

UUID = "GPU-7a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
MIG = "MIG-0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
CLUSTER = "9d8c7b6a-5f4e-4d3c-2b1a-0f9e8d7c6b5a"
SERIAL = "1652222015738"
GUID = "b83f:d203:00ab:cdef"
GIDS = (
    "fe80:0000:0000:0000:ba3f:d2ff:feab:cdef",
    "0000:0000:0000:0000:0000:ffff:0a17:2d43",
    "2001:0db8:0000:0000:ba3f:d2ff:feab:cdef",
)
POD_UID = "11111111-2222-3333-4444-555555555555"
SNAPSHOT = Snapshot(
    node="gpu-node-07",
    kernel=Kernel(command_line="BOOT_IMAGE=/vmlinuz root=UUID=1-2 iommu=pt token=hush nvidia.a=1"),
    gpus=(
        Gpu(
            index=0,
            uuid=UUID,
            serial=SERIAL,
            mig=Mig(is_enabled=True, instances=(MigInstance(uuid=MIG, parent_uuid=UUID),)),
            fabric=Fabric(state=FabricState.COMPLETED, cluster_uuid=CLUSTER),
        ),
        Gpu(index=1, uuid=UUID[:-1] + "0", serial=SERIAL),
    ),
    hcas=tuple(
        Hca(
            name=name,
            node_guid=GUID,
            sys_image_guid=GUID,
            ports=(HcaPort(number=1, gids=tuple(Gid(index=0, gid=gid) for gid in GIDS)),),
        )
        for name in ("mlx5_0", "rocexb83fd2abcdef")
    ),
    pods=tuple(
        Pod(
            namespace="default",
            name=name,
            uid=POD_UID,
            containers=(
                Container(
                    name="secret-project",
                    devices=(AssignedDevices(resource="nvidia.com/gpu", ids=(UUID,)),),
                ),
            ),
        )
        for name in ("train-gpt", "eval-gpt")
    ),
    issues=(
        ProbeIssue(probe="pods", subject="train-gpt", reason="no answer from 10.23.45.67:6443"),
        ProbeIssue(probe="nvml", subject="GPU0", reason=f"{UUID} on gpu-node-07 is lost"),
    ),
)
SECRETS = (
    *("gpu-node-07", UUID, UUID[4:], MIG, CLUSTER, SERIAL, GUID, *GIDS, "0a17:2d43", "feab:cdef"),
    "b83fd2abcdef",
    *("train-gpt", "eval-gpt", "secret-project", "10.23.45.67", POD_UID, "hush", "UUID=1-2"),
)


def test_no_name_is_left_in_a_snapshot() -> None:
    found = str(scrubbed(SNAPSHOT, Substitutes())[0])
    assert [secret for secret in SECRETS if secret in found] == []


def test_what_was_equal_stays_equal_and_what_differed_differs() -> None:
    after, _ = scrubbed(SNAPSHOT, Substitutes())
    first, second = after.gpus
    assert first.mig is not None
    assert (first.serial, first.uuid) == (second.serial, first.mig.instances[0].parent_uuid)
    assert first.uuid != second.uuid
    pods = after.pods or ()
    assert [pod.name for pod in pods] == ["pod-0", "pod-1"]
    assert pods[0].containers[0].devices == (
        AssignedDevices(resource="nvidia.com/gpu", ids=(first.uuid or "",)),
    )
    assert len({hca.node_guid for hca in after.hcas or ()}) == 1


def test_names_keep_their_form() -> None:
    after, _ = scrubbed(SNAPSHOT, Substitutes())
    assert (after.gpus[0].uuid or "")[:4] == "GPU-"
    assert [len(part) for part in (after.gpus[0].uuid or "").split("-")] == [3, 8, 4, 4, 4, 12]
    assert len(after.gpus[0].serial or "") == len(SERIAL)
    assert (after.gpus[0].serial or "").isdecimal()
    link_local, mapped, public = (gid.gid for gid in (after.hcas or ())[0].ports[0].gids)
    assert link_local.startswith("fe80:0000:0000:0000:")
    assert mapped.startswith("0000:0000:0000:0000:0000:ffff:0a")
    assert public[9:20] == ":0000:0000:"


def test_scrubbing_twice_gives_the_same() -> None:
    assert scrubbed(SNAPSHOT, Substitutes()) == scrubbed(SNAPSHOT, Substitutes())


def test_what_is_done_is_told() -> None:
    assert set(scrubbed(SNAPSHOT, Substitutes())[1]) >= {
        "2 GPU UUIDs replaced",
        "1 serial number replaced",
        "3 GIDs replaced",
        "parameters of the kernel's command line left out",
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ip=10.0.0.1::host iommu=pt quiet", "iommu=pt quiet"),
        ("nvidia.NVreg_X=1 rd.iscsi.password=x", "nvidia.NVreg_X=1"),
        ("iommufoo=1 nvidiax.y=2", ""),
    ],
)
def test_only_parameters_that_tell_no_secret_stay(before: str, after: str) -> None:
    assert command_line(before) == after


def vpd(**keywords: str) -> bytes:
    fields = b"".join(
        name.encode() + bytes([len(value)]) + value.encode() for name, value in keywords.items()
    )
    return b"\x90" + len(fields).to_bytes(2, "little") + fields + b"\x78"


RAW = RawCapture(
    nvml=f"nvmlDeviceGetUUID 0 = 0 {UUID}\nnvmlDeviceGetSerial 0 = 0 {SERIAL}\n",
    entries=(
        Entry(path="proc/cmdline", content=b"root=/dev/secret1 iommu=pt\n"),
        Entry(path="proc/modules", content=b"nvidia 9 1 x, Live 0xffffffffc0de0000 (O)\n"),
        Entry(
            path="proc/7/cmdline",
            content=b"kubelet\0--node-ip\x0010.9.8.7\0--config\0/etc/k\0--config-dir=/etc/d\0",
        ),
        Entry(
            path="etc/k",
            content=b"kind: KubeletConfiguration\nstaticPodURL: https://me:pw@host\n"
            b"cpuManagerPolicy: static\n",
        ),
        Entry(path="sys/a/vpd", content=vpd(PN="900-1", SN="MT2333XZ0ABC", V2="MLX:SMDL=SW_MNG")),
        Entry(path="sys/b/address", content=b"b8:3f:d2:ab:cd:ef\n"),
        Entry(path="sys/b/node_guid", content=GUID.encode() + b"\n"),
        Entry(path="sys/b/config", content=bytes(range(256))),
        Entry(path="sys/class/infiniband/rocexb83fd2abcdef", target="../b/rocexb83fd2abcdef"),
    ),
    snapshot=replace(SNAPSHOT, pods=None, issues=()),
)


def test_no_name_is_left_in_raw_texts() -> None:
    raw = scrub_raw(RAW)
    found = raw.nvml + str(raw.snapshot) + "".join(str(entry) for entry in raw.entries)
    hidden = ("secret1", "c0de", "10.9.8.7", "me:pw", "MT2333XZ0ABC", "d2:ab:cd:ef")
    assert [secret for secret in (*SECRETS, *hidden) if secret in found] == []


def test_raw_texts_keep_what_discovery_reads() -> None:
    contents = {entry.path: entry.content or b"" for entry in scrub_raw(RAW).entries}
    assert contents["proc/cmdline"] == b"iommu=pt\n"
    assert contents["proc/modules"].startswith(b"nvidia 0 0 - Live 0x0000")
    assert contents["proc/7/cmdline"] == b"kubelet\0--config\0/etc/k\0--config-dir=/etc/d\0"
    assert contents["etc/k"] == b"kind: KubeletConfiguration\ncpuManagerPolicy: static\n"
    assert contents["sys/b/config"] == bytes(range(256))
    product = contents["sys/a/vpd"]
    assert (parse_vpd(product) or {})["PN"] == "900-1"
    assert is_nvlink_management(product)


def kubelet_file(text: str) -> str:
    entry = Entry(path="etc/k", content=f"kind: KubeletConfiguration\n{text}".encode())
    (found,) = scrub_raw(replace(RAW, entries=(entry,))).entries
    return (found.content or b"").decode().removeprefix("kind: KubeletConfiguration\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("topologyManagerPolcy: hush\n", "topologyManagerPolcy: left out\n"),
        ("TopologyManagerScope: pod\n", "TopologyManagerScope: pod\n"),
        ("containerlogmaxsize: hush\n", "containerlogmaxsize: left out\n"),
        ("podLogsDir: /hush\n", "podLogsDir: left out\n"),
        ("podLogsDir: ''\nimageMaximumGCAge: 0s\ncrashLoopBackOff: {}\n", "{}"),
        (
            "logging: {maxPodz: hush}\nauthentication: {x509: {clientCAfile: /hush}}\n",
            "logging:\n  maxPodz: left out\nauthentication:\n  x509:\n    clientCAfile: left out\n",
        ),
        ("maxPodz: {hush: 1}\n", "maxPodz: left out\n"),
        ("gpu-node-of-hush: 1\nstaticPodURL: https://hush\n7: hush\n", "{}"),
        ("authentication: {hush: 1}\nlogging: hush\nclusterDNS: [hush]\n", "{}"),
    ],
)
def test_odd_keys_of_the_kubelet_stay_without_value_where_their_names_tell_nothing(
    before: str, after: str
) -> None:
    assert kubelet_file(before) == after.removesuffix("{}")


def test_more_odd_keys_than_a_snapshot_has_do_not_stay() -> None:
    lines = "".join(f"maxPod{number}: 1\n" for number in range(200))
    assert kubelet_file(f"maxPods: 9\n{lines}") == "maxPods: 9\n"


def test_a_played_capture_has_the_odd_keys_of_the_node(tmp_path: Path) -> None:
    text = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
    odd = "topologyManagerPolcy: x\nmaxpods: 1\nmemorySwap: {swapbehavior: x}\npodLogsDir: /x\n"
    entry = Entry(path=CONFIG, content=f"{text}{odd}".encode())
    before = read_whole(tmp_path / "a", {CONFIG: f"{text}{odd}"})
    (cut,) = scrub_raw(replace(RAW, entries=(entry,))).entries
    after = read_whole(tmp_path / "b", {CONFIG: (cut.content or b"").decode()})
    assert len(before.odd_keys or ()) == 4
    assert after == before


def test_raw_texts_and_snapshot_have_the_same_names() -> None:
    raw = scrub_raw(RAW)
    contents = {entry.path: entry.content or b"" for entry in raw.entries}
    assert f"nvmlDeviceGetUUID 0 = 0 {raw.snapshot.gpus[0].uuid}\n" in raw.nvml
    assert f"nvmlDeviceGetSerial 0 = 0 {raw.snapshot.gpus[0].serial}\n" in raw.nvml
    hca = (raw.snapshot.hcas or ())[0]
    assert contents["sys/b/node_guid"] == f"{hca.node_guid}\n".encode()
    named = (raw.snapshot.hcas or ())[1].name
    assert f"sys/class/infiniband/{named}" in contents
    assert named.startswith("rocex")


KUBELET = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    "topologyManagerPolicy: restricted\nstaticPodURLHeader: {Authorization: [Bearer s3cr3t]}\n"
)


@pytest.mark.parametrize(
    "content",
    [
        f"{KUBELET}# caf\xe9\n".encode("latin-1"),
        f"{KUBELET}# \x07\n".encode(),
        f"{KUBELET}\t# x\n".encode(),
        f"- {KUBELET}".encode(),
        f"{KUBELET}x: *unknown\n".encode(),
        b"[" * 100_000 + KUBELET.encode(),
        KUBELET.replace("KubeletConfiguration", "Config").encode(),
        b"password: s3cr3t",
    ],
)
def test_a_file_that_cannot_be_read_is_left_out_and_said_to_be(content: bytes) -> None:
    entry = Entry(path="etc/kubernetes/kubelet.conf", content=content)
    raw = scrub_raw(replace(RAW, entries=(entry,)))
    assert raw.entries == ()
    (said,) = [line for line in raw.left_out if "kubelet.conf" in line]
    assert ": left out: not " in said
    assert "s3cr3t" not in str(raw)


@pytest.mark.parametrize(
    "more",
    [
        *("", "x: =\n", "x: 2026-13-45\n", f"x: {'9' * 5000}\n", "x: !foo 1\n", "...\n"),
        *("---\n", "---\nkind: Other\nstaticPodURL: s3cr3t\n", "--- {[ s3cr3t\n"),
    ],
)
def test_a_file_that_discovery_reads_is_kept_without_comments_and_other_keys(more: str) -> None:
    found = kubelet_file(f"# jane\ntopologyManagerPolicy: 'on'\n{more}providerID: aws-jane\n")
    assert found == 'topologyManagerPolicy: "on"\n'


@pytest.mark.parametrize("path", ["sys/class/dmi/id/product_serial", "proc/8/environ", "x"])
def test_a_file_without_a_step_is_left_out(path: str) -> None:
    raw = scrub_raw(replace(RAW, entries=(Entry(path=path, content=b"s3cr3t"),)))
    assert raw.entries == ()
    assert any("left out" in line for line in raw.left_out)


def test_names_of_interfaces_and_paths_are_replaced_alike() -> None:
    entries = (
        Entry(path="sys/a/net/acme-rail0/mtu", content=b"9000\n"),
        Entry(path="sys/a/net/acme-rail0", content=None),
        Entry(path="mnt/acme/kubelet.yaml", content=f"{KUBELET}".encode()),
        Entry(path="proc/7/cmdline", content=b"kubelet\0--config=/mnt/acme/kubelet.yaml\0"),
        Entry(path="etc/kubelet.yaml", target="../mnt/acme/kubelet.yaml"),
    )
    raw = scrub_raw(replace(RAW, nvml="acme\n", entries=entries))
    assert "acme" not in raw.nvml + str(raw.entries) + str(raw.left_out)
    interface, _, place, command, link = raw.entries
    assert interface.path == "sys/a/net/network-0/mtu"
    assert place.path.endswith(".yaml")
    assert (command.content or b"").decode() == f"kubelet\0--config=/{place.path}\0"
    assert link.target == f"../{place.path}"


@pytest.mark.parametrize("host", ["node1", "cpu0", "static", "vendor", "nvidia"])
def test_a_host_with_the_name_of_a_kernel_file_destroys_no_path(host: str) -> None:
    entries = (
        Entry(path="sys/devices/system/node/node1/cpulist", content=b"1\n"),
        Entry(path="sys/devices/system/cpu/cpu0/online", content=b"1\n"),
        Entry(path="sys/bus/pci/devices/0000:1b:00.0/vendor", content=b"0x10de\n"),
        Entry(path="proc/driver/nvidia/version", content=b"NVRM version: 580\n"),
    )
    raw = RawCapture(nvml="", entries=entries, snapshot=Snapshot(node=host), left_out=())
    after = scrub_raw(raw, (host,))
    assert after.entries == entries
    assert after.snapshot.node == "node"


@pytest.mark.parametrize("name", ["acm", "acmefabric0"])
def test_short_names_of_interfaces_are_replaced_in_archive_and_snapshot(name: str) -> None:
    device = "sys/devices/pci0000:00/0000:1b:00.0"
    entries = (
        Entry(path=f"{device}/net/{name}/mtu", content=b"9000\n"),
        Entry(path=f"sys/class/net/{name}", target=f"../../{device[4:]}/net/{name}"),
        Entry(path=f"{device}/ports/1/gid_attrs/ndevs/0", content=f"{name}\n".encode()),
    )
    gid = Gid(index=0, gid=GIDS[0], netdev=name)
    hca = Hca(name="mlx5_0", ports=(HcaPort(number=1, gids=(gid,)),))
    raw = RawCapture(nvml="", entries=entries, snapshot=Snapshot(hcas=(hca,)), left_out=())
    after = scrub_raw(raw)
    assert name not in str(after)
    assert after.entries[2].content == b"network-0\n"
    assert after.entries[1].target == f"../../{device[4:]}/net/network-0"


def test_short_identifiers_that_differ_still_differ() -> None:
    for originals in (
        [f"{gpu}-{part}" for gpu in range(8) for part in range(7)],
        [f"{gpu}::{replica}" for gpu in range(8) for replica in range(4)],
        list("abcdefgh"),
    ):
        substitutes = Substitutes()
        assert len({substitutes.of("device id", one) for one in originals}) == len(originals)


def test_names_of_owners_below_opt_are_replaced() -> None:
    settings = KubeletSettings(source="/opt/acme-corp/kubelet/config.yaml")
    after, _ = scrubbed(Snapshot(kubelet=settings), Substitutes())
    assert after.kubelet is not None
    assert after.kubelet.source == "/opt/path-0/kubelet/config.yaml"
