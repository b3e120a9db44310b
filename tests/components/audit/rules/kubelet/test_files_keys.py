"""KUB-030, KUB-031: keys of the kubelet's files without an effect, or with a surprising one."""

from difflib import SequenceMatcher

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Finding, Verdict
from nodetopo.components.audit.rules.kubelet.files import NEAR, PLACEMENT
from nodetopo.model.kubelet_keys import KEYS, MAX_ODD_KEYS, NEWEST, OLDEST, SINCE, OddKey
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.audit.judge import NODE, result
from tests.components.audit.rules.kubelet.kubelet_node import FILE, missing, node

DROP_IN = "/etc/kubernetes/kubelet.conf.d/20-numa.conf"
UNKNOWN = "unknown to the kubelet, without effect"


def odd(key: str, within: str = "") -> OddKey:
    return OddKey(key=key, within=within, file=FILE)


def dropped(key: str, within: str = "", *, is_overridden: bool = False) -> OddKey:
    return OddKey(
        key=key, within=within, file=DROP_IN, is_drop_in=True, is_overridden=is_overridden
    )


def with_keys(*keys: OddKey, version: str | None = "v1.36.3") -> Snapshot:
    status = replace(NODE, kubelet_version=version)
    return replace(node(odd_keys=keys), node_status=status)


def expected(code: str, snapshot: Snapshot) -> list[str]:
    return [finding.expected for finding in result(code, snapshot).findings]


def test_files_whose_keys_are_all_known_pass() -> None:
    assert result("KUB-030", with_keys()).verdict is Verdict.PASS
    assert result("KUB-031", with_keys()).verdict is Verdict.PASS


def test_a_misspelt_key_of_placement_fails_with_its_file_and_what_was_meant() -> None:
    found = result("KUB-030", with_keys(dropped("topologyManagerPolcy")))
    assert found.verdict is Verdict.FAIL
    assert found.findings == (
        Finding(
            subject=f"topologyManagerPolcy in {DROP_IN}",
            observed=UNKNOWN,
            expected="topologyManagerPolicy",
        ),
    )


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        (odd("cpumanagerPolicy"), "cpuManagerPolicy"),
        (odd("TOPOLOGYMANAGERSCOPE"), "topologyManagerScope"),
        (odd("cpu-manager-policy"), "cpuManagerPolicy"),
        (odd("memory_manager_policy"), "memoryManagerPolicy"),
        (odd("reserved-cpus"), "reservedSystemCPUs"),
        (odd("cpuManagerPolicyOption"), "cpuManagerPolicyOptions"),
        (odd("topologyMangaerPolicy"), "topologyManagerPolicy"),
        (odd("kubeReservd"), "kubeReserved"),
        (odd("topologyManagerPolicy", "authentication"), "topologyManagerPolicy"),
        (odd("topologymanagerpolicy", "authentication"), "topologyManagerPolicy"),
        (odd("reservedSystemCPUs", "logging.options.json"), "reservedSystemCPUs"),
        (odd("numanode", "reservedMemory[3]"), "reservedMemory.numaNode"),
        (dropped("evictionHrad"), "evictionHard"),
        (dropped("limit", "reservedMemory[0]"), "reservedMemory.limits"),
    ],
)
@pytest.mark.parametrize("version", ["v1.36.3", "v1.99.0", "v1.27.1", None])
def test_a_slip_of_a_key_of_placement_fails_in_whatever_release(
    slip: OddKey, meant: str, version: str | None
) -> None:
    snapshot = with_keys(slip, version=version)
    assert expected("KUB-030", snapshot) == [meant]
    assert result("KUB-031", snapshot).findings == ()


@pytest.mark.parametrize(
    ("slip", "said"),
    [
        (odd("maxPodz"), "perhaps maxPods"),
        (odd("maxpods"), "maxPods"),
        (odd("pod-max-pids"), "podPidsLimit"),
        (odd("pod_max_pids"), "podPidsLimit"),
        (odd("containerLogMaxSizes"), "containerLogMaxSize"),
        (odd("swapbehavior", "memorySwap"), "memorySwap.swapBehavior"),
        (odd("swapBehavior"), "perhaps memorySwap.swapBehavior"),
        (odd("numaNode"), "perhaps reservedMemory.numaNode"),
        (odd("cpuManagerOptions"), "perhaps cpuManagerPolicyOptions"),
        (odd("enabled"), "a key of KubeletConfiguration v1beta1"),
        (odd("metadata"), "a key of KubeletConfiguration v1beta1"),
        (odd("memorySwap.swapBehavior"), "a key of KubeletConfiguration v1beta1"),
        (odd("maxPods" * 1_000_000), "a key of KubeletConfiguration v1beta1"),
        (odd("x" * 100), "a key of KubeletConfiguration v1beta1"),
    ],
)
def test_any_other_unknown_key_is_a_warning(slip: OddKey, said: str) -> None:
    found = result("KUB-031", with_keys(slip))
    assert found.verdict is Verdict.WARN
    assert [(each.observed, each.expected) for each in found.findings] == [(UNKNOWN, said)]
    assert result("KUB-030", with_keys(slip)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        ("v1.38.0", "resourceManagers, unknown here"),
        (None, "version of the kubelet"),
        ("v1.27.16", "keys of kubelets before 1.28"),
    ],
)
def test_a_key_that_a_release_unknown_here_may_have_is_not_judged(
    version: str | None, lacks: str
) -> None:
    snapshot = with_keys(odd("resourceManagers"), version=version)
    assert missing("KUB-031", snapshot) == (lacks,)
    assert result("KUB-030", snapshot).verdict is Verdict.PASS


@pytest.mark.parametrize("version", ["v1.38.0", None])
def test_a_slip_of_any_key_is_found_in_a_release_unknown_here(version: str | None) -> None:
    found = result("KUB-031", with_keys(odd("containerLogMaxSizes"), version=version))
    assert (found.verdict, found.missing) == (Verdict.WARN, ())


def test_a_key_of_a_newer_release_is_unknown_to_an_older_one() -> None:
    found = result("KUB-031", with_keys(odd("crashLoopBackOff"), version="v1.31.9"))
    assert found.findings == (
        Finding(
            subject=f"crashLoopBackOff in {FILE}",
            observed="unknown to Kubernetes 1.31, without effect",
            expected="Kubernetes 1.32 or newer",
        ),
    )


@pytest.mark.parametrize("version", ["v1.32.0", "v1.36.3", "v1.99.0"])
@pytest.mark.parametrize("key", [odd("crashLoopBackOff"), dropped("crashLoopBackOff")])
def test_a_key_of_the_own_release_passes(key: OddKey, version: str) -> None:
    assert result("KUB-031", with_keys(key, version=version)).verdict is Verdict.PASS


def test_the_name_of_a_dated_key_in_another_object_is_unknown() -> None:
    (found,) = result("KUB-031", with_keys(odd("podLogsDir", "memorySwap"))).findings
    assert (found.observed, found.expected) == (UNKNOWN, "perhaps podLogsDir")


def test_without_a_release_a_key_that_has_one_is_not_judged() -> None:
    snapshot = with_keys(odd("crashLoopBackOff"), version=None)
    assert missing("KUB-031", snapshot) == ("version of the kubelet",)


def test_a_key_of_placement_that_its_right_spelling_hides_in_a_drop_in_fails() -> None:
    snapshot = with_keys(dropped("TopologyManagerPolicy", is_overridden=True))
    (found,) = result("KUB-030", snapshot).findings
    hidden = "another case of letters, and hidden by topologyManagerPolicy, stated or by default"
    assert (found.observed, found.expected) == (hidden, "topologyManagerPolicy")
    assert result("KUB-031", snapshot).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (dropped("topologymanagerpolicy"), "topologyManagerPolicy"),
        (dropped("MAXPODS", is_overridden=True), "maxPods"),
        (dropped("SwapBehavior", "memorySwap"), "swapBehavior"),
    ],
)
@pytest.mark.parametrize("version", ["v1.36.3", None])
def test_another_case_in_a_drop_in_is_a_warning(
    key: OddKey, name: str, version: str | None
) -> None:
    snapshot = with_keys(key, version=version)
    (found,) = result("KUB-031", snapshot).findings
    assert found.observed.endswith(f"which in drop-ins hides {name} or is hidden by it")
    assert (found.expected, result("KUB-031", snapshot).missing) == (name, ())
    assert result("KUB-030", snapshot).verdict is Verdict.PASS


def test_a_key_that_is_stated_twice_is_a_warning() -> None:
    twice = OddKey(key="topologyManagerPolcy", file=FILE, is_repeated=True)
    snapshot = with_keys(twice, version=None)
    (found,) = result("KUB-031", snapshot).findings
    assert (found.observed, found.expected) == (
        "stated twice, of which the last counts",
        "stated once",
    )
    assert result("KUB-031", snapshot).missing == ()
    assert result("KUB-030", snapshot).verdict is Verdict.PASS


@pytest.mark.parametrize("code", ["KUB-030", "KUB-031"])
def test_without_the_keys_of_the_files_it_is_not_known(code: str) -> None:
    issue = ProbeIssue(probe="kubelet", subject=FILE, reason="Permission denied")
    assert missing(code, node(odd_keys=None)) == ("keys of the kubelet's files",)
    snapshot = replace(node(), kubelet=None, kubelet_on_disk=None, issues=(issue,))
    assert missing(code, snapshot) == (f"keys of the kubelet's files ({FILE}: Permission denied)",)


@pytest.mark.parametrize("code", ["KUB-030", "KUB-031"])
def test_what_the_kubelet_tells_itself_says_nothing_of_the_keys_of_its_files(code: str) -> None:
    told = replace(node(source="configz", odd_keys=None), kubelet_on_disk=None)
    assert missing(code, told) == ("keys of the kubelet's files",)


def test_of_a_strangers_snapshot_no_more_keys_are_judged_than_a_capture_has() -> None:
    slip = odd("topologyManagerPolcy")
    assert len(result("KUB-030", with_keys(*[slip] * MAX_ODD_KEYS)).findings) == MAX_ODD_KEYS
    assert missing("KUB-030", with_keys(*[slip] * (MAX_ODD_KEYS + 1)))


def test_a_kubelet_older_than_the_table_is_not_known_to_know_every_key() -> None:
    assert missing("KUB-031", with_keys(version="v1.27.0")) == ("keys of kubelets before 1.28",)


def test_no_key_is_as_near_to_one_of_placement_as_a_slip() -> None:
    for one in PLACEMENT:
        for other in KEYS.keys() - {one}:
            assert SequenceMatcher(None, one.lower(), other.lower()).ratio() < NEAR


def test_every_key_that_is_named_beside_the_table_is_in_it() -> None:
    assert KEYS.keys() >= PLACEMENT | SINCE.keys()
    assert all(OLDEST < since <= NEWEST for since in SINCE.values())
