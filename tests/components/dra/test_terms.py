"""When DRA concerns a node, and what that asks of the GPUs."""

from pathlib import Path

import pytest

from nodetopo.components.dra.component import Dra
from nodetopo.components.dra.terms import needs_driver
from nodetopo.errors import InputError
from tests.kernel.running import component_of, kernel_of, loops, running, with_settings

FILE = '{"schema": "nodetopo-claims/v1", "pool": "gpu-1", "claims": [%s]}'
CLAIM = '{"uid": "1", "namespace": "ml", "name": "c", "devices": []}'


@pytest.mark.parametrize("offer", ["auto", "always", "never"])
def test_slices_are_followed_whatever_is_offered_for_that_may_change(
    tmp_path: Path, offer: str
) -> None:
    (tmp_path / "none").write_text("")
    kernel = kernel_of(tmp_path, offer_gpus=offer)
    assert loops(kernel, ["dra"]) == ["slices"]
    assert kernel.claims is component_of(kernel, Dra).neighbours
    assert kernel.published() is None


def test_no_slices_are_followed_for_one_look_or_without_an_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert loops(kernel_of(tmp_path, once=True), ["dra"]) == []
    assert loops(kernel_of(tmp_path, kubeconfig=None), ["dra"]) == []
    with pytest.raises(InputError, match="needs an API server"):
        loops(kernel_of(tmp_path, kubeconfig=None, dra=True), ["dra"])


@pytest.mark.parametrize(
    ("text", "is_needed"),
    [
        (None, False),
        (FILE % "", False),
        (FILE % CLAIM, True),
        ("{", True),
        ("[]", True),
        (FILE.replace("v1", "v2") % "", True),
        (FILE.replace("[", '[], "is_complete": false, "a": [') % "", True),
    ],
)
def test_our_dra_driver_runs_on_for_the_claims_that_it_left(
    tmp_path: Path, text: str | None, *, is_needed: bool
) -> None:
    (tmp_path / "none").write_text("")
    if text is not None:
        (tmp_path / "claims.json").write_text(text)
    kernel = kernel_of(tmp_path, health_file=tmp_path / "health.json")
    assert needs_driver(kernel) is is_needed
    with_settings(kernel, dra=True)
    assert needs_driver(kernel)


@pytest.mark.parametrize(("dra", "has_claims"), [(False, True), (True, False)])
def test_containers_of_claims_that_are_left_need_names_of_gpus(
    tmp_path: Path, *, dra: bool, has_claims: bool
) -> None:
    (tmp_path / "claims.json").write_text(FILE % CLAIM)
    with running("gpus", "dra", dra=dra, health_file=tmp_path / "health.json") as kernel:
        assert kernel.gpus is not None
        assert kernel.gpus.has_claims is has_claims
