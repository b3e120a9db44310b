import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def generated(root: Path) -> dict[str, str]:
    paths = sorted((root / "agent").glob("*/pb/*_pb2*.py*"))
    return {str(path.relative_to(root)): path.read_text("utf-8") for path in paths}


def test_the_generated_code_is_what_the_proto_files_say(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable}
    script = ROOT / "scripts/protos"
    subprocess.run([script, tmp_path], check=True, env=environment, timeout=120)
    assert generated(tmp_path) == generated(ROOT)
