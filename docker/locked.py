"""Which lines of the lock does an image need? Prints them, hashes included, for the packages named and what they need.

    python docker/locked.py requirements.lock click fastapi > needed.txt
    pip install --no-deps --require-hashes -r needed.txt

pip refuses to install a few packages of a hashed lock together with their dependencies (every requirement must then
be pinned), so the closure is resolved first, against the lock's versions, and cut out of it.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def blocks(lock: str) -> list[tuple[str, str, str]]:
    """(name, `name==version ; marker`, the whole block with its hashes) of every entry."""
    found = re.findall(r"^[A-Za-z0-9].*?(?<!\\)\n", lock, flags=re.MULTILINE | re.DOTALL)
    return [(canonical(b.split("==")[0]), b.split(" \\")[0].strip(), b) for b in found if "==" in b]


def canonical(name: str) -> str:
    """The name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(constraints: str, wanted: list[str]) -> set[str]:
    """Names of the closure, as pip resolves it within the constraints."""
    with tempfile.TemporaryDirectory() as folder:
        pins, report = Path(folder) / "pins.txt", Path(folder) / "report.json"
        pins.write_text(constraints)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), "-c", str(pins), *wanted], check=True)
        return {canonical(entry["metadata"]["name"]) for entry in json.loads(report.read_text())["install"]}


if __name__ == "__main__":
    entries = blocks(Path(sys.argv[1]).read_text())
    names = needed("\n".join(pin for _, pin, _ in entries) + "\n", sys.argv[2:])
    sys.stdout.writelines(block for name, _, block in entries if name in names)
