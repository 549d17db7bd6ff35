"""Dependencies point one way: webapp → runner → kernels, and a bare device host needs little."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVALUATION_SIDE = ("kernels", "runner/languages", "runner/analysis", "runner/evaluate")
ALLOWED = {"numpy", "torch", "triton", "runner", "kernels"} | set(sys.stdlib_module_names)

IMPORT_ALL = """
import importlib, pkgutil, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} must not be imported here")

BLOCKED = sys.argv[2].split(",")
sys.meta_path.insert(0, Refuse())
package = importlib.import_module(sys.argv[1])
names = [package.__name__]
names += [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def import_all(package: str, *blocked: str) -> int:
    """Import every module of a package in a fresh interpreter; returns how many there are."""
    command = [sys.executable, "-c", IMPORT_ALL, package, ",".join(blocked)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_every_module_of_runner_and_kernels_imports_without_django() -> None:
    assert import_all("runner", "django", "webapp", "celery", "channels") > 20
    assert import_all("kernels", "django", "webapp", "runner.drive", "optuna") >= 2


def test_the_evaluation_side_imports_without_what_only_agents_or_pages_need() -> None:
    blocked = (
        "django",
        "webapp",
        "optuna",
        "celery",
        "channels",
        "plotly",
        "pygments",
        "anthropic",
    )
    assert import_all("runner.evaluate", *blocked) > 5
    assert import_all("runner.languages", *blocked) >= 4


def test_the_command_line_lists_problems_without_torch() -> None:
    program = (
        "import sys; from runner.__main__ import main; main(['problems', '--json']); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'triton', 'optuna', 'django')))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"softmax"' in done.stdout


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The top-level packages that a source file names in an import, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
    return found


def test_the_evaluation_side_names_only_the_standard_library_numpy_torch_and_triton() -> None:
    files = sources(*EVALUATION_SIDE)
    assert len(files) > 15
    foreign = {str(f.relative_to(ROOT)): imported(f) - ALLOWED for f in files}
    assert {name: packages for name, packages in foreign.items() if packages} == {}


def test_runner_names_neither_django_nor_webapp_and_kernels_do_not_name_runner() -> None:
    for path in sources("runner", "kernels"):
        assert not imported(path) & {"django", "webapp"}, path
    for path in sources("kernels"):
        assert "runner" not in imported(path), path
