"""A journey says what really happened to memory, counts what torch counts, and changes nothing."""

import copy
import weakref

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from skips import CUDA, WILD
from torch import nn
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from mhalesson import MultiHeadAttention, attention_ledger, merge_heads, record_journey, split_heads


def kinds(journey):
    return [(step.operation, step.kind) for step in journey]


def torchs_flops(fn, *inputs, **kwargs):
    with FlopCounterMode(display=False) as counter:
        fn(*inputs, **kwargs)
    return counter.get_total_flops()


def forward_and_backward(module, *inputs):
    """The gradients of everything, by one number."""
    module.zero_grad()
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = module(*inputs)
    y = y[0] if isinstance(y, tuple) else y
    y.square().sum().backward()
    return y, *(t.grad for t in [*inputs, *module.parameters()])


def equal(one, other):
    one, other = tree_leaves(one), tree_leaves(other)
    return len(one) == len(other) and all(map(torch.equal, one, other))


# What really happened to memory: random programs, against the addresses and the bytes


class Truth(TorchDispatchMode):
    """Keeps every memory alive, so that one address is one memory; compares memories before and after."""

    def __init__(self):
        super().__init__()
        self.alive, self.events = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        before = {address(t): memory(t) for t in inputs}
        values = {value for t in inputs for value in t.flatten().tolist()}
        result = func(*args, **(kwargs or {}))
        outputs = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.alive += [t.untyped_storage() for t in inputs + outputs]
        new = {address(t): memory(t).nbytes for t in outputs if address(t) not in before}
        after = {address(t): memory(t) for t in inputs}
        changed = sum((before[a] != after[a]).sum().item() * after[a].itemsize for a in after)
        out, cells = outputs[0], memory(outputs[0]).tolist()
        strip = tuple(cells) if len(cells) <= 64 else None
        layout = (tuple(out.shape), out.stride(), out.is_contiguous(), strip)
        moved = {value for t in outputs for value in t.flatten().tolist()} <= values
        name, written = func.overloadpacket.__name__, sum(new.values()) + changed
        self.events.append((name, address(out), layout, bool(new or changed), written, moved))
        return result


def address(tensor):
    return tensor.untyped_storage().data_ptr()


def memory(tensor):
    """All cells of a tensor's memory, in order, as they are now."""
    return tensor.new_empty(0).set_(tensor.untyped_storage()).clone()


# Each takes two tensors of at least two axes and the number of the turn; an in-place one changes every cell.
OPS = [
    lambda a, b, n: a.transpose(0, -1),
    lambda a, b, n: a.permute(*range(1, a.ndim), 0),
    lambda a, b, n: a.view(1, *a.shape),
    lambda a, b, n: a.unsqueeze(n % (a.ndim + 1)),
    lambda a, b, n: a[..., n % a.shape[-1] :],
    lambda a, b, n: a.select(0, n % a.shape[0]) if a.ndim > 2 else a.narrow(0, 0, 1),
    lambda a, b, n: a.unsqueeze(1).expand(a.shape[0], 2, *a.shape[1:]),
    lambda a, b, n: a.reshape(-1, a.shape[-1]),  # copies or not, by a's strides
    lambda a, b, n: a.mT.reshape(a.shape[0], -1),
    lambda a, b, n: a.contiguous(),
    lambda a, b, n: a.clone(),
    lambda a, b, n: torch.cat([a.flatten(), b.flatten()]).unsqueeze(0),
    lambda a, b, n: torch.stack([a, a], dim=n % a.ndim),
    lambda a, b, n: a @ torch.ones(a.shape[-1], 2, dtype=a.dtype, device=a.device) % 7,
    lambda a, b, n: a @ a.mT % 7,
    lambda a, b, n: a.mT @ a % 7,
    lambda a, b, n: b.mT @ b + a.sum(),
    lambda a, b, n: -a + n,
    lambda a, b, n: a.add(1) if 0 in a.stride() else a.add_(1),
    lambda a, b, n: a.clone() if 0 in a.stride() else a.copy_(torch.full_like(a, -1000.5 * (n + 1))),
]
MOVED = {"clone", "cat", "stack", "copy_"}


def run(program, *pool):
    pool = list(pool)
    for n, (op, i, j) in enumerate(program):
        x = op(pool[i], pool[j], n)
        pool[j] = x if x.numel() < 300 else x.reshape(-1, x.shape[-1])[:3, :3]  # what stood here is freed
    return tuple(pool)


def start(device):
    """The inputs of a program; two of them share a memory."""
    a, b = (torch.arange(float(n), dtype=torch.float64, device=device) % 5 for n in (12, 36))
    return a.view(3, 4), b.view(2, 3, 2, 3), b.view(4, 9)[:, 2:].T


turn = st.tuples(st.sampled_from(OPS), st.integers(0, 2), st.integers(0, 2))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=CUDA)])
@settings(max_examples=200)
@given(program=st.lists(turn, min_size=1, max_size=8))
def test_every_verdict_on_a_random_program_is_the_truth_about_its_memory(device, program):
    journey = record_journey(run, program, *start(device))
    assert equal(journey.result, run(program, *start(device)))
    pool = start(device)
    with Truth() as truth:
        run(program, *pool)
    places = set()
    for step, (name, place, layout, changed, written, moved) in zip(journey, truth.events, strict=True):
        assert (step.shape, step.strides, step.contiguous, step.strip) == layout
        assert (step.kind == "view") == (not changed), (step, name)
        assert (step.kind == "copy") == (name in MOVED), (step, name)
        assert moved or step.kind == "compute", (step, name)
        assert step.bytes_written == written, (step, name)
        places.add((step.memory, place))
    # One number, one memory; one memory, one number.
    assert len(places) == len({number for number, _ in places}) == len({place for _, place in places})
    assert journey.bytes_written == sum(written for *_, written, _ in truth.events)
    assert journey.copies == tuple(step for step in journey if step.kind == "copy")


def test_changing_only_shape_and_strides_in_place_is_a_view():
    (step,) = record_journey(lambda x: x.t_(), torch.zeros(2, 3))
    assert (step.kind, step.bytes_written) == ("view", 0)


def test_a_tensor_made_from_python_numbers_has_a_memory_of_its_own():
    def fn(x):
        a = x + 1
        del a  # the next tensor may lie where this one was
        return torch.tensor([1.0, 2.0]) * 2

    add, made, mul = record_journey(fn, torch.zeros(3))
    assert len({add.memory, made.memory, mul.memory}) == 3


def test_the_same_run_gets_the_same_numbers():
    numbers, alive = set(), []
    for n in range(30):
        alive.append([torch.zeros(n), torch.zeros(1)])  # so that every run finds other addresses
        a, b, c = (torch.zeros(2, 2) for _ in range(3))
        alive.append([a, c])
        journey = record_journey(lambda a, b, c: (torch.addcmul(a, b, c), a.T, b.T, c.T), a, b, c)
        numbers.add(tuple(step.memory for step in journey))
    assert len(numbers) == 1


def test_bytes_read_counts_a_repeated_entry_once_and_a_view_reads_nothing():
    x, y = torch.zeros(3, 1), torch.zeros(2, 4)
    expand, mm = record_journey(lambda x, y: x.expand(3, 2) @ y, x, y)
    assert (expand.bytes_read, mm.bytes_read, mm.bytes_written) == (0, x.nbytes + y.nbytes, 3 * 4 * 4)


# FLOPs

SIZES = [(1, 4, 8, 2, None), (2, 5, 12, 3, None), (3, 7, 12, 4, 2), (2, 3, 8, 4, 1)]  # B, T, d_model, h, h_kv


def layer(implementation, d_model=12, h=3, h_kv=None):
    torch.manual_seed(0)
    return MultiHeadAttention(d_model, h, num_kv_heads=h_kv, implementation=implementation)


@pytest.mark.parametrize("implementation", ["loop", "batched", "fused"])
@pytest.mark.parametrize(("B", "T", "d_model", "h", "h_kv"), SIZES)
def test_flops_are_those_of_the_ledger_and_of_torchs_counter(implementation, B, T, d_model, h, h_kv):
    mha, x = layer(implementation, d_model, h, h_kv), torch.zeros(B, T, d_model)
    ledger = attention_ledger(d_model, h, num_kv_heads=h_kv, context=T)
    flops = record_journey(mha, x).flops
    assert flops == B * T * ledger.flops_per_token  # also of the fused kernel: nominally, without the mask
    if implementation != "fused":  # on a CPU torch's counter has no formula for that
        assert flops == torchs_flops(mha, x)
        both = record_journey(forward_and_backward, mha, x)
        assert both.flops == torchs_flops(forward_and_backward, mha, x)
    for projection in (mha.q_proj, mha.k_proj, mha.v_proj, mha.o_proj):
        assert record_journey(projection, x).flops == torchs_flops(projection, x) > 0


def test_the_backward_pass_of_the_fused_kernel_is_opaque_and_counted():
    B, T, d_model = 2, 5, 12
    mha, x = layer("fused"), torch.randn(B, T, d_model)
    journey = record_journey(forward_and_backward, mha, x)
    (backward,) = journey.calls("scaled_dot_product_attention_backward")
    assert backward.kind == "opaque"
    # Flash attention computes the scores again: five products, where the forward pass had two.
    (forward,) = journey.calls("scaled_dot_product_attention")
    assert 2 * backward.flops == 5 * forward.flops == 5 * (4 * B * T * T * d_model)
    assert journey.flops > 3 * record_journey(mha, x).flops


@pytest.mark.parametrize(("B", "T", "d_model", "h"), [(1, 4, 8, 2), (2, 5, 12, 4)])
def test_torchs_fast_attention_is_one_opaque_step_with_the_flops_of_the_slow_one(B, T, d_model, h):
    module, x = nn.MultiheadAttention(d_model, h, batch_first=True).eval(), torch.randn(B, T, d_model)
    with torch.no_grad():
        (fast,) = record_journey(module, x, x, x)
    slow = record_journey(module, x, x, x)
    assert (fast.kind, fast.shape) == ("opaque", (B, T, d_model))
    assert len(slow.steps) > 1 and "opaque" not in {step.kind for step in slow}
    assert fast.flops == slow.flops == B * T * attention_ledger(d_model, h, context=T).flops_per_token
    assert fast.flops == torchs_flops(module, x, x, x)


@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
@pytest.mark.parametrize(("B", "T", "d_model", "h", "d_ff"), [(1, 4, 8, 2, 20), (2, 5, 12, 4, 7)])
def test_torchs_fast_encoder_layer_is_one_opaque_step_too(B, T, d_model, h, d_ff, options):
    module = nn.TransformerEncoderLayer(d_model, h, d_ff, batch_first=True, **options).eval()
    x = torch.randn(B, T, d_model)
    with torch.no_grad():
        (fast,) = record_journey(module, x)
    slow = record_journey(module, x)
    assert (fast.kind, fast.where) == ("opaque", "TransformerEncoderLayer")
    assert len(slow.steps) > 1
    ledger = attention_ledger(d_model, h, context=T, d_ff=d_ff)
    assert fast.flops == slow.flops == B * T * ledger.flops_per_token


def test_an_operation_that_nobody_knows_is_opaque_and_has_no_flops():
    @torch.library.custom_op("mhalesson_tests::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    journey = record_journey(lambda x: double(x) + 1, torch.zeros(2))
    assert ("double", "opaque") in kinds(journey)
    assert journey.flops is None


# Copies, and who made them


def copies(journey):
    return [(step.where, step.call, step.shape) for step in journey.copies]


def test_the_hidden_copies_of_batched_attention_are_found():
    x = torch.randn(2, 5, 12)
    shape, merged = (2, 3, 5, 4), ("merge_heads", "reshape", (2, 5, 3, 4))
    # Since q is scaled first, its memory is laid out like q: (B, T, h, d), and bmm wants (B·h, T, d).
    assert copies(record_journey(layer("batched"), x)) == [
        ("attention_weights", "matmul", shape),
        ("attention_weights", "matmul", (2, 3, 4, 5)),
        ("_attend_batched", "matmul", shape),
        merged,
    ]
    # For one sequence, B·h is h: strides can express that.
    assert copies(record_journey(layer("batched"), x[:1])) == [("merge_heads", "reshape", (1, 5, 3, 4))]
    assert copies(record_journey(layer("loop"), x)) == [("_attend_loop", "stack", shape), merged]


def test_merging_copies_only_where_strides_cannot_express_the_result():
    z, x = torch.randn(2, 3, 5, 4), torch.randn(2, 5, 12)
    steps = [("transpose", "view"), ("clone", "copy"), ("view", "view")]
    assert kinds(record_journey(merge_heads, z)) == steps
    assert not record_journey(lambda x: merge_heads(split_heads(x, 3)), x).copies


def test_a_step_says_which_projection_it_belongs_to():
    journey = record_journey(layer("fused"), torch.randn(2, 5, 12))
    assert [step.where for step in journey.calls("addmm")] == ["q_proj", "k_proj", "v_proj", "o_proj"]
    assert {step.source for step in journey if step.where == "q_proj"} == {"self.q_proj(x)"}
    (fused,) = journey.calls("scaled_dot_product_attention")
    assert fused.where == "heads"


def test_a_built_in_function_leaves_no_place_but_all_else():
    (step,) = record_journey(torch.matmul, torch.zeros(2, 3), torch.zeros(3, 4))
    assert (step.operation, step.kind, step.flops) == ("mm", "compute", 2 * 2 * 3 * 4)
    assert (step.where, step.source, step.call) == ("", "", "")


def test_the_fused_kernel_shows_no_scores_unless_a_mask_is_built():
    B, T, d_model, h = 2, 5, 12, 3
    mha, x = layer("fused", d_model, h), torch.randn(B, T, d_model)
    journey = record_journey(mha, x)
    (fused,) = (step for step in journey if step.kind == "opaque")
    assert (fused.operation, fused.shape) == ("scaled_dot_product_attention", (B, h, T, d_model // h))
    assert (T, T) not in {step.shape[-2:] for step in journey}
    masked = record_journey(mha, x, torch.ones(B, T, dtype=torch.bool))
    assert (T, T) in {step.shape[-2:] for step in masked}
    assert (T, T) in {step.shape[-2:] for step in record_journey(layer("batched"), x).calls("softmax")}


def test_attention_with_dropout_falls_apart_into_visible_steps_as_torch_runs_it():
    q = torch.randn(1, 2, 3, 4)
    journey = record_journey(F.scaled_dot_product_attention, q, q, q, dropout_p=0.5)
    assert "opaque" not in {step.kind for step in journey}
    assert len(journey.calls("bmm")) == 2


# Source, call and call number


def test_two_products_in_one_expression_are_two_calls_and_the_steps_of_one_share_a_number():
    x, w = torch.zeros(2, 3, 4), torch.zeros(4, 4)
    journey = record_journey(lambda x: x @ w @ w, x)
    assert [(s.source, s.call_number) for s in journey] == [("x @ w", 1)] * 3 + [("x @ w @ w", 2)] * 3
    assert {step.call for step in journey} == {"matmul"}


def test_calls_are_told_apart_by_their_place_in_the_code():
    x = torch.zeros(3, 3)
    for fn, numbers in (
        (lambda x: [torch.matmul(x, x), torch.matmul(x, x), torch.matmul(x, x)], [1, 2, 3]),
        (nn.Sequential(*[nn.Linear(3, 3) for _ in range(3)]), [1, 2, 3]),
        (lambda x: [x @ x for _ in range(3)], [1, 1, 1]),  # one place: as the docstring says
    ):
        products = [step for step in record_journey(fn, x) if step.flops]
        numbered = [step.call_number for step in products]
        assert [number - numbered[0] + 1 for number in numbered] == numbers


def test_source_is_the_whole_expression_whatever_stands_before_it_in_its_line():
    x = torch.zeros(2, 2)
    # fmt: off
    long = record_journey(lambda x: torch.add(x,
        x), x)
    commented = record_journey(lambda x: (x  # (2, 2)
        @ x), x)
    # fmt: on
    after = record_journey(lambda grün: ("Σ → 多頭", grün @ x)[1], x)  # columns count bytes
    assert [(step.source, step.call) for step in long] == [("torch.add(x, x)", "add")]
    assert [(step.source, step.call) for step in after] == [("grün @ x", "matmul")]
    assert [step.call for step in commented] == ["matmul"]


# Refusals


def inferring(fn, *inputs):
    with torch.inference_mode():
        return fn(*inputs)


EYE, THERE = torch.eye(2), inferring(torch.eye, 2)
HIDDEN = (
    "fn runs {} under torch.inference_mode(), or on tensors made there, where its inner steps are "
    "hidden; record it under torch.no_grad(), on tensors made outside"
)
SPARSE = "fn runs {} on a sparse or nested tensor, which has no strides to record; give it dense tensors"
REFUSED = {
    "around": (lambda: inferring(record_journey, torch.matmul, EYE, EYE), HIDDEN.format("matmul")),
    "inside": (lambda: record_journey(inferring, torch.matmul, EYE, EYE), HIDDEN.format("matmul")),
    # The result is a view of a tensor from outside: only the mode tells.
    "view": (lambda: inferring(record_journey, torch.flatten, EYE), HIDDEN.format("flatten")),
    "made there": (lambda: record_journey(torch.matmul, THERE, THERE), HIDDEN.format("matmul")),
    "sparse": (lambda: record_journey(torch.neg, EYE.to_sparse()), SPARSE.format("neg")),
    "sparse inside": (lambda: record_journey(lambda: EYE.to_sparse()), SPARSE.format("to_sparse")),
    "nested": (
        lambda: record_journey(torch.neg, torch.nested.nested_tensor([EYE, EYE], layout=torch.jagged)),
        SPARSE.format("neg"),
    ),
    "tensor": (lambda: record_journey(EYE), "fn is of type Tensor; it should be a function or a module"),
    "name": (lambda: record_journey("@", EYE), "fn is of type str; it should be a function or a module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_hides_its_steps_is_refused_and_the_next_journey_is_whole(name, as_a_learner_calls):
    call, sentence = REFUSED[name]
    with pytest.raises(ValueError) as caught:
        call()
    assert str(caught.value) == sentence
    assert _python_dispatch._get_current_dispatch_mode() is None
    assert len(record_journey(torch.matmul, EYE, EYE).steps) == 1


def test_an_error_of_fn_comes_through_and_leaves_nothing_behind():
    with pytest.raises(ZeroDivisionError):
        record_journey(lambda x: x / (1 // 0), torch.zeros(2))
    assert _python_dispatch._get_current_dispatch_mode() is None


# Nothing is changed


MODULES = {
    "loop": lambda: layer("loop"),
    "batched": lambda: layer("batched"),
    "fused": lambda: layer("fused"),
    "torch": lambda: nn.MultiheadAttention(12, 4, dropout=0.5, batch_first=True),
    "encoder": lambda: nn.TransformerEncoderLayer(12, 4, 20, batch_first=True),  # training: with dropout
    "norm": lambda: nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5)),  # has buffers, and changes them
}


def state(module):
    """All but the tensors: a module's hooks and flags, and the hooks that torch keeps for all modules."""
    own = [[(m.training, list(v)) for k, v in vars(m).items() if "hooks" in k] for m in module.modules()]
    everywhere = [list(v or ()) for k, v in vars(nn.modules.module).items() if k.startswith("_global_")]
    flags = [p.requires_grad for p in module.parameters()]
    return own, everywhere, flags, getattr(module, "implementation", None)


@pytest.mark.parametrize("run", [lambda m, *x: m(*x), forward_and_backward], ids=["forward", "backward"])
@pytest.mark.parametrize("name", MODULES)
def test_a_recorded_run_is_the_plain_run_bit_for_bit(name, run):
    torch.manual_seed(0)
    plain, inputs = MODULES[name](), [torch.randn(2, 5, 12)] * (3 if name == "torch" else 1)
    recorded = copy.deepcopy(plain)
    torch.manual_seed(1)
    expected, rng = run(plain, *inputs), torch.get_rng_state()
    torch.manual_seed(1)
    assert equal(record_journey(run, recorded, *inputs).result, expected)
    assert torch.equal(torch.get_rng_state(), rng)
    assert equal(recorded.state_dict(), plain.state_dict())
    assert state(recorded) == state(plain)


def test_steps_keep_no_tensor_alive():
    born = []

    def fn(x):
        y = x @ x
        born.append(weakref.ref(y))
        return y.sum().item()

    journey = record_journey(fn, torch.eye(3))
    assert journey.steps and [ref() for ref in born] == [None]


# What fn may be, take and return


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_bytes_follow_the_dtype(dtype):
    mha, x = layer("batched").to(dtype), torch.randn(2, 5, 12, dtype=dtype)
    with torch.no_grad():  # nothing against that
        journey = record_journey(mha, x)
    assert journey.calls("bmm")[0].bytes_written == 2 * 3 * 5 * 5 * dtype.itemsize


def test_the_meta_device_has_a_journey_too_only_without_contents():
    real, meta = layer("batched"), layer("batched").to("meta")
    x = torch.zeros(2, 5, 12)
    here, there = record_journey(real, x), record_journey(meta, x.to("meta"))
    assert {step.strip for step in there} == {None} != {step.strip for step in here}
    assert (kinds(there), there.flops, there.bytes_written) == (kinds(here), here.flops, here.bytes_written)
    assert [step.memory for step in there] == [step.memory for step in here]


def test_a_question_is_no_step_and_results_and_keywords_pass_unchanged():
    def fn(x, *, fn, inputs):
        return x.sum().item(), {"a": x, "b": (fn, inputs, torch.equal(x, x))}

    x = torch.ones(3)
    journey = record_journey(fn, x, fn=1, inputs=2)
    assert kinds(journey) == [("sum", "compute")]
    assert journey.result == (3.0, {"a": x, "b": (1, 2, True)}) and journey.result[1]["a"] is x


def test_an_operation_with_two_results_shows_the_first_and_counts_both():
    (step,) = record_journey(lambda x: x.max(dim=1), torch.zeros(2, 3))
    assert (step.shape, step.bytes_written) == ((2,), 2 * 4 + 2 * 8)  # the values, and where they stood


def test_a_compiled_function_is_recorded_as_it_runs_uncompiled():
    fn = torch.compile(lambda x: x @ x + 1, backend="eager")
    assert kinds(record_journey(fn, torch.zeros(2, 2))) == [("mm", "compute"), ("add", "compute")]


# Models of the world


def gpt2(attention):
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    torch.manual_seed(0)
    config = GPT2Config(n_embd=12, n_head=3, attn_implementation=attention)
    return GPT2Block(config, layer_idx=0).eval(), {}


def llama(attention):
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    torch.manual_seed(0)
    heads = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=4)
    sizes = dict(hidden_size=12, intermediate_size=20, **heads)
    config = LlamaConfig(**sizes, attn_implementation=attention)
    turns = torch.randn(2, 1, 5, 4).unbind()
    return LlamaDecoderLayer(config, layer_idx=0).eval(), {"position_embeddings": turns}


PROJECTIONS = {
    gpt2: ["attn.c_attn", "attn.c_proj"],
    llama: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"],
}


@WILD
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("build", PROJECTIONS)
def test_a_layer_of_transformers_runs_unchanged_and_names_its_parts(build, attention):
    block, options = build(attention)
    x = torch.randn(2, 5, 12)
    journey = record_journey(block, x, **options)
    assert equal(journey.result, block(x, **options))
    opaque = [step.operation for step in journey if step.kind == "opaque"]
    eager = attention == "eager"
    assert (len(journey.calls("bmm")), len(opaque)) == ((2, 0) if eager else (0, 1))
    assert journey.flops == torchs_flops(build("eager")[0], x, **options)
    products = [step.where for step in journey if step.operation in ("mm", "addmm")]
    assert [where for where in products if "attn" in where] == PROJECTIONS[build]


def test_what_returns_nothing_but_writes_is_a_step():
    x = torch.zeros(2, 3)
    (step,) = record_journey(lambda: torch._foreach_add_([x], 1.0))
    assert (step.kind, step.bytes_written, step.fresh) == ("compute", 24, False)


def test_a_step_says_whether_its_memory_is_new():
    x = torch.zeros(2, 3)
    kinds = {"clone": True, "transpose": False, "add_": False, "relu": True}
    for name, fresh in kinds.items():
        arguments = {"transpose": (0, 1), "add_": (1,)}.get(name, ())
        (step,) = record_journey(lambda name=name, arguments=arguments: getattr(x, name)(*arguments))
        assert step.fresh is fresh, name


def test_products_with_vectors_are_counted_and_a_recurrent_kernel_is_not_looked_into():
    a, v = torch.ones(3, 4), torch.ones(4)
    assert record_journey(torch.mv, a, v).flops == 2 * 3 * 4
    assert record_journey(torch.dot, v, v).flops == 2 * 4
    with torch.no_grad():
        journey = record_journey(nn.LSTM(4, 4), torch.ones(2, 1, 4))
    assert all(step.kind == "opaque" for step in journey if "rnn" in step.operation)
    assert journey.flops != 0  # its products are counted, or unknown
