"""`explain-claim`, from the command line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from nodetopo.machines import bundled
from tests.cli.conftest import Cli
from tests.cli.fake_dra import DraApi, write_list
from tests.kubeapi.fake_api_server import serving
from tests.tools.cluster.claimed import claim, exported, plain, same_numa_node
from tests.tools.cluster.export.dra_machines import slices

API = "/apis/resource.k8s.io/v1"
V100 = bundled.machine("dgx-1v")
SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs/reference/schema/explain-claim.json").read_text("utf-8")
)

JOB = claim("job", plain(2), ["gpu-0", "gpu-5"])
GOOD = claim("good", exported(V100, 2), ["gpu-1", "gpu-2"], request="gpus/gpu-1-2", at=7)
WAITING = claim("waiting", same_numa_node(4))
GONE = claim("gone", plain(1), ["gpu-9"])
PUBLISHED = slices(V100, "n1", seed=3)

TABLE = """\
batch/job   a better set of GPUs was free
  on n1, known from its slices, and a bundled machine with the same GPUs

  REQUEST  DEVICE  GPU   PCI           NUMA NODE  NEAREST
  gpus     gpu-0   GPU0  0000:06:00.0  0          -
  gpus     gpu-5   GPU5  0000:86:00.0  1          -

         GPUs       GB/s  NUMA NODES  SOCKETS  WORTH LEFT
  given  GPU0 GPU5  7     2           2        185.6
  best   GPU0 GPU3  50    1           1        350
free  GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7
why
  the set loses on bandwidth, 7 against 50
  the allocator compares no sets: it takes the first devices that meet the claim
  the request gpus has no alternatives to prefer some GPUs by
  its devices are the first free ones in the order of the slices
  NVIDIA's driver publishes no NVLinks, and its GPUs in no order
change
  claim by alternatives for this machine: `nodetopo export --for dra`
  or let the driver nodetopo.io publish sets of GPUs, the best first
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    """Return the flags that name files of the cluster."""
    slices_ = write_list(tmp_path / "slices.json", PUBLISHED)
    claims = write_list(tmp_path / "claims.json", [JOB, GOOD, WAITING, GONE])
    return "--slices", slices_, "--claims", claims


def test_a_table_says_what_it_got_and_what_was_better(cli: Cli, files: tuple[str, ...]) -> None:
    found = cli("explain-claim", "batch/job", *files)
    assert (found.code, found.out, found.err) == (1, TABLE, "")


@pytest.mark.parametrize(
    ("name", "code", "verdict"),
    [("job", 1, "worse"), ("good", 0, "best"), ("waiting", 1, "waiting"), ("gone", 3, "unknown")],
)
def test_the_exit_status_is_the_verdict(
    cli: Cli, files: tuple[str, ...], name: str, code: int, verdict: str
) -> None:
    found = cli("explain-claim", f"batch/{name}", *files, "-o", "json")
    plain_ = json.loads(found.out)
    Draft202012Validator(SCHEMA).validate(plain_)
    assert (found.code, plain_["verdict"]) == (code, verdict)
    assert yaml.safe_load(cli("explain-claim", f"batch/{name}", *files, "-o", "yaml").out) == plain_


def test_the_short_form_is_the_verdict(cli: Cli, files: tuple[str, ...]) -> None:
    out = cli("explain-claim", "batch/good", *files, "-o", "short").out
    assert out == "batch/good   no better set of GPUs was free\n"


def test_a_waiting_claim_has_a_row_for_each_node(cli: Cli, files: tuple[str, ...]) -> None:
    out = cli("explain-claim", "batch/waiting", *files).out
    head, row = (line.split() for line in out.splitlines()[2:4])
    assert head[:6] == ["REQUEST", "NODE", "WANTED", "FREE", "IN", "USE"]
    assert row[:6] == ["gpus", "n1", "4", "4", "4", "0"]
    assert "batch/good, batch/job" in out


def test_a_claim_in_a_file_of_its_own_and_nothing_of_others(cli: Cli, tmp_path: Path) -> None:
    one, published = tmp_path / "one.yaml", write_list(tmp_path / "s.json", PUBLISHED)
    one.write_text(yaml.safe_dump(JOB))
    found = cli("explain-claim", "--claim", str(one), "--slices", published)
    assert found.code == 1
    assert "unknown\n  what other claims have: all else counts as free\n" in found.out


def test_the_machine_may_be_given(
    cli: Cli, files: tuple[str, ...], snapshot_file: Callable[[str], Path]
) -> None:
    machine = json.loads(
        cli("explain-claim", "batch/job", *files, "--machine", "dgx-1v", "-o", "json").out
    )
    assert machine["source"] == "the machine dgx-1v"
    file = str(snapshot_file("dgx-1v"))
    snapshot = cli("explain-claim", "batch/job", *files, "--snapshot", file, "-o", "json")
    assert json.loads(snapshot.out)["given"] == machine["given"]


def test_a_machine_with_other_gpus_does_not_know_the_devices(
    cli: Cli, files: tuple[str, ...]
) -> None:
    found = cli("explain-claim", "batch/job", *files, "--machine", "dgx-h100")
    assert found.code == 3
    assert "the GPUs behind its devices: nothing that is known of its node has them" in found.out


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("dra.net/numaNode", {"int": 1}, "1"),
        ("numaNode", {"int": 1}, "1"),
        ("resource.kubernetes.io/numaNode", {"ints": [1, 0]}, "0 1"),
        ("dra.net/numaNode", {"int": -1}, "?"),
    ],
)
def test_a_nic_has_the_numa_node_that_its_driver_publishes(
    cli: Cli, tmp_path: Path, name: str, value: dict[str, Any], shown: str
) -> None:
    published = slices(bundled.machine("dgx-h100"), "n1", nics=True)
    (nic, *_others) = published[1]["spec"]["devices"]
    del nic["attributes"]["resource.kubernetes.io/numaNode"]
    nic["attributes"][name] = value
    job = claim("job", plain(1), [nic["name"]], request="nics", driver="dra.net")
    known = write_list(tmp_path / "s.json", published)
    files = ("--slices", known, "--claims", write_list(tmp_path / "c.json", [job]))
    (row,) = (
        line
        for line in cli("explain-claim", "batch/job", *files).out.splitlines()
        if nic["name"] in line
    )
    assert re.split(r"  +", row.strip())[4] == shown


def test_the_cluster_is_asked_where_no_file_is_named(cli: Cli, tmp_path: Path) -> None:
    lists: dict[str, list[Any]] = {
        f"{API}/resourceslices": PUBLISHED,
        f"{API}/resourceclaims": [JOB, GOOD, WAITING],
    }
    api = DraApi(node="n1", lists=lists)
    with serving(api, tmp_path) as kubeconfig:
        found = cli("explain-claim", "batch/job", "--kubeconfig", str(kubeconfig))
    assert (found.code, found.out) == (1, TABLE)
    assert api.writes == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "no claim is named — name it as NAMESPACE/NAME"),
        (("batch/job", "--claims", "-"), "a claim alone does not say what was free"),
        (("--claim", "-", "--slices", "-"), "standard input can be read only once"),
    ],
)
def test_what_is_missing_is_bad_input(cli: Cli, arguments: tuple[str, ...], error: str) -> None:
    found = cli("explain-claim", *arguments)
    assert found.code == 2
    assert error in found.err


def test_a_claim_that_is_not_there_is_bad_input(cli: Cli, files: tuple[str, ...]) -> None:
    found = cli("explain-claim", "job", *files)
    assert found.code == 2
    assert found.err.startswith("error: no ResourceClaim default/job in ")
    several = cli("explain-claim", *files)
    assert several.code == 2
    assert "has 4 claims — name one as NAMESPACE/NAME" in several.err


def test_on_the_claims_own_node_its_machine_is_read(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists: dict[str, list[Any]] = {
        f"{API}/resourceslices": PUBLISHED,
        f"{API}/resourceclaims": [JOB],
    }
    monkeypatch.setenv("NODETOPO_NODE_NAME", "n1")
    monkeypatch.setenv("NODETOPO_MACHINE", "dgx-1v")
    with serving(DraApi(node="n1", lists=lists), tmp_path) as kubeconfig:
        arguments = ("explain-claim", "batch/job", "--kubeconfig", str(kubeconfig), "-o", "json")
        here = json.loads(cli(*arguments).out)
        monkeypatch.setenv("NODETOPO_NODE_NAME", "n2")
        elsewhere = json.loads(cli(*arguments).out)
    assert (here["source"], here["verdict"]) == ("this node", "worse")
    assert elsewhere["source"] == "its slices, and a bundled machine with the same GPUs"
