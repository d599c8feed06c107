"""The ledger is complete: it holds what the profiler sees, and what is reachable, to the byte, at every moment.

Two things the profiler sees and the ledger, by design, does not: what a kernel takes and gives back inside itself, and
the 8 bytes of a Python number (`x * 2`), which is no tensor of the learner's.
"""

from collections import Counter
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import record
from helpers.data import CATEGORIES, kept_bytes, live_storages, timeline
from helpers.record import private

from .measure import compared, ledger_peak, ledger_totals, numbers_kept, outcome, profiled, summary
from .scenarios import FLOAT32, SCENARIOS, Cube, Transformer, mlp

NUMBER = 8  # bytes of a Python number as a tensor
MARK = 1_048_573  # a size that nothing else has


# ---------------------------------------------------------------- ends and peaks, against the profiler

#: Ends that differ, and why.
UNSEEN_ENDS = {"sparse_embedding"}  # see its scenario: the run itself ends with less
#: Peaks above the profiler's, and why.
ABOVE = {
    "resized": "untyped_storage().resize_() is no operation: its storage counts until it goes",
    "forward_mode": "tangents are copied where unwatched code reuses them",
}


@pytest.mark.parametrize("name", [n for n in SCENARIOS if not n.startswith("error_") and n not in UNSEEN_ENDS])
def test_end_equals_the_profilers_and_peak_is_not_above(name):
    plain, watched = summary(name), summary(name, "call")
    assert plain.end - watched.ledger_end == NUMBER * watched.numbers
    assert (plain.peak < watched.ledger_peak) == (name in ABOVE)


@pytest.mark.parametrize("name", ["perceptron", "lstm", "autocast_adamw", "index_mask", "conv_batchnorm"])
def test_each_storage_is_an_allocation_of_the_profilers(name):
    """In order, of the same size; what the profiler has beyond them comes and goes within one operator."""
    plain, watched = outcome(SCENARIOS[name]), outcome(SCENARIOS[name], "call")
    only_kernels_take_more(plain.profile, watched.recording)


def only_kernels_take_more(profile, recording):
    """Each storage is an allocation of the profiler's; what that has beyond them goes again as well."""
    ours = Counter(recording.storages[s].nbytes for e in recording.events for s in e.allocated)
    theirs = Counter(e.nbytes for e in profile.events if e.nbytes > 0)
    ours.pop(0, None)
    assert not ours - theirs
    freed = Counter(recording.storages[s].nbytes for e in recording.events for s in e.freed)
    gone = Counter(-e.nbytes for e in profile.events if e.nbytes < 0)
    freed.pop(0, None)
    assert not freed - gone
    beyond = theirs - ours
    assert beyond == gone - freed  # all of it came back


@pytest.mark.parametrize("name", FLOAT32)
def test_peak_within_a_thousandth(name):
    profile, recording = compared(*FLOAT32[name])
    assert 0 <= profile.peak - ledger_peak(recording) <= profile.peak / 1000


@pytest.mark.parametrize("name", ["conv_batchnorm", "lstm", "autocast_adamw", "index_mask", "sort"])
def test_inside_kernels_is_the_difference_and_named(name):
    """record(kernels=True): with what each operation held inside itself, the ledger reaches the profiler's peak."""
    plain, watched = outcome(SCENARIOS[name]), outcome(SCENARIOS[name], "kernels")
    recording = watched.recording
    assert watched.picture == plain.picture
    totals = ledger_totals(recording)[1:]
    highest, event = max((total + e.inside, e.index) for total, e in zip(totals, recording.events, strict=True))
    event = recording.events[event]
    assert ledger_peak(recording) <= highest
    assert abs(plain.profile.peak - highest) <= 3 * NUMBER
    if plain.profile.peak > ledger_peak(recording) + 3 * NUMBER:
        assert event.inside > 0 and event.op


# ---------------------------------------------------------------- after each phase


def mark():
    """A moment that profiler and ledger both see: a tensor of a size of its own comes and goes."""
    torch.empty(MARK, dtype=torch.uint8)


def phases(net, x, optimizer, see=lambda: None, times=3):
    """Training with a mark after each phase; `see` looks at the real objects there."""

    def step():
        mark()
        see()
        for _ in range(times):
            loss = net(x).pow(2).mean()
            mark()
            see()
            loss.backward()
            mark()
            see()
            optimizer.step()
            mark()
            see()
            optimizer.zero_grad()
            del loss
            mark()
            see()

    return step


TRAINED = {
    "MLP, AdamW": lambda: (mlp(32), torch.randn(8, 32), "AdamW", {}),
    "MLP, Adam, foreach": lambda: (mlp(32), torch.randn(8, 32), "Adam", {"foreach": True}),
    "conv, momentum": lambda: (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4)),
        torch.randn(4, 3, 8, 8),
        "SGD",
        {"momentum": 0.9, "lr": 0.1},
    ),
    "attention, AdamW": lambda: (Transformer(32, 4, 2), torch.randn(2, 12, 32), "AdamW", {}),
    "attention, checkpointed": lambda: (Transformer(32, 4, 2, reentrant=False), torch.randn(2, 12, 32), "AdamW", {}),
    "SDPA, reentrant": lambda: (
        Transformer(32, 4, 2, reentrant=True, fused=True),
        torch.randn(2, 12, 32, requires_grad=True),
        "AdamW",
        {},
    ),
}


def trained(name):
    torch.manual_seed(0)
    net, x, kind, options = TRAINED[name]()
    return net, x, getattr(torch.optim, kind)(net.parameters(), **options)


def moments(recording):
    """For each mark, the moment just before it."""
    return [e.index - 1 for e in recording.events if any(recording.storages[s].nbytes == MARK for s in e.allocated)]


@pytest.mark.parametrize("name", TRAINED)
def test_live_bytes_after_each_phase(name):
    profile, _ = profiled(phases(*trained(name)))
    recording = record(phases(*trained(name))).recording
    totals = profile.totals
    theirs = [totals[i] for i, event in enumerate(profile.events) if event.nbytes == MARK]
    live = ledger_totals(recording)
    ours = [live[m + 1] + NUMBER * numbers_kept(recording, m) for m in moments(recording)]
    assert len(ours) == 13
    assert [n - ours[0] for n in ours] == [n - theirs[0] for n in theirs]


# ---------------------------------------------------------------- what is reachable, and what is in the ledger


def reachable(*roots):
    """Storages behind variables, modules, optimizers, and the graphs they lead to: key → bytes. A walk of its own."""
    found, queue, nodes, held = {}, list(roots), set(), []
    while queue:
        value = queue.pop()
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            held.append(storage)  # so that its key stays its own
            if storage._cdata not in found:
                found[storage._cdata] = storage.nbytes()
            queue += [value.grad_fn, value.grad if value.is_leaf or value.retains_grad else None]
        elif isinstance(value, nn.Module):
            queue += [*value.parameters(), *value.buffers()]
        elif isinstance(value, torch.optim.Optimizer):
            queue += value.state.values()
        elif isinstance(value, dict):
            queue += value.values()
        elif isinstance(value, (list, tuple)):
            queue += value
        elif isinstance(value, torch.autograd.graph.Node) and value not in nodes:
            nodes.add(value)
            queue += [target for target, _ in value.next_functions]
            queue += [getattr(value, "variable", None), *vars_of(value)]
    return found


def vars_of(node):
    """What a node keeps; a Python number it keeps is no tensor of anybody's."""
    kept = []
    for name in dir(node):
        if name.startswith("_saved_"):
            try:
                kept.append(getattr(node, name))
            except RuntimeError:  # released
                pass
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        kept += vars(node).values()
        try:
            kept += node.saved_tensors
        except RuntimeError:
            pass
    return [
        v
        for v in kept
        if not (isinstance(v, torch.Tensor) and v.dim() == 0 and v.dtype in (torch.float64, torch.int64))
    ]


def ledger(run):
    """The recorder's own table while it watches: key → bytes."""
    return {key: note.size for key, note in run._recorder.live.items()}


def both(run, *roots):
    with private.no_dispatch():
        now, real = ledger(run), reachable(*roots)
    assert now == real
    return len(real)


def test_reachable_and_ledger_are_one_in_training():
    for name in TRAINED:
        if "checkpoint" in name or "reentrant" in name:  # reading what is saved there would run the forward again
            continue
        net, x, optimizer = trained(name)
        counts = []
        with record() as run:
            for _ in range(2):
                hidden = net(x)
                loss = hidden.pow(2).mean()
                counts.append(both(run, net, x, optimizer, hidden, loss))
                loss.backward()
                counts.append(both(run, net, x, optimizer, hidden, loss))
                optimizer.step()
                counts.append(both(run, net, x, optimizer, hidden, loss))
                optimizer.zero_grad()
                counts.append(both(run, net, x, optimizer, hidden, loss))
                del hidden, loss
                counts.append(both(run, net, x, optimizer))
        assert counts[2] > counts[3] > counts[4], name


@pytest.mark.parametrize("retain", [False, True])
def test_reachable_and_ledger_are_one_in_odd_graphs(retain):
    """Custom Functions, in-place on views, slices, indices, LSTM, double backward, retained gradients, dropout."""
    w = torch.randn(30, 31, requires_grad=True)
    v = torch.randn(30, 31, requires_grad=True)
    net, rows = nn.LSTM(31, 7, 2), torch.tensor([3, 3, 0])
    with record() as run:
        h = w.exp()
        h.retain_grad()
        a = Cube.apply(h, v)
        b = torch.zeros(30, 31)
        b[2:5] = a[rows] * 2
        c = torch.nn.functional.dropout(h, 0.5).max(0)[0] + h[:, None, :].sum((0, 1)) / 3
        d = net(h[:, None])[0].sum() + b.sin().sum() + c.prod() + torch.cat([h, v]).logsumexp(1).sum()
        both(run, w, v, net, rows, h, a, b, c, d)
        (e,) = torch.autograd.grad(d, w, retain_graph=True)
        f = (e * e).sum()
        both(run, w, v, net, rows, h, a, b, c, d, e, f)
        d.backward(retain_graph=retain)
        both(run, w, v, net, rows, h, a, b, c, d, e, f)
        del a, b
        both(run, w, v, net, rows, h, c, d, e, f)
        g = torch.autograd.grad((w.exp() * v).sum(), w, create_graph=True)[0]
        both(run, w, v, net, rows, h, c, d, e, f, g)
        g.sum().backward()
        both(run, w, v, net, rows, h, c, d, e, f, g)
        del g
        h.grad = None
        w.grad = None
        both(run, w, v, net, rows, h, c, d, e, f)


def test_the_look_at_what_is_reachable_can_fail():
    w = torch.randn(3, 5, requires_grad=True)
    with record() as run:
        h = w.exp()
        hidden = h.detach() + 1
        with pytest.raises(AssertionError):
            both(run, w, h)
        both(run, w, h, hidden)


# ---------------------------------------------------------------- categories, from the real objects


def nbytes(*values):
    return sum(reachable_plain(values).values())


def reachable_plain(values):
    found, queue = {}, list(values)
    while queue:
        value = queue.pop()
        if isinstance(value, torch.Tensor):
            found[value.untyped_storage()._cdata] = value.untyped_storage().nbytes()
        elif isinstance(value, dict):
            queue += value.values()
        elif isinstance(value, (list, tuple)):
            queue += value
    return found


def real(nets, optimizers, *leaves):
    """The course counts every leaf that wants a gradient with the parameters."""
    parameters = [*leaves, *(p for net in nets for p in net.parameters())]
    return {
        "parameters": nbytes(parameters),
        "buffers": nbytes([b for net in nets for b in net.buffers()]),
        "gradients": nbytes([p.grad for p in parameters if p.grad is not None]),
        "optimizer state": nbytes([list(optimizer.state.values()) for optimizer in optimizers]),
    }


@pytest.mark.parametrize("name", TRAINED)
def test_categories_after_each_phase(name):
    net, x, optimizer = trained(name)
    seen = []

    def see():
        with private.no_dispatch():
            seen.append(real([net], [optimizer], *([x] if x.requires_grad else [])))

    recording = record(phases(net, x, optimizer, see)).recording
    line = timeline(recording)
    ours = [{c: line.at(m)[c] for c in seen[0]} for m in moments(recording)]
    first = 1  # before the first forward, the recorder has met neither model nor optimizer
    assert ours[first:] == seen[first:]
    assert all(s["optimizer state"] > 0 for s in seen[3:]) and any(s["gradients"] > 0 for s in seen)


def test_categories_with_two_optimizers():
    make, judge = nn.Sequential(nn.Linear(4, 24), nn.BatchNorm1d(24), nn.Linear(24, 12)), mlp(12)
    a, b = torch.optim.AdamW(make.parameters()), torch.optim.SGD(judge.parameters(), 0.1, momentum=0.9)
    truth, seen = torch.randn(16, 12), []

    def moment():
        mark()
        with private.no_dispatch():
            seen.append(real([make, judge], [a, b]))

    def step():
        for _ in range(3):
            fake = make(torch.randn(16, 4))
            b.zero_grad()
            (judge(truth).mean() - judge(fake.detach()).mean()).backward()
            moment()
            b.step()
            moment()
            a.zero_grad()
            judge(fake).pow(2).mean().backward()
            moment()
            a.step()
            moment()

    recording = record(step).recording
    line = timeline(recording)
    assert [{c: line.at(m)[c] for c in seen[0]} for m in moments(recording)] == seen
    assert len({s["optimizer state"] for s in seen}) == 3  # none, one optimizer's, both


def test_every_byte_is_in_one_category():
    recording = record(phases(*trained("attention, AdamW"))).recording
    line = timeline(recording)
    assert line.categories == CATEGORIES
    for moment in range(-1, len(recording.events), 37):
        by_storage = Counter()
        for size, category in live_storages(recording, moment).values():
            by_storage[category] += size
        assert {c: n for c, n in line.at(moment).items() if n} == {c: n for c, n in by_storage.items() if n}


# ---------------------------------------------------------------- kept for backward, from saved-tensor hooks

KEPT = {
    "MLP": lambda: (mlp(32), torch.randn(8, 32)),
    "conv": lambda: (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), torch.randn(4, 3, 8, 8)),
    "LSTM": lambda: (_First(nn.LSTM(8, 12, 2)), torch.randn(5, 2, 8)),
    "explicit attention": lambda: (Transformer(32, 4, 2), torch.randn(2, 12, 32)),
    "SDPA": lambda: (Transformer(32, 4, 2, fused=True), torch.randn(2, 12, 32)),
}


class _First(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", KEPT)
def test_kept_equals_what_saved_tensor_hooks_tell(name, autocast):
    def loss(net, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            out = net(x)
        return out.float().pow(2).mean()

    torch.manual_seed(0)
    net, x = KEPT[name]()
    told = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: told.append(t.untyped_storage()) or t, lambda t: t):
        loss(net, x)
    own = {t.untyped_storage()._cdata for t in (*net.parameters(), *net.buffers())}
    expected = sum({s._cdata: s.nbytes() for s in told if s._cdata not in own}.values())
    torch.manual_seed(0)
    net, x = KEPT[name]()
    recording = record(lambda: loss(net, x).backward()).recording
    assert kept_bytes(recording) == expected > 0
    assert kept_bytes(recording, len(recording.events) - 1) == 0


def test_a_gradient_made_before_its_leaf_is_met_is_a_gradient():
    """Mixed precision by hand: the float32 weights meet the recorder at the optimizer's step, their gradient before."""
    half = torch.ones(64, dtype=torch.bfloat16, requires_grad=True)
    master = half.detach().float().requires_grad_()
    optimizer = torch.optim.SGD([master], lr=0.1)

    def step():
        half.sum().backward()
        master.grad = half.grad.float()
        optimizer.step()

    run = record(step)
    (made,) = [e for e in run.recording.events if e.op == "aten._to_copy"]
    assert timeline(run.recording).at(len(run.recording.events) - 1)["gradients"] == 64 * 2 + 64 * 4
    assert run.recording.storages[made.allocated[0]].nbytes == 64 * 4


# ---------------------------------------------------------------- a bias is added in place


class Swapped(nn.Module):
    """Two linear layers on an input that does not lie contiguous, as from (sequence, batch, features)."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256, dtype=dtype), nn.Linear(256, 16, dtype=dtype)

    def forward(self, x):
        return F.linear(
            self.up(x.to(self.up.weight.dtype).transpose(0, 1)).transpose(0, 1), self.down.weight, bias=self.down.bias
        )


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


SWAPPED = {
    "float32": (Swapped, 2),
    "bfloat16": (partial(Swapped, torch.bfloat16), 2),
    "attention": (Attending, 1),
    "a layer of a transformer": (partial(nn.TransformerEncoderLayer, 64, 4, 128, 0.0, batch_first=True), 1),
}


def recorded(step):
    """What a step gives while it is recorded, and the recording."""
    given = []
    run = record(lambda: given.append(step()))
    return given[0], run.recording


def additions(recording):
    return Counter(e.op for e in recording.events if e.kind == "op" and e.op in ("aten.add", "aten.add_"))


@pytest.mark.parametrize("name", SWAPPED)
def test_a_linear_layer_adds_its_bias_in_place(name):
    """Under any dispatch mode torch adds it out of place, and the product counts twice: see `private.linear_calls`."""
    model, biases = SWAPPED[name]
    profile, recording = compared(model, (32, 8, 64))
    only_kernels_take_more(profile, recording)
    assert additions(recording)["aten.add_"] == biases
    if name == "float32":  # no kernel of its takes anything
        assert 0 <= profile.peak - ledger_peak(recording) <= profile.peak / 1000


@pytest.mark.parametrize("name", SWAPPED)
def test_a_bias_without_a_graph(name):
    model, x = SWAPPED[name][0](), torch.randn(32, 8, 64)

    def step():
        with torch.no_grad():
            return model(x)

    profile, _ = profiled(step)
    recording = record(step).recording
    only_kernels_take_more(profile, recording)
    assert name != "float32" or profile.peak == ledger_peak(recording)


def test_a_bias_without_the_cure(monkeypatch):
    monkeypatch.setattr(private, "_adds_bias_in_place", lambda *args, **kwargs: None)
    model, x = Swapped(), torch.randn(32, 8, 64)
    profile, _ = profiled(lambda: model(x))
    recording = record(lambda: model(x)).recording
    assert ledger_peak(recording) > profile.peak
    with pytest.raises(AssertionError):
        only_kernels_take_more(profile, recording)


def test_results_and_graph_of_a_bias_in_place():
    torch.manual_seed(0)
    model, x = Swapped(), torch.randn(32, 8, 64)
    expected = model(x)
    expected.sum().backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()

    def step():
        y = model(x)
        y.sum().backward()
        return y

    result, recording = recorded(step)
    assert torch.equal(result, expected) and result._version == expected._version
    assert type(result.grad_fn) is type(expected.grad_fn)
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))


def test_a_sum_that_the_code_writes_stays_out_of_place():
    w, b = torch.randn(256, 64, requires_grad=True), torch.randn(256, requires_grad=True)
    x = torch.randn(32, 8, 64).transpose(0, 1)

    def step():
        w.grad = b.grad = None
        product = x @ w.t()
        result = product + b
        result.pow(2).mean().backward()
        return product, result

    plain = step()
    result, recording = recorded(step)
    assert additions(recording) == {"aten.add": 1}
    assert all(torch.equal(a, b) for a, b in zip(result, plain, strict=True))


def test_what_runs_inside_a_linear_layer_stays_as_it_is():
    """A hook that packs what the layer keeps adds as well: to no product of the layer's."""
    model = Swapped()
    x, more = torch.randn(32, 8, 64), torch.randn(64)
    before = x.clone()

    def pack(tensor):
        return tensor + more if tensor.shape[-1] == 64 and tensor.dim() > 1 else tensor

    def step():
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            return model(x)

    expected = step()
    result, recording = recorded(step)
    assert torch.equal(result, expected) and torch.equal(x, before)
    assert additions(recording)["aten.add"] > 0 < additions(recording)["aten.add_"]


@pytest.mark.parametrize("kind", ["mode", "subclass", "transform"])
def test_where_torch_itself_adds_out_of_place(kind):
    """Other modes, kinds of tensors and transforms make torch add out of place, watched or not."""
    model, x = nn.Linear(64, 256), torch.randn(32, 8, 64).transpose(0, 1)

    class Other(private.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Sub(torch.Tensor):
        pass

    def step():
        if kind == "mode":
            with Other():
                return model(x)
        if kind == "subclass":
            return model(x.as_subclass(Sub)).as_subclass(torch.Tensor)
        weights = dict(model.named_parameters())
        return torch.func.vmap(lambda b: torch.func.functional_call(model, weights | {"bias": b}, x))(
            torch.ones(2, 256)
        )

    expected = step()
    result, recording = recorded(step)
    assert torch.equal(result, expected)


def test_linear_is_told_as_torchs_own():
    """Code that is told of calls compares with torch.nn.functional.linear."""
    seen = []

    class Told(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func is F.linear)
            return func(*args, **(kwargs or {}))

    model, x = nn.Linear(3, 4), torch.randn(2, 3)

    def step():
        with Told():
            model(x)
        return F.linear

    kept, _ = recorded(step)
    assert any(seen) and F.linear is torch._C._nn.linear
    assert torch.equal(kept(x, model.weight, model.bias), model(x))  # kept beyond its time, it is torch's own


def test_script_inside_a_recording():
    model, x = nn.Linear(3, 4), torch.randn(2, 3)
    result, _ = recorded(lambda: torch.jit.script(nn.Sequential(model, nn.ReLU()))(x))
    assert torch.equal(result, model(x).relu())


def test_a_bias_on_meta():
    """Torch adds out of place there too; a recording shows what a device with numbers does."""
    model, x = Swapped().to("meta"), torch.empty(32, 8, 64, device="meta")
    recording = record(lambda: model(x).pow(2).mean().backward()).recording
    assert ledger_peak(recording) == ledger_peak(compared(Swapped, (32, 8, 64))[1])
    assert additions(recording) == {"aten.add_": 2}
