"""Every setting of NVIDIA's programs has a verdict, and the verdict is what the daemon does."""

import pytest

from nodetopo.kernel.settings.declare import key
from nodetopo.kernel.settings.nvidia.names import NAMES, ValueKind
from nodetopo.kernel.settings.origin import ConfigFile
from nodetopo.kernel.settings.resolve import Resolved
from nodetopo.tools.migrate.findings import Finding, Verdict
from nodetopo.tools.migrate.nvidia import known
from nodetopo.tools.migrate.read import report
from tests.tools.migrate.documents import in_places, values_of

PLACES = in_places()
ENVIRONMENT = {"NODE_NAME": "node"}


def _finding(word: str, text: str) -> Finding:
    """Return the verdict on the only line of *text* that has the setting *word*."""
    found = [
        one
        for one in report([("input", text)]).findings
        if one.line is not None and one.written.startswith((f"{word}=", f"{word}:"))
    ]
    assert len(found) == 1, (word, text)
    return found[0]


def _settings(resolved: Resolved) -> dict[str, object]:
    return {key(name): getattr(resolved.settings, name) for name in resolved.origins}


@pytest.mark.parametrize("word", sorted(known()))
def test_a_setting_has_a_verdict_in_each_of_its_places(word: str) -> None:
    texts = [text for name, text in PLACES if name == word]
    assert texts
    verdicts = {_finding(word, text).verdict for text in texts}
    assert Verdict.UNKNOWN not in verdicts
    assert Verdict.NOT_OURS not in verdicts


@pytest.mark.parametrize(
    ("variable", "text"),
    [(word, text) for name in NAMES for word in name.variables for text in values_of(name)],
)
def test_what_is_the_same_as_a_variable_changes_no_setting(variable: str, text: str) -> None:
    name = known()[variable]
    (document,) = [one for word, one in PLACES if word == variable and f'"value": "{text}"' in one]
    finding = _finding(variable, document)
    if finding.verdict not in (Verdict.SAME, Verdict.IGNORED):
        return
    before = _settings(Resolved.of(flags={}, environment=ENVIRONMENT))
    after = _settings(Resolved.of(flags={}, environment={**ENVIRONMENT, variable: text}))
    if name.name != "driver-root-ctr-path":
        assert after == before
    assert not finding.settings


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        (word, text)
        for name in NAMES
        for word in name.variables
        for text in values_of(name)
        # Two depend on what else is set.
        if name.ours and name.name not in ("pass-device-specs", "shared-devices-allocation-policy")
    ],
)
def test_what_is_to_be_set_has_the_effect_of_the_variable(variable: str, text: str) -> None:
    (document,) = [one for word, one in PLACES if word == variable and f'"value": "{text}"' in one]
    finding = _finding(variable, document)
    if finding.verdict is not Verdict.SET or not finding.settings:
        return
    ours = "".join(f"{word}: '{value}'\n" for word, value in finding.settings.items())
    there = Resolved.of(flags={}, environment={**ENVIRONMENT, variable: text})
    here = Resolved.of(
        flags={}, environment=ENVIRONMENT, file=ConfigFile(name="ours.yaml", text=ours)
    )
    assert _settings(there) == _settings(here)


@pytest.mark.parametrize("text", [text for word, text in PLACES if not word.startswith("-")])
def test_what_is_the_same_in_a_file_is_taken_by_the_daemon_as_it_says(text: str) -> None:
    found = report([("input", text)]).findings
    kept = [one for one in found if one.verdict in (Verdict.SAME, Verdict.SET) and one.settings]
    if not text.startswith('{"version"') or not kept:
        return
    resolved = Resolved.of(
        flags={}, environment=ENVIRONMENT, file=ConfigFile(name="theirs.yaml", text=text)
    )
    ours = "".join(f"{w}: '{v}'\n" for one in kept for w, v in one.settings.items())
    here = Resolved.of(
        flags={}, environment=ENVIRONMENT, file=ConfigFile(name="ours.yaml", text=ours)
    )
    words = {word for one in kept for word in one.settings}
    there = _settings(resolved)
    if "passDeviceSpecs" not in text:  # NVIDIA's default strategy counts beside it
        assert {w: there[w] for w in words} == {w: _settings(here)[w] for w in words}


def test_what_nvidias_program_refuses_is_not_supported() -> None:
    for text in ('{"version": "v2"}', '{"flags": {"migStrategy": "some"}}'):
        found = report([("input", text)]).findings
        assert Verdict.NOT_SUPPORTED in {one.verdict for one in found}
    mps = next(name for name in NAMES if name.kind is ValueKind.MPS)
    (text,) = (text for word, text in PLACES if word == mps.path)
    assert _finding("sharing.mps", text).verdict is Verdict.NOT_SUPPORTED


def test_a_wrong_value_leaves_the_other_lines_their_verdicts() -> None:
    text = "version: v1\nflags:\n  migStrategy: some\n  gdsEnabled: true\n"
    lines = {one.line: one.verdict for one in report([("input", text)]).findings}
    assert lines[3] is Verdict.NOT_SUPPORTED
    assert lines[4] is Verdict.SET


@pytest.mark.parametrize(("replicas", "is_offered"), [(16_384, True), (100_000, False)])
def test_replicas_get_the_daemons_answer(replicas: int, is_offered: bool) -> None:
    sliced = f"sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: {replicas}}}]}}}}"
    (finding,) = [
        it for it in report([("input", f"version: v1\n{sliced}\n")]).findings if it.line == 2
    ]
    assert finding.verdict is (Verdict.SAME if is_offered else Verdict.NOT_SUPPORTED)
    assert ("a kubelet reads messages of 4194304" in finding.means) is not is_offered


def test_a_device_node_is_passed_beside_nvidias_default_strategy() -> None:
    text = "version: v1\nflags:\n  plugin:\n    passDeviceSpecs: true\n"
    finding = _finding("flags.plugin.passDeviceSpecs", text)
    assert finding.verdict is Verdict.SET
    assert finding.settings == {"device-list-strategy": "envvar,device-specs"}
    assert finding.components == ("host-devices",)


def test_a_default_that_differs_is_reported_where_nothing_sets_it() -> None:
    sliced = "sharing:\n  timeSlicing:\n    resources:\n    - {name: gpu, replicas: 2}\n"
    written = {it.written: it for it in report([("input", f"version: v1\n{sliced}")]).findings}
    strategy = written["device-list-strategy is not set"]
    policy = written["shared-devices-allocation-policy is not set"]
    assert strategy.settings == {"device-list-strategy": "envvar"}
    assert policy.settings == {"placement-policy": "best,nvidia.com/gpu=distributed"}
    both = f"{sliced}flags:\n  plugin:\n    deviceListStrategy: envvar\n"
    both += "    sharedDevicesAllocationPolicy: packed\n"
    assert not [it for it in report([("input", both)]).findings if it.line is None]
