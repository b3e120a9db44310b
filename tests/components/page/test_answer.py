"""The status page: complete, harmless, well-formed, and made once for each state."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from nodetopo.checks.engine import Report
from nodetopo.checks.rule import Finding, Severity, Verdict
from nodetopo.components.page.answer import HEADERS, StatusPage
from nodetopo.components.page.rows import View
from nodetopo.components.page.state import PageState
from nodetopo.components.page.view import PodNumbers, view
from nodetopo.formats.harmless import clean
from nodetopo.kernel.shown import ListedPods
from nodetopo.machines.bundled import machine
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Snapshot
from tests.admission.held_gpus import GPU, pod, with_kubelet
from tests.components.page.states import BROKEN, NOON, STATES, busy, state

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></svg><script>x</script>",
    "\x1b]0;title\x07red\x1b[31m",
    "pod\u202egnp.exe\u2066",
    "a\x00b\x08c\ud800",
    "&lt;b&gt;",
)

SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "schema" / "status.json"

WATCHED = {"open", "socket", "os", "subprocess", "ctypes", "import"}
"""Audit events of Python's that a request must not cause."""

every_state = pytest.mark.parametrize("name", sorted(STATES))


class Reader(HTMLParser):
    """Reads a page; every element that begins must end, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the begin of an element."""
        self.names.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name == "aria-labelledby":
                self.references += (value or "").split()
            elif name == "href" and (value or "").startswith("#"):
                self.references.append((value or "")[1:])
        if tag not in {"meta", "link"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an element without content."""
        self.names.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        """Take the end of an element."""
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Take text."""
        self.words.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.references) <= set(reader.ids)
    return reader


def body(made: PageState, target: str = "/") -> str:
    found = StatusPage(lambda: made).answer(target)
    assert found is not None
    return found.body.decode()


def plain(made: PageState) -> Any:
    return json.loads(body(made, "/status.json"))


@every_state
def test_the_page_is_well_formed_with_landmarks_and_table_heads(name: str) -> None:
    reader = read(body(STATES[name]()))
    assert {"header", "nav", "main", "footer", "h1", "section"} <= set(reader.names)
    assert reader.names.count("main") == reader.names.count("h1") == 1
    assert reader.names.count("table") == reader.names.count("caption")
    assert reader.names.count("table") == reader.names.count("thead")
    if "svg" in reader.names:
        assert ("svg", "role", "img") in reader.attributes
        assert "desc" in reader.names


@every_state
def test_the_page_has_no_script_and_nothing_from_elsewhere(name: str) -> None:
    reader = read(body(STATES[name]()))
    assert not {"script", "img", "iframe", "form", "object", "base"} & set(reader.names)
    for tag, attribute, value in reader.attributes:
        assert not attribute.startswith("on")
        assert attribute not in {"style", "src", "xlink:href"}
        if attribute == "href":
            is_link = tag == "a" and (value or "").startswith(("#", "/", "https://"))
            assert is_link or (tag, value) == ("link", "data:,")


@every_state
def test_every_gpu_is_in_the_table_with_a_symbol_and_a_word(name: str) -> None:
    made = STATES[name]()
    text = body(made)
    gpus = () if made.snapshot is None else made.snapshot.gpus
    assert [row["name"] for row in plain(made)["gpus"]] == [gpu.name for gpu in gpus]
    for gpu in gpus:
        assert f'scope="row">{gpu.name}</th>' in text


def test_gpus_are_marked_by_health_and_by_holder() -> None:
    made = busy()
    rows = plain(made)["gpus"]
    assert [row["state"] for row in rows] == ["healthy"] * 6 + ["degraded", "unhealthy"]
    assert [row["holders"] for row in rows[:4]] == [["pod 2"], ["pod 2"], ["pod 1"], []]
    text = body(made)
    svg = text[text.index("<svg") : text.index("</svg>")]
    for word in ("✓ healthy", "! degraded", "✗ unhealthy", ">pod 1<", ">pod 2<", ">free<"):
        assert word in svg
    assert rows[7]["reason"] == BROKEN.said


def _first_line(made: PageState) -> str:
    text = body(made)
    start = text.index('<p class="verdict">')
    return "".join(read(text[start : text.index("</p>", start) + 4]).words)


def test_the_first_line_sums_up_the_node() -> None:
    assert _first_line(busy()) == (
        "✗ Not ready · 6 of 8 GPUs healthy, 1 unhealthy, 1 degraded · 2 pods · 1 misaligned · "
        "1 check failed, 2 warned, 29 unknown"
    )
    sound = state(machine("l40s-pcie-4"), pods_measured={"aligned": 0, "misaligned": 0})
    assert _first_line(sound) == (
        "✓ Ready · 4 of 4 GPUs healthy · ? pods unknown · 0 misaligned · ? checks unknown"
    )
    pods = {"aligned": 1, "misaligned": 0, "unknown": 2}
    assert "0 misaligned, 2 unknown" in _first_line(dataclasses.replace(busy(), pods_measured=pods))


def test_the_first_line_says_what_is_unknown() -> None:
    assert _first_line(STATES["not-scanned"]()) == (
        "✗ Not ready · ? GPUs unknown · ? pods unknown · ? alignment unknown · ? checks unknown"
    )
    assert _first_line(STATES["none"]()) == "✓ Ready · no GPU · ? checks unknown"
    assert "0 of 4 GPUs healthy, 4 unknown" in _first_line(STATES["nvml-dead"]())
    summary = plain(STATES["not-scanned"]())["summary"]
    assert [summary[name] for name in ("gpus", "pods", "misaligned", "failed")] == [None] * 4


def test_a_check_of_two_reports_counts_once() -> None:
    audit = busy().reports["audit"]
    made = dataclasses.replace(busy(), reports={"audit": audit, "health": audit})
    assert "1 check failed, 2 warned, 29 unknown" in _first_line(made)


def test_sections_without_content_are_left_out() -> None:
    every = [
        *("drawing", "gpus", "findings", "sizes", "allocations", "resources", "labels", "xids"),
    ]
    assert [name for name in read(body(busy())).references if name in every] == every
    shown = read(body(state(Snapshot(node="cpu-only"), labels=None))).ids
    assert [name for name in shown if name in every] == ["gpus"]


def test_the_table_has_the_place_of_each_gpu() -> None:
    row = plain(busy())["gpus"][4]
    assert (row["numa_node"], row["pci"]) == (1, "0000:9d:00.0")
    assert (row["nearest_hcas"], row["hca_distance"]) == (["mlx5_4"], "PXB")
    text = body(busy())
    assert 'data-label="Nearest HCA">mlx5_4 (PXB)<' in text
    assert 'data-label="PCI address"><code>0000:9d:00.0</code><' in text
    (alone,) = plain(STATES["one"]())["gpus"]
    assert (alone["nearest_hcas"], alone["hca_distance"]) == ([], None)
    unread = plain(state(replace(machine("dgx-h100"), hcas=None)))["gpus"][0]
    assert unread["nearest_hcas"] is None


def test_a_column_that_says_nothing_is_left_out() -> None:
    assert 'data-label="Product"' not in body(busy())
    assert "8 x NVIDIA H100 80GB HBM3" in body(busy())
    assert 'data-label="Reason"' not in body(state(machine("dgx-h100")))
    node = machine("l40s-pcie-4")
    mixed = replace(node, gpus=(replace(node.gpus[0], product="NVIDIA A40"), *node.gpus[1:]))
    assert 'data-label="Product"' in body(state(mixed))


def test_a_phone_has_one_line_for_each_healthy_gpu() -> None:
    text = body(busy())
    assert text.count('<tr role="row" class="brief">') == 6
    assert '<tr role="row"><th role="rowheader" scope="row">GPU7</th>' in text


@pytest.mark.parametrize(
    ("name", "step"),
    [("l40s-pcie-4", 720), ("dgx-h100", 1200), ("hgx-b200", 1200), ("dgx-2", 1720)],
)
def test_a_whole_drawing_is_shown_where_it_is_legible(name: str, step: int) -> None:
    text = body(state(machine(name)))
    assert f'<div class="drawing from-{step}"' in text
    assert f"@media (max-width:{step - 1}px){{.from-{step}{{display:none}}" in text


def test_parts_of_a_gpu_are_counted() -> None:
    rows = plain(STATES["mig"]())["gpus"]
    assert (rows[1]["held_parts"], rows[1]["parts"]) == (3, 7)
    assert rows[1]["holders"] == ["pod 1", "pod 2"]
    assert rows[0]["holders"] == []
    assert "3 of 7 held" in body(STATES["mig"]())


def test_replicas_count_for_their_gpu() -> None:
    node = machine("l40s-pcie-4")
    held = with_kubelet(node, [pod("shared", [f"{node.gpus[1].id}::3"])])
    rows = plain(state(node, pods=ListedPods(snapshot=held, at=NOON)))["gpus"]
    assert [row["holders"] for row in rows] == [[], ["pod 1"], [], []]


def test_pods_have_no_names_unless_a_setting_allows_them() -> None:
    made = busy()
    assert "trainer-0" not in body(made) + body(made, "/status.json")
    assert "research" not in body(made) + body(made, "/status.json")
    named = dataclasses.replace(made, shows_pods=True)
    assert "research/trainer-0" in body(named)
    assert plain(named)["gpus"][0]["holders"] == ["research/trainer-0"]


def _with_finding(made: PageState, code: str, text: str) -> PageState:
    """Return *made* with one finding that says *text*."""
    results = tuple(
        replace(
            result,
            verdict=Verdict.FAIL,
            severity=Severity.ERROR,
            skipped=None,
            waived=None,
            findings=(Finding(subject=text, observed="seen", expected="wanted"),),
        )
        for result in made.reports["audit"].results
        if result.rule.code == code
    )
    assert results
    report = Report(node=None, captured_at=None, results=results)
    return dataclasses.replace(made, reports={"audit": report})


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("POD-001", "ended/gone"),
        ("KUB-001", "container main of trainer-0"),
        ("QOS-001", "main-of-x9"),
    ],
)
def test_findings_that_name_pods_are_withheld_with_the_pods(code: str, text: str) -> None:
    made = _with_finding(busy(), code, text)
    shown = body(made)
    assert text not in shown
    assert "status-page-pods" in shown
    assert code in shown
    assert text in body(dataclasses.replace(made, shows_pods=True))


def test_a_pod_that_ended_since_the_audit_is_not_named() -> None:
    made = _with_finding(busy(), "KUB-001", "left by gone-pod-1")
    assert "gone-pod-1" in body(made)  # nothing says that it is a pod
    assert "gone-pod-1" not in body(dataclasses.replace(made, pod_names=frozenset({"gone-pod-1"})))


def test_a_pod_keeps_its_number_while_it_runs() -> None:
    node = machine("l40s-pcie-4")
    ids = [gpu.id for gpu in node.gpus]
    pods: list[Pod] = [pod("b", ids[:1]), pod("c", ids[1:2])]
    made = [state(node, pods=ListedPods(snapshot=with_kubelet(node, pods), at=NOON))]
    page = StatusPage(lambda: made[-1])

    def holders() -> list[list[str]]:
        found = page.answer("/status.json")
        assert found is not None
        return [row["holders"] for row in json.loads(found.body)["gpus"]]

    assert holders() == [["pod 1"], ["pod 2"], [], []]
    pods = [pod("a", ids[2:3]), pods[1]]
    later = NOON.replace(minute=1)
    made.append(state(node, pods=ListedPods(snapshot=with_kubelet(node, pods), at=later)))
    assert holders() == [[], ["pod 2"], ["pod 1"], []]


def test_findings_come_with_cure_and_place_in_the_documentation() -> None:
    made = busy()
    rows = {row["code"]: row for row in plain(made)["findings"]}
    assert "KUB-001" in rows
    text = body(made)
    for row in rows.values():
        assert row["remedy"]
        assert f"nodetopo explain {row['code']}" in text
        assert row["page"] in text


def test_inputs_that_a_report_lacks_are_named_once() -> None:
    audit = next(row for row in plain(busy())["reports"] if row["report"] == "audit")
    assert audit["unknown"] > 0
    assert audit["missing"]
    assert "could not evaluate" in body(busy())


def test_sizes_are_answered_as_the_kubelet_would() -> None:
    rows = plain(busy())["sizes"]
    shown = [(row["first"], row["last"], row["admitted"], row["text"]) for row in rows]
    assert shown == [
        (1, 1, True, "from NUMA node 0"),
        (2, 3, True, "from NUMA node 1"),
        (4, 8, False, "TopologyAffinityError"),
    ]


def test_sizes_are_not_known_without_the_pods() -> None:
    made = dataclasses.replace(busy(), pods=None)
    (row,) = plain(made)["sizes"]
    assert (row["first"], row["last"], row["admitted"]) == (1, 8, None)
    assert "? unknown" in body(made)
    assert "✓ admitted" not in body(made)


def test_gpus_are_unknown_while_nvml_is_silent_or_health_is_not_watched() -> None:
    assert {row["state"] for row in plain(STATES["nvml-dead"]())["gpus"]} == {"unknown"}
    node = machine("l40s-pcie-4")
    assert {row["state"] for row in plain(state(node, health=None))["gpus"]} == {"unknown"}


def test_allocations_name_gpus_and_reasons() -> None:
    (row,) = plain(busy())["allocations"]
    assert (row["devices"], row["by"]) == ("GPU0, GPU1", "nodetopo")
    assert "450 GB/s in a ring" in body(busy())


def hostile(text: str) -> PageState:
    """Return a state in which every string that others choose is *text*."""
    made = busy("l40s-pcie-4")
    node = made.snapshot
    assert node is not None
    gpus = tuple(replace(gpu, product=f"{text}{gpu.index}") for gpu in node.gpus)
    ids = [gpu.id for gpu in gpus]
    odd = replace(node, node=text, gpus=gpus, product_name=text, driver_version=text, cpu=None)
    listed = with_kubelet(odd, [replace(pod(text, ids[:1]), namespace=text)])
    finding = _with_finding(made, "KUB-001", text)
    allocation = replace(made.allocations[0], said=text, resource=text)
    return dataclasses.replace(
        finding,
        node=text,
        version=text,
        simulated=text,
        snapshot=odd,
        settings=((text, text),),
        not_ready=f"Reason: {text}",
        health={ids[0]: replace(BROKEN, said=text, reason=text)},
        nvml=replace(made.nvml, trouble=next(iter(_troubles())), cause=text, cure=text),
        pods=ListedPods(snapshot=listed, at=NOON),
        shows_pods=True,
        refusals=(text,),
        resources=tuple(replace(one, name=text, problem=text) for one in made.resources),
        allocations=(allocation,),
        labels={text: text},
        label_outputs=(text,),
    )


def _troubles() -> Iterator[Any]:
    from nodetopo.model.nvml_event import NvmlTrouble  # noqa: PLC0415 - of this alone

    yield from NvmlTrouble


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_words_stay_words(text: str) -> None:
    usual = read(body(hostile("plain words")))
    shown = body(hostile(text))
    reader = read(shown)
    assert set(reader.names) == set(usual.names)
    assert {(tag, name) for tag, name, _ in reader.attributes} == {
        (tag, name) for tag, name, _ in usual.attributes
    }
    for char in shown:
        assert char == "\n" or char.isprintable() or char == "\xa0"
        assert char not in "\u202e\u2066\u200f\x1b\x00"
    # What `jq -r` would write: JSON alone only escapes it.
    for word in _texts(json.loads(body(hostile(text), "/status.json"))):
        assert word == clean(word)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, inner in value.items():
                yield from (key, *_texts(inner))
        case list():
            for inner in value:
                yield from _texts(inner)


def test_a_page_is_made_once_for_each_state(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(state: PageState, numbers: PodNumbers) -> View:
        made.append(1)
        return view(state, numbers)

    monkeypatch.setattr("nodetopo.components.page.answer.view", counted)
    states = [busy()]
    page = StatusPage(lambda: dataclasses.replace(states[-1]))
    first = page.answer("/")
    assert first is not None
    again = page.answer("/status")
    assert again is not None
    assert first.body is again.body
    page.answer("/status.json")
    assert len(made) == 1
    states.append(dataclasses.replace(states[0], generation=2))
    page.answer("/")
    assert len(made) == 2


def test_a_request_opens_nothing() -> None:
    page = StatusPage(busy)
    page.answer("/")  # loads what it needs
    opened: list[str] = []
    is_on = [True]

    def listen(event: str, _arguments: tuple[Any, ...]) -> None:
        if is_on and event.split(".", maxsplit=1)[0] in WATCHED:
            opened.append(event)

    made = busy()
    fresh = StatusPage(lambda: made)
    sys.addaudithook(listen)
    try:
        fresh.answer("/")
        fresh.answer("/status.json")
    finally:
        is_on.clear()
    assert opened == []


@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("", None),
        ("?refresh=30", 30),
        ("?refresh=1", 5),
        ("?refresh=99999", 3600),
        ("?refresh=9999999", None),
        ("?refresh=-5", None),
        ("?refresh=٣", None),
        ('?refresh=5;url="http://x"', None),
        ("?refresh=", None),
        ("?" + "&".join(f"a{at}=1" for at in range(50)), None),
    ],
)
def test_the_page_loads_itself_again_only_if_asked(query: str, seconds: int | None) -> None:
    reader = read(body(busy("l40s-pcie-4"), f"/{query}"))
    found = [value for tag, name, value in reader.attributes if (tag, name) == ("meta", "content")]
    times = [value for value in found if value is not None and value.isdigit()]
    assert times == ([] if seconds is None else [str(seconds)])


def test_requests_of_many_forms_keep_few() -> None:
    made = busy("l40s-pcie-4")
    page = StatusPage(lambda: made)
    for seconds in range(10, 60):
        assert page.answer(f"/?refresh={seconds}") is not None
    assert len(page._bodies) <= 4


def test_other_paths_are_not_answered() -> None:
    page = StatusPage(busy)
    assert page.answer("/favicon.ico") is None
    assert page.answer("/status/") is None
    assert page.answer("/metrics") is None


def test_answers_may_not_be_framed_kept_or_read_by_others() -> None:
    found = StatusPage(busy).answer("/")
    assert found is not None
    assert found.headers == HEADERS
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "script-src" not in policy
    assert "frame-ancestors 'none'" in policy
    assert HEADERS["Cache-Control"] == "no-store"
    assert HEADERS["X-Content-Type-Options"] == "nosniff"


def test_the_offered_resource_is_shown() -> None:
    text = body(busy())
    assert GPU in text
    assert "7 healthy, 1 unhealthy" in text


@every_state
@pytest.mark.parametrize("shows_pods", [False, True])
def test_the_page_as_json_has_the_shape_that_its_schema_promises(
    name: str, *, shows_pods: bool
) -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    made = dataclasses.replace(STATES[name](), shows_pods=shows_pods)
    Draft202012Validator(schema).validate(plain(made))
