"""How long does a scan take, how much memory, how many calls? `python -m benchmarks.scan`, at 100, 1,000, 5,000 pods.

A fake API server on loopback serves the cluster; the program is run as a user runs it, as a process of its own. Needs
the folder of `fakekube` (`--fakekube`, or the variable PIQC_FAKEKUBE) and a Python with `aiohttp`, which the
development extras have.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

DEFAULT_FAKEKUBE = Path("..") / "shared" / "tools" / "fakekube"
PODS_PER_NODE = 5
GOAL_SECONDS = 5.0
GOAL_MIB = 256.0
"""Goals at 1,000 nodes and 5,000 pods on 2 cores, without exec and engine metrics."""


@dataclass(frozen=True)
class Measured:
    """One size.

    Attributes:
        wall_seconds: The best of the repeats.
        cpu_seconds: Of the run with the least CPU, user and system.
        peak_mib: Highest resident memory of any run.
        calls: Requests that the API server counted in the last run.
    """

    pods: int
    nodes: int
    exec: bool
    wall_seconds: float
    cpu_seconds: float
    peak_mib: float
    calls: int
    workloads: int
    usd_per_hour: float | None


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table or JSON; 1 when the largest size misses a goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fakekube", type=Path, default=Path(os.environ.get("PIQC_FAKEKUBE", DEFAULT_FAKEKUBE)))
    parser.add_argument("--pods", type=int, nargs="+", default=[100, 1000, 5000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--exec", action="store_true", help="ask pods too: nvidia-smi and engine metrics")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if not (given.fakekube / "server.py").is_file():
        print(
            f"no fake API server in {given.fakekube}: give its folder with --fakekube or PIQC_FAKEKUBE", file=sys.stderr
        )
        return 2
    rows = [measure(given.fakekube, pods, given.repeat, given.exec) for pods in given.pods]
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show(rows)
    largest = max(rows, key=lambda row: row.pods)
    missed = largest.pods >= 5000 and not given.exec and not (
        largest.wall_seconds <= GOAL_SECONDS and largest.peak_mib <= GOAL_MIB
    )  # fmt: skip
    return int(missed)


def show(rows: list[Measured]) -> None:
    print("pods   nodes  workloads  wall s  cpu s  peak MiB  calls")
    for row in rows:
        print(
            f"{row.pods:<6} {row.nodes:<6} {row.workloads:<10} {row.wall_seconds:<7.2f} {row.cpu_seconds:<6.2f} "
            f"{row.peak_mib:<9.0f} {row.calls}"
        )


def measure(fakekube: Path, pods: int, repeat: int, ask_pods: bool) -> Measured:
    """Scan a cluster of this size several times."""
    nodes = max(1, pods // PODS_PER_NODE)
    with tempfile.TemporaryDirectory() as folder, serving(fakekube, Path(folder), nodes, pods) as address:
        kubeconfig = Path(folder) / "kubeconfig.yaml"
        port = address.rsplit(":", 1)[1]
        kubeconfig.write_text(subprocess.check_output([sys.executable, fakekube / "kubeconfig.py", port], text=True))
        walls, cpus, peaks, report, calls = [], [], [], {}, 0
        for _ in range(repeat):
            fetch(f"{address}/_fakekube/reset", post=True)
            wall, cpu, peak, report = run(kubeconfig, ask_pods)
            calls = fetch(f"{address}/_fakekube/stats")["total"]
            walls.append(wall)
            cpus.append(cpu)
            peaks.append(peak)
    return Measured(
        pods, nodes, ask_pods, min(walls), min(cpus), max(peaks), calls, len(report["workloads"]),
        report["summary"]["spendUsdPerHour"],
    )  # fmt: skip


def run(kubeconfig: Path, ask_pods: bool) -> tuple[float, float, float, dict]:
    """Wall seconds, CPU seconds, peak MiB and the report of one scan."""
    program = Path(sys.executable).parent / "piqc"
    quiet = [] if ask_pods else ["--no-exec", "--no-collect-runtime"]
    began = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            [program, "scan", "--kubeconfig", kubeconfig, "--format", "json", "-o", "-", *quiet], stdout=out
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - began
        out.seek(0)
        report = json.loads(out.read())
    if process.returncode not in (0, 3):
        raise SystemExit(f"piqc ended with {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime, kib(usage) / 1024, report


def kib(usage: resource.struct_rusage) -> float:
    """Peak resident memory; macOS counts it in bytes."""
    return usage.ru_maxrss / 1024 if sys.platform == "darwin" else usage.ru_maxrss


@contextmanager
def serving(fakekube: Path, folder: Path, nodes: int, pods: int) -> Iterator[str]:
    """A fake API server with a generated cluster; its address."""
    state = folder / "state.json"
    with state.open("wb") as stream:
        subprocess.run(
            [sys.executable, fakekube / "gen.py", "scale", "--nodes", str(nodes), "--pods", str(pods)],
            stdout=stream, check=True,
        )  # fmt: skip
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, fakekube / "server.py", "--port", str(port), "--state", state],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for _ in range(150):
            try:
                fetch(f"{address}/_fakekube/stats")
                break
            except OSError:
                if server.poll() is not None:
                    raise SystemExit("the fake API server ended; does this Python have aiohttp?") from None
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(10)


def fetch(url: str, *, post: bool = False) -> dict:
    request = urllib.request.Request(url, method="POST" if post else "GET")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


if __name__ == "__main__":
    sys.exit(main())
