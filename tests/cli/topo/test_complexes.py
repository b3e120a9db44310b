"""`topo complexes`: which GPUs and NICs belong together, and what is wrong with their ports."""

import json
import subprocess
from pathlib import Path

from nodetopo.model.codec import encode
from tests.cli.conftest import Cli
from tests.tools.importers.rdma_topo import parse_rdma_topo
from tests.tools.importers.rdma_topo_text import Function, changed, data_direct, inline, text

COMMAND = ("topo", "complexes")


def snapshot(functions: tuple[Function, ...]) -> str:
    """Return a snapshot file of a machine in words."""
    return encode(parse_rdma_topo(text(functions)))


def test_complexes_that_rdma_topo_finds_well_are_found_well(cli: Cli) -> None:
    done = cli(*COMMAND, "--snapshot", "-", stdin=snapshot(data_direct(count=1)))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    first, last = lines[1].split("0008:03:00.0")
    assert first.split() == ["0", "data-direct", "0", "GPU0", "mlx5_0"]
    assert last.split() == ["100", "1003", "100", "no"]
    assert "WRONG" not in done.out
    assert "wrong:" not in done.out


def test_a_wrong_port_is_marked_explained_and_corrected(cli: Cli) -> None:
    machine = changed(data_direct(count=1), "0008:02:00.0", acs=0x1D)
    done = cli(*COMMAND, "--snapshot", "-", stdin=snapshot(machine))
    (row,) = (line for line in done.out.splitlines() if line.startswith("0008:02:00.0"))
    assert row.endswith("0011101  xx110x1   WRONG")
    assert "wrong: ConnectX switch port 0008:02:00.0, to Data Direct: " in done.out
    (bare,) = (line for line in done.out.splitlines() if line.startswith("to set the flags"))
    value = bare.removeprefix("to set the flags at boot: pci=config_acs=")
    assert value.startswith("xx111x0@0008:00:00.0;")
    assert f'/etc/default/grub: pci=config_acs=\\"{value}\\"' in done.out


def test_the_line_for_grub_reaches_the_kernel_whole(cli: Cli, tmp_path: Path) -> None:
    """A shell reads it as grub-mkconfig reads its settings, and then as GRUB reads its script."""
    machine = changed(data_direct(count=1), "0008:02:00.0", acs=0x1D)
    lines = cli(*COMMAND, "--snapshot", "-", stdin=snapshot(machine)).out.splitlines()
    (bare,) = (line for line in lines if line.startswith("to set the flags"))
    (line,) = (line for line in lines if "/etc/default/grub" in line)
    settings = tmp_path / "grub"
    settings.write_text(f'GRUB_CMDLINE_LINUX="{line.partition(": ")[2]}"\n', "ascii")
    script = f'. {settings}; eval "printf %s $GRUB_CMDLINE_LINUX"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == bare.partition(": ")[2]


def test_what_the_node_is_for_can_be_said(cli: Cli) -> None:
    machine = snapshot(inline())
    asked = {
        flag: json.loads(cli(*COMMAND, *flag, "--snapshot", "-", "-o", "json", stdin=machine).out)
        for flag in ((), ("--virt",), ("--no-virt",))
    }
    assert {flag: bool(it["faults"]) for flag, it in asked.items()} == {
        (): False,
        ("--virt",): True,
        ("--no-virt",): False,
    }
    assert asked["--virt",]["for_virtual_machines"] is True


def test_a_node_without_gpus_and_nics_together_says_so(cli: Cli) -> None:
    done = cli(*COMMAND, "--machine", "l40s-pcie-4", "-o", "short")
    assert done.out == "no GPU shares a switch or a NUMA node with an NIC\n"


def test_a_dump_of_rdma_topo_is_named_and_a_capture_suggested(cli: Cli) -> None:
    done = cli(*COMMAND, "--nccl-xml", "-", stdin=text(inline()))
    assert done.code == 2
    assert "this is a dump of `rdma_topo` — run `nodetopo capture -o FILE`" in done.err
