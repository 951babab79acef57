"""Run the notebooks and store what they print: all, or `python tests/make_notebooks.py 04_shape_journey`.

Outputs get into a notebook in no other way. A notebook that raises or writes to stderr is not stored, and its
file stays as it was. `--record-ids` runs nothing and rewrites cell_ids.txt, the list of frozen cell ids.
"""

import argparse
import base64
import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
README_PICTURE = FOLDER / "images" / "right_shape_wrong_tensor.png"
CELL_IDS = Path(__file__).parent / "cell_ids.txt"
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}

# The kernel of this environment, before any other that is also called python3.
os.environ["JUPYTER_PATH"] = str(Path(sys.prefix, "share", "jupyter"))


def execute(path: Path, *kernel_arguments: str) -> nbformat.NotebookNode:
    """The notebook after a run from its first cell to its last, past errors, in a fresh kernel."""
    nb = nbformat.read(path, as_version=4)
    NotebookClient(
        nb,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},  # the folder it runs in
        extra_arguments=["--log-level=ERROR", *kernel_arguments],
        timeout=120,
        allow_errors=True,
        coalesce_streams=True,
        record_timing=False,
    ).execute()
    return nb


def tidy(nb: nbformat.NotebookNode) -> None:
    """Keep what a reader needs: of the metadata the kernel, tags, and that an answer starts folded."""
    nb.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC})
    for cell in nb.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if "reveal" in tags:
            cell.metadata["jupyter"] = {"outputs_hidden": True}
        for output in cell.get("outputs", ()):  # a live widget is another one on every run
            output.get("data", {}).pop("application/vnd.jupyter.widget-view+json", None)


def text(nb: nbformat.NotebookNode) -> str:
    """The notebook exactly as nbformat writes it."""
    return nbformat.writes(nb) + "\n"


def complaint(nb: nbformat.NotebookNode) -> str | None:
    """Why these outputs must not be stored, if so."""
    for cell in nb.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "error":
                return f"cell {cell.id} raises {output.ename}: {output.evalue}"
            if output.get("name") == "stderr":
                return f"cell {cell.id} writes to stderr: {output.text.strip()}"
    return None


def make(path: Path) -> str | None:
    """Run one notebook and store it; if it must not be stored, leave the file as it is and say why."""
    try:
        nb = execute(path)
    except (CellTimeoutError, DeadKernelError) as error:
        return str(error)
    if problem := complaint(nb):
        return problem
    tidy(nb)
    path.write_bytes(text(nb).encode())
    return None


def readme_picture() -> tuple[bytes, str]:
    """The figure of 04 that also stands in the README, and its caption."""
    cells = nbformat.read(FOLDER / "04_shape_journey.ipynb", as_version=4).cells
    (outputs,) = (cell.outputs for cell in cells if cell.id == "merge-strip")
    png, caption = (o.data for o in outputs if o.output_type == "display_data")
    return base64.b64decode(png["image/png"]), caption["text/plain"]


def cell_ids(path: Path) -> list[str]:
    return [f"{path.stem}:{cell.id}" for cell in nbformat.read(path, as_version=4).cells]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", help="names or paths; all of them by default")
    parser.add_argument("--record-ids", action="store_true", help="rewrite cell_ids.txt and run nothing")
    args = parser.parse_args()
    if args.record_ids:
        CELL_IDS.write_bytes("".join(f"{line}\n" for path in NOTEBOOKS for line in cell_ids(path)).encode())
        return
    failed = False
    for path in [FOLDER / f"{Path(name).stem}.ipynb" for name in args.notebooks] or NOTEBOOKS:
        problem = make(path)
        print(f"{path.name}: {problem or 'stored'}", flush=True)
        failed |= problem is not None
    README_PICTURE.write_bytes(readme_picture()[0])
    sys.exit(failed)


if __name__ == "__main__":
    main()
