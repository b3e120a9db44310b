"""Devices as a person names them, and the way between two."""

import json
from typing import Any

import pytest

from nodetopo.drawing.devices import find, row_name
from nodetopo.machines.bundled import machine
from tests.cli.conftest import Cli

H100 = machine("dgx-h100")


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("3", "GPU3"),
        ("GPU3", "GPU3"),
        ("gpu3", "GPU3"),
        (str(H100.gpus[3].uuid), "GPU3"),
        (str(H100.gpus[3].pci), "GPU3"),
        ("61:00.0", "GPU3"),
        ("00000000:61:00.0", "GPU3"),
        ("NIC3", "NIC3"),
        ("nic3", "NIC3"),
        ("mlx5_3", "NIC3"),
        ("ibp94s0", "NIC3"),
        ("0000:5e:00.0", "NIC3"),
    ],
)
def test_a_device_answers_to_each_of_its_names(name: str, row: str) -> None:
    assert row_name(find(H100, name), H100) == row


def test_an_unknown_device_gets_a_suggestion(cli: Cli) -> None:
    outcome = cli("topo", "path", "GPU0", "mlx5_33", "--machine", "dgx-h100")
    assert (outcome.code, "did you mean 'mlx5_3'?" in outcome.err) == (2, True)


def test_a_device_has_no_way_to_itself(cli: Cli) -> None:
    outcome = cli("topo", "path", "GPU0", str(H100.gpus[0].uuid), "--machine", "dgx-h100")
    assert (outcome.code, outcome.out, outcome.err) == (
        2,
        "",
        "error: both names mean GPU0 — name two different devices\n",
    )


def test_a_way_under_one_switch_turns_there(cli: Cli) -> None:
    hops = _path(cli, "GPU0", "NIC0")["hops"]
    assert [(hop["what"], hop["pci"]) for hop in hops] == [
        ("GPU0", "0000:1b:00.0"),
        ("switch downstream port", "0000:1a:00.0"),
        ("switch upstream port", "0000:19:00.0"),
        ("switch downstream port", "0000:17:01.0"),
        ("turns at switch upstream port", "0000:16:00.0"),
        ("switch downstream port", "0000:17:00.0"),
        ("NIC0", "0000:18:00.0"),
    ]


def test_a_way_back_is_the_way_reversed(cli: Cli) -> None:
    there, back = _path(cli, "GPU0", "GPU4"), _path(cli, "GPU4", "GPU0")
    assert [hop["pci"] for hop in there["hops"]] == [hop["pci"] for hop in back["hops"]][::-1]


def test_a_way_across_sockets_names_the_link_between_them(cli: Cli) -> None:
    hops = _path(cli, "GPU0", "GPU4")["hops"]
    places = [(hop["what"], hop["numa"]) for hop in hops if hop["pci"] is None]
    assert places == [
        ("host bridge pci0000:15", 0),
        ("UPI between sockets 0 and 1", None),
        ("host bridge pci0000:97", 1),
    ]


@pytest.mark.parametrize(
    ("name", "bus"),
    [("dgx-1v", "QPI"), ("dgx-h100", "UPI")],
)
def test_the_link_between_sockets_has_its_makers_name(cli: Cli, name: str, bus: str) -> None:
    hops = _path(cli, "GPU0", "GPU5", name=name)["hops"]
    crossing = next(hop for hop in hops if hop["distance"] is not None)
    assert (crossing["what"], crossing["distance"]) == (f"{bus} between sockets 0 and 1", 21)


def test_nvlinks_are_counted_beside_the_pcie_way(cli: Cli) -> None:
    found = _path(cli, "GPU0", "GPU3", name="dgx-1v")
    assert (found["nvlink"]["links"], found["nvlink"]["through"], found["pcie"]) == (
        2,
        "direct",
        "PHB",
    )


def _path(cli: Cli, a: str, b: str, name: str = "dgx-h100") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        cli("topo", "path", a, b, "--machine", name, "-o", "json").out,
    )
    return found
