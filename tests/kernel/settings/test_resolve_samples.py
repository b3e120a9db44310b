"""Configurations that NVIDIA documents for its device plugin: each is taken, or refused clearly.

The files have the keys of the examples in the README and the Helm chart of k8s-device-plugin
v0.19.0, and one has every key of ``api/config/v1``.
"""

from pathlib import Path

import pytest

from nodetopo.errors import InputError
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.settings.named import chosen, listed
from nodetopo.kernel.settings.origin import ConfigFile, SettingSource
from nodetopo.kernel.settings.policies import TimeSlicing
from nodetopo.kernel.settings.resolve import Resolved

SAMPLES = Path(__file__).parent / "samples"
GPU = "nvidia.com/gpu"


def loaded(name: str) -> Resolved:
    text = (SAMPLES / name).read_text(encoding="utf-8")
    file = ConfigFile(name=name, text=text)
    return Resolved.of(flags={"node_name": "n"}, environment={}, file=file)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flags.yaml", Settings(node_name="n", device_list_strategy=("envvar",))),
        (
            "time_slicing.yaml",
            Settings(node_name="n", time_slicing=TimeSlicing(replicas={GPU: 10})),
        ),
        (
            "time_slicing_renamed.yaml",
            Settings(node_name="n", time_slicing=TimeSlicing(replicas={GPU: 10}, is_renamed=True)),
        ),
        (
            "time_slicing_one_each.yaml",
            Settings(
                node_name="n",
                time_slicing=TimeSlicing(replicas={GPU: 10}, fails_requests_greater_than_one=True),
            ),
        ),
        (
            "time_slicing_mig.yaml",
            Settings(
                node_name="n",
                mig_strategy="mixed",
                time_slicing=TimeSlicing(
                    replicas={GPU: 2, "nvidia.com/mig-1g.5gb": 2, "nvidia.com/mig-2g.10gb": 4}
                ),
            ),
        ),
        (
            "every_key.yaml",
            Settings(
                node_name="n",
                mig_strategy="mixed",
                driver_root=Path("/run/nvidia/driver"),
                dev_root=Path("/"),
                gdrcopy=True,
                gds=True,
                device_list_strategy=("cdi-annotations", "volume-mounts", "device-specs"),
                cdi_hook=Path("/usr/bin/nvidia-ctk"),
                imex_channels=(0,),
                time_slicing=TimeSlicing(
                    replicas={GPU: 4, "nvidia.com/mig-1g.5gb": 2},
                    fails_requests_greater_than_one=True,
                ),
            ),
        ),
    ],
)
def test_a_documented_file_of_nvidias_has_the_same_meaning(name: str, expected: Settings) -> None:
    assert loaded(name).settings == expected


def test_of_every_key_the_ignored_ones_are_named() -> None:
    said = " | ".join(loaded("every_key.yaml").warnings)
    ignored = (
        "key resources.gpus has no effect",
        "key resources.mig has no effect",
        "key flags.gfd.sleepInterval has no effect",
        "key flags.gfd.outputFile has no effect",
        "sharing.timeSlicing.resources[1].devices is ignored",
        "sharing.timeSlicing.resources[1].rename is ignored",
    )
    assert [words for words in ignored if words not in said] == []
    assert "unknown key" not in said


@pytest.mark.parametrize("name", ["mps.yaml", "mps_renamed.yaml"])
def test_mps_is_refused_with_what_to_do_instead(name: str) -> None:
    with pytest.raises(InputError) as raised:
        loaded(name)
    assert f"{name}:4:5: sharing.mps: MPS is not supported" in str(raised.value)
    assert "use sharing.timeSlicing" in raised.value.cure


@pytest.mark.parametrize(
    ("label", "name", "strategy"),
    [(None, "config0", "none"), ("config1", "config1", "mixed"), ("mig-single",) * 2 + ("single",)],
)
def test_the_documented_config_map_of_several_configs_gives_each_node_its_own(
    label: str | None, name: str, strategy: str
) -> None:
    found = chosen(
        listed(SAMPLES / "named"),
        label=label,
        label_key="nvidia.com/device-plugin.config",
        default="config0",
        fallbacks=("named", "single"),
    )
    assert (found.name, found.problem) == (name, None)
    assert found.path is not None
    text = found.path.read_text(encoding="utf-8")
    named = ConfigFile(name=name, text=text, place=SettingSource.NAMED_FILE)
    settings = Resolved.of(flags={"node_name": "n"}, environment={}, named=named).settings
    assert settings.mig_strategy == strategy
