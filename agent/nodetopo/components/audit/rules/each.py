"""Rules that judge each GPU, or each HCA, by itself."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from nodetopo.checks.inputs import (
    gpu_label,
    hca_label,
    missing_hcas,
    missing_of_gpus,
    no_adapters,
    no_gpus,
    own_adapters,
    unknown_of,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Reason, Rule, Severity, rule
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.snapshot import Snapshot

_T = TypeVar("_T")
_Device = TypeVar("_Device", Gpu, Hca)


class _UnknownError(Exception):
    """The device lacks a fact that the rule needs."""


def known(value: _T | None) -> _T:
    """Return *value*; for None, the rule lists the device as one that it cannot judge."""
    if value is None:
        raise _UnknownError
    return value


class _Devices(Generic[_Device]):
    """One kind of device: the devices that a rule judges, their names, and missing inputs."""

    def __init__(
        self,
        devices: Callable[[Snapshot], Iterable[_Device]],
        label: Callable[[_Device], str],
        missing: Callable[[Snapshot, str, list[str]], Iterable[Missing]],
        unless: Reason,
    ) -> None:
        self._devices: Callable[[Snapshot], Iterable[_Device]] = devices
        self._label: Callable[[_Device], str] = label
        self._missing = missing
        self._unless = unless

    def rule(
        self,
        code: str,
        severity: Severity,
        what: str,
        *,
        expected: str,
        unless: tuple[Reason, ...] | None = None,
    ) -> Callable[[Callable[[_Device], str | None]], Rule]:
        """Return a decorator that makes a rule of a function that observes one device.

        Args:
            what: the input that :func:`known` requires, in words.
            unless: replaces the reason that the node has no such device.
        """

        def decorated(observe: Callable[[_Device], str | None]) -> Rule:
            def judge(snapshot: Snapshot) -> Judgement:
                silent: list[str] = []
                for device in self._devices(snapshot):
                    try:
                        observed = observe(device)
                    except _UnknownError:
                        silent.append(device.name)
                        continue
                    if observed is not None:
                        subject = self._label(device)
                        yield Finding(subject=subject, observed=observed, expected=expected)
                yield from self._missing(snapshot, what, silent)

            reasons = (self._unless,) if unless is None else unless
            return rule(code, severity, unless=reasons)(judge)

        return decorated


def _missing_of_hcas(snapshot: Snapshot, what: str, silent: list[str]) -> tuple[Missing, ...]:
    return missing_hcas(snapshot) + unknown_of(what, silent)


gpu_rule = _Devices[Gpu](lambda snapshot: snapshot.gpus, gpu_label, missing_of_gpus, no_gpus).rule
hca_rule = _Devices[Hca](own_adapters, hca_label, _missing_of_hcas, no_adapters).rule
