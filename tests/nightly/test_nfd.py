"""Our labels on their way through Node Feature Discovery, to the Node and away from it again.

What tells is the Node, looked up in what the API server holds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from nodetopo.components.labels.catalogue import labels
from nodetopo.components.labels.outputs.output import NFD_FILE, NODE_FEATURE
from nodetopo.machines.bundled import machine
from tests.components.labels.outputs.desired_labels import desired
from tests.lab import featured
from tests.lab.waiting import wait_for
from tests.nightly import nfd_site
from tests.nightly.nfd import NAMESPACE
from tests.nightly.nfd_site import NODE, Site

pytestmark = pytest.mark.nightly

OUTPUTS = (NFD_FILE, NODE_FEATURE)
DGX, TRAY = labels(machine("dgx-h100")), labels(machine("gb200-nvl72"))
COUNT, CLIQUE = "nvidia.com/gpu.count", "nvidia.com/gpu.clique"
THEIRS = {"vendor.example/theirs": "x", COUNT: "1"}
"""What another program says of the Node: something of its own, and something against us."""


@pytest.fixture(scope="module")
def _site() -> Iterator[Site]:
    with nfd_site.running() as found:
        yield found


@pytest.fixture
def site(_site: Site) -> Iterator[Site]:
    """Return the Node without labels of ours, which it must be again once they are taken back."""
    yield _site
    for output in OUTPUTS:
        _site.remove(output)
    _site.wait_labels({})


@pytest.fixture
def settings(site: Site) -> Iterator[Site]:
    """Return the Node; NFD's own settings count again after the test."""
    yield site
    site.nfd.start_master()
    site.nfd.start_worker()


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("wanted", [DGX, TRAY], ids=["dgx-h100", "gb200-nvl72"])
def test_every_label_of_a_machine_reaches_its_node_with_its_value(
    site: Site, output: str, wanted: Mapping[str, str]
) -> None:
    site.output(output).publish(desired(wanted))
    site.wait_labels(wanted)


@pytest.mark.parametrize("output", OUTPUTS)
def test_what_changes_and_what_goes_does_so_on_the_node(site: Site, output: str) -> None:
    ours = site.output(output)
    ours.publish(desired(TRAY))
    site.wait_labels(TRAY)
    fewer = {key: value for key, value in TRAY.items() if key != CLIQUE} | {COUNT: "3"}
    ours.publish(desired(fewer), complete=True)
    site.wait_labels(fewer)


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_removal_leaves_nothing_of_ours_on_the_node(site: Site, output: str) -> None:
    site.output(output).publish(desired(TRAY))
    site.wait_labels(TRAY)
    assert site.remove(output) == TRAY
    site.wait_labels({})


def test_a_worker_that_never_looks_by_itself_notices_each_new_file(settings: Site) -> None:
    settings.nfd.start_worker(look_every="0s")
    for wanted in (TRAY, DGX, TRAY):
        settings.output(NFD_FILE).publish(desired(wanted), complete=True)
        settings.wait_labels(wanted)


@pytest.mark.parametrize("output", OUTPUTS)
def test_labels_of_others_are_beside_ours_and_ours_count_where_both_speak(
    site: Site, output: str
) -> None:
    with site.file_of_others(THEIRS):
        site.wait_labels(THEIRS)
        site.output(output).publish(desired(TRAY))
        site.wait_labels(THEIRS | TRAY)
        site.remove(output)
        site.wait_labels(THEIRS)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gpu.topology/bad", "not valid"),
        ("gpu.topology/a/b", "1"),
        ("gpu.topology/from", "@local.label.x"),
        ("no-domain", "1"),
    ],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"denyLabelNs": ["*"], "extraLabelNs": ["gpu.topology", "nvidia.com"]}],
    ids=["any-domain", "ours-alone"],
)
def test_a_bad_label_takes_no_other_with_it(
    settings: Site, output: str, key: str, value: str, options: dict[str, Any]
) -> None:
    settings.nfd.start_master(options)
    settings.output(output).publish(desired({**TRAY, key: value}))
    settings.wait_labels(TRAY)


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({}, {"topology.kubernetes.io/numa-node": "0"}),
        ({"denyLabelNs": ["vendor.example"]}, {"vendor.example/label": "1"}),
        ({"labelWhiteList": "^[^Q]+$"}, {"gpu.topology/Q": "1"}),
    ],
    ids=["reserved", "denied", "not-listed"],
)
def test_a_label_that_nfd_refuses_takes_no_other_with_it(
    settings: Site, output: str, options: dict[str, Any], refused: dict[str, str]
) -> None:
    settings.nfd.start_master(options)
    settings.output(output).publish(desired(TRAY | refused))
    settings.wait_labels(TRAY)


@pytest.mark.parametrize(
    "restrictions",
    [
        {"denyNodeFeatureLabels": True},
        {
            "nodeFeatureNamespaceSelector": {
                "matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}
            }
        },
    ],
    ids=["no-labels-of-others", "no-other-namespace"],
)
def test_where_nfd_takes_no_objects_of_others_the_file_still_gets_through(
    settings: Site, restrictions: dict[str, Any]
) -> None:
    settings.nfd.start_master({"restrictions": restrictions})
    settings.output(NODE_FEATURE).publish(desired(DGX))
    settings.output(NFD_FILE).publish(desired(TRAY))
    settings.wait_labels(TRAY)


def test_nfd_without_leave_to_overwrite_never_changes_a_value_of_its_own(settings: Site) -> None:
    settings.nfd.start_master({"restrictions": {"allowOverwrite": False}})
    ours = settings.output(NODE_FEATURE)
    ours.publish(desired(TRAY))
    settings.wait_labels(TRAY)
    fewer = {key: value for key, value in TRAY.items() if key != CLIQUE}
    ours.publish(desired(fewer | {COUNT: "3"}), complete=True)
    settings.wait_labels(fewer)


def test_a_node_that_is_created_anew_gets_the_labels_of_an_object_that_is_put_back(
    site: Site,
) -> None:
    site.output(NODE_FEATURE).publish(desired(TRAY))
    site.wait_labels(TRAY)
    site.delete_node()
    wait_for("the object went with the Node", lambda: featured.find(site.api, NODE) is None)
    site.create_node()
    site.output(NODE_FEATURE).publish(desired(TRAY))
    site.wait_labels(TRAY)
