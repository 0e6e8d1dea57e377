"""Do the packages know only whom they may know? Walks every import of the package, nested ones too."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

import piqc_pipeline

ROOT = Path(piqc_pipeline.__file__).parent
SHELLS = ("cli", "defs", "definitions", "predictor")


class Import(NamedTuple):
    importer: str
    imported: str
    line: int
    nested: bool
    typing: bool
    """For a type checker alone: never run."""


def _imports_of(path: Path) -> Iterator[Import]:
    importer = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text("utf-8"), filename=str(path))
    nested = {id(child) for node in ast.walk(tree) if isinstance(node, _FUNCTIONS) for child in ast.walk(node)}
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    typing = {id(child) for block in blocks for child in ast.walk(block)}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{importer}:{node.lineno} imports relatively; write the package's full name"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            yield Import(importer, name, node.lineno, id(node) in nested, id(node) in typing)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = [entry for path in sorted(ROOT.rglob("*.py")) for entry in _imports_of(path)]


def _library(entry: Import) -> str:
    return entry.imported.split(".")[0]


def _own_package(entry: Import) -> str | None:
    parts = entry.imported.split(".")
    return parts[1] if parts[0] == "piqc_pipeline" and len(parts) > 1 else None


def _shown(entries: list[Import]) -> list[str]:
    return [f"{entry.importer}:{entry.line} imports {entry.imported}" for entry in entries]


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        pytest.param("dagster", ("defs/", "definitions.py"), id="dagster-only-in-its-shell"),
        pytest.param("click", ("cli/",), id="click-only-in-the-command-line"),
        pytest.param("fastapi", ("predictor/",), id="fastapi-only-in-the-service"),
        pytest.param("starlette", ("predictor/",), id="starlette-only-in-the-service"),
        pytest.param("kubernetes", ("cluster/",), id="kubernetes-only-where-the-cluster-is-read"),
        pytest.param("duckdb", ("history/duckdb_engine.py", "history/duckdb_store.py"), id="duckdb-only-in-the-store"),
    ],
)
def test_a_library_is_imported_only_by_its_own_package(library: str, allowed: tuple[str, ...]) -> None:
    strangers = [entry for entry in IMPORTS if _library(entry) == library and not entry.importer.startswith(allowed)]
    assert _shown(strangers) == []


def test_prophet_is_imported_by_one_module_and_only_inside_a_function() -> None:
    entries = [entry for entry in IMPORTS if _library(entry) == "prophet"]
    assert len({entry.importer for entry in entries}) == 1, _shown(entries)
    assert _shown([entry for entry in entries if not entry.nested]) == []


@pytest.mark.parametrize("knows_nobody", ["facts/", "errors.py", "settings.py", "atomic.py"])
def test_facts_errors_settings_and_atomic_import_no_package_of_ours(knows_nobody: str) -> None:
    allowed = {"facts", "errors", "atomic"} if knows_nobody not in ("errors.py", "atomic.py") else set()
    entries = [entry for entry in IMPORTS if entry.importer.startswith(knows_nobody)]
    assert _shown([entry for entry in entries if _own_package(entry) not in (None, *allowed)]) == []


def test_asking_prometheus_knows_only_errors_and_settings() -> None:
    entries = [entry for entry in IMPORTS if entry.importer.startswith("prometheus/")]
    assert _shown([entry for entry in entries if _own_package(entry) not in (None, *_PROMETHEUS)]) == []


_PROMETHEUS = ("prometheus", "errors", "settings")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_is_known_only_to_shells(shell: str) -> None:
    outside = [entry for entry in IMPORTS if entry.importer.split("/")[0].removesuffix(".py") not in SHELLS]
    assert _shown([entry for entry in outside if _own_package(entry) == shell]) == []


def test_the_service_never_knows_the_database_or_the_training() -> None:
    entries = [entry for entry in IMPORTS if entry.importer.startswith("predictor/")]
    assert _shown([entry for entry in entries if _own_package(entry) in {"history", "defs", "definitions"}]) == []


def test_no_module_grows_past_what_one_question_needs() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text("utf-8").splitlines()) for path in ROOT.rglob("*.py")
    }
    assert {name: count for name, count in lengths.items() if count > 450} == {}


def test_every_module_says_which_question_it_answers() -> None:
    silent = [
        p.relative_to(ROOT).as_posix()
        for p in ROOT.rglob("*.py")
        if not ast.get_docstring(ast.parse(p.read_text("utf-8")))
    ]
    assert silent == []


def test_a_recorded_scan_imports_no_client_of_a_cluster() -> None:
    program = (
        "import sys\nfrom datetime import UTC, datetime\n"
        "from piqc_pipeline.cluster import read_demo\n"
        "read_demo(datetime(2026, 1, 1, tzinfo=UTC))\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "msgspec" in run.stdout.split() and "kubernetes" not in run.stdout.split()


def test_help_imports_nothing_heavy_and_costs_under_four_tenths_of_a_second_of_cpu() -> None:
    program = (
        "import sys, time\n"
        "sys.argv = ['piqc', '--help']\n"
        "from piqc_pipeline.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), time.process_time(), file=sys.stderr)\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
        for _ in range(2)
    ]
    *loaded, _ = runs[0].stderr.split()
    assert {"dagster", "prophet", "kubernetes", "polars", "pandas", "duckdb", "fastapi"} & set(loaded) == set()
    assert min(float(run.stderr.split()[-1]) for run in runs) < 0.4, "CPU seconds of the faster of two runs"


def test_no_module_imports_one_that_imports_it_not_even_inside_a_function() -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py")}
    known: dict[str, set[str]] = {}
    for entry in (entry for entry in IMPORTS if not entry.typing):
        path = entry.imported.removeprefix("piqc_pipeline.").replace(".", "/")
        found = {f"{path}.py", f"{path}/__init__.py", f"{path.rpartition('/')[0]}.py"} & modules
        known.setdefault(entry.importer, set()).update(found - {entry.importer})
    list(TopologicalSorter(known).static_order())  # a CycleError names the circle
