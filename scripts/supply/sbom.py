"""Write the image's Python packages as a CycloneDX document: ``python -m scripts.supply.sbom``.

The packages, their versions and the hashes of their files are those of the runtime lock. Licences,
and what needs what, come from the metadata of the packages installed here, which are of the same
versions. The document carries no time, so that the same lock always gives the same document. The
base image's packages are not in it: ``docker buildx build --sbom=true`` attests them.
"""

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import nodetopo

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements-runtime.lock"

_PIN = re.compile(r"([a-z0-9-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)")
_NAME = "nodetopo"


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock; *hashes* are SHA-256, of each file that may be installed."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def purl(self) -> str:
        """The package URL (github.com/package-url/purl-spec, type pypi)."""
        return f"pkg:pypi/{self.name}@{self.version}"


def pins(lock: Path) -> tuple[Pin, ...]:
    """Return the packages of *lock*, in its order.

    Raises:
        ValueError: a line is not of the form that ``scripts/lock`` writes.
    """
    entries = lock.read_text("utf-8").replace("\\\n", " ").splitlines()
    return tuple(_pin(entry.strip()) for entry in entries if entry.strip())


def _pin(entry: str) -> Pin:
    matched = _PIN.fullmatch(entry)
    if not matched:
        raise ValueError(f"not a pinned package with hashes: {entry[:80]!r}")
    name, version, hashes = matched.groups()
    return Pin(name, version, tuple(re.findall(r"sha256:(\w+)", hashes)))


def document(lock: Path = LOCK) -> dict[str, Any]:
    """Return the bill of materials, in the form of CycloneDX 1.6 (cyclonedx.org/docs/1.6/json).

    Raises:
        ValueError: *lock* cannot be read.
        PackageNotFoundError: a package of it is not installed.
    """
    found = pins(lock)
    refs = {pin.name: pin.purl for pin in found}
    root = f"pkg:pypi/{_NAME}@{nodetopo.__version__}"
    direct = [refs[name] for name in _needed(distribution(_NAME)) if name in refs]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": _NAME,
                "version": nodetopo.__version__,
                "purl": root,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": [_component(pin) for pin in found],
        "dependencies": [
            {"ref": root, "dependsOn": sorted(direct)},
            *(
                {
                    "ref": pin.purl,
                    "dependsOn": sorted(
                        refs[name] for name in _needed(distribution(pin.name)) if name in refs
                    ),
                }
                for pin in found
            ),
        ],
    }


def _component(pin: Pin) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": content} for content in pin.hashes]
    return {
        "type": "library",
        "bom-ref": pin.purl,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.purl,
        **_licences(distribution(pin.name)),
        # A package has one file for each platform; the image has one of those listed.
        "externalReferences": [{"type": "distribution", "url": pin.purl, "hashes": hashes}],
    }


def _licences(package: Distribution) -> dict[str, Any]:
    """Return the licence as its package states it; nothing where it states none."""
    metadata = package.metadata
    for expression in metadata.get_all("License-Expression") or ():  # SPDX, PEP 639
        return {"licenses": [{"expression": expression}]}
    names = [
        line.rpartition(" :: ")[2]
        for line in metadata.get_all("Classifier") or ()
        if line.startswith("License :: OSI Approved :: ")
    ]
    stated = [line.strip() for line in metadata.get_all("License") or ()]
    names = names or [line for line in stated if line and "\n" not in line]
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


def _needed(package: Distribution) -> Iterator[str]:
    """Yield the packages that *package* needs here, without those of extras."""
    seen = set()
    for line in package.requires or ():
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_needed and name not in seen:
            seen.add(name)
            yield name


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=2)
    sys.stdout.write("\n")
