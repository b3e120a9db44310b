"""`nodetopo nccl env` in each of its formats."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from nodetopo.model.snapshot import Snapshot
from tests.cli.conftest import Cli
from tests.cli.outcome import MACHINES

Written = Callable[[Snapshot], str]

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "schema" / "nccl-env.json"
TWO = ("nccl", "env", "--machine", "dgx-h100", "--gpus", "5,GPU2")
EXPECTED = {
    "NCCL_IB_HCA": "=mlx5_2:1,mlx5_5:1",
    "NVSHMEM_HCA_LIST": "mlx5_2:1,mlx5_5:1",
    "VLLM_GPU_NIC_PCIE_MAPPING": "0000:52:00.0=0000:4f:00.0,0000:c3:00.0=0000:c0:00.0",
    "VLLM_NIC_SELECTION_VARS": "UCX_NET_DEVICES:1",
}


def test_a_shell_takes_the_short_form(cli: Cli) -> None:
    outcome = cli(*TWO, "-o", "short")
    assert outcome.code == 0
    script = outcome.out + "".join(f'echo "{name}=${name}"\n' for name in EXPECTED)
    done = subprocess.run(
        ["sh"], input=script, capture_output=True, text=True, timeout=60, check=True, env={}
    )
    assert done.stdout.splitlines() == [f"{name}={value}" for name, value in EXPECTED.items()]


def test_a_path_with_a_quote_is_one_value_for_a_shell(cli: Cli) -> None:
    only = ("--only", "NCCL_TOPO_FILE", "--topo-file", "/it's a file.xml", "-o", "short")
    script = cli(*TWO, *only).out + 'printf %s "$NCCL_TOPO_FILE"'
    done = subprocess.run(
        ["sh"], input=script, capture_output=True, text=True, timeout=60, check=True, env={}
    )
    assert done.stdout == "/it's a file.xml"


def test_a_pod_takes_the_list(cli: Cli) -> None:
    document = yaml.safe_load(cli(*TWO, "-o", "pod").out)
    assert {one["name"]: one["value"] for one in document["env"]} == EXPECTED
    none = yaml.safe_load(cli("nccl", "env", "--machine", "l40s-pcie-4", "-o", "pod").out)
    assert none == {"env": []}


def test_nccl_takes_the_file(cli: Cli) -> None:
    """By the rules of setEnvFile: lines, comments at their beginning, the first `=` divides."""
    text = cli("nccl", "env", "--machine", "hgx-h200", "--nccl-version", "2.20.3", "-o", "conf").out
    variables = {}
    for line in text.splitlines():
        assert len(line) < 4095
        if not line.startswith("#"):
            name, _, value = line.partition("=")
            assert len(value) <= 1023
            variables[name] = value
    assert variables.keys() == {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX"}
    assert variables["NCCL_IB_HCA"].startswith("=mlx5_4:1,")
    assert variables["NCCL_IB_GID_INDEX"] == "3"


def test_a_value_that_a_file_cannot_hold_is_an_error(cli: Cli, written: Written) -> None:
    dgx = machine("dgx-h100")
    hcas = tuple(
        replace(
            hca,
            name=f"{'m' * 60}{at}",
            ports=tuple(replace(hca.ports[0], number=n) for n in (1, 2)),
        )
        for at, hca in enumerate(dgx.hcas or ())
    )
    path = written(replace(dgx, hcas=hcas))
    outcome = cli("nccl", "env", "--snapshot", path, "-o", "conf")
    assert (outcome.code, outcome.out) == (3, "")
    assert "NCCL_IB_HCA has 1024 characters, NCCL reads 1023 from a file" in outcome.err
    assert cli("nccl", "env", "--snapshot", path, "-o", "short").code == 0


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_prints_what_the_schema_promises(cli: Cli, name: str) -> None:
    for more in ((), ("--nccl-version", "2.19.3"), ("--topo-file", "/topo.xml")):
        outcome = cli("nccl", "env", "--machine", name, "-o", "json", *more)
        assert outcome.code == 0
        Draft202012Validator(json.loads(SCHEMA.read_text("utf-8"))).validate(
            json.loads(outcome.out)
        )


def test_the_json_says_why(cli: Cli) -> None:
    document = json.loads(cli(*TWO, "-o", "json").out)
    assert document["env"] == EXPECTED
    assert document["hcas"] == ["mlx5_2", "mlx5_5"]
    assert document["pairs"] == [
        {"gpu": "GPU2", "hca": "mlx5_2", "distance": "PXB"},
        {"gpu": "GPU5", "hca": "mlx5_5", "distance": "PXB"},
    ]
    by_name = {one["name"]: one for one in document["variables"]}
    assert by_name["NCCL_IB_GID_INDEX"]["value"] is None
    assert by_name["NCCL_IB_HCA"]["since"] == "2.5.6"


def test_the_table_has_what_to_set_and_what_not(cli: Cli) -> None:
    lines = cli("nccl", "env", "--machine", "hgx-h200", "--gpus", "0").out.splitlines()
    assert lines[:2] == ["GPU   HCA     DISTANCE", "GPU0  mlx5_4  PIX"]
    at = lines.index("leave unset")
    assert lines.index("set") < lines.index("  NCCL_IB_GID_INDEX=3") < at
    assert "    NCCL 2.3.5 to 2.20.5  the RoCE v2 entry" in "\n".join(lines[:at])
    assert "  NCCL_IB_GID_INDEX" in lines[at:]


def test_ucx_has_no_list_alongside_vllms_mapping_which_it_would_make_void(cli: Cli) -> None:
    every = json.loads(cli(*TWO, "-o", "json").out)
    (ucx,) = [one for one in every["variables"] if one["name"] == "UCX_NET_DEVICES"]
    assert ucx["value"] is None
    assert "vLLM sets it for each worker" in ucx["reason"]
    pair = ["--only", "UCX_NET_DEVICES,NVSHMEM_HCA_LIST"]
    assert "UCX_NET_DEVICES" in json.loads(cli(*TWO, *pair, "-o", "json").out)["env"]


def test_hcas_may_be_named(cli: Cli) -> None:
    named = cli(*TWO, "--hcas", "NIC7,mlx5_0", "--only", "UCX_NET_DEVICES", "-o", "short")
    assert named.out == "export UCX_NET_DEVICES='mlx5_0:1,mlx5_7:1'\n"


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (("--gpus", "9"), "unknown"),
        (("--hcas", "mlx5_99"), "unknown device 'mlx5_99'"),
        (("--hcas", "GPU0"), "--hcas: GPU0 is no HCA"),
        (("--nccl-version", "new"), "not a version of NCCL: 'new'"),
        (("--topo-file", "topo.xml"), "--topo-file: not an absolute path: 'topo.xml'"),
        (("--only", "UCX_NET_DEVICE"), "--only: unknown variable 'UCX_NET_DEVICE'"),
    ],
)
def test_what_is_not_there_is_one_line(cli: Cli, more: tuple[str, ...], error: str) -> None:
    outcome = cli("nccl", "env", "--machine", "dgx-h100", *more)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert error in outcome.err
    assert outcome.err.count("\n") == 1


def test_unread_hcas_are_no_answer(cli: Cli, written: Written) -> None:
    outcome = cli("nccl", "env", "--snapshot", written(replace(machine("dgx-h100"), hcas=None)))
    assert (outcome.code, outcome.out) == (3, "")
    assert "could not tell which HCAs there are" in outcome.err


def test_a_matrix_text_names_no_ports_and_sets_nothing(
    cli: Cli, topo_m_file: Callable[[str], Path]
) -> None:
    outcome = cli("nccl", "env", "--topo-m", str(topo_m_file("dgx-1v")), "-o", "json")
    document = json.loads(outcome.out)
    assert (outcome.code, document["env"]) == (0, {})
    assert "are not known" in document["variables"][0]["reason"]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Return a function that writes a snapshot and returns the path."""

    def write(snapshot: Snapshot) -> str:
        path = tmp_path / "node.json"
        path.write_text(encode(snapshot), encoding="utf-8")
        return str(path)

    return write


def test_rails_stand_behind_the_ports(cli: Cli) -> None:
    flags = ("nccl", "env", "--machine", "dgx-h100", "--only", "NCCL_IB_HCA", "-o", "short")
    hcas = [hca.name for hca in machine("dgx-h100").hcas or ()]
    lists = [
        "=" + ",".join(f"{name}:1{behind}" for name, behind in zip(hcas, behinds, strict=True))
        for behinds in ([""] * 8, [f":{at}" for at in range(8)])
    ]
    assert [cli(*flags, *more).out for more in ((), ("--rails",))] == [
        f"export NCCL_IB_HCA='{value}'\n" for value in lists
    ]
    assert cli(*flags, "--rails", "--nccl-version", "2.30.4").out == (
        f"export NCCL_IB_HCA='{lists[0]}'\n"
    )
