"""The version and the repository of a tree: every place that names them, and how they are changed.

``[project.urls]`` of pyproject.toml says which repository it is. Until there is a public one it is
:data:`PLACEHOLDER`, and the manifests name an image that only a local build has. A release is
tagged on a tree that is stamped: ``kubectl apply -k …?ref=v1.2.3`` reads the tag itself, which no
workflow could stamp afterwards.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PLACEHOLDER = "OWNER/nodetopo"
"""Stands for the repository's owner and name until a release is prepared."""

REGISTRY = "ghcr.io"

VERSION_FILE = "agent/nodetopo/__init__.py"
PROJECT = "pyproject.toml"
BASE = "deploy/daemonset/base/kustomization.yaml"
VALUES = "deploy/helm/values.yaml"
CHART = "deploy/helm/Chart.yaml"

VERSIONED = (
    VERSION_FILE,
    BASE,
    CHART,
    "Dockerfile",
    "README.md",
    "docs/operate/install.md",
    "docs/operate/distributions.md",
    "deploy/helm/README.md",
    "scripts/generators/chart.py",
)
"""Files that name the version; nothing else in them looks like the version of a release of ours."""

NAMING = (
    *VERSIONED,
    PROJECT,
    ".github/CODEOWNERS",
    ".github/ISSUE_TEMPLATE/config.yml",
    VALUES,
)
"""Files that can name the repository."""

_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_REPOSITORY = re.compile(r'^Repository = "https://github\.com/([^/"]+/[^/"]+)"$', re.MULTILINE)
_IMAGE_OF_BASE = re.compile(r"^(    newName: )(\S+)$", re.MULTILINE)
_TAG_OF_BASE = re.compile(r"^(    newTag: )(\S+)$", re.MULTILINE)
_IMAGE_OF_CHART = re.compile(r"^(  repository: )(\S+)$", re.MULTILINE)
_RUNBOOK = re.compile(r'^(    runbookPrefix: )"?([^"\n]*)"?$', re.MULTILINE)
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.]+)?")


class ReleaseError(Exception):
    """Why a tree cannot be released, and what to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version, and the repository that publishes it: ``owner/name``."""

    version: str
    repository: str

    @property
    def image(self) -> str:
        """The image without a tag; registries take lower case alone."""
        return f"{REGISTRY}/{self.repository.lower()}"

    @property
    def charts(self) -> str:
        """The place of charts, without ``oci://``."""
        return f"{REGISTRY}/{self.repository.split('/')[0].lower()}/charts"

    @property
    def url(self) -> str:
        """The repository on the web."""
        return f"https://github.com/{self.repository}"

    @property
    def runbook_prefix(self) -> str:
        """What the alerts' paths of the runbook follow."""
        return f"{self.url}/blob/v{self.version}/"

    def download(self, name: str) -> str:
        """Return where the file *name* of the release's page can be fetched."""
        return f"{self.url}/releases/download/v{self.version}/{name}"


def checked(version: str, repository: str) -> Release:
    """Return the release.

    Raises:
        ReleaseError: *version* is not like 1.2.3, or *repository* not like owner/name.
    """
    if not _RELEASE.fullmatch(version):
        raise ReleaseError(f"{version!r} is no version such as 1.2.3")
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII) or repository == PLACEHOLDER:
        raise ReleaseError(f"{repository!r} is no repository: set GITHUB_REPOSITORY to OWNER/NAME")
    return Release(version, repository)


def read(root: Path) -> Release:
    """Return the release of the tree at *root*; its repository can be the placeholder."""
    return Release(
        _only(_VERSION, root / VERSION_FILE).group(1), _only(_REPOSITORY, root / PROJECT).group(1)
    )


def stamp(root: Path, release: Release) -> None:
    """Name *release* in every file of the tree at *root*; done twice, it changes nothing."""
    before = read(root)
    for name in sorted({*NAMING}):
        path = root / name
        text = path.read_text("utf-8")
        if name in VERSIONED:
            own = rf"(?<![\d.]){re.escape(before.version)}(?![\w.]*\d)"
            text = re.sub(own, release.version, text)
        for old, new in (
            (f"{REGISTRY}/{_owner(before)}/charts", release.charts),
            (f"{REGISTRY}/{before.repository}", release.image),
            (before.charts, release.charts),
            (before.image, release.image),
            (before.repository, release.repository),
            (f"@{_owner(before)}/", f"@{_owner(release)}/"),
        ):
            text = text.replace(old, new)
        path.write_text(text, "utf-8")
    _set(root / BASE, _IMAGE_OF_BASE, release.image)
    _set(root / BASE, _TAG_OF_BASE, release.version)
    _set(root / VALUES, _IMAGE_OF_CHART, release.image)
    _set(root / VALUES, _RUNBOOK, release.runbook_prefix)


def faults(root: Path, release: Release) -> Iterator[str]:
    """Yield what in the tree at *root* is not of *release*, a line each."""
    found = read(root)
    if found.version != release.version:
        yield f"{VERSION_FILE} says {found.version}, not {release.version}"
    if found.repository != release.repository:
        yield f"{PROJECT} says {found.repository}, not {release.repository}"
    for name, pattern, wanted in (
        (BASE, _IMAGE_OF_BASE, release.image),
        (BASE, _TAG_OF_BASE, release.version),
        (VALUES, _IMAGE_OF_CHART, release.image),
        (VALUES, _RUNBOOK, release.runbook_prefix),
        (CHART, re.compile(r"^(version: )(\S+)$", re.MULTILINE), release.version),
        (CHART, re.compile(r"^(appVersion: )(\S+)$", re.MULTILINE), release.version),
    ):
        value = _only(pattern, root / name).group(2)
        if value != wanted:
            yield f"{name} says {pattern.pattern[2:].split(':')[0].strip()}: {value}, not {wanted}"
    for name in NAMING:
        if PLACEHOLDER in (root / name).read_text("utf-8"):
            yield f"{name} still says {PLACEHOLDER}"


def _owner(release: Release) -> str:
    return release.repository.split("/")[0]


def _only(pattern: re.Pattern[str], path: Path) -> re.Match[str]:
    found = list(pattern.finditer(path.read_text("utf-8")))
    if len(found) != 1:
        raise ReleaseError(f"{path}: expected one line like {pattern.pattern}, found {len(found)}")
    return found[0]


def _set(path: Path, pattern: re.Pattern[str], value: str) -> None:
    _only(pattern, path)
    replace: Callable[[re.Match[str]], str] = lambda match: f"{match[1]}{value}"  # noqa: E731
    path.write_text(pattern.sub(replace, path.read_text("utf-8")), "utf-8")
