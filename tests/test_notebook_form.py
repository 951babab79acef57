"""The form of the notebooks: what strict nbval cannot see, and what would make it see nothing.

A rule takes a notebook and yields what is wrong with it: the cell, and what to do. The second half of this
file breaks a sound notebook in every way the rules know, and sees each rule notice.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator

import nbformat
import pytest
from make_notebooks import (
    CELL_IDS,
    KERNELSPEC,
    NOTEBOOKS,
    README_PICTURE,
    cell_ids,
    complaint,
    readme_picture,
    text,
)
from nbformat import NotebookNode
from nbformat import v4 as nbf

import mhalesson

# The one place where the outputs of a cell need not be compared: cells that measure time. notebook:cell
CLOCKS = (
    "where",
    "sweep",
    "ratio",
    "constants",
    "model",
    "misses",
    "not-waiting",
    "first-call",
    "wrong",
    "cast",
)
TIMING_CELLS = {f"05_loop_vs_batched:time-{what}" for what in CLOCKS}

CODE_CELLS, SOURCE_LINES, WORDS, FIGURES, ANSWERS = 25, 20, 1400, 3, 3
IGNORE, SKIP = {"nbval-ignore-output"}, {"nbval-skip", "raises-exception", "nbval-raises-exception"}
MARKER = re.compile(r"^\s*#\s*(NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)\s*$", re.MULTILINE)

# What must not stand in a stored output, and why.
UNSTABLE = {
    r"\b0x[0-9a-fA-F]+": "an address, another one on every run",
    r"(?<![\w.])/(?:home|root|tmp|usr|opt|Users|private|var)/|\b[A-Z]:\\": "a path of one machine",
    r"\b(?:19|20)\d\d-\d\d-\d\d\b|\b\d\d?:\d\d:\d\d\b": "a date or a time of day",
    r"\bnp\.(?:float|int|uint|bool|str)\w*\(": "a NumPy scalar's repr; use .item()",
    r"\b(?:tensor|array)\(|^Parameter containing:": "a bare tensor; print it as a labelled grid",
    r"<(?:[\w.]+ )?(?:object|generator|module|function|class|map|zip)\b(?!=)[^>]*>": "the repr of an object",
    r"\bin_features=|^ *\(\w+\): \w+\(": "the repr of a module",
    r"^\{[^:{}]*\}$|\b(?:frozen)?set\(|\bdict_(?:keys|values)\(": "a set or a view; print a sorted list",
}
# What must not be compared.
UNROUNDED = {
    r"\d\.\d{3}": "a float with more than two decimals, which another processor may round differently",
    r"\d\.\d+e[-+]?\d": "a float in scientific notation, which no tolerance covers",
}
RANDOM = {"rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "dropout"}
RANDOM |= {"normal_", "uniform_", "bernoulli", "multinomial"}

Problems = Iterator[tuple[str, str]]  # the cell's id, and what is wrong and what to do
RULES: dict[str, Callable[[NotebookNode], Problems]] = {}


def rule(check: Callable[[NotebookNode], Problems]) -> Callable[[NotebookNode], Problems]:
    RULES[check.__name__] = check
    return check


def code(nb: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def markdown(nb: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in nb.cells if cell.cell_type == "markdown"]


def tags(cell: NotebookNode) -> set[str]:
    return set(cell.metadata.get("tags", ()))


def prose(cell: NotebookNode) -> str:
    """The markdown without what is not read as words: code blocks, maths, HTML tags and addresses."""
    unread = r"^```.*?^```|\$\$.*?\$\$|\$[^$\n]+\$|<!--.*?-->|</?\w[^>]*>|\]\([^)]*\)"
    return re.sub(unread, " ", cell.source, flags=re.DOTALL | re.MULTILINE)


def printed(cell: NotebookNode) -> Iterator[str]:
    """Every text that nbval compares."""
    for output in cell.outputs:
        if output.output_type == "stream":
            yield output.text
        for mime, data in output.get("data", {}).items():
            if mime.startswith("text/"):
                yield data


def is_compared(cell: NotebookNode) -> bool:
    return not (tags(cell) & IGNORE or "IGNORE_OUTPUT" in cell.source)


def tokens(cell: NotebookNode) -> Iterator[tokenize.TokenInfo]:
    """The Python of a cell, without its comments."""
    lines = io.StringIO(cell.source).readline
    return (token for token in tokenize.generate_tokens(lines) if token.type != tokenize.COMMENT)


# ------------------------------------------------------------------------------------------ the rules


@rule
def cell_ids_are_words(nb: NotebookNode) -> Problems:
    for cell in nb.cells:
        junk = re.fullmatch(r"[0-9a-f]{8}|[0-9a-f-]*\d[0-9a-f-]*", cell.id)
        if junk or len(cell.id) < 3 or not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", cell.id):
            yield cell.id, "an id says what the cell is for, in small letters: wrong-split"


@rule
def cell_ids_are_unique(nb: NotebookNode) -> Problems:
    for cell_id, times in Counter(cell.id for cell in nb.cells).items():
        if times > 1:
            yield cell_id, f"{times} cells have this id; give each its own"


@rule
def every_cell_ran_in_order(nb: NotebookNode) -> Problems:
    # nbval compares nothing in a cell without a count.
    for n, cell in enumerate(code(nb), start=1):
        counts = {cell.execution_count} | {o.execution_count for o in cell.outputs if "execution_count" in o}
        if counts != {n}:
            yield cell.id, f"its count is {cell.execution_count}, not {n}; make notebooks"


@rule
def metadata_is_minimal(nb: NotebookNode) -> Problems:
    if nb.metadata != {"kernelspec": KERNELSPEC}:
        yield "the notebook", f"its metadata is {dict(nb.metadata)}, not a kernelspec alone; make notebooks"
    for cell in nb.cells:
        folded = {"outputs_hidden": True} if "reveal" in tags(cell) else None
        if set(cell.metadata) - {"tags", "jupyter"} or cell.metadata.get("jupyter") != folded:
            yield cell.id, "a cell has tags, a reveal jupyter.outputs_hidden, and no more; make notebooks"
        if any(output.get("metadata") or "transient" in output for output in cell.get("outputs", ())):
            yield cell.id, "an output has no metadata"


@rule
def nothing_is_skipped(nb: NotebookNode) -> Problems:
    for cell in nb.cells:
        markers = {m.lower().replace("_", "-") for m in MARKER.findall(cell.source)}
        if (tags(cell) | markers) & SKIP:
            yield cell.id, "no cell is skipped or expected to raise; show the mistake and print what it does"


@rule
def only_timing_is_not_compared(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        if not is_compared(cell) and f"{nb.name}:{cell.id}" not in TIMING_CELLS:
            yield cell.id, "its output is not compared; print what is stable, or list it in TIMING_CELLS"


@rule
def nothing_went_wrong(nb: NotebookNode) -> Problems:
    if problem := complaint(nb):
        yield "the notebook", problem


@rule
def streams_are_merged(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        if max(Counter(output.name for output in cell.outputs if "name" in output).values(), default=0) > 1:
            yield cell.id, "its text is stored in pieces; make notebooks"


@rule
def outputs_are_stable(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        for pattern, what in (UNSTABLE | UNROUNDED if is_compared(cell) else UNSTABLE).items():
            for found in re.findall(pattern, "\n".join(printed(cell)), re.MULTILINE):
                yield cell.id, f"it shows {found!r}: {what}"


@rule
def no_cell_ends_in_a_semicolon(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        if list(filter(None, (token.string.strip() for token in tokens(cell))))[-1:] == [";"]:
            yield cell.id, "under nbval a last ; hides no output; assign the value instead"


@rule
def the_page_is_short(nb: NotebookNode) -> Problems:
    words = sum(bool(re.search(r"\w", word)) for cell in markdown(nb) for word in prose(cell).split())
    figures = sum("image/png" in output.get("data", {}) for cell in code(nb) for output in cell.outputs)
    limits = {"code cells": CODE_CELLS, "words": WORDS, "figures": FIGURES}
    for (what, limit), found in zip(limits.items(), (len(code(nb)), words, figures), strict=True):
        if found > limit:
            yield "the notebook", f"it has {found} {what}, and at most {limit} are read; leave something out"


@rule
def shown_source_is_short(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        if (lines := len(cell.source.splitlines())) > SOURCE_LINES:
            yield cell.id, f"it is {lines} lines long, at most {SOURCE_LINES} are read; use the package"


@rule
def every_figure_has_its_caption(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        for n, output in enumerate(cell.outputs):
            after = cell.outputs[n + 1].get("data", {}) if n + 1 < len(cell.outputs) else {}
            if "image/png" in output.get("data", {}) and "text/markdown" not in after:
                yield cell.id, "nbval compares captions, not pictures: show a figures.Picture, which has both"


@rule
def outputs_read_well_untrusted(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        for output in cell.outputs:
            mimes = set(output.get("data", {}))
            if mimes & {"image/svg+xml", "application/javascript"}:
                yield cell.id, "an untrusted page shows no SVG and runs no script; store a PNG"
            if "text/html" in mimes and not mimes & {"text/plain", "text/markdown"}:
                yield cell.id, "HTML alone loses its styles on an untrusted page; store text beside it"


@rule
def widgets_are_plain(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        for found in re.findall(r"\binteract\w*\b|\bOutput\(|\bclear_output\b", cell.source):
            yield cell.id, f"nbval does not run {found}, and JupyterLab flickers on it; use mhalesson.widgets"


@rule
def answers_are_asked_for_and_folded(nb: NotebookNode) -> Problems:
    answers = [n for n, cell in enumerate(nb.cells) if "reveal" in tags(cell)]
    if not 1 <= len(answers) <= ANSWERS:
        yield "the notebook", f"it has {len(answers)} reveal cells: one main guess, at most two small ones"
    for n in answers:
        question = next((cell.source for cell in reversed(nb.cells[:n]) if cell.cell_type == "markdown"), "")
        if "?" not in question:
            yield nb.cells[n].id, "the closest text above an answer asks its question"
        if not nb.cells[n].get("outputs"):
            yield nb.cells[n].id, "an answer has an output to unfold"


@rule
def folded_answers_stay_secret(nb: NotebookNode) -> Problems:
    """JupyterLab shows the first line of what it folds. The head of a table, "output 0", tells nothing."""
    for cell in code(nb):
        first = next(printed(cell), "").split("\n")[0]
        if "reveal" in tags(cell) and re.search(r"\d|True|False", re.sub(r"[a-z]+ \d+", "", first)):
            yield cell.id, f"the line {first!r} is seen when folded; print a heading first"


@rule
def images_have_words(nb: NotebookNode) -> Problems:
    for cell in markdown(nb):
        for image in re.findall(r"!\[\s*\]\([^)]*\)|<img(?![^>]*\balt=[\"'][^\"']+)[^>]*>", cell.source):
            yield cell.id, f"{image} says nothing to a reader who cannot see it; write ![what it shows](…)"


@rule
def headings_do_not_jump(nb: NotebookNode) -> Problems:
    level = 0
    for cell in markdown(nb):
        for hashes in re.findall(r"^(#+) ", re.sub(r"^```.*?^```", "", cell.source, flags=re.M | re.S), re.M):
            if len(hashes) > level + 1 or (level and len(hashes) == 1):
                yield (
                    cell.id,
                    f"a heading of level {len(hashes)} after {level}; # is the first, none is skipped",
                )
            level = len(hashes)


@rule
def randomness_is_seeded(nb: NotebookNode) -> Problems:
    for cell in code(nb):
        for call in (node for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            seeded = "manual_seed(" in cell.source or any(word.arg == "generator" for word in call.keywords)
            if name in RANDOM and not seeded:
                yield cell.id, f"{name} is not seeded here; call torch.manual_seed in this cell"


# ---------------------------------------------------------------------------------- the notebooks obey


def read(path) -> NotebookNode:
    nb = nbformat.read(path, as_version=4)
    nb.name = path.stem  # not stored: only for messages and lists
    return nb


each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks():
    assert NOTEBOOKS, "notebooks/ holds no .ipynb, so every other test of them would pass unseen"


@each_notebook
@pytest.mark.parametrize("check", RULES.values(), ids=RULES)
def test_form(check, path):
    problems = [f"{path.name}, {cell}: {what}" for cell, what in check(read(path))]
    assert not problems, "\n" + "\n".join(problems)


@each_notebook
def test_the_file_is_as_nbformat_writes_it(path):
    nb = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(nb)
    assert (nb.nbformat, nb.nbformat_minor) == (4, 5), f"{path.name}: save it as nbformat 4.5"
    assert path.read_text(encoding="utf-8") == text(nb), (
        f"{path.name}: written by another tool; make notebooks"
    )


@each_notebook
def test_cell_ids_are_frozen(path):
    recorded = [line for line in CELL_IDS.read_text().split() if line.startswith(f"{path.stem}:")]
    gone = sorted(set(recorded) - set(cell_ids(path)))
    new = sorted(set(cell_ids(path)) - set(recorded))
    assert cell_ids(path) == recorded, (
        f"\nremoved or renamed: {gone}\nadded: {new}\nLinks, tests and learners' merges hold on to ids. "
        "Take an old one back, or if it must go: python tests/make_notebooks.py --record-ids"
    )


def test_no_recorded_notebook_is_gone():
    recorded = {line.split(":")[0] for line in CELL_IDS.read_text().split()}
    assert recorded == {path.stem for path in NOTEBOOKS}


def test_the_picture_of_the_readme_is_that_of_04():
    """Its pixels are the figure that the notebook stores, and its words are the figure's caption."""
    picture, caption = readme_picture()
    assert README_PICTURE.read_bytes() == picture, "run make notebooks"
    assert f"![{caption}](notebooks/images/" in (README_PICTURE.parents[2] / "README.md").read_text(
        encoding="utf-8"
    )


@each_notebook
def test_the_first_cell_compares_the_page_with_the_package(path):
    first = code(nbformat.read(path, as_version=4))[0]
    assert f'print(mhalesson.ready("{mhalesson.__version__}"))' in first.source


def test_a_page_of_another_version_is_told_so():
    assert mhalesson.ready(mhalesson.__version__) == "Ready: this page and the package belong together."
    assert mhalesson.ready("0.0.1").startswith(
        f"This page was written for mhalesson 0.0.1, and {mhalesson.__version__} is installed"
    )


def test_every_timing_cell_exists():
    assert not TIMING_CELLS - {cell_id for path in NOTEBOOKS for cell_id in cell_ids(path)}


# --------------------------------------------------------------------------------- the rules can fail


def sound() -> NotebookNode:
    """A small notebook that obeys every rule."""
    picture = nbf.new_output("display_data", {"image/png": "", "text/plain": "picture"})
    caption = nbf.new_output("display_data", {"text/markdown": "*Two.*", "text/plain": "Two."})
    hidden = {"tags": ["reveal"], "jupyter": {"outputs_hidden": True}}
    cells = [
        nbf.new_markdown_cell("# Title\n\n![a cat](cat.png)", id="title"),
        nbf.new_markdown_cell("**Guess.** How many?", id="guess-count"),
        nbf.new_code_cell("2", id="reveal-count", execution_count=1, metadata=hidden),
        nbf.new_code_cell("show()", id="show-count", execution_count=2, outputs=[picture, caption]),
    ]
    cells[2].outputs = [nbf.new_output("stream", text="so many\n2")]
    nb = nbf.new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC})
    nb.name = "sound"
    return nb


def prints(*texts: str) -> Callable[[NotebookNode], None]:
    return lambda nb: nb.cells[3].outputs.extend(nbf.new_output("stream", text=text) for text in texts)


def prints_answer(text: str) -> Callable[[NotebookNode], None]:
    return lambda nb: nb.cells[2].update(outputs=[nbf.new_output("stream", text=text)])


def says(words: str) -> Callable[[NotebookNode], None]:
    return lambda nb: nb.cells.append(nbf.new_markdown_cell(words, id="more-words"))


def runs(source: str, *cell_tags: str) -> Callable[[NotebookNode], None]:
    metadata = {"tags": list(cell_tags)} if cell_tags else {}
    cell = nbf.new_code_cell(source, id="more-code", execution_count=3, metadata=metadata)
    return lambda nb: nb.cells.append(cell)


def shows(**data: str) -> Callable[[NotebookNode], None]:
    data = {mime.replace("_", "/", 1).replace("_", "+"): value for mime, value in data.items()}
    return lambda nb: nb.cells[3].outputs.append(nbf.new_output("display_data", data))


def sets(n: int, **values: object) -> Callable[[NotebookNode], None]:
    return lambda nb: nb.cells[n].update(nbformat.from_dict(values))


def many(make_one: Callable[[int], NotebookNode], times: int) -> Callable[[NotebookNode], None]:
    return lambda nb: nb.cells.extend(make_one(n) for n in range(times))


HOME = "/home" + "/ada/page"
MISTAKES = [
    (cell_ids_are_words, sets(0, id="a1b2c3d4")),
    (cell_ids_are_words, sets(0, id="8c6a3f0e-1b2d-4c3e-9f10-aabbccddeeff")),
    (cell_ids_are_words, sets(0, id="a")),
    (cell_ids_are_words, sets(0, id="Wrong_Split")),
    (cell_ids_are_unique, sets(0, id="show-count")),
    (every_cell_ran_in_order, sets(3, execution_count=None)),
    (every_cell_ran_in_order, sets(3, execution_count=7)),
    (metadata_is_minimal, lambda nb: nb.metadata.update(widgets={})),
    (metadata_is_minimal, lambda nb: nb.metadata.kernelspec.update(name="my-kernel")),
    (metadata_is_minimal, sets(3, metadata={"execution": {"iopub.status.busy": "now"}})),
    (metadata_is_minimal, sets(3, metadata={"jupyter": {"outputs_hidden": True}})),
    (metadata_is_minimal, sets(2, metadata={"tags": ["reveal"]})),
    (metadata_is_minimal, lambda nb: nb.cells[3].outputs[0].metadata.update(needs_background="light")),
    (nothing_is_skipped, runs("1 / 0", "raises-exception")),
    (nothing_is_skipped, runs("print(1)", "nbval-skip")),
    (nothing_is_skipped, runs("# NBVAL_SKIP\nprint(1)")),
    (only_timing_is_not_compared, runs("print(1)", "nbval-ignore-output")),
    (only_timing_is_not_compared, runs("# NBVAL_IGNORE_OUTPUT\nprint(1)")),
    (
        nothing_went_wrong,
        lambda nb: nb.cells[3].outputs.append(nbf.new_output("stream", name="stderr", text="!")),
    ),
    (
        nothing_went_wrong,
        lambda nb: nb.cells[3].outputs.append(nbf.new_output("error", ename="E", evalue="")),
    ),
    (streams_are_merged, prints("one\n", "two\n")),
    (outputs_are_stable, prints("stored at 0x7f3a")),
    (outputs_are_stable, prints(f"read {HOME}")),
    (outputs_are_stable, prints("made on 2026-01-31")),
    (outputs_are_stable, prints("np.float64(1.5)")),
    (outputs_are_stable, prints("tensor([1, 2])")),
    (outputs_are_stable, prints("<generator object heads at …>")),
    (outputs_are_stable, prints("<module 'math' (built-in)>")),
    (outputs_are_stable, prints("Linear(in_features=2, out_features=3, bias=True)")),
    (outputs_are_stable, prints("first\n{0, 2}\n")),
    (outputs_are_stable, prints("a third is 0.333")),
    (outputs_are_stable, prints("off by 1.2e-07")),
    (outputs_are_stable, shows(text_html="<b>0.333</b>", text_plain="")),
    (no_cell_ends_in_a_semicolon, runs("x = 1\nx;  # quiet")),
    (the_page_is_short, says("word " * WORDS)),
    (the_page_is_short, many(lambda n: nbf.new_code_cell("1", id=f"cell-{n}"), CODE_CELLS - 1)),
    (the_page_is_short, lambda nb: nb.cells[3].outputs.extend(nb.cells[3].outputs * FIGURES)),
    (shown_source_is_short, runs("x = 1\n" * (SOURCE_LINES + 1))),
    (every_figure_has_its_caption, lambda nb: nb.cells[3].outputs.pop()),
    (every_figure_has_its_caption, lambda nb: nb.cells[3].outputs.reverse()),
    (outputs_read_well_untrusted, shows(image_svg_xml="<svg/>", text_plain="picture")),
    (outputs_read_well_untrusted, shows(text_html="<b>2</b>")),
    (widgets_are_plain, runs("interact(show, head=3)")),
    (widgets_are_plain, runs("out = widgets.Output()")),
    (widgets_are_plain, runs("display.clear_output(wait=True)")),
    (answers_are_asked_for_and_folded, sets(2, metadata={})),
    (answers_are_asked_for_and_folded, sets(1, source="**Guess.** Say how many.")),
    (answers_are_asked_for_and_folded, sets(2, outputs=[])),
    (answers_are_asked_for_and_folded, lambda nb: nb.cells.extend(nb.cells[1:3] * ANSWERS)),
    (folded_answers_stay_secret, prints_answer("12")),
    (folded_answers_stay_secret, prints_answer("equal: True")),
    (images_have_words, says("![](cat.png)")),
    (images_have_words, says('<img src="cat.png">')),
    (headings_do_not_jump, says("### Too deep")),
    (headings_do_not_jump, says("# A second title")),
    (randomness_is_seeded, runs("x = torch.randn(2, 3)")),
    (randomness_is_seeded, runs("x = torch.empty(2).uniform_()")),
]


@pytest.mark.parametrize("check", RULES.values(), ids=RULES)
def test_a_sound_notebook_passes(check):
    nb = sound()
    nbformat.validate(nbformat.from_dict({key: value for key, value in nb.items() if key != "name"}))
    assert list(check(nb)) == []


@pytest.mark.parametrize(("check", "spoil"), MISTAKES, ids=[check.__name__ for check, _ in MISTAKES])
def test_a_mistake_is_noticed(check, spoil):
    nb = sound()
    spoil(nb)
    assert list(check(nb)) != []


def test_every_rule_can_fail():
    assert {check for check, _ in MISTAKES} == set(RULES.values())
