"""What the kubelet says that it runs with: the answer of its ``/configz``.

``{"kubeletconfig": {…}}``, the KubeletConfiguration after files, drop-ins, flags and defaults
(k8s.io/component-base v0.36.3 configz/configz.go). Since 1.36 it carries kind and apiVersion. Flags
that are no field of it, such as ``--root-dir``, do not show; of feature gates only those that
were stated.
"""

from agent.errors import DecodeError
from agent.formats import json
from agent.model.kubelet import CONFIGZ, KubeletSettings
from agent.probes.kubelet.fields import settings_of

COMPONENT = "kubeletconfig"
"""The name under which the kubelet registers (cmd/kubelet/app/server.go, initConfigz)."""

_ASK = "ask the kubelet's own address for /configz"
_ALWAYS_THERE = "cpuManagerPolicy"
"""A field that defaulting fills, and that has been in the answer since Kubernetes 1.10."""


def settings_from_configz(text: str) -> KubeletSettings:
    """Return the settings that the kubelet runs with.

    Raises:
        DecodeError: *text* is no answer of a kubelet's ``/configz``.
    """
    try:
        answer = json.load(text)
    except ValueError as error:
        raise DecodeError("", str(error), _ASK) from None
    config = answer.get(COMPONENT) if isinstance(answer, dict) else None
    if not isinstance(config, dict) or _ALWAYS_THERE not in config:
        raise DecodeError(COMPONENT, "no configuration of a kubelet", _ASK)
    try:
        return settings_of(config, CONFIGZ)
    except DecodeError as error:
        raise error.under(COMPONENT) from None
