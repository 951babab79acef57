"""The house: what `import mhalesson` loads, what may import what, and how much there is to read."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mhalesson

PACKAGE = Path(mhalesson.__file__).parent
MODULES = {path.relative_to(PACKAGE).with_suffix("").parts: path for path in PACKAGE.rglob("*.py")}
# Imports run one way: a module imports only from lines below its own (a package also from itself).
FLOORS = [
    {"data", "__main__"},  # programs
    {"widgets", "workshop"},
    {"figures"},
    {"exercises", "recording"},
    {"text"},
    {"output_projection", "ledger", "trained_heads", "timing", "row_parallel", "adapters"},
    {"attention", "journey"},
    {"_checks", "_flops", "_records", "_running_code"},
]
LEARNERS_READ = ("attention", "output_projection", "ledger", "journey", "timing")


def loaded_by(imports):
    code = f"import json, sys; {imports}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(json.loads(done.stdout))


def test_importing_the_package_loads_nothing_that_torch_does_not():
    new = loaded_by("import mhalesson") - loaded_by("import torch, numpy, jaxtyping")
    others = {
        name for name in new if name.split(".")[0] not in sys.stdlib_module_names | {"torch", "mhalesson"}
    }
    assert others == set()
    assert "mhalesson" in new
    assert not new & {"mhalesson.figures", "mhalesson.widgets"}


def test_every_public_name_can_be_imported():
    assert sorted(mhalesson.__all__) == sorted(set(mhalesson.__all__))
    assert [name for name in mhalesson.__all__ if not hasattr(mhalesson, name)] == []


def imported_from_the_package(path):
    """The first name below mhalesson of every import in a file, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively; write mhalesson.…"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("mhalesson."))


@pytest.mark.parametrize("parts", sorted(MODULES), ids="/".join)
def test_imports_run_one_way(parts):
    if parts == ("__init__",):
        return  # it gathers the public names; what it may load is tested above
    own = parts[0]
    floors = [n for n, names in enumerate(FLOORS) if own in names]
    assert len(floors) == 1, f"{own} needs its place in FLOORS, above"
    below = set().union(*FLOORS[floors[0] + 1 :])
    if len(parts) > 1:
        below.add(own)
    assert set(imported_from_the_package(MODULES[parts])) <= below


def test_there_is_little_to_read():
    lines = {parts: len(path.read_text(encoding="utf-8").splitlines()) for parts, path in MODULES.items()}
    read = {parts: n for parts, n in lines.items() if parts[0] in LEARNERS_READ}
    assert {parts: n for parts, n in read.items() if n > 300} == {}
    assert sum(read.values()) < 900
