"""A scan that is to fail."""

import pytest

from nodetopo.errors import NvmlUnavailable
from nodetopo.model.nvml_event import NvmlStatus
from nodetopo.probes.nvml.supervisor import NvmlSupervisor


def fails(supervisor: NvmlSupervisor) -> NvmlStatus:
    """Scan, which fails, and return how that ended."""
    with pytest.raises(NvmlUnavailable):
        supervisor.scan()
    return supervisor.status
