"""The metrics of HCAs."""

from msgspec import structs

from nodetopo.components.rdma.health.probe import COUNTERS
from nodetopo.components.rdma.metrics import PORT_ERRORS
from nodetopo.machines.bundled import machine
from nodetopo.model.hca import Hca, HcaPort
from nodetopo.model.hca_health import HcaHealth
from tests.kernel.http.scraped import of, samples
from tests.kernel.readings import with_facts


def test_as_many_errors_of_a_port_are_published_as_are_read() -> None:
    assert len(COUNTERS) == PORT_ERRORS


def test_ports_of_an_hca_are_counted_with_those_that_are_active() -> None:
    ports = (HcaPort(number=1, state="ACTIVE"), HcaPort(number=2, state="DOWN"))
    node = structs.replace(machine("dgx-h100"), hcas=(Hca(name="mlx5_0", ports=ports),))
    assert samples(of(node), "nodetopo_hca_ports") == {("mlx5_0",): 2.0}
    assert samples(of(node), "nodetopo_hca_ports_active") == {("mlx5_0",): 1.0}


def test_a_port_has_its_state_its_rate_in_bytes_and_its_errors() -> None:
    ports = (
        HcaPort(number=1, state="ACTIVE", rate_gbps=400.0),
        HcaPort(number=2, state="INIT", rate_gbps=None),
        HcaPort(number=3, state=None, rate_gbps=2.5),
    )
    node = structs.replace(machine("dgx-h100"), hcas=(Hca(name="mlx5_0", ports=ports),))
    state = with_facts(
        of(node), hca_counters={("mlx5_0", 1): {"link_downed": 3, "symbol_error": 0}}
    )
    one, two, three = (("mlx5_0", number) for number in "123")
    errors = {("link_downed", *one): 3.0, ("symbol_error", *one): 0.0}  # labels by name
    assert samples(state, "nodetopo_hca_port_state") == {one: 4.0, two: 2.0}
    assert samples(state, "nodetopo_hca_port_rate_bytes_per_second") == {one: 5e10, three: 3.125e8}
    assert samples(state, "nodetopo_hca_port_errors_total") == errors


def test_an_hca_that_is_not_handed_out_has_its_reason() -> None:
    bad = HcaHealth(name="mlx5_0", is_healthy=False, reason="HcaLinkDown", said="its port is down")
    health = {"0000:18:00.0": bad, "0000:40:00.0": HcaHealth(name="mlx5_1")}
    state = with_facts(of(machine("dgx-h100")), hca_health=health)
    assert samples(state, "nodetopo_hca_healthy") == {
        ("mlx5_0", "0000:18:00.0"): 0.0,
        ("mlx5_1", "0000:40:00.0"): 1.0,
    }
    assert samples(state, "nodetopo_hca_health_info") == {
        ("mlx5_0", "0000:18:00.0", "HcaLinkDown"): 1.0
    }
