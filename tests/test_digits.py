"""Strict nbval notices every number: change one digit a cell, and exactly those cells fail.

Also: the verdict does not hang on nbval. nbclient, with which Jupyter's own tools run notebooks, gives the
same outputs, here with every warning turned into an error, and with every printed number moved by 1e-5.
"""

import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from make_notebooks import NOTEBOOKS, complaint, execute
from test_notebook_form import code, is_compared

HERE = Path(__file__).parent
ROOT = HERE.parent
each_notebook = pytest.mark.parametrize("name", [path.name for path in NOTEBOOKS])


def change_a_digit(cell: nbformat.NotebookNode, chance: random.Random) -> bool:
    """Change one digit somewhere in what the cell printed; False if it printed none."""
    texts = [(output, "text") for output in cell.outputs if "text" in output]
    texts += [(o.data, mime) for o in cell.outputs for mime in o.get("data", {}) if mime.startswith("text/")]
    digits = [(text, key, found) for text, key in texts for found in re.finditer("[0-9]", text[key])]
    if not digits:
        return False
    text, key, found = chance.choice(digits)
    other = chance.choice([digit for digit in "0123456789" if digit != found[0]])
    text[key] = text[key][: found.start()] + other + text[key][found.end() :]
    return True


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """For every notebook the cells in which a digit was changed, and the cells that nbval then failed."""
    folder, changed = tmp_path_factory.mktemp("digits"), {}
    for path in NOTEBOOKS:
        nb, chance = nbformat.read(path, as_version=4), random.Random(path.name)
        cells = enumerate(code(nb))
        changed[path.name] = {n for n, cell in cells if is_compared(cell) and change_a_digit(cell, chance)}
        nbformat.write(nb, folder / path.name)
    pytest_here = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "no:cacheprovider",
    ]
    options = ["--rootdir", ".", "--nbval", "-n", "2", "--junitxml", "report.xml", "."]
    run = subprocess.run(pytest_here + options, cwd=folder, capture_output=True, text=True, timeout=280)
    assert run.returncode == 1, f"some cells should fail, and nothing else:\n{run.stdout}\n{run.stderr}"
    failed = {name: set() for name in changed}
    for case in ET.parse(folder / "report.xml").iter("testcase"):
        if case.find("failure") is not None:
            failed[case.get("classname")].add(int(case.get("name").removeprefix("Cell ")))
    return changed, failed


@each_notebook
def test_a_changed_digit_fails_its_cell(name, verdicts):
    changed, failed = verdicts
    assert len(changed[name]) >= 3, "too few cells of this notebook hold a number for this to mean much"
    assert failed[name] == changed[name]


def compared(nb: nbformat.NotebookNode) -> Iterator[tuple]:
    """Of each cell the streams, and all that it shows but pictures."""
    for cell in filter(is_compared, code(nb)):
        streams = [output.text for output in cell.outputs if "text" in output]
        shown = [data for o in cell.outputs for mime, data in o.get("data", {}).items() if mime[:4] == "text"]
        yield cell.id, streams, shown


TWISTS = {
    "warnings are errors": "import warnings; warnings.simplefilter('error'); "
    "warnings.filterwarnings('ignore', module='ipykernel')",
    "numbers round up": f"import sys; sys.path.append({str(HERE)!r}); import jitter; jitter.shift(1e-5)",
    "numbers round down": f"import sys; sys.path.append({str(HERE)!r}); import jitter; jitter.shift(-1e-5)",
}


@pytest.mark.variant
@pytest.mark.parametrize("twist", TWISTS)
@each_notebook
def test_nbclient_agrees_though(twist, name):
    path = ROOT / "notebooks" / name
    nb = execute(path, f"--IPKernelApp.exec_lines={TWISTS[twist]}")
    assert complaint(nb) is None
    assert list(compared(nb)) == list(compared(nbformat.read(path, as_version=4)))


@pytest.mark.variant
@each_notebook
def test_a_cell_prints_the_same_when_it_runs_once_more_after_all_others(name, tmp_path):
    """People go back and run a cell again; no page uses a name again for something else."""
    nb = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    answers = [cell for cell in code(nb) if is_compared(cell) and not cell.id.startswith("check-")]
    again = [{**cell, "id": f"{cell.id}-again"} for cell in reversed(answers)]
    nb.cells += nbformat.from_dict(again)
    nbformat.write(nb, tmp_path / name)
    shown = {cell_id: rest for cell_id, *rest in compared(execute(tmp_path / name))}
    for cell in answers:
        assert shown[f"{cell.id}-again"] == shown[cell.id], cell.id
