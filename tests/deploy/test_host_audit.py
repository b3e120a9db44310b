"""What ``components/host-audit`` shows the audit of a host."""

from pathlib import Path

from nodetopo.probes.host import runtimes
from tests.deploy.test_components import COMPONENTS, host_paths, is_below_one, pod, with_components


def test_the_audit_of_the_host_sees_what_its_probes_read() -> None:
    seen = host_paths(with_components("host-audit"), writable=False)
    assert all(seen[path] == path.removeprefix("/host") for path in seen if "/host/" in path)
    for path in (*runtimes.CONFIGS, "etc/cdi/a.yaml", "run/cdi/a.yaml", runtimes.FILE, "dev"):
        assert is_below_one(Path("/host", path), seen), path


def test_no_node_lacks_a_directory_that_the_audit_of_the_host_must_have() -> None:
    # With the type Directory the kubelet starts no pod where there is none.
    demanded = {
        one["hostPath"]["path"]
        for one in pod(with_components("host-audit"))["volumes"]
        if one.get("hostPath", {}).get("type") == "Directory"
    }
    base = {
        one["hostPath"]["path"] for one in pod(with_components())["volumes"] if "hostPath" in one
    }
    assert demanded - base == {"/dev", "/usr"}


def test_only_the_audit_of_the_host_shares_its_process_namespace() -> None:
    sharing = {name for name in COMPONENTS if pod(with_components(name)).get("hostPID")}
    assert sharing == {"host-audit"}
