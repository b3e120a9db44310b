"""`export --for dra`, from the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from nodetopo.cli.export_claims import release_of
from nodetopo.machines import bundled
from nodetopo.model.codec import encode
from tests.cli.conftest import Cli
from tests.cli.fake_dra import DraApi, write_list
from tests.kubeapi.fake_api_server import serving
from tests.tools.cluster.export.dra_machines import slices

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
V100, L40S = bundled.machine("dgx-1v"), bundled.machine("l40s-pcie-4")


def names(text: str) -> list[str]:
    return [item["metadata"]["name"] for item in yaml.safe_load_all(text)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """Return files of two Nodes and of what DRA drivers publish there."""
    published = [*slices(V100, "n1"), *slices(L40S, "n2", seed=1)]
    nodes = [
        {"kind": "Node", "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}}}
        for name, product in (("n1", "V100"), ("n2", "L40S"))
    ]
    return write_list(tmp_path / "slices.json", published), write_list(tmp_path / "n.json", nodes)


def test_templates_of_a_machine_are_yaml_documents_that_kubectl_can_apply(cli: Cli) -> None:
    found = cli("export", "--for", "dra", "--machine", "l40s-pcie-4", "--name", "team")
    assert found.code == 0
    assert names(found.out) == [f"team-4x-l40s-{size}" for size in (1, 2, 4)]


def test_as_json_templates_are_one_list(cli: Cli) -> None:
    arguments = ("export", "--for", "dra", "--machine", "l40s-pcie-4", "-o", "json")
    found = json.loads(cli(*arguments, "--sizes", "2", "--in-namespace", "batch").out)
    assert found["kind"] == "List"
    assert [it["metadata"]["namespace"] for it in found["items"]] == ["batch"]


def test_a_snapshot_is_a_machine(cli: Cli, snapshot_file: Callable[[str], Path]) -> None:
    file = str(snapshot_file("dgx-1v"))
    by_file = cli("export", "--for", "dra", "--snapshot", file)
    assert by_file.out == cli("export", "--for", "dra", "--machine", "dgx-1v").out


def test_slices_alone_are_enough(cli: Cli, files: tuple[str, str]) -> None:
    found = cli("export", "--for", "dra", "--slices", files[0], "--sizes", "2")
    assert names(found.out) == ["gpu-topology-4x-l40s-2", "gpu-topology-8x-tesla-v100-sxm2-32gb-2"]
    assert "note: 4x NVIDIA L40S: for n2\n" in found.err


def test_nodes_add_their_labels_and_a_selector_leaves_the_others_out(
    cli: Cli, files: tuple[str, str]
) -> None:
    arguments = ("export", "--for", "dra", "--slices", files[0], "--nodes", files[1])
    whole = cli(*arguments, "--sizes", "2")
    assert "note: 4x NVIDIA L40S: for nodes with nvidia.com/gpu.product=L40S\n" in whole.err
    one = cli(*arguments, "--sizes", "2", "--selector", "nvidia.com/gpu.product=L40S")
    assert names(one.out) == ["gpu-topology-4x-l40s-2"]


def test_what_the_cluster_publishes_is_asked_of_the_api_server(cli: Cli, tmp_path: Path) -> None:
    api = DraApi(node="n1", lists={SLICES: slices(V100, "n1")})
    with serving(api, tmp_path) as kubeconfig:
        found = cli("export", "--for", "dra", "--sizes", "2", "--kubeconfig", str(kubeconfig))
    assert names(found.out) == ["gpu-topology-8x-tesla-v100-sxm2-32gb-2"]
    assert api.writes == 0


def test_an_api_server_without_slices_is_too_old(cli: Cli, tmp_path: Path) -> None:
    with serving(DraApi(), tmp_path) as kubeconfig:
        found = cli("export", "--for", "dra", "--kubeconfig", str(kubeconfig))
    assert found.code == 3
    assert found.err.endswith("is not there — Kubernetes 1.34 or later serves them\n")


def test_gpus_that_no_bundled_machine_has_are_ranked_by_place_and_that_is_said(
    cli: Cli, tmp_path: Path
) -> None:
    gpus = tuple(replace(gpu, product="NVIDIA X") for gpu in V100.gpus)
    file = write_list(tmp_path / "s.json", slices(replace(V100, gpus=gpus), "n1"))
    found = cli("export", "--for", "dra", "--slices", file, "--sizes", "2")
    assert "its NVLinks are not published and no bundled machine has this layout" in found.err
    (template,) = yaml.safe_load_all(found.out)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert [it["name"] for it in request["firstAvailable"]][-2:] == ["one-numa-node", "any"]


def test_nothing_to_claim_is_a_warning_and_no_failure(cli: Cli, tmp_path: Path) -> None:
    file = write_list(tmp_path / "s.json", [])
    found = cli("export", "--for", "dra", "--slices", file)
    assert (found.code, found.out) == (0, "")
    assert found.err.startswith("warning: nothing to export: no node publishes GPUs of the driver")
    assert cli("export", "--for", "dra", "--slices", file, "--strict").code == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--machine", "dgx-1v", "--levels", "a"), "--levels does not go with --for dra"),
        (("--machine", "dgx-1v", "--size", "4"), "--size does not go with --for dra"),
        (("--machine", "dgx-1v", "--sizes", "2,x"), "--sizes '2,x'"),
        (("--machine", "dgx-1v", "--sizes", "0"), "--sizes '0'"),
        (("--machine", "dgx-1v", "--sizes", "9"), "no claim for 9 GPUs — ask for 1 to 8"),
        (("--machine", "dgx-1v", "--form", "hypernodes"), "unknown form 'hypernodes' of dra"),
        (("--machine", "dgx-1v", "--name", "A"), "not a usable name: 'A'"),
        (("--machine", "dgx-1v", "--selector", "a"), "--selector does not go with one machine"),
        (("--nodes", "FILE"), "Nodes alone do not say which GPUs a node has"),
        (("--slices", "FILE", "--selector", "a"), "--selector chooses Nodes"),
    ],
)
def test_what_contradicts_itself_is_bad_input(
    cli: Cli, arguments: tuple[str, ...], error: str
) -> None:
    found = cli("export", "--for", "dra", *arguments)
    assert found.code == 2
    assert error in found.err


def test_flags_of_claims_are_for_claims(cli: Cli) -> None:
    found = cli("export", "--for", "kai", "--machine", "dgx-1v")
    assert (found.code, found.err) == (2, "error: --machine is for --for dra — leave it out\n")


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"kind": "Node"}, "this is a Node of Kubernetes — `nodetopo doctor --nodes FILE`"),
        (
            {"apiVersion": "resource.k8s.io/v1beta1"},
            "of the API 'resource.k8s.io/v1beta1' — save it from Kubernetes 1.34 or later",
        ),
    ],
)
def test_a_file_of_something_else_is_refused(
    cli: Cli, tmp_path: Path, change: dict[str, Any], error: str
) -> None:
    file = write_list(tmp_path / "s.json", [{**slices(V100, "n1")[0], **change}])
    found = cli("export", "--for", "dra", "--slices", file)
    assert found.code == 2
    assert error in found.err


def test_a_snapshot_without_gpus_has_nothing_to_claim(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "empty.json"
    file.write_text(encode(replace(V100, gpus=(), nvlinks=(), pairs=())))
    found = cli("export", "--for", "dra", "--snapshot", str(file))
    assert found.code == 2
    assert "no GPU with a PCI address to claim" in found.err


def test_a_pool_that_lacks_slices_is_a_warning_and_in_no_claim(cli: Cli, tmp_path: Path) -> None:
    lacking, whole = slices(V100, "n1")[0], slices(L40S, "n2")[0]
    lacking["spec"]["pool"]["resourceSliceCount"] = 2
    file = write_list(tmp_path / "s.json", [lacking, whole])
    found = cli("export", "--for", "dra", "--slices", file, "--sizes", "2")
    assert names(found.out) == ["gpu-topology-4x-l40s-2"]
    assert "warning: the pool n1 of gpu.nvidia.com has 1 of 2 slices" in found.err


def test_pools_by_selector_are_for_the_nodes_that_they_select(cli: Cli, tmp_path: Path) -> None:
    (one,) = slices(V100, "rack")
    del one["spec"]["nodeName"]
    term = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["7"]}]}
    one["spec"]["nodeSelector"] = {"nodeSelectorTerms": [term]}
    file = write_list(tmp_path / "s.json", [one])
    arguments = ("export", "--for", "dra", "--slices", file, "--sizes", "2")
    alone = cli(*arguments)
    assert alone.out == ""
    assert "nothing to export: no pool of gpu.nvidia.com can be used" in alone.err
    assert "selects its nodes by nodeSelector: name the Nodes with --nodes" in alone.err
    nodes = [
        {"kind": "Node", "metadata": {"name": name, "labels": {"rack": rack}}}
        for name, rack in (("n1", "7"), ("n2", "8"))
    ]
    found = cli(*arguments, "--nodes", write_list(tmp_path / "n.json", nodes))
    assert "note: 8x Tesla V100-SXM2-32GB: for n" in found.err
    assert names(found.out) == ["gpu-topology-8x-tesla-v100-sxm2-32gb-2"]


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ({"major": "1", "minor": "37+"}, (1, 37)),
        ({"major": "1", "minor": "36"}, (1, 36)),
        ({"major": "1"}, None),
        ({}, None),
    ],
)
def test_the_release_is_that_of_the_api_server(
    version: dict[str, str], release: tuple[int, int] | None
) -> None:
    assert release_of(version) == release


def test_gpus_nics_and_cpus_are_one_claim(cli: Cli) -> None:
    arguments = ("--machine", "dgx-h100", "--with-nics", "--with-cpus", "--cpus", "6")
    found = cli("export", "--for", "dra", *arguments, "--sizes", "1")
    _, template = yaml.safe_load_all(found.out)
    assert template["metadata"]["name"] == "gpu-topology-8x-h100-80gb-hbm3-1-nics-cpus"
    requests = template["spec"]["spec"]["devices"]["requests"]
    assert [it["name"] for it in requests] == ["gpu-0", "nic-0", "cpus"]
    assert requests[2]["exactly"]["capacity"] == {"requests": {"dra.cpu/cpu": "6"}}
    assert "pods request the CPUs of their claim as cpu, too: 6 for each GPU" in found.err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--cpus", "4"), "--cpus is for --with-cpus"),
        (("--with-cpus", "--cpus", "0"), "--cpus 0"),
    ],
)
def test_a_number_of_cpus_that_says_nothing_is_bad_input(
    cli: Cli, arguments: tuple[str, ...], error: str
) -> None:
    found = cli("export", "--for", "dra", "--machine", "dgx-h100", *arguments)
    assert found.code == 2
    assert error in found.err


def test_gpus_without_a_pci_address_are_no_reason_to_look_for_the_driver(
    cli: Cli, tmp_path: Path
) -> None:
    (one,) = slices(V100, "n1")
    for device in one["spec"]["devices"]:
        del device["attributes"]["resource.kubernetes.io/pciBusID"]
    found = cli("export", "--for", "dra", "--slices", write_list(tmp_path / "s.json", [one]))
    assert "no device of gpu.nvidia.com is a whole GPU with a PCI address" in found.err
    assert "resource.kubernetes.io/pciBusID" in found.err
