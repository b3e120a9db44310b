"""To which CPUs the interrupts of HCAs go."""

import pytest

from nodetopo.model.hca import Hca
from nodetopo.model.host import Interrupts
from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress
from nodetopo.probes.host.settings import hca_interrupts
from tests.probes.host.host_parts import HostTree, files_of

ADDRESS = "0000:1b:00.0"
HCA = Hca(name="mlx5_0", pci=PciAddress.parse(ADDRESS))


def _vector(number: int, handler: str, effective: str | None, chosen: str = "0-3") -> str:
    text = f"proc/irq/{number}/\n  smp_affinity_list = {chosen}\n  node = 0\n"
    text += "" if effective is None else f"  effective_affinity_list = {effective}\n"
    return text + (f"proc/irq/{number}/{handler}/\n" if handler else "")


def _host(*vectors: str) -> str:
    numbers = [vector.split("/")[2] for vector in vectors]
    names = "".join(f"  {number} = msix\n" for number in numbers)
    return f"sys/bus/pci/devices/{ADDRESS}/msi_irqs/\n{names}" + "".join(vectors)


def _found(tree: str, host_tree: HostTree, *hcas: Hca) -> tuple[Interrupts, ...] | None:
    root = host_tree(tree)
    return hca_interrupts(files_of(root / "sys"), files_of(root / "proc"), hcas or (HCA,))


def test_the_cpus_of_an_hca_are_those_of_all_its_interrupts(host_tree: HostTree) -> None:
    tree = _host(
        _vector(41, "mlx5_comp0@pci:0000:1b:00.0", "2"),
        _vector(42, "mlx5_comp1@pci:0000:1b:00.0", "5-6"),
        _vector(43, "eth0-3", None, chosen="8"),
        _vector(44, "eth0-4", "", chosen="9"),
    )
    assert _found(tree, host_tree) == (
        Interrupts(hca="mlx5_0", cpus=CpuSet.parse("2,5-6,8-9"), numbers=4),
    )


@pytest.mark.parametrize("handler", ["", "mlx5_async0@pci:0000:1b:00.0", "irdma-ens1-AEQ"])
def test_an_interrupt_without_traffic_says_nothing(handler: str, host_tree: HostTree) -> None:
    tree = _host(_vector(41, handler, "0"), _vector(42, "mlx5_comp0@pci:x", "7"))
    assert _found(tree, host_tree) == (Interrupts(hca="mlx5_0", cpus=CpuSet.of([7]), numbers=1),)


def test_hcas_of_one_function_are_one(host_tree: HostTree) -> None:
    second = Hca(name="mlx5_1", pci=HCA.pci)
    found = _found(_host(_vector(41, "eth0", "1")), host_tree, HCA, second, Hca(name="rxe0"))
    assert found == (Interrupts(hca="mlx5_0", cpus=CpuSet.of([1]), numbers=1),)


def test_an_hca_without_interrupts_is_left_out(host_tree: HostTree) -> None:
    assert _found("sys/\nproc/irq/\n", host_tree) == ()


def test_a_proc_without_interrupts_is_unknown(host_tree: HostTree) -> None:
    assert _found("sys/\nproc/\n", host_tree) is None
