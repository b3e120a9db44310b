"""What the newer settings may be, and what is refused."""

from pathlib import Path

import pytest

from nodetopo.deviceplugin.cdi import OWN_KIND
from nodetopo.errors import InputError
from nodetopo.kernel.settings import values
from nodetopo.model.gpu_health import HealthClass
from tests.kernel.settings.resolving import resolve


@pytest.mark.parametrize(
    ("yaml", "field", "value"),
    [
        ("exclude-gpus: 3", "exclude_gpus", ("3",)),
        ("exclude-gpus: [3, GPU-ab, '*T4*', 3]", "exclude_gpus", ("3", "GPU-ab", "*T4*")),
        ("exclude-gpus: GPU1, 0000:3b:00.0", "exclude_gpus", ("GPU1", "0000:3b:00.0")),
        ("exclude-gpus: none", "exclude_gpus", ()),
        ("registration: both", "registration", "both"),
        ("plugins-registry-dir: /r", "plugins_registry_dir", Path("/r")),
        ("cdi-annotation-prefix: a.b/c_", "cdi_annotation_prefix", "a.b/c_"),
        ("imex-channels: [0]", "imex_channels", (0,)),
        ("imex-channels: '0'", "imex_channels", (0,)),
        ("imex-channels: []", "imex_channels", ()),
        ("imex-channels: none", "imex_channels", ()),
        ("cdi-spec: write", "cdi_spec", "write"),
        ("cdi-disable-hooks: [all]", "cdi_disable_hooks", ("all",)),
        ("cdi-disable-hooks: none", "cdi_disable_hooks", ()),
        ("health-file: none", "health_file", None),
        ("health-file: /h.json", "health_file", Path("/h.json")),
        ("kernel-log: /dev/kmsg", "kernel_log", Path("/dev/kmsg")),
        ("recovery: 2m", "recovery_s", 120.0),
        ("recovery: 0", "recovery_s", 0.0),
        ("config-dir: /c", "config_dir", Path("/c")),
        ("config-label: pool", "config_label", "pool"),
        ("default-config: big", "default_config", "big"),
        ("default-config: none", "default_config", None),
        ("config-fallbacks: [empty]", "config_fallbacks", ("empty",)),
        ("xid-classes: none", "xid_classes", {}),
        ("xid-classes: 79=rma", "xid_classes", {79: HealthClass.RMA}),
        ("xid-classes: {79: rma}", "xid_classes", {79: HealthClass.RMA}),
        (
            "xid-classes: 3-5=app, 4=reset",
            "xid_classes",
            {3: HealthClass.APP, 4: HealthClass.RESET, 5: HealthClass.APP},
        ),
    ],
)
def test_a_value_is_read(yaml: str, field: str, value: object) -> None:
    found = getattr(resolve(yaml).settings, field)
    assert (dict(found) if isinstance(value, dict) else found) == value


@pytest.mark.parametrize(
    ("yaml", "words"),
    [
        ("exclude-gpus: [a, '']", "not a printable text"),
        ("exclude-gpus: null", "not a printable text"),
        ("exclude-gpus: [true]", "not a printable text"),
        ("registration: socketed", "did you mean 'socket'?"),
        ("cdi-annotation-prefix: a b/", "not the beginning of an annotation"),
        ("imex-channels: 1", "neither none nor channel 0 alone"),
        ("imex-channels: [0, 1]", "neither none nor channel 0 alone"),
        ("cdi-hook: hook", "a relative path"),
        ("recovery: soon", "not a duration"),
        ("config-label: 'a b'", "not the key of a label"),
        ("config-fallbacks: []", "not a list of different values"),
        ("config-fallbacks: first", "not one of named, single, empty"),
        ("xid-classes: '79'", "not one of app, degraded, reset, reboot, rma"),
        ("xid-classes: 79=fatal", "not one of app, degraded, reset, reboot, rma"),
        ("xid-classes: x=app", "without an XID such as 79, or 100-199, where 'x' stands"),
        ("xid-classes: 0=app", "not about XIDs from 1 to 1023"),
        ("xid-classes: 9-3=app", "not about XIDs from 1 to 1023, the lower first: 9-3"),
        ("xid-classes: 1-1024=app", "not about XIDs from 1 to 1023"),
    ],
)
def test_what_does_not_do_is_refused(yaml: str, words: str) -> None:
    with pytest.raises(InputError) as raised:
        resolve(yaml)
    assert words in str(raised.value)


def test_a_specification_of_ours_names_devices_as_nobody_else_does() -> None:
    found = resolve("cdi-spec: write")
    assert found.settings.cdi_kind == OWN_KIND
    assert found.origins["cdi_kind"] == "default, as cdi-spec is write"
    assert resolve("{cdi-spec: write, cdi-kind: a.b/gpu}").settings.cdi_kind == "a.b/gpu"
    with pytest.raises(InputError, match=r"cdi-kind: the CDI kind nvidia\.com/x is for NVIDIA's"):
        resolve("{cdi-spec: write, cdi-kind: nvidia.com/x}")


def test_where_device_nodes_are_is_looked_up_unless_said() -> None:
    assert resolve("driver-root: /run/driver").settings.dev_root is None
    assert resolve("{driver-root: /run/driver, dev-root: /}").settings.dev_root == Path("/")


@pytest.mark.parametrize("text", ["none", "13=app", "1-12=app,13=reset,14-20=app,79-80=reboot"])
def test_classes_are_printed_as_they_are_read(text: str) -> None:
    assert str(resolve(flags={"xid_classes": text}).settings.xid_classes) == text


@pytest.mark.parametrize(
    ("flags", "expected"),
    [({}, False), ({"publish_labels": True}, True), ({"kubeconfig": "/k"}, True)],
)
def test_events_are_published_where_labels_are(flags: dict[str, object], *, expected: bool) -> None:
    assert resolve(flags=flags).settings.publish_events is expected
    assert not resolve(flags={**flags, "publish_events": False}).settings.publish_events


@pytest.mark.parametrize("value", ["gpu.topology/", "topo.acme.com/", "a/"])
def test_a_prefix_of_labels_is_a_domain_and_a_slash(value: str) -> None:
    assert values.label_prefix(value) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("gpu.topology", "not the beginning"),
        ("/", "not the beginning"),
        ("Acme.com/", "not the beginning"),
        ("a.b/c/", "not the beginning"),
        ("nvidia.com/", "reserved"),
        ("gpu.nvidia.com/", "reserved"),
        ("kubernetes.io/", "reserved"),
        ("topology.k8s.io/", "reserved"),
    ],
)
def test_a_prefix_that_is_none_or_anothers_is_refused(value: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        values.label_prefix(value)


@pytest.mark.parametrize("value", ["Kube", "a.b", "-a", "a" * 64, ""])
def test_what_cannot_be_a_namespace_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="not"):
        values.namespace(value)


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("https://10.0.0.7:10250", "https://10.0.0.7:10250"),
        ("https://[10.0.0.7]:10250/", "https://10.0.0.7:10250"),
        ("https://[fd00::7]:10250", "https://[fd00::7]:10250"),
        ("https://node-1.example:10250", "https://node-1.example:10250"),
        ("none", None),
    ],
)
def test_the_kubelets_address_may_stand_in_brackets(value: str, url: str | None) -> None:
    assert values.kubelet_url(value) == url


@pytest.mark.parametrize(
    "value", ["http://10.0.0.7:10250", "10.0.0.7:10250", "https://:10250", "https://a/b:1", 7]
)
def test_what_is_no_address_of_a_kubelet_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"https://host:port|names no host|text"):
        values.kubelet_url(value)
