"""Put known bugs into a copy of the package, one at a time: would the notebooks notice, would the unit tests?

    python tests/mutants.py [--only nbval|unit] [name ...]

Each kind of test runs alone and stops at its first failure. First both run on a copy without a bug and must
pass, or a failure would mean nothing. A bug counts as killed only by a comparison that came out wrong: an
assertion, or a cell whose output differs. Exits with 1 if a bug survives (or merely crashes something).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]

# What is run: the notebooks, and the tests of the code that the bugs go into, the likeliest to notice first.
UNIT = (
    "test_attention.py",
    "test_output_projection.py",
    "test_ledger.py",
    "test_wrong_calls.py",
    "test_claims.py",
    "test_journey.py",
    "test_timing.py",
)
PYTEST = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", "-rf", "--tb=short"]
COMMANDS = {
    "nbval": [*PYTEST, "--nbval", "--nbval-current-env", "notebooks/"],
    "unit": [*PYTEST, "--hypothesis-profile=mutants", *(f"tests/{name}" for name in UNIT)],
}

WHERE = "from importlib.util import find_spec; print(find_spec('mhalesson').origin)"
LEFT_OUT = (".venv", ".git", ".hypothesis", ".*_cache", ".ipynb_checkpoints", "__pycache__")

# Where the bugs go. Most are one replacement; SDPA does on its own what attention_weights spells out, so a
# bug in the scale or the mask is a different edit there.
SCORES = "scores = q / math.sqrt(d) @ k.transpose(-2, -1)"
MASKING = "    scores = scores.where(allowed, -math.inf)\n    return scores.softmax(dim=-1)"
LOOP = "attention_weights(q[:, i], k[:, i], allowed[:, 0])"
BATCHED = "attention_weights(q, k, allowed) @ v"
FUSED = "F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)"
FUSED_WITH_MASK = '"fused": F.scaled_dot_product_attention}'
SDPA = "F.scaled_dot_product_attention"

SCALE_D_MODEL = [
    (LOOP, "attention_weights(q[:, i] / math.sqrt(q.shape[1]), k[:, i], allowed[:, 0])"),
    (BATCHED, "attention_weights(q / math.sqrt(q.shape[1]), k, allowed) @ v"),
]
SCALE_D_MODEL_FUSED = [
    (FUSED, f"{SDPA}(q / math.sqrt(q.shape[1]), k, v, is_causal=self.causal)"),
    (
        FUSED_WITH_MASK,
        f'"fused": lambda q, k, v, allowed: {SDPA}(q / math.sqrt(q.shape[1]), k, v, allowed)}}',
    ),
]
NO_SCALE = [(SCORES, "scores = q @ k.transpose(-2, -1)")]
NO_SCALE_FUSED = [
    (FUSED, f"{SDPA}(q, k, v, is_causal=self.causal, scale=1.0)"),
    (FUSED_WITH_MASK, f'"fused": lambda q, k, v, allowed: {SDPA}(q, k, v, allowed, scale=1.0)}}'),
]
NO_MASK = [(MASKING, "    return scores.softmax(dim=-1)")]
NO_MASK_FUSED = [
    (FUSED, f"{SDPA}(q, k, v)"),
    (FUSED_WITH_MASK, f'"fused": lambda q, k, v, allowed: {SDPA}(q, k, v)}}'),
]
Y = "return self.o_proj(merge_heads(z))"
BIAS_PER_HEAD = """y = self.o_proj(merge_heads(z))
        return y if self.o_proj.bias is None else y + (self.num_heads - 1) * self.o_proj.bias"""
QKV = "        return q, k, v\n"

# name: (file, [(what stands there, what the bug makes of it), …])
MUTANTS = {
    "merge without transposing": (
        "attention.py",
        [("    z = z.transpose(1, 2)  # (B, T, h, d): a token's heads become neighbours\n", "")],
    ),
    "split without transposing": (
        "attention.py",
        [
            (
                "x = x.view(B, T, num_heads, width // num_heads)",
                "x = x.reshape(B, num_heads, T, width // num_heads)",
            ),
            ("return x.transpose(1, 2)  # (B, h, T, d)", "return x  # (B, h, T, d)"),
        ],
    ),
    "scale by sqrt(d_model)": ("attention.py", SCALE_D_MODEL + SCALE_D_MODEL_FUSED),
    "scale by sqrt(d_model) (loop, batched)": ("attention.py", SCALE_D_MODEL),
    "scale by sqrt(d_model) (fused)": ("attention.py", SCALE_D_MODEL_FUSED),
    "no scale": ("attention.py", NO_SCALE + NO_SCALE_FUSED),
    "no scale (loop, batched)": ("attention.py", NO_SCALE),
    "no scale (fused)": ("attention.py", NO_SCALE_FUSED),
    "softmax over the wrong axis": ("attention.py", [("scores.softmax(dim=-1)", "scores.softmax(dim=-2)")]),
    "no mask": ("attention.py", NO_MASK + NO_MASK_FUSED),
    "no mask (loop, batched)": ("attention.py", NO_MASK),
    "no mask (fused)": ("attention.py", NO_MASK_FUSED),
    "mask after softmax": (
        "attention.py",
        [(MASKING, "    return scores.softmax(dim=-1).masked_fill(~allowed, 0)")],
    ),
    "causal mask turned round": ("attention.py", [("allowed.tril()", "allowed.triu()")]),
    "W_O skipped": ("attention.py", [(Y, "return merge_heads(z)")]),
    "W_O applied twice": ("attention.py", [(Y, "return self.o_proj(self.o_proj(merge_heads(z)))")]),
    "heads summed": (
        "attention.py",
        [(Y, "return self.o_proj(merge_heads(z.sum(dim=1, keepdim=True).expand_as(z)))")],
    ),
    "q and k swapped": ("attention.py", [(QKV, "        return k, q, v\n")]),
    "k used as v": ("attention.py", [(QKV, "        return q, k, k\n")]),
    "bias added per head": ("attention.py", [(Y, BIAS_PER_HEAD)]),
    "blocks along the wrong axis": (
        "output_projection.py",
        [
            (
                "return W_O.unflatten(0, (num_heads, width // num_heads))",
                "return weight.reshape(num_heads, width // num_heads, d_model)",
            )
        ],
    ),
    # The instruments, too, are believed.
    "a copy recorded as arithmetic": ("journey.py", [('MOVES = {"clone", ', "MOVES = {")]),
    "bytes of views counted as written": (
        "journey.py",
        [("sum(new.values()) + bytes_over", "sum(map(_bytes, outputs)) + bytes_over")],
    ),
    "copies inside of @ laid at nobody's door": (
        "_running_code.py",
        [('return "matmul" if', 'return "" if')],
    ),
    "work as the smaller of the two": ("timing.py", [("self.launch + max(", "self.launch + min(")]),
}


def mutated(file: str, replacements: list[tuple[str, str]]) -> str:
    """The code with a bug. Text that is not there exactly once would be another bug than the one meant."""
    code = (ROOT / "mhalesson" / file).read_text(encoding="utf-8")
    for old, new in replacements:
        if (found := code.count(old)) != 1:
            sys.exit(f"{file} holds this {found} times, not once; mend tests/mutants.py:\n{old}")
        code = code.replace(old, new)
    return code


def run(name: str, kind: str) -> tuple[str, str]:
    """One kind of test on a copy with one bug (or none): what became of the bug, and what noticed it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve() / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        if name in MUTANTS:
            file, replacements = MUTANTS[name]
            (copy / "mhalesson" / file).write_text(mutated(file, replacements), encoding="utf-8")
        # PYTHONPATH comes before the editable install in sys.path, for pytest and for the kernels it starts.
        environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "300"}

        def call(command: list[str], cwd: Path) -> subprocess.CompletedProcess:
            return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)

        where = call([sys.executable, "-c", WHERE], copy / "notebooks")
        if where.stdout.strip() != str(copy / "mhalesson" / "__init__.py"):
            return "CRASHED", f"the copy is not what is imported: {where.stdout}{where.stderr}"
        done = call(COMMANDS[kind], copy)

    if done.returncode == 0:
        return "SURVIVED", ""
    failed = re.search(r"^FAILED (.+?)(?: - (.*))?$", done.stdout, re.MULTILINE)
    compared = (
        r"Cell outputs differ|^\S*AssertionError" if kind == "nbval" else "^E +(AssertionError|assert )"
    )
    if failed and re.search(compared, done.stdout, re.MULTILINE):
        return "killed", failed[1]
    return "CRASHED", done.stdout[-1000:] + done.stderr[-1000:]


def table(names: list[str], kinds: list[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Every bug with its outcome per kind of test, two at a time, as they are done."""
    with ThreadPoolExecutor(max_workers=2) as pool:
        futures = {name: [pool.submit(run, name, kind) for kind in kinds] for name in names}
        for name in names:
            yield name, [future.result() for future in futures[name]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=COMMANDS, help="one kind of test instead of both")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of: {', '.join(MUTANTS)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(MUTANTS):
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    kinds = [arguments.only] if arguments.only else list(COMMANDS)
    names = arguments.names or list(MUTANTS)
    for name in names:
        mutated(*MUTANTS[name])  # all bugs still find their place, before any is tried

    for _, outcomes in table(["(no bug)"], kinds):
        for kind, (verdict, evidence) in zip(kinds, outcomes, strict=True):
            if verdict != "SURVIVED":
                print(f"{kind} fails without any bug, so it can show nothing: {evidence}")
                return 1

    alive = []
    for name, outcomes in table(names, kinds):
        for kind, (verdict, evidence) in zip(kinds, outcomes, strict=True):
            print(f"{name:<40} {kind:<6} {verdict:<9} {evidence}", flush=True)
            if verdict != "killed":
                alive.append(f"{name} ({kind})")
    print(f"{len(names)} bugs; not killed: {', '.join(alive) or 'none'}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
