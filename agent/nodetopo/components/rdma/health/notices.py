"""Notices for people about changes between two states of the HCAs."""

from collections.abc import Iterator

from nodetopo.components.rdma.health.hca import HcaRecord, HcaRules, HcaState, said
from nodetopo.model.notice import Notice


def hca_notices(before: HcaState, after: HcaState, rules: HcaRules) -> tuple[Notice, ...]:
    """Return the changes in *after*, HCA by HCA.

    An HCA that is Unhealthy when first seen causes no notice: a port without a cable would be an
    Event at each start, and the alerts cover it.
    """
    return tuple(
        notice
        for key, record in after.items()
        if key in before and record is not before[key]
        for notice in _changes(key, before[key], record, rules)
    )


def _changes(key: str, was: HcaRecord, now: HcaRecord, rules: HcaRules) -> Iterator[Notice]:
    named = f"{now.name} ({key})"
    if now.fault is not None and now.fault != was.fault:
        yield Notice(
            reason="HcaUnhealthy",
            message=f"{named}: {said(now, now.fault, rules)}",
            is_warning=True,
            gpu=None,
            key=f"{key} {now.fault.reason}",
        )
    if now.fault is None and was.fault is not None:
        yield Notice(
            reason="HcaRecovered",
            message=f"{named}: Healthy",
            is_warning=False,
            gpu=None,
            key=f"{key} recovered",
        )
    if now.falls != was.falls and len(now.falls) >= rules.flaps:
        times = f"{len(now.falls)} times within {rules.flap_s / 3600:g} h"
        yield Notice(
            reason="HcaFlapping",
            message=f"{named}: it turned Unhealthy {times}",
            is_warning=True,
            gpu=None,
            key=f"{key} flapping",
        )
