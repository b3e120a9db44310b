"""The wheel holds one package, `nodetopo`, and runs beside another project's package `agent`."""

import base64
import hashlib
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import nodetopo

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240
OTHER = "agent-7.0"


def run(*words: str | Path, cwd: Path) -> str:
    """Return what a command prints; it has no variables from outside."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        words,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return our wheel, built from this checkout."""
    folder = tmp_path_factory.mktemp("ours")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of another project, whose package and program are called `agent`."""
    files = {
        "agent/__init__.py": '__version__ = "7.0"\n',
        "agent/__main__.py": (
            "import agent\n\n\ndef main():\n    print('the other agent', agent.__version__)\n\n\n"
            "if __name__ == '__main__':\n    main()\n"
        ),
        "agent/cli/__init__.py": "",
        f"{OTHER}.dist-info/METADATA": "Metadata-Version: 2.1\nName: agent\nVersion: 7.0\n",
        f"{OTHER}.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{OTHER}.dist-info/entry_points.txt": "[console_scripts]\nagent = agent.__main__:main\n",
    }
    rows = [f"{name},sha256={_digest(text)},{len(text.encode())}\n" for name, text in files.items()]
    record = f"{OTHER}.dist-info/RECORD"
    wheel = tmp_path_factory.mktemp("theirs") / f"{OTHER}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, record: "".join(rows) + f"{record},,\n"}.items():
            archive.writestr(name, text)
    return wheel


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def installed(folder: Path, *wheels: Path) -> Path:
    """Return the programs of an environment with *wheels*; dependencies are those of the tests."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    packages = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    ).strip()
    # A path configuration file adds directories; those inside of them are not read, so our own
    # editable installation stays out.
    dependencies = sysconfig.get_path("purelib")
    (Path(packages) / "dependencies.pth").write_text(f"{dependencies}\n", encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-deps", "--no-index", "--disable-pip-version-check", *wheels, cwd=folder)
    return folder / "bin"


def test_the_wheel_has_one_package_and_manual_pages(ours: Path) -> None:
    stem = f"nodetopo-{nodetopo.__version__}"
    with zipfile.ZipFile(ours) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names} == {
        "nodetopo",
        f"{stem}.dist-info",
        f"{stem}.data",
    }
    assert {"nodetopo/py.typed", "nodetopo/__main__.py"} <= set(names)
    assert f"{stem}.data/data/share/man/man1/nodetopo-run.1" in names
    assert not [name for name in names if name.startswith("nodetopo/man")]


@pytest.mark.parametrize("is_first", [True, False], ids=["ours first", "theirs first"])
def test_it_runs_beside_another_package_agent(
    ours: Path, theirs: Path, tmp_path: Path, *, is_first: bool
) -> None:
    wheels = (ours, theirs) if is_first else (theirs, ours)
    programs = installed(tmp_path / "venv", *wheels)
    version = f"nodetopo {nodetopo.__version__}\n"
    assert run(programs / "nodetopo", "--version", cwd=tmp_path) == version
    module = (programs / "python", "-I", "-m", "nodetopo")
    assert run(*module, "--version", cwd=tmp_path) == version
    machine = ("topo", "matrix", "--machine", "dgx-h100")
    assert run(*module, *machine, cwd=tmp_path) == run(
        programs / "nodetopo", *machine, cwd=tmp_path
    )
    where = "import nodetopo; print(nodetopo.__file__)"
    assert run(programs / "python", "-I", "-c", where, cwd=tmp_path).startswith(str(tmp_path))
    assert run(programs / "agent", cwd=tmp_path) == "the other agent 7.0\n"
    assert run(programs / "python", "-I", "-m", "agent", cwd=tmp_path) == "the other agent 7.0\n"
