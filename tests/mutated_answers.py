"""Random small edits of right answers: does a check accept a wrong one, and what does it say of the others?

    python tests/mutated_answers.py [number]

The catalogues hold mistakes that somebody thought of. Here chance makes the answers, `number` (300) for each
exercise, and an independent domain, all sizes from 1 to 8, says whether one that was accepted is right.
Prints a row for each exercise, and below it what no cause was named for, the most frequent first, each with
the shortest answer that led there: what recurs and could be a person's mistake belongs in the catalogue.
"""

import ast
import builtins
import functools
import inspect
import itertools
import linecache
import random
import sys
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mhalesson.exercises import EXERCISES
from mhalesson.exercises._running import TimeUp, quietly, time_limit
from mhalesson.exercises.engine import Case, Exercise, Verdict, called, judge
from mhalesson.exercises.loop_vs_batched import OnDevice


class Answer(NamedTuple):
    source: str
    function: Callable[..., object]


# ------------------------------------------------------------------------------------------ the edits

# What is taken for each other, among methods, functions and attributes.
RELATED = (
    ("transpose", "permute", "swapaxes"),
    ("view", "reshape", "unflatten", "flatten", "expand"),
    ("sum", "mean", "max", "min", "cumsum", "sorted", "list"),
    ("median", "mean", "min", "max"),
    ("any", "all"),
    ("repeat", "repeat_interleave", "expand"),
    ("triu", "tril"),
    ("cat", "stack"),
    ("softmax", "sigmoid", "log_softmax"),
    ("zeros", "ones", "empty", "eye"),
    ("zeros_like", "ones_like", "empty_like"),
    ("chunk", "split", "unbind"),
    ("roll", "flip"),
    ("T", "mT"),
    ("abs", "neg"),
    ("append", "extend"),
)
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Div, ast.Mod, ast.Pow, ast.MatMult)
COMPARISONS = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot)
# Nodes whose lists belong together, so that no part can be lost or change places.
NOT_A_LIST = ast.Module | ast.Compare | ast.comprehension | ast.ListComp | ast.SetComp | ast.GeneratorExp
FILES = itertools.count()  # every answer in a file of its own, as every cell of a notebook is
MODULES = ("torch", "F", "statistics", "itertools")  # what stands before the dot is no link of a chain


def mutants(exercise: Exercise, number: int, seed: int) -> Iterator[Answer]:
    """`number` different answers, each one to three edits away from a right one."""
    rng = random.Random(f"{exercise.id} {seed}")
    right = [
        ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(function))))
        for function in (exercise.reference, *exercise.others)
        if function.__name__ != "<lambda>"  # whose source is a piece of the catalogue
    ]
    seen = set(right)
    while len(seen) < number + len(right):
        source = rng.choice(right)
        for _ in range(rng.choice((1, 1, 2, 3))):
            source = edited(source, rng)
        if source not in seen and (function := compiled(source, exercise)):
            seen.add(source)
            yield Answer(source, function)


def edited(source: str, rng: random.Random) -> str:
    """One edit, somewhere: the place is drawn first, or what has many alternatives would win every time."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    places = [(node, field) for node in nodes for field, _ in ast.iter_fields(node)]
    names = sorted(names_in(nodes))
    values: list[object] = []
    while not values:
        node, field = rng.choice(places)
        values = edits(node, field, names, rng)
    setattr(node, field, rng.choice(values))
    try:
        return ast.unparse(tree)
    except Exception:  # a tree that no text can have
        return source


def edits(node: ast.AST, field: str, names: list[str], rng: random.Random) -> list[object]:
    """What a field of a node could hold in place of what it holds; of a list, one part is edited."""
    value = getattr(node, field)
    if not isinstance(value, list):
        return instead_of(value, names)
    if not value:
        return []
    n = rng.randrange(len(value))
    before, part, after = value[:n], value[n], value[n + 1 :]
    new = [[*before, other, *after] for other in instead_of(part, names)]
    if isinstance(node, NOT_A_LIST):
        return new
    if not isinstance(part, ast.arg):  # with a parameter less the check never gets to call it
        new.append([*before, *after] or ([ast.Pass()] if field == "body" else []))
    if after and not isinstance(part, ast.Assign):  # what gets a value late is an error, and little else
        new.append([*before, after[0], part, *after[1:]])
    if after and isinstance(part, ast.For):  # what follows a loop slips into it
        new.append([*before, ast.For(part.target, part.iter, [*part.body, after[0]], []), *after[1:]])
    return new


def names_in(nodes: list[ast.AST]) -> set[str]:
    """The parameters and whatever gets a value."""
    return {node.arg for node in nodes if isinstance(node, ast.arg)} | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def instead_of(node: object, names: list[str]) -> list[object]:
    """What a slip of the pen or of the mind could have put in place of a node."""
    match node:
        case ast.Constant(value=bool(value)):
            return [ast.Constant(not value)]
        case ast.Constant(value=int(n)):
            return [ast.Constant(new) for new in sorted({n + 1, n - 1, -n, 0} - {n})]
        case ast.Constant(value=float(x)):
            return [ast.Constant(new) for new in (2 * x, -x)]
        case ast.Constant(value=str(text)):  # letters of an einsum
            pairs = range(len(text) - 1)
            return [ast.Constant(text[:n] + text[n + 1] + text[n] + text[n + 2 :]) for n in pairs]
        case ast.Name(id, ast.Load()):
            others = [name for name in names if name != id] if id in names else related(id)
            return [ast.Name(other) for other in others]
        case ast.BinOp(left, op, right):
            # One size to the power of another could be the side of a matrix that no machine can hold.
            safe = isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
            operators = [kind for kind in OPERATORS if kind is not type(op) and (safe or kind is not ast.Pow)]
            others = [ast.BinOp(left, kind(), right) for kind in operators]
            return [ast.BinOp(right, op, left), left, right, *others]
        case ast.AugAssign(target, op, value):
            others = [ast.AugAssign(target, kind(), value) for kind in OPERATORS[:3] if kind is not type(op)]
            return [ast.Assign([target], value, lineno=0), *others]
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Compare(left, ops, comparators):
            others = [kind for kind in COMPARISONS if kind is not type(ops[0])]
            return [ast.Compare(left, [kind(), *ops[1:]], comparators) for kind in others]
        case ast.IfExp(test, body, orelse):
            return [ast.IfExp(test, orelse, body), body, orelse]
        case ast.Call(ast.Attribute(value=ast.expr() as link)) if ast.unparse(link) not in MODULES:
            return [link]
        case ast.Attribute(value, attr):
            alone = [value] if attr in ("T", "mT", "shape") else []
            return [*alone, *(ast.Attribute(value, other) for other in related(attr))]
        case ast.Subscript(value):
            return [value]
        case ast.Slice(lower, upper, step):
            fewer = [ast.Slice(None, upper, step)] if lower else []
            return fewer + ([ast.Slice(lower, None, step)] if upper else [])
        case ast.Return(ast.expr() as value):
            call = functools.partial(ast.Call, keywords=[])
            wraps = [ast.Attribute(value, "T"), call(ast.Attribute(value, "flip"), [ast.Constant(0)])]
            backwards = ast.Subscript(value, ast.Slice(step=ast.Constant(-1)))
            return [ast.Expr(value), *map(ast.Return, [*wraps, backwards])]
    return []


def related(name: str) -> list[str]:
    return sorted({other for group in RELATED if name in group for other in group} - {name})


def compiled(source: str, exercise: Exercise) -> Callable[..., object] | None:
    """The function, among its module's names; None where Python would not even read it, or misses a name."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    space = dict(vars(sys.modules[exercise.reference.__module__]))
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    if used - names_in(nodes) - space.keys() - vars(builtins).keys():
        return None
    file = f"<{exercise.id} {next(FILES)}>"
    try:
        with warnings.catch_warnings(action="ignore"):
            exec(compile(source, file, "exec"), space)
    except SyntaxError:
        return None
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)  # errors quote lines
    return space[tree.body[0].name]  # type: ignore[attr-defined, return-value]


# ----------------------------------------------------------------------------------------- the domain

SIZES = range(1, 9)
SAMPLE = 200  # where there are too many combinations of sizes: how many beside those of 1 to 3


def domain(exercise: Exercise) -> Iterator[Case]:
    """Inputs of all sizes from 1 to 8, drawn without the exercise's own `draw`."""
    rng = random.Random(0)
    generator = torch.Generator().manual_seed(0)
    return (case if isinstance(case, Case) else Case(case) for case in DOMAINS[exercise.id](rng, generator))


def all_sizes(axes: int, rng: random.Random) -> list[tuple[int, ...]]:
    """Every combination for up to three axes. Six have 262,144: of these all of 1 to 3, and a sample."""
    if axes <= 3:
        return list(itertools.product(SIZES, repeat=axes))
    small = itertools.product(range(1, 4), repeat=axes)
    return [*small, *(tuple(rng.choices(SIZES, k=axes)) for _ in range(SAMPLE))]


def counted(*sizes: int) -> Tensor:
    return torch.arange(1.0, 1 + torch.Size(sizes).numel()).view(sizes)


def _matrices(rng: random.Random, generator: torch.Generator) -> Iterable[object]:
    """For heads_reaching: half of W_O zero, in single entries or in whole heads."""
    for h, d_v, d_model in all_sizes(3, rng):
        knobs = torch.randn(h, d_v, d_model, generator=generator)
        knobs *= torch.rand(knobs.shape, generator=generator) < rng.choice((0.2, 0.6))
        knobs *= torch.rand(h, 1, d_model, generator=generator) < 0.7
        yield from ((knobs.flatten(0, 1), j, h) for j in range(d_model))


def _reports(rng: random.Random, generator: torch.Generator) -> Iterable[object]:
    """For same_sum: of all sizes and scales, and often such that a careless step is lost beside them."""
    for h, T, d_v in itertools.product(range(2, 9), SIZES, SIZES):
        z = torch.randn(h, T, d_v, generator=generator)
        ones = torch.ones_like(z)
        alike = z[:1].repeat(h, 1, 1)
        alone, spike = torch.zeros_like(z), torch.zeros_like(z)
        alone[rng.randrange(h)] = z[0]
        spike[rng.randrange(h), rng.randrange(T), rng.randrange(d_v)] = 1
        special = (alike, alone, spike, ones, 0 * z, z - z.mean(dim=0), z + 100)
        yield (rng.choice((z, *special)) * rng.choice((1, -1, 0.001, 1000, 1e6, -1e6)),)


def _models(rng: random.Random) -> Iterable[object]:
    for d_model, h, kv, d_head in all_sizes(4, rng):
        if h % kv == 0:
            yield from ((d_model, h, kv, d_head, bias) for bias in (True, False))


def _devices(rng: random.Random) -> Iterable[object]:
    """For fair_timer: more calls, other hiccups, anything from nothing to a lot of pending work."""
    for repeats in (1, 3, 5, 7, 9, 11, 13, 15, 25, 41) * 10:
        work = [rng.uniform(0.5, 1.5) * 10 ** rng.uniform(-3.5, -2) for _ in range(50)]
        work = [time * (20 if rng.random() < 0.1 else 1) for time in work]
        work[0] = 40 * max(work[1:])
        yield OnDevice.repeating(repeats, work, queue=rng.choice([0.0, 0.03, 0.3]))


def _layers(rng: random.Random, generator: torch.Generator) -> Iterable[object]:
    for B, h, T, d_v, d_model in all_sizes(5, rng):
        yield tuple(torch.randn(s, generator=generator) for s in ((B, h, T, d_v), (d_model, h * d_v)))


def _crossings(rng: random.Random, generator: torch.Generator) -> Iterable[object]:
    for B, h, T_q, T_k, d_k, d_v in all_sizes(6, rng):
        sizes = ((B, T_q, h * d_k), (B, T_k, h * d_k), (B, T_k, h * d_v))
        yield (*(torch.randn(s, generator=generator) for s in sizes), h)


def _shards(rng: random.Random, generator: torch.Generator) -> Iterable[object]:
    for B, T, d_model, machines in all_sizes(4, rng):
        widths = rng.choices(SIZES, k=machines)
        z = [torch.randn(B, T, width, generator=generator) for width in widths]
        w = [torch.randn(width, d_model, generator=generator) for width in widths]
        yield z, w, rng.choice((None, torch.randn(d_model, generator=generator)))


def _attended(rng: random.Random, generator: torch.Generator) -> Iterable[object]:
    return (tuple(torch.randn(3, *s, generator=generator).unbind()) for s in all_sizes(4, rng))


def _z_in_two_orders(rng: random.Random) -> Iterable[object]:
    """For merge_heads: in memory heads lie before tokens, or as the fused kernel leaves them, after."""
    for B, h, T, d in all_sizes(4, rng):
        yield (counted(B, h, T, d) if (B + T) % 2 else counted(B, T, h, d).transpose(1, 2),)


DOMAINS: dict[str, Callable[[random.Random, torch.Generator], Iterable[object]]] = {
    "head_slice": lambda rng, generator: itertools.product(range(9), SIZES),
    "heads_reaching": _matrices,
    "sum_as_matrix": lambda rng, generator: all_sizes(2, rng),
    "same_sum": _reports,
    "output_block": lambda rng, generator: (
        (counted(o, h * c), i, h) for o, h, c in all_sizes(3, rng) for i in range(h)
    ),
    "contributions": _layers,
    "rotate_heads_weight": lambda rng, generator: itertools.product(range(3, 9), SIZES),
    "attention_params": lambda rng, generator: _models(rng),
    "journey_shapes": lambda rng, generator: ((B, T, h * d, h) for B, T, h, d in all_sizes(4, rng)),
    "split_heads": lambda rng, generator: ((counted(B, T, h * d), h) for B, T, h, d in all_sizes(4, rng)),
    "merge_heads": lambda rng, generator: _z_in_two_orders(rng),
    "repair": _crossings,
    "batch_the_loop": _attended,
    "fair_timer": lambda rng, generator: _devices(rng),
    "row_parallel": _shards,
}


@functools.cache
def right_on_domain(exercise: Exercise) -> list[tuple[Case, object]]:
    with quietly():
        return [(case, exercise.reference(*case.fresh())) for case in domain(exercise)]


def different(exercise: Exercise, answer: Callable[..., object]) -> str:
    """The first input of the domain on which the answer is not right, in words; "" if there is none."""
    expected = right_on_domain(exercise)
    try:
        with quietly(), time_limit(60):
            for case, wanted in expected:
                if not right_on(exercise, answer, case, wanted):
                    return called(exercise, case)
            return exercise.beyond(answer) if exercise.beyond else ""
    except TimeUp:
        return "It does not come to an end."


def right_on(exercise: Exercise, answer: Callable[..., object], case: Case, wanted: object) -> bool:
    """Is the result right, and are the inputs what they were?"""
    inputs = case.fresh()
    try:
        value = answer(*inputs)
        if exercise.fault:
            right = not exercise.fault(case, inputs, exercise.reader(value))
        else:
            right = equal(value, wanted, exercise.any_float)
    except Exception:
        return False
    pairs = zip(inputs, case.inputs, strict=True)
    return right and all(equal(now, was) for now, was in pairs if isinstance(was, Tensor | list))


def equal(value: object, wanted: object, any_float: bool = False) -> bool:
    """Written anew, so that a hole in the engine's comparison would show."""
    if isinstance(wanted, Tensor):
        assert isinstance(value, Tensor)
        if any_float and value.is_floating_point():
            value = value.to(wanted.dtype)
        if value.shape != wanted.shape or value.dtype != wanted.dtype:
            return False
        return torch.equal(value, wanted) or torch.allclose(value, wanted, rtol=1e-4, atol=1e-5)
    if isinstance(wanted, slice):
        assert isinstance(value, slice)
        return range(99)[value] == range(99)[wanted]
    if isinstance(wanted, list | tuple):
        assert isinstance(value, list | tuple)
        return len(value) == len(wanted) and all(map(equal, value, wanted))
    return bool(value == wanted)


# ------------------------------------------------------------------------------------------ the table


def kind_of(verdict: Verdict) -> str:
    if verdict.mark == "✓":
        return "accepted"
    if verdict.mistakes:
        return "named"
    return "error" if "It stopped with an error" in verdict.says else "unexplained"


def report(exercise: Exercise, number: int) -> None:
    """A row of the table, and under it what no cause was named for."""
    kinds: Counter[str] = Counter()
    unexplained: Counter[str] = Counter()
    example: dict[str, str] = {}
    holes = []
    for source, function in mutants(exercise, number, seed=0):
        verdict = judge(exercise, function)
        kind = kind_of(verdict)
        kinds[kind] += 1
        if kind == "unexplained":
            unexplained[str(verdict)] += 1
            example[str(verdict)] = min(example.get(str(verdict), source), source, key=len)
        elif kind == "accepted" and (where := different(exercise, function)):
            holes.append(f"ACCEPTED AND WRONG, {where}:\n{source}")
    refused = number - kinds["accepted"]
    shares = "".join(f"{kinds[kind] / refused:>13.0%}" for kind in ("named", "error", "unexplained"))
    print(f"{exercise.id:20}{number:>8}{kinds['accepted']:>10}{len(holes):>8}{shares}")
    for hole in holes:
        print(textwrap.indent(hole, "  "))
    for line, times in unexplained.most_common(5):
        print(textwrap.indent(f"{times} times: {line}\n{textwrap.indent(example[line], '    ')}", "  "))


def main() -> None:
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    print(f"{'':20}{'mutants':>8}{'accepted':>10}{'wrong':>8}{'named':>13}{'error':>13}{'unexplained':>13}")
    for exercise in EXERCISES.values():
        report(exercise, number)


if __name__ == "__main__":
    main()
