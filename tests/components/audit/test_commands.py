"""The commands that live from the rules, where these are not installed."""

from pathlib import Path

from tests.kernel.without import shown, without


def test_a_command_without_rules_says_so(tmp_path: Path) -> None:
    environment = without("audit", tmp_path)
    for command in ("health", "audit"):
        done = shown(environment, "-m", "nodetopo", command, "--machine=dgx-h100")
        assert done.returncode == 2, done.stderr
        message = f"`nodetopo {command}` needs the component audit, which is not installed"
        assert done.stderr == f"error: {message} — install nodetopo with it\n"
    listed = shown(environment, "-m", "nodetopo", "explain", "--all", "-o", "short")
    assert listed.returncode == 0, listed.stderr
    assert listed.stdout
    assert "KUB-001" not in listed.stdout
