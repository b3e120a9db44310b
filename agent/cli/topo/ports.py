"""A port of an HCA in words."""

from agent.model.hca import HcaPort


def port_text(port: HcaPort) -> str:
    """Return e.g. ``InfiniBand 400 Gb/s``, with the state where it is not ACTIVE."""
    return " ".join(
        filter(
            None,
            (
                port.layer.value if port.layer else None,
                None if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s",
                None if port.state in (None, "ACTIVE") else port.state,
            ),
        ),
    )
