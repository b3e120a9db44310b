"""Which keys of the kubelet's files are kept as odd."""

import json
from pathlib import Path

import pytest

from nodetopo.model.codec import decode, encode
from nodetopo.model.kubelet_keys import MAX_ODD_KEYS, OddKey
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.file import MAX_LENGTH
from tests.probes.kubelet.kubelet_host import CONFIG, DROP_INS, HEADER, process, read_whole, refused

MAIN = f"/{CONFIG}"
FIRST, SECOND = f"{DROP_INS}/10-a.conf", f"{DROP_INS}/20-b.conf"


def odd(tmp_path: Path, files: dict[str, str]) -> tuple[OddKey, ...] | None:
    (tmp_path / DROP_INS).mkdir(parents=True, exist_ok=True)
    return read_whole(tmp_path, {CONFIG: HEADER, **files}).odd_keys


def paths(tmp_path: Path, text: str) -> list[str]:
    return [each.path for each in odd(tmp_path, {CONFIG: HEADER + text}) or ()]


def test_a_file_of_known_keys_has_none(tmp_path: Path) -> None:
    known = (
        "topologyManagerPolicy: restricted\n"
        "authentication: {x509: {clientCAFile: /ca.crt}, webhook: {cacheTTL: 0s}}\n"
        "logging: {options: {json: {infoBufferSize: '0'}}}\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 2Mi}}]\n"
        "featureGates: {Anything: true}\n"
        "evictionHard: {memory.available: 1Gi}\n"
    )
    assert odd(tmp_path, {CONFIG: HEADER + known, FIRST: HEADER + known}) == ()


def test_a_kubelet_of_flags_alone_has_none(tmp_path: Path) -> None:
    assert read_whole(tmp_path, process("/usr/bin/kubelet", "--max-pods=20")).odd_keys == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("topologyManagerPolcy: restricted\n", ["topologyManagerPolcy"]),
        ("cpumanagerPolicy: static\n", ["cpumanagerPolicy"]),
        ("foo: {bar: {baz: 1}}\n", ["foo"]),
        ("foo: null\n", ["foo"]),
        ("7: x\ntrue: y\n", ["7", "true"]),
        ("memorySwap: {swapbehavior: NoSwap, x: 1}\n", ["memorySwap.swapbehavior", "memorySwap.x"]),
        ("memorySwap.swapBehavior: NoSwap\n", ["memorySwap.swapBehavior"]),
        (
            "reservedMemory: [{numaNode: 0}, {numanode: 1, limits: {}}]\n",
            ["reservedMemory[1].numanode"],
        ),
        (
            "authentication: {webhook: {topologyManagerPolicy: restricted}}\n",
            ["authentication.webhook.topologyManagerPolicy"],
        ),
        ("crashLoopBackOff: {maxContainerRestartPeriod: 5s}\n", ["crashLoopBackOff"]),
        ("singleProcessOOMKill: true\npodLogsDir: /logs\n", ["singleProcessOOMKill", "podLogsDir"]),
        ("memorySwap: {}\ncrashloopbackoff: {}\n", ["crashloopbackoff"]),
        ("memorySwap: {crashLoopBackOff: {}}\n", ["memorySwap.crashLoopBackOff"]),
    ],
)
def test_keys_that_not_every_kubelet_knows_are_named_with_the_way_to_them(
    tmp_path: Path, text: str, found: list[str]
) -> None:
    assert paths(tmp_path, text) == found


@pytest.mark.parametrize("value", ["null", "", "''", "0s", "0", "false", "{}", "[]"])
def test_an_empty_key_of_a_newer_release_says_nothing(tmp_path: Path, value: str) -> None:
    assert paths(tmp_path, f"crashLoopBackOff: {value}\n") == []
    assert odd(tmp_path, {FIRST: f"{HEADER}imageMaximumGCAge: {value}\n"}) == ()


def test_each_key_is_kept_with_its_file(tmp_path: Path) -> None:
    files = {CONFIG: f"{HEADER}maxpods: 1\n", SECOND: f"{HEADER}maxPodz: 1\n"}
    assert odd(tmp_path, files) == (
        OddKey(key="maxpods", file=MAIN),
        OddKey(key="maxPodz", file=f"/{SECOND}", is_drop_in=True),
    )


def test_in_a_drop_in_another_case_is_odd_and_goes_on_inside(tmp_path: Path) -> None:
    text = "MemorySwap: {SwapBehavior: NoSwap, swap: x}\n"
    found = odd(tmp_path, {FIRST: HEADER + text})
    assert [(each.path, each.is_overridden) for each in found or ()] == [
        ("MemorySwap", False),
        ("memorySwap.SwapBehavior", False),
        ("memorySwap.swap", False),
    ]


@pytest.mark.parametrize(
    ("main", "first", "second", "overridden"),
    [
        ("", "TopologyManagerPolicy: restricted\n", "", True),
        ("", "topologymanagerpolicy: restricted\n", "", False),
        ("", "topologymanagerpolicy: restricted\n", "topologyManagerPolicy: none\n", False),
        ("", "ReservedSystemCPUs: '0'\n", "", False),
        ("", "ReservedSystemCPUs: '0'\n", "reservedSystemCPUs: '1'\n", True),
        ("reservedSystemCPUs: '1'\n", "ReservedSystemCPUs: '0'\n", "", True),
        ("reservedSystemCPUs: '1'\n", "ReservedSystemCPUs: null\n", "", False),
        ("systemReserved: {cpu: '1'}\n", "SystemReserved: {memory: 1Gi}\n", "", False),
        ("systemReserved: {memory: 2Gi}\n", "SystemReserved: {memory: 1Gi}\n", "", True),
        ("", "ReservedSystemCPUs: '0'\n", "reservedSystemCPUs: null\n", False),
        ("", "RESERVEDSYSTEMCPUS: '0'\nReservedSystemCPUs: '1'\n", "", True),
    ],
)
def test_what_its_right_spelling_hides_is_overridden(
    tmp_path: Path, main: str, first: str, second: str, overridden: bool
) -> None:
    files = {CONFIG: HEADER + main, FIRST: HEADER + first, SECOND: HEADER + second}
    found = odd(tmp_path, files)
    assert found
    assert found[0].is_overridden is overridden
    assert found[0].file == f"/{FIRST}"


def test_the_same_name_inside_another_object_is_not_overridden(tmp_path: Path) -> None:
    text = "MaxPods: 9\nauthentication: {MaxPods: 9}\n"
    found = odd(tmp_path, {FIRST: HEADER + text}) or ()
    assert [(each.path, each.is_overridden) for each in found] == [
        ("MaxPods", True),
        ("authentication.MaxPods", False),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("maxPods: 1\nmaxPods: 2\n", [("", "maxPods")]),
        ("maxPods: 1\n'maxPods': 2\nmaxPods: 3\n", [("", "maxPods")]),
        ("evictionHard: {a: 1%, a: 2%}\n", [("evictionHard", "a")]),
        ("reservedMemory: [{numaNode: 0, numaNode: 1}]\n", [("reservedMemory[0]", "numaNode")]),
        ("clusterDNS: &x [{a: 1, a: 2}]\nclusterDomain: *x\n", [("clusterDNS[0]", "a")]),
    ],
)
def test_a_key_that_an_object_has_twice_is_odd(
    tmp_path: Path, text: str, found: list[tuple[str, str]]
) -> None:
    keys = odd(tmp_path, {CONFIG: HEADER + text}) or ()
    assert [(each.within, each.key) for each in keys if each.is_repeated] == found


def test_a_map_may_take_in_several_others(tmp_path: Path) -> None:
    maps = "evictionSoft: &a {x: 1%}\nevictionHard: &b {y: 1%}\n"
    taken = f"{maps}evictionMinimumReclaim:\n  <<: *a\n  <<: *b\n"
    assert odd(tmp_path, {CONFIG: HEADER + taken, FIRST: HEADER + taken}) == ()


def test_a_key_that_json_has_twice_is_odd(tmp_path: Path) -> None:
    header = '"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"'
    text = f'{{\t{header},\n\t"reservedMemory": [{{"limits": {{"a": "1", "a": "2"}}}}]}}'
    assert odd(tmp_path, {CONFIG: text}) == (
        OddKey(key="a", within="reservedMemory[0].limits", file=MAIN, is_repeated=True),
    )


def test_a_drop_in_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / DROP_INS).mkdir(parents=True)
    text = f"{HEADER}systemReserved: {{cpu: '1', cpu: '2'}}\n"
    issue = refused(tmp_path, {CONFIG: HEADER, FIRST: text})
    assert issue.subject == f"/{FIRST}"
    assert issue.reason == "systemReserved.cpu is stated twice in this drop-in"


def test_more_than_a_real_file_has_are_not_kept_at_all(tmp_path: Path) -> None:
    lines = [f"key{number}: 1\n" for number in range(MAX_ODD_KEYS + 1)]
    assert len(odd(tmp_path, {CONFIG: HEADER + "".join(lines[1:])}) or ()) == MAX_ODD_KEYS
    assert odd(tmp_path, {CONFIG: HEADER + "".join(lines)}) is None
    halves = {FIRST: HEADER + "".join(lines[:40]), SECOND: HEADER + "".join(lines[40:])}
    assert odd(tmp_path, {CONFIG: HEADER, **halves}) is None
    twice = "".join(f"  key{number}: true\n" for number in range(MAX_ODD_KEYS + 1))
    assert odd(tmp_path, {CONFIG: f"{HEADER}featureGates:\n{twice}{twice}"}) is None


def test_of_a_long_key_the_beginning_is_kept(tmp_path: Path) -> None:
    (found,) = paths(tmp_path, f"{'x' * 900}: 1\n")
    assert found == f"{'x' * (MAX_LENGTH - 1)}…"
    assert paths(tmp_path, f"{'x' * MAX_LENGTH}: 1\n") == ["x" * MAX_LENGTH]


def test_half_a_character_can_be_kept_in_a_snapshot(tmp_path: Path) -> None:
    header = json.loads('{"apiVersion": "kubelet.config.k8s.io/v1beta1"}')
    text = json.dumps({**header, "kind": "KubeletConfiguration", "a\ud800": 1})
    settings = read_whole(tmp_path, {CONFIG: text})
    (found,) = settings.odd_keys or ()
    assert found.key == "a?"
    whole = Snapshot(kubelet_on_disk=settings)
    assert decode(encode(whole)).snapshot == whole
