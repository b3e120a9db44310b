"""Which profiles GPUs have, by the names that NVIDIA's guide and mig-parted's examples give."""

import pytest

from nodetopo.components.audit.rules.mig_packing import (
    Geometry,
    geometry,
    is_capable,
    is_name,
    profile,
)
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Gpu, Mig, Virtualization

NAMED = {
    ("A100-SXM4-40GB", 8, 40960): "1g.5gb 1g.5gb.me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
    ("A100-SXM4-80GB", 8, 81920): "1g.10gb 1g.10gb.me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    ("H100 80GB HBM3", 8, 81559): "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
    ("H100 NVL", 8, 95830): "1g.12gb 1g.12gb.me 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
    ("GH200 480GB", 8, 97871): "1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb",
    ("GH200 144G HBM3e", 8, 146831): "1g.18gb 1g.36gb 2g.36gb 3g.72gb 4g.72gb 7g.144gb",
    ("H200", 8, 143771): "1g.18gb 1g.18gb.me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
    ("B200", 8, 183359): "1g.23gb 1g.23gb.me 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb",
    ("GB200", 8, 189471): "1g.24gb 1g.24gb.me 1g.47gb 2g.47gb 3g.95gb 4g.95gb 7g.189gb",
    ("B300", 8, 275040): "1g.34gb 1g.67gb 2g.67gb 3g.135gb 4g.135gb 7g.269gb",
    ("A30", 4, 24576): "1g.6gb 1g.6gb.me 2g.12gb 2g.12gb.me 4g.24gb",
    ("RTX PRO 6000 Blackwell Server Edition", 4, 97887): "1g.24gb.gfx 1g.24gb.me.all 1g.24gb-me "
    "2g.48gb 2g.48gb.gfx 2g.48gb-me 4g.96gb 4g.96gb.gfx",
}


@pytest.mark.parametrize(("gpu", "names"), NAMED.items(), ids=lambda it: str(it)[:30])
def test_a_gpu_has_the_profiles_that_nvidia_names(gpu: tuple[str, int, int], names: str) -> None:
    room = Geometry(gpu[0], gpu[1], gpu[2] / 1024)
    assert [name for name in names.split() if profile(name, room) is None] == []


@pytest.mark.parametrize(
    "name",
    ["1g.5gb", "2g.10gb", "1g.35gb", "3g.20gb", "5g.40gb", "7g.40gb", "1g.0gb", "1g.10gb.x", "x"],
)
def test_an_h100_has_no_profile_of_another_size(name: str) -> None:
    assert profile(name, Geometry("NVIDIA H100 80GB HBM3", 8, 81559 / 1024)) is None


def test_a_gpu_holds_one_profile_with_media_engines() -> None:
    room = Geometry("H100", 8, 80)
    limits = [found.most for name in ("1g.10gb", "1g.10gb.me") if (found := profile(name, room))]
    assert limits == [None, 1]


@pytest.mark.parametrize(
    ("name", "slices"),
    [
        ("dgx-h100", 8),
        ("hgx-b200", 8),
        ("gb200-nvl72", 8),
        ("a100-pcie-4", 8),
        ("rtxpro6000-pcie-8", 4),
    ],
)
def test_bundled_machines_have_gpus_of_known_division(name: str, slices: int) -> None:
    found = geometry(machine(name).gpus[0])
    assert found is not None
    assert found.slices == slices


@pytest.mark.parametrize("name", ["dgx-1v", "l40s-pcie-4", "ac922"])
def test_gpus_without_mig_are_known_to_have_none(name: str) -> None:
    assert {is_capable(gpu) for gpu in machine(name).gpus} == {False}


def _gpu(product: str, capability: tuple[int, int], mig: Mig | None = None) -> Gpu:
    return Gpu(index=0, product=product, compute_capability=capability, memory_mib=40960, mig=mig)


@pytest.mark.parametrize(
    ("gpu", "answer"),
    [
        (_gpu("NVIDIA A100-SXM4-40GB", (8, 0)), None),
        (_gpu("NVIDIA RTX PRO 5000 Blackwell", (12, 0)), None),
        (_gpu("NVIDIA RTX A3000", (8, 6)), False),
        (_gpu("NVIDIA GeForce RTX 5090", (12, 0)), False),
        (_gpu("NVIDIA RTX PRO 5000 Blackwell", (12, 0), Mig(is_enabled=False)), True),
        (Gpu(index=0), None),
    ],
    ids=lambda it: str(it)[:50],
)
def test_a_gpu_that_tells_no_mode_may_be_able_or_not(gpu: Gpu, answer: bool | None) -> None:
    assert is_capable(gpu) is answer


def test_a_virtual_gpu_of_an_a100_has_no_mode_and_needs_none() -> None:
    gpu = Gpu(
        index=0,
        product="GRID A100-10C",
        compute_capability=(8, 0),
        virtualization=Virtualization.VGPU,
    )
    assert is_capable(gpu) is False


def test_the_division_of_a_product_that_nobody_described_is_unknown() -> None:
    gpu = _gpu("NVIDIA RTX PRO 5000 Blackwell", (12, 0), Mig(is_enabled=False))
    assert geometry(gpu) is None


def test_only_profiles_of_one_compute_instance_are_names() -> None:
    names = ("1g.10gb", "1g.10gb.me", "1c.3g.40gb", "1g.10gb.shared", "")
    assert [is_name(name) for name in names] == [True, True, False, False, False]
