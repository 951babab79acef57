"""Make notebooks/what_holds.md, a page for readers, of claims.toml: `python tests/make_what_holds.py`."""

import tomllib
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "notebooks" / "what_holds.md"

NOTEBOOKS = {
    "01": ("Where do heads write?", "01_subspace_isolation.ipynb"),
    "02": ("Concat or sum?", "02_concat_vs_sum.ipynb"),
    "03": ("W_O in blocks", "03_block_matrix_wo.ipynb"),
    "04": ("The 4D shape journey", "04_shape_journey.ipynb"),
    "05": ("Loop or one batched product?", "05_loop_vs_batched.ipynb"),
}

VERDICTS = {
    "holds": "True as it stands.",
    "holds when": "True under a condition that is easily left out. The condition is given.",
    "imprecise": "Something true is behind it, but put like this it leads astray. Here it is said exactly.",
    "does not hold": "False, as running code or the source itself shows.",
    "no source": "We looked and found nothing that supports it. It may be true; do not pass it on as a fact.",
}

HEAD = """\
# What holds

Much is said about how attention heads recombine, in lessons, posts and talks, and most of it is nearly right.
This page takes {number} statements, one at a time, and says of each what is true, exactly. Use it to look up
a sentence that made you stop, or to test yourself: read the statement, decide, and only then read on.

Where running code can settle a matter, a test does. Its name stands under *evidence*, and it lives in
[tests/test_claims.py](../tests/test_claims.py). It shows the statement at work, and often how it fails as
soon as one thing is done wrong. Run one with `pytest tests/test_claims.py -k isolated_slices`. Where only
reading can settle it, you are told where to read. A statement marked *ours* is not one we met: this course
adds it.

| verdict | what it means | how many |
|---|---|---|
{verdicts}

The letters are those of the whole course: B batch, T tokens, h heads, d_k the width of queries and keys, d_v
that of values, d_model that of the stream. One head's output is z_i, all of them are z, (B, h, T, d_v), side
by side they are z_cat, (B, T, h·d_v), and y = z_cat W_O. So W_O is (h·d_v, d_model), and nn.Linear.weight
stores its transpose.

*This page is generated from tests/claims.toml by tests/make_what_holds.py; change it there.*
"""

SECTION = """
## {number} · {title}

Taught in [{file}]({file}).

| id | you may meet | verdict | exactly | evidence |
|---|---|---|---|---|
{rows}
"""


def read_claims() -> list[dict]:
    """The claims as they stand in the file, each text on one line."""
    claims = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]
    for claim in claims:
        for field in ("statement", "exactly"):
            claim[field] = one_line(claim[field])
        claim["source"] = [one_line(source) for source in claim.get("source", [])]
    return claims


def one_line(text: str) -> str:
    return " ".join(text.split())


def name_of_test(id: str) -> str:
    return "test_" + id.replace("-", "_")


def table_row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def claim_row(claim: dict) -> str:
    evidence = [f"[{name_of_test(claim['id'])}](../tests/test_claims.py)"] if claim.get("test") else []
    verdict = f"**{claim['verdict']}**" + (" (ours)" if claim.get("ours") else "")
    return table_row(
        claim["id"], claim["statement"], verdict, claim["exactly"], "<br>".join(evidence + claim["source"])
    )


def render() -> str:
    """The whole page."""
    claims = read_claims()
    found = Counter(claim["verdict"] for claim in claims)
    verdicts = [table_row(f"**{name}**", meaning, str(found[name])) for name, meaning in VERDICTS.items()]
    page = HEAD.format(number=len(claims), verdicts="\n".join(verdicts))
    for number, (title, file) in NOTEBOOKS.items():
        rows = [claim_row(claim) for claim in claims if claim["notebook"] == number]
        page += SECTION.format(number=number, title=title, file=file, rows="\n".join(rows))
    return page


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8", newline="\n")
