"""Which rights a kubelet wants to see before it tells its settings, asked as pods ask it.

The kubelet has a certificate of its own making, lets the API server review each token, and then
asks it whether the account may. The agent's accounts have tokens of the TokenRequest API, which
is also what pods get.
"""

import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Verdict
from nodetopo.cli.live_pods import with_pods
from nodetopo.components.audit.catalogue import rule
from nodetopo.errors import ApiUnavailable, UnreadableError
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kubeapi.pods import AUDITED_RIGHTS, ApiServer
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.host import service_account
from nodetopo.probes.kubelet.api import KubeletApi, settings_from_configz
from nodetopo.probes.kubelet.config import read_kubelet_settings
from nodetopo.probes.kubelet.metrics import metrics_from_text
from tests.lab.account import account_token, rules
from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.deployment import BASE
from tests.lab.machine_node import Node

pytestmark = pytest.mark.lab

OTHER_DOORS = (
    "GET /pods",
    "GET /logs/",
    "GET /stats/summary",
    "POST /run/a/b/c",
    "POST /exec/a/b/c",
)
"""What else a kubelet serves: other rights, or nodes/proxy, open these."""


def only(*resources: str) -> list[Object]:
    return [{"apiGroups": [""], "resources": list(resources), "verbs": ["get"]}]


def kubelet(node: Node, tmp_path: Path, text: str) -> KubeletApi:
    file = tmp_path / "token"
    file.write_text(text, "utf-8")
    return KubeletApi(url=node.kubelet_url, token_file=file, insecure=True)


def status(node: Node, bearer: str, door: str) -> int:
    """Return the HTTP status of *door*, a method and a path."""
    method, path = door.split(" ")
    request = urllib.request.Request(
        f"{node.kubelet_url}{path}", method=method, headers={"Authorization": f"Bearer {bearer}"}
    )
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, timeout=30, context=trust) as answer:
            found: int = answer.status
            return found
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_component_s_rights_alone_read_settings_and_counts_and_open_no_other_door(
    cluster: Cluster, h100: Node, tmp_path: Path
) -> None:
    bearer = account_token(
        cluster.api, "lab-component-alone", rules(BASE / "components" / "configz")
    )
    asking = kubelet(h100, tmp_path, bearer)
    theirs = settings_from_configz(asking.configz())
    assert (theirs.cpu_manager_policy, theirs.topology_manager_policy) == (
        "static",
        "single-numa-node",
    )
    assert metrics_from_text(asking.metrics()).topology_errors is not None
    assert {door: status(h100, bearer, door) for door in OTHER_DOORS} == dict.fromkeys(
        OTHER_DOORS, 403
    )


def test_each_of_the_two_rights_opens_its_own_door_only(
    cluster: Cluster, h100: Node, tmp_path: Path
) -> None:
    settings = kubelet(
        h100, tmp_path, account_token(cluster.api, "lab-configz", only("nodes/configz"))
    )
    assert settings_from_configz(settings.configz()).max_pods == 110
    with pytest.raises(UnreadableError, match=r"/metrics: HTTP status 403.* get nodes/metrics"):
        settings.metrics()
    counts = kubelet(
        h100, tmp_path, account_token(cluster.api, "lab-metrics", only("nodes/metrics"))
    )
    assert metrics_from_text(counts.metrics()).topology_errors is not None
    with pytest.raises(UnreadableError, match=r"/configz: HTTP status 403.* get nodes/configz"):
        counts.configz()


def test_an_account_without_rights_is_told_which_one_it_lacks(
    cluster: Cluster, h100: Node, tmp_path: Path
) -> None:
    asking = kubelet(h100, tmp_path, account_token(cluster.api, "lab-nothing", []))
    with pytest.raises(UnreadableError) as caught:
        asking.configz()
    assert caught.value.cause == (
        f"the kubelet at {h100.kubelet_url} does not give /configz: HTTP status 403: the account "
        "may not get nodes/configz"
    )
    assert caught.value.cure == (
        "grant get on nodes/configz to the agent's account, with Kubernetes 1.33 or newer"
    )


def test_a_token_that_nobody_issued_is_not_taken(h100: Node, tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="HTTP status 401: it does not take the token"):
        kubelet(h100, tmp_path, "forged").configz()


def test_nodes_proxy_would_open_all_doors(cluster: Cluster, h100: Node) -> None:
    bearer = account_token(cluster.api, "lab-proxy", only("nodes/proxy"))
    assert status(h100, bearer, "GET /configz") == 200
    assert status(h100, bearer, "GET /pods") == 200


def test_an_audit_with_the_component_reads_the_running_settings_and_finds_no_right_too_many(
    cluster: Cluster, h100: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = [*rules(BASE / "base"), *rules(BASE / "components" / "configz")]
    bearer = account_token(cluster.api, "lab-audit", granted)
    (tmp_path / "token").write_text(bearer, "utf-8")
    monkeypatch.setattr(service_account, "DIRECTORY", tmp_path)
    on_disk, _issues = read_kubelet_settings(h100.host, h100.host / "proc")
    found = with_pods(
        Snapshot(kubelet=on_disk),
        Settings(
            node_name=h100.name,
            kubeconfig=cluster.control_plane.write_kubeconfig("lab-audit", bearer),
            kubelet_url=h100.kubelet_url,
            kubelet_insecure_tls=True,
            pod_resources_socket=h100.pod_resources_socket,
            sysfs_root=h100.host / "sys",
            host_root=h100.host,
        ),
    )
    assert found.issues == ()
    assert found.kubelet is not None
    assert found.kubelet.source == "configz"
    assert on_disk is not None
    assert found.kubelet_on_disk == replace(on_disk, version=found.kubelet.version)
    assert found.kubelet_metrics is not None
    assert found.agent_rights == {
        "get nodes/proxy": False,
        "create nodes/proxy": False,
        "get nodes/configz": True,
        "get nodes/metrics": True,
    }
    report = evaluate(found, map(rule, ("KUB-024", "KUB-027", "KUB-028")))
    drift, rights, rejections = (one.verdict for one in report.results)
    assert (drift, rights) == (Verdict.PASS, Verdict.PASS)
    assert rejections is not Verdict.UNKNOWN  # what other tests had rejected counts, too


def test_an_administrator_s_audit_judges_the_account_of_the_agent(cluster: Cluster) -> None:
    cluster.control_plane.agent_kubeconfig()  # applies the account
    api = ApiServer(cluster.kubeconfig)
    with pytest.raises(ApiUnavailable, match="no pod of the agent is on node 'ghost'"):
        api.agent_rights("ghost", AUDITED_RIGHTS)
    pods = "/api/v1/namespaces/nodetopo/pods"
    agent = {
        "metadata": {"name": "agent", "labels": {"app.kubernetes.io/name": "nodetopo"}},
        "spec": {
            "nodeName": "ghost",  # no kubelet runs it
            "serviceAccountName": "nodetopo",
            "containers": [{"name": "nodetopo", "image": "nodetopo"}],
        },
    }
    cluster.api.create(pods, {"apiVersion": "v1", "kind": "Pod", **agent})
    try:
        assert set(api.rights(AUDITED_RIGHTS).values()) == {True}
        found = api.agent_rights("ghost", (*AUDITED_RIGHTS, "get nodes"))
    finally:
        cluster.api.delete(f"{pods}/agent")
    assert found == {**dict.fromkeys(AUDITED_RIGHTS, False), "get nodes": True}
