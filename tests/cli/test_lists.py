"""Lists of devices: names by comma and ranges."""

import pytest

from nodetopo.cli.lists import device_names
from nodetopo.errors import InputError
from tests.cli.conftest import Cli

UUID = "GPU-00000140-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["0-3"], "0 1 2 3"),
        (["GPU0-GPU2", "GPU5-6"], "GPU0 GPU1 GPU2 GPU5 GPU6"),
        (["gpu1-GPU2"], "gpu1 gpu2"),
        (["0, 2-3 ,,7"], "0 2 3 7"),
        (["mlx5_0-mlx5_1,mlx5_bond_0"], "mlx5_0 mlx5_1 mlx5_bond_0"),
        (["4-4"], "4"),
        ([UUID, f"{UUID}::0"], f"{UUID} {UUID}::0"),
        (["0000:18:00.0,GPU0::3"], "0000:18:00.0 GPU0::3"),
        (["GPU0-mlx5_3", "0-", "-3", "a-b"], "GPU0-mlx5_3 0- -3 a-b"),
        ([], ""),
    ],
)
def test_names_and_ranges_by_comma(arguments: list[str], names: str) -> None:
    assert list(device_names(arguments)) == names.split()


@pytest.mark.parametrize(
    ("text", "cause"),
    [("3-0", "runs backwards"), ("0-99999", "is too long")],
)
def test_a_range_that_means_nothing_is_refused(text: str, cause: str) -> None:
    with pytest.raises(InputError, match=cause):
        list(device_names([text]))


def test_every_list_of_devices_takes_ranges(cli: Cli) -> None:
    machine = ("--machine", "dgx-h100")
    flags = ("--available", "0-3,6-7", "--required", "GPU1-GPU2", "--degraded", "6-7")
    asked = cli("allocate", *machine, "--size", "4", *flags, "--why-not", "1-2,6-7", "-o", "short")
    assert asked.out.splitlines()[0] == "GPU0 GPU1 GPU2 GPU3"
    assert asked.out.splitlines()[1].startswith("not GPU1 GPU2 GPU6 GPU7: loses on degraded GPUs")
    job = ("nccl", "env", *machine, "-o", "json")
    ranges = cli(*job, "--gpus", "0-3", "--hcas", "mlx5_0-3")
    names = cli(*job, "--gpus", "0,1,2,3", "--hcas", "mlx5_0,mlx5_1,mlx5_2,mlx5_3")
    assert (ranges.code, ranges.out) == (0, names.out)


def test_a_range_names_no_gpu_that_the_node_lacks(cli: Cli) -> None:
    done = cli("allocate", "--machine", "dgx-h100", "--size", "2", "--available", "6-9")
    assert (done.code, done.out) == (2, "")
    assert "unknown GPU '8'" in done.err


@pytest.mark.parametrize("name", ["DGX-H100", "Dgx-H100", " dgx-h100"])
def test_a_machine_is_found_in_any_case(cli: Cli, name: str) -> None:
    assert cli("labels", "--machine", name).out == cli("labels", "--machine", "dgx-h100").out


def test_a_machine_of_a_similar_name_is_suggested_in_any_case(cli: Cli) -> None:
    done = cli("labels", "--machine", "DGXH100")
    assert done.code == 2
    assert "unknown machine 'DGXH100' — did you mean 'dgx-h100'?" in done.err


def test_gpus_in_mig_mode_are_not_handed_out_whole_by_default(cli: Cli) -> None:
    mig = ("allocate", "--machine", "hgx-h100-mig", "-o", "short")
    said = "note: GPU0, GPU1 and GPU2 are in MIG mode and left out"
    five = cli(*mig, "--size", "5")
    assert five.out == "GPU3 GPU4 GPU5 GPU6 GPU7\n"
    assert five.err.startswith(said)
    eight = cli(*mig, "--size", "8")
    assert (eight.code, eight.out) == (2, "")
    assert said in eight.err
    assert "only 5 are available" in eight.err
    whole = cli(*mig, "--size", "8", "--available", "0-7")
    assert (whole.out.split(), whole.err) == ([f"GPU{gpu}" for gpu in range(8)], "")
    part = cli(*mig, "--size", "3", "--mig", "1g.10gb")
    assert (part.out, part.err) == ("3 of GPU0\n", "")
    replicas = cli(*mig, "--size", "6", "--replicas", "1")
    assert (replicas.code, replicas.err.startswith(said)) == (2, True)
