"""All composed machines."""

from functools import cache

from tests.compose import (
    a100_pcie_4,
    a100_sfvf,
    a100x4_snc2,
    a100x6_cross_socket,
    ac922,
    dgx_1v,
    dgx_2,
    dgx_a100,
    dgx_h100,
    dgx_station_gb300,
    gb200_nvl72,
    h100_broken,
    h100_mig,
    h100_vm,
    h200_nvl_4,
    hgx_a100_4,
    hgx_b200,
    hgx_h200,
    l4_edge,
    l4x10_one_root,
    l40s_pcie_4,
    rtxpro6000_pcie_8,
    v100_vm_phb,
)
from tests.compose.machine import Machine


@cache
def machines() -> tuple[Machine, ...]:
    """Return them, the bundled default first."""
    return (
        dgx_h100.machine(),
        dgx_1v.machine(),
        dgx_2.machine(),
        dgx_a100.machine(),
        gb200_nvl72.machine(),
        hgx_a100_4.machine(),
        hgx_b200.machine(),
        l40s_pcie_4.machine(),
        a100_sfvf.machine(),
        h100_broken.machine(),
        h100_mig.machine(),
        h100_vm.machine(),
        hgx_h200.machine(),
        v100_vm_phb.machine(),
        a100_pcie_4.machine(),
        a100x4_snc2.machine(),
        a100x6_cross_socket.machine(),
        ac922.machine(),
        dgx_station_gb300.machine(),
        h200_nvl_4.machine(),
        l4_edge.machine(),
        l4x10_one_root.machine(),
        rtxpro6000_pcie_8.machine(),
    )
