"""Rules that judge each GPU, or each HCA, by itself."""

from collections.abc import Callable, Iterable
from typing import TypeVar, Unpack

from agent.checks.inputs import (
    gpu_label,
    hca_label,
    missing_hcas,
    missing_of_gpus,
    no_gpus,
    own_adapters,
    unknown_of,
)
from agent.checks.rule import Finding, Judgement, Reason, Rule, Severity, Texts, rule
from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.snapshot import Snapshot

_T = TypeVar("_T")
_Device = TypeVar("_Device", Gpu, Hca)


class _UnknownError(Exception):
    """The device lacks a fact that the rule needs."""


def known(value: _T | None) -> _T:
    """Return *value*; with None, the rule names the device among those that it cannot judge."""
    if value is None:
        raise _UnknownError
    return value


def gpu_rule(
    code: str,
    severity: Severity,
    what: str,
    *,
    expected: str,
    unless: Reason | tuple[Reason, ...] = no_gpus,
    **texts: Unpack[Texts],
) -> Callable[[Callable[[Gpu], str | None]], Rule]:
    """Return a decorator that makes a function of one GPU a rule on every GPU.

    Args:
        what: the input that :func:`known` requires, in words.
    """

    def decorated(observe: Callable[[Gpu], str | None]) -> Rule:
        def judge(snapshot: Snapshot) -> Judgement:
            silent: list[str] = []
            yield from _findings(snapshot.gpus, observe, gpu_label, expected, silent)
            yield from missing_of_gpus(snapshot, what, silent)

        return rule(code, severity, unless=unless, **texts)(judge)

    return decorated


def hca_rule(
    code: str,
    severity: Severity,
    what: str,
    *,
    expected: str,
    unless: Reason | tuple[Reason, ...],
    **texts: Unpack[Texts],
) -> Callable[[Callable[[Hca], str | None]], Rule]:
    """Return a decorator that makes a function of one HCA a rule on every adapter with a link."""

    def decorated(observe: Callable[[Hca], str | None]) -> Rule:
        def judge(snapshot: Snapshot) -> Judgement:
            silent: list[str] = []
            hcas = own_adapters(snapshot)
            yield from _findings(hcas, observe, hca_label, expected, silent)
            yield from missing_hcas(snapshot)
            yield from unknown_of(what, silent)

        return rule(code, severity, unless=unless, **texts)(judge)

    return decorated


def _findings(
    devices: Iterable[_Device],
    observe: Callable[[_Device], str | None],
    label: Callable[[_Device], str],
    expected: str,
    silent: list[str],
) -> Judgement:
    """Yield a finding for each observation; add devices that lack a fact to *silent*."""
    for device in devices:
        try:
            observed = observe(device)
        except _UnknownError:
            silent.append(device.name)
            continue
        if observed is not None:
            yield Finding(subject=label(device), observed=observed, expected=expected)
