"""Answers put into the cells of the pages, as a learner would: solutions, mistakes, and nothing at all.

One kernel runs a page from top to bottom. At each exercise the stub's cell and the check's cell run once
for every catalogued mistake, then with the printed solution; then the page goes on. Everything else that it
prints must be what is stored: no cell may lean on a learner's answer.
"""

import contextlib
import io

import nbformat
import pytest
from make_notebooks import NOTEBOOKS
from nbclient import NotebookClient
from test_notebook_form import code, is_compared, printed, read

from mhalesson.exercises import EXERCISES, solution

PAGES = {path.stem[:2]: path for path in NOTEBOOKS}
ON_PAGES = [exercise for exercise in EXERCISES.values() if exercise.page in PAGES]


def printed_solution(name: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        solution(name)
    return out.getvalue()


def cell_of(nb: nbformat.NotebookNode, cell_id: str) -> int:
    (n,) = (n for n, cell in enumerate(nb.cells) if cell.id == cell_id)
    return n


@pytest.mark.parametrize("exercise", ON_PAGES, ids=lambda exercise: exercise.id)
def test_the_stub_stands_on_its_page_with_the_check_below(exercise):
    nb = read(PAGES[exercise.page])
    words = exercise.id.replace("_", "-")
    stub, check = cell_of(nb, f"my-{words}"), cell_of(nb, f"check-{words}")
    assert check == stub + 1
    assert nb.cells[stub].source == exercise.stub.strip()
    assert nb.cells[check].source == f'check("{exercise.id}", my_{exercise.id})'
    assert list(printed(nb.cells[check])) == [f'○ not attempted yet (a first step: hint("{exercise.id}"))\n']
    elsewhere = [cell.id for cell in code(nb) if f"my_{exercise.id}" in cell.source]
    assert elsewhere == [f"my-{words}", f"check-{words}"]


@pytest.mark.parametrize("page", sorted({exercise.page for exercise in ON_PAGES}))
def test_answers_put_into_a_page(page):
    nb = read(PAGES[page])
    stored = {cell.id: list(printed(cell)) for cell in code(nb) if is_compared(cell)}
    here = {f"my-{e.id.replace('_', '-')}": e for e in ON_PAGES if e.page == page}
    client = NotebookClient(
        nb,
        kernel_name="python3",
        resources={"metadata": {"path": str(PAGES[page].parent)}},
        timeout=120,
        coalesce_streams=True,
        record_timing=False,
    )

    def run(n: int, source: str | None = None) -> str:
        cell = nb.cells[n]
        cell.source = source if source is not None else cell.source
        client.execute_cell(cell, n)
        return "".join(printed(cell))

    with client.setup_kernel():
        for n, cell in enumerate(nb.cells):
            if exercise := here.get(cell.id):
                for place, mistake in enumerate(exercise.mistakes):
                    run(
                        n,
                        f"from mhalesson.exercises import EXERCISES\nmy_{exercise.id} = "
                        f'EXERCISES["{exercise.id}"].mistakes[{place}].wrong',
                    )
                    assert run(n + 1).split("\n")[0] == f"✗ {mistake.says}"
                run(n, printed_solution(exercise.id))
                assert run(n + 1) == f"✓ {exercise.right}\n"
            elif cell.cell_type == "code" and nb.cells[n - 1].id not in here:
                run(n)
    checks = {cell_id.replace("my-", "check-") for cell_id in here}
    for cell in code(nb):
        if cell.id in stored and cell.id not in checks:
            assert list(printed(cell)) == stored[cell.id], cell.id
