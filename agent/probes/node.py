"""The live node, read again and again: a scan that fails keeps what the last one found."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from agent.errors import NvmlUnavailable
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.discover import Roots, discover
from agent.probes.nvml import NvmlReading
from agent.probes.nvml_supervisor import NvmlSupervisor


class NodeReader:
    """Reads one node through NVML and the given roots, for as long as the daemon lives."""

    def __init__(self, roots: Roots, *, node: str, nvml_library: Path | None = None) -> None:
        self._roots = roots
        self._node = node
        self._supervisor = NvmlSupervisor(nvml_library)
        self._last: NvmlReading | None = None

    def read(self) -> Snapshot:
        """Return the node as it is now.

        While NVML does not answer, its part is that of the last good scan, with an issue of
        the probe ``nvml`` that says so: devices must not vanish because a driver call hangs.
        """
        now = datetime.now(UTC).replace(microsecond=0)
        return discover(self._roots, self._nvml, node=self._node, captured_at=now)

    def close(self) -> None:
        """End the NVML child."""
        self._supervisor.close()

    def _nvml(self) -> NvmlReading:
        try:
            self._last = self._supervisor.scan()
        except NvmlUnavailable as error:
            if self._last is None:
                raise
            issue = ProbeIssue(probe="nvml", subject="", reason=error.cause)
            return replace(self._last, issues=(*self._last.issues, issue))
        return self._last
