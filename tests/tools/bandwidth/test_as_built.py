"""The machine as it is built: what failed is whole again, what was never there stays away."""

from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import P2pStatus, PeerAccess, ReportedPair
from nodetopo.tools.bandwidth.as_built import sound
from nodetopo.tools.bandwidth.expected import Model


def test_a_sound_machine_is_as_it_is_built() -> None:
    snapshot = machine("dgx-h100")
    now, built = Model(snapshot), Model(sound(snapshot))
    for gpu in snapshot.gpus[1:]:
        assert now.pair(snapshot.gpus[0], gpu).is_like(built.pair(snapshot.gpus[0], gpu))


def test_links_ports_bridges_and_peer_access_are_whole_again() -> None:
    snapshot = machine("dgx-h100")
    assert snapshot.hcas is not None
    assert snapshot.bridges is not None
    assert snapshot.nvlinks is not None
    hca = snapshot.hcas[0]
    slow = replace(
        hca, ports=tuple(replace(port, state="DOWN", rate_gbps=10.0) for port in hca.ports)
    )
    refused = PeerAccess(
        read=P2pStatus.DISABLED_BY_REGKEY, write=P2pStatus.GPU_NOT_SUPPORTED, nvlink=P2pStatus.OK
    )
    broken = replace(
        snapshot,
        hcas=(slow, *snapshot.hcas[1:]),
        bridges=tuple(replace(bridge, acs_control=0x1D) for bridge in snapshot.bridges),
        nvlinks=tuple(replace(link, is_active=False) for link in snapshot.nvlinks),
        pairs=(ReportedPair(a="GPU0", b="GPU1", forward=refused),),
    )
    built = sound(broken)
    assert built.hcas is not None
    assert [(port.state, port.rate_gbps) for port in built.hcas[0].ports] == [("ACTIVE", 400.0)]
    assert not any(bridge.redirects_peers for bridge in built.bridges or ())
    assert all(link.is_active for link in built.nvlinks or ())
    forward = built.pairs[0].forward
    assert forward is not None
    # What a GPU cannot do is how it is built.
    assert (forward.read, forward.write) == (P2pStatus.OK, P2pStatus.GPU_NOT_SUPPORTED)


def test_a_slot_of_fewer_lanes_stays_one() -> None:
    snapshot = machine("rtxpro6000-pcie-8")
    gpu = snapshot.gpus[0]
    assert gpu.pcie is not None
    narrow = replace(gpu, pcie=replace(gpu.pcie, width=8, max_width=8))
    built = sound(replace(snapshot, gpus=(narrow, *snapshot.gpus[1:])))
    assert built.gpus[0].pcie is not None
    assert built.gpus[0].pcie.width == 8
