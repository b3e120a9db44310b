"""Every request that the kubelet's own test expects it to make, made to the plugin."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import yaml
from msgspec import Struct

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.machines.bundled import machine
from tests.allocation.brute_force import BruteForce
from tests.deviceplugin.conftest import RESOURCE
from tests.deviceplugin.machines import ANSWERS, whole
from tests.generous_deadlines import GENEROUS

WAIT_S = 60.0


class Shape(Struct, frozen=True, kw_only=True):
    """One request on one machine, in GPU indices; *gpus* is our answer."""

    number: int
    machine: str
    available: tuple[int, ...]
    required: tuple[int, ...]
    size: int
    gpus: tuple[int, ...]


def shapes() -> Iterator[Shape]:
    text = Path(__file__).with_name("call_shapes.yaml").read_text("utf-8")
    for vector in yaml.safe_load(text)["vectors"]:
        for answer in vector["answers"]:
            yield Shape(
                number=vector["numbers"][0],
                machine=answer["machine"],
                available=tuple(vector["asked"]["available"]),
                required=tuple(vector["asked"]["required"]),
                size=vector["asked"]["size"],
                gpus=tuple(answer["gpus"]),
            )


every_shape = pytest.mark.parametrize(
    "shape", tuple(shapes()), ids=lambda shape: f"{shape.number}/{shape.machine}"
)


@every_shape
@pytest.mark.parametrize("step", [1, -1], ids=["ascending", "descending"])
def test_a_request_of_the_kubelet_gets_our_best_set_in_whatever_order_it_is_sent(
    start_kubelet: Callable[[], FakeKubelet],
    opened: ExitStack,
    socket_dir: Path,
    shape: Shape,
    step: int,
) -> None:
    snapshot, kubelet = machine(shape.machine), start_kubelet()
    ids = [gpu.id for gpu in snapshot.gpus]
    plugin = DevicePlugin(
        RESOURCE, socket_dir, partial(preferred, Allocator(snapshot)), ANSWERS, deadlines=GENEROUS
    )
    opened.callback(plugin.stop)
    plugin.update(whole(snapshot).devices)
    plugin.start()
    kubelet.wait_registered(WAIT_S)

    answer = kubelet.preferred(
        shape.size,
        available=[ids[gpu] for gpu in shape.available[::step]],
        required=[ids[gpu] for gpu in shape.required[::step]],
    )

    assert sorted(answer) == sorted(ids[gpu] for gpu in shape.gpus)


@every_shape
def test_our_answer_on_file_is_the_best_by_brute_force(shape: Shape) -> None:
    truth = BruteForce(machine(shape.machine))

    assert truth.answer(shape.available, shape.required, shape.size) == shape.gpus


@every_shape
def test_our_answer_on_file_has_the_size_and_keeps_what_is_required(shape: Shape) -> None:
    assert len(set(shape.gpus)) == shape.size
    assert set(shape.required) <= set(shape.gpus) <= set(shape.available)
