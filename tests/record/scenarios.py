"""Pieces of ordinary torch code that every claim about the recorder is tried on.

`SCENARIOS["name"]()` builds one from the seed that stands: models, data, and a step that has not run yet.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass
class Trial:
    step: Callable[[], Any]
    objects: Any = ()  # modules, tensors, optimizers, counters: compared after the steps
    times: int = 1
    results: list = field(default_factory=list)
    memory: str = ""  # why the peak under a recording is another one, where nothing can be done about it

    def run(self) -> None:
        for _ in range(self.times):
            self.results.append(self.step())


SCENARIOS: dict[str, Callable[[], Trial]] = {}


def scenario(build: Callable[[], Trial]) -> Callable[[], Trial]:
    SCENARIOS[build.__name__] = build
    return build


# ---------------------------------------------------------------- models


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, *, fused: bool, dropout: float) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.fused, self.dropout = heads, fused, nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5
            y = self.dropout(scores.softmax(-1)) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, *, fused: bool = False, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, fused=fused, dropout=dropout)
        self.norm2, self.dropout = nn.LayerNorm(width), nn.Dropout(dropout)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.runs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        x = x + self.attention(self.norm1(x))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Transformer(nn.Module):
    def __init__(self, width=64, heads=4, layers=2, *, reentrant: bool | None = None, **options: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heads, **options) for _ in range(layers))
        self.reentrant = reentrant  # None: no checkpointing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return x

    @property
    def runs(self) -> int:
        return sum(block.runs for block in self.blocks)


def mlp(width: int = 64) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2 * width), nn.Tanh(), nn.Linear(2 * width, 10)
    )


class Checkpointed(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


class Autocast(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.inner(x)


#: Models whose peak the ledger must reach within a thousandth: (model, shape of its input).
FLOAT32 = {
    "MLP": (lambda: mlp(128), (64, 128)),
    "MLP, checkpointed": (lambda: Checkpointed(mlp(128)), (64, 128)),
    "explicit attention": (lambda: Transformer(64, 4, 4), (2, 64, 64)),
    "explicit attention, checkpointed": (lambda: Transformer(64, 4, 4, reentrant=False), (2, 64, 64)),
    "SDPA": (lambda: Transformer(64, 4, 4, fused=True, dropout=0.0), (2, 64, 64)),
    "SDPA, checkpointed": (lambda: Transformer(64, 4, 4, fused=True, dropout=0.0, reentrant=False), (2, 64, 64)),
}

#: Models whose kernels take memory for themselves.
KERNELS = {
    "conv + BatchNorm": (lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU()), (8, 3, 32, 32)),
    "explicit attention, bf16": (lambda: Autocast(Transformer(64, 4, 4)), (2, 64, 64)),
    "SDPA, bf16": (lambda: Autocast(Transformer(64, 4, 4, fused=True, dropout=0.0)), (2, 64, 64)),
}


def squares(model: nn.Module, x: torch.Tensor) -> Trial:
    """One forward and backward."""

    def step():
        loss = model(x).pow(2).mean()
        loss.backward()
        return loss

    return Trial(step, (model, x))


def training(model: nn.Module, x: torch.Tensor, optimizer: Any, *, times: int = 3, to_none: bool = True) -> Trial:
    def step():
        optimizer.zero_grad(set_to_none=to_none)
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return Trial(step, (model, x, optimizer), times)


# ---------------------------------------------------------------- whole models


@scenario
def perceptron():
    return squares(mlp(), torch.randn(32, 64))


@scenario
def conv_batchnorm():
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, groups=2)
    )
    model.append(nn.BatchNorm2d(32)).append(nn.Dropout2d(0.2)).append(nn.AdaptiveAvgPool2d(1))
    return squares(model, torch.randn(4, 3, 32, 32))


@scenario
def conv_channels_last():
    model = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 4, 1))
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 4, 16, 16).to(memory_format=torch.channels_last).requires_grad_()

    def step():
        h = model(x)
        loss = (h * x).sum() + h.sigmoid().sum() + x.exp().mean()
        loss.backward()
        return loss

    return Trial(step, (model, x))


@scenario
def lstm():
    model, x = nn.LSTM(32, 64, 2, dropout=0.3), torch.randn(10, 4, 32)

    def step():
        loss = model(x)[0].pow(2).mean()
        loss.backward()
        return loss

    return Trial(step, (model, x))


@scenario
def lstm_cell_unrolled():
    cell, x = nn.LSTMCell(16, 24), torch.randn(20, 4, 16)

    def step():
        h = c = torch.zeros(4, 24)
        for item in x:
            h, c = cell(item, (h, c))
        loss = h.pow(2).sum()
        loss.backward()
        return loss

    return Trial(step, (cell, x))


@scenario
def gru_packed():
    model, x = nn.GRU(8, 12, bidirectional=True, batch_first=True), torch.randn(3, 6, 8)

    def step():
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 4, 1]), batch_first=True)
        out, _ = nn.utils.rnn.pad_packed_sequence(model(packed)[0], batch_first=True)
        out.pow(2).sum().backward()
        return out

    return Trial(step, (model, x))


@scenario
def attention_explicit():
    return squares(Transformer(), torch.randn(2, 32, 64))


@scenario
def attention_fused():
    return squares(Transformer(fused=True, dropout=0.0), torch.randn(2, 32, 64))


@scenario
def torch_encoder_layer():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.2, batch_first=True), 2)
    return squares(model, torch.randn(2, 12, 32))


@scenario
def checkpoint_without_reentry():
    model = Transformer(layers=3, reentrant=False)
    trial = squares(model, torch.randn(2, 32, 64))
    return Trial(lambda: (trial.step(), model.runs), trial.objects)


@scenario
def checkpoint_with_reentry():
    model = Transformer(layers=3, reentrant=True)
    trial = squares(model, torch.randn(2, 32, 64, requires_grad=True))
    return Trial(lambda: (trial.step(), model.runs), trial.objects)


@scenario
def checkpoint_fused():
    model = Transformer(layers=3, reentrant=False, fused=True, dropout=0.0)
    trial = squares(model, torch.randn(2, 32, 64))
    return Trial(lambda: (trial.step(), model.runs), trial.objects)


@scenario
def checkpoint_batchnorm():
    model, x = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5)), torch.randn(12, 8)

    def step():
        loss = checkpoint(model, x, use_reentrant=False).pow(2).sum()
        loss.backward()
        return loss, model[1].num_batches_tracked

    return Trial(step, (model, x))


# ---------------------------------------------------------------- gradients that meet


@scenario
def fan_out_of_four():
    w = torch.randn(1000, requires_grad=True)

    def step():
        h = w.exp()
        (h.sin() + h.cos() + h.tanh() + h * 2).sum().backward()

    return Trial(step, (w,))


@scenario
def fan_out_aliased():
    """h + h sends one gradient twice: it must not be added in place."""
    w = torch.randn(1000, requires_grad=True)

    def step():
        h = w.exp()
        ((h + h) + h.view(10, 100).t().reshape(1000) + h.sin()).sum().backward()

    return Trial(step, (w,))


@scenario
def fan_out_expanded():
    """The first gradient to arrive is an expanded number, the second a transposed matrix."""
    w = torch.randn(40, 30, requires_grad=True)

    def step():
        h = w * 1.5
        total = h.t().exp().sum() + (h.t() @ h).sum() + h.sum() + h.mean(0).pow(2).sum() + h.relu().sum()
        total.backward()

    return Trial(step, (w,))


@scenario
def slices():
    w = torch.randn(6, 50, requires_grad=True)

    def step():
        h = w.exp()
        a, b, c = h.chunk(3)
        d, *_ = h.unbind(0)
        e, f = h.split([2, 4])
        loss = (a * b).sum() + c.sum() + d.prod() + e.sin().sum() + (f[1:, ::2] ** 2).sum() + h[:, None, 3].sum()
        loss.backward()
        return loss

    return Trial(step, (w,))


@scenario
def leaf_used_many_times():
    layer, x = nn.Linear(20, 20), torch.randn(5, 20)

    def step():
        loss = layer(layer(layer(x))).pow(2).sum() + layer.weight.norm() + F.linear(x, layer.weight.t()).sum()
        loss.backward()
        return loss

    return Trial(step, (layer,))


# ---------------------------------------------------------------- backward formulas that work in place


def _indexing(name: str, body: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def build() -> Trial:
        w = torch.randn(60, 60, requires_grad=True)

        def step():
            loss = body(w.exp()).sum()
            loss.backward()
            return loss

        return Trial(step, (w,))

    build.__name__ = name
    scenario(build)


def _rows() -> torch.Tensor:
    return torch.tensor([3, 3, 0, 59, 7])


for _name, _body in {
    "max_dim": lambda h: h.max(dim=0)[0],
    "min_median_mode": lambda h: h.min(1)[0] + h.median(0)[0] + h.mode(1)[0] + h.kthvalue(4, 0)[0],
    "gather": lambda h: h.gather(1, torch.zeros(60, 7, dtype=torch.long)),
    "take_along": lambda h: h.take_along_dim(h.argsort(0)[:9], 0),
    "index_list": lambda h: h[_rows()],
    "index_two": lambda h: h[_rows(), _rows()] * 2,
    "index_mask": lambda h: h[h > 1] ** 2,
    "index_select": lambda h: h.index_select(0, _rows()),
    "sort": lambda h: h.sort(0)[0] * torch.linspace(0, 1, 60),
    "topk": lambda h: h.topk(5, dim=1)[0],
    "cumsum_cumprod": lambda h: h.cumsum(0).sin() + (h * 0.1).cumprod(1),
    "scatter": lambda h: torch.zeros(60, 60).scatter(0, torch.zeros(3, 60, dtype=torch.long), h[:3]),
    "scatter_add": lambda h: torch.ones(60, 60).scatter_add(1, torch.arange(60).repeat(60, 1) % 5, h).sin(),
    "index_add": lambda h: torch.ones(60, 60).index_add(0, _rows(), h[:5]).cos(),
    "index_put": lambda h: h.index_put((_rows(),), h[:5] * 2, accumulate=True),
    "index_fill_copy": lambda h: h.index_fill(0, _rows(), 2.0) + h.index_copy(0, torch.tensor([1, 5]), h[:2]),
    "embedding": lambda h: F.embedding(torch.tensor([[1, 2], [2, 50]]), h) ** 2,
    "embedding_bag": lambda h: F.embedding_bag(torch.tensor([[1, 2], [2, 50]]), h),
    "masked": lambda h: h.masked_fill(h > 1, 0.0) + h.masked_scatter(h > 2, h * 3),
    "diagonal_trace": lambda h: h.diagonal(1).exp().sum() + h.trace() + h.tril().sum() + torch.diag_embed(h[0]).sum(),
    "unfold_pad": lambda h: h.unfold(0, 3, 2).sin().sum() + F.pad(h, (1, 2)).pow(2).sum() + h.roll(3).prod(0).sum(),
    "fold": lambda h: F.fold(F.unfold(h[None, None], 3), (60, 60), 3).sin(),
    "norms": lambda h: (
        h.norm(dim=0).sum() + h.std() + h.logsumexp(1).sum() + torch.linalg.norm(h) + h.renorm(2, 0, 1.0)
    ),
    "linear_algebra": lambda h: (
        torch.linalg.solve(h + 99 * torch.eye(60), h) + torch.linalg.inv(h + 99 * torch.eye(60))
    ),
    "losses": lambda h: (
        F.cross_entropy(h, torch.arange(60))
        + F.smooth_l1_loss(h, h.detach() * 2)
        + F.kl_div(h.log_softmax(1), h.softmax(1), reduction="sum")
        + F.binary_cross_entropy_with_logits(h, torch.ones(60, 60))
    ),
    "complex": lambda h: torch.fft.rfft(h).abs() + torch.view_as_real(torch.complex(h, h) ** 2)[..., :31, 0],
    "einsum": lambda h: torch.einsum("ij,kj,k->i", h, h, h[0]),
    "where_clamp": lambda h: torch.where(h > 1, h * 2, h.sin()).clamp(0.1, 3).clamp_min(h * 0.5),
    "pooling": lambda h: F.max_pool2d(h[None], 3)[0, :5] + F.interpolate(h[None, None], scale_factor=2)[0, 0, :5, :20],
}.items():
    _indexing(_name, _body)


@scenario
def sparse_embedding():
    table = nn.Embedding(30, 8, sparse=True)

    def step():
        h = table(torch.tensor([1, 1, 4]))
        loss = (h * table(torch.tensor([1, 2, 4]))).sum()
        loss.backward()
        return loss

    # Any mode makes the engine copy a sparse gradient to its exact size, where it would hand over a roomier one.
    return Trial(step, (table,), memory="a sparse gradient is copied")


# ---------------------------------------------------------------- in place


@scenario
def in_place():
    w = torch.randn(100, 100, requires_grad=True)

    def step():
        h = w * w
        h.mul_(2).add_(1)
        h2 = h.sin()
        h2 += 3
        F.relu_(h2)
        loss = (h2 * 1.5).sigmoid_().sum()
        loss.backward()
        return loss, h2

    return Trial(step, (w,))


@scenario
def in_place_on_views():
    """CopySlices: a piece of a tensor is written, and a view of a view."""
    w = torch.randn(40, 40, requires_grad=True)

    def step():
        z = torch.zeros(40, 40)
        z[0] = w[0] * 2
        z[1:5].mul_(3)
        z.t()[3].copy_(w.exp()[1])
        z.view(-1)[5:9] += w[2, :4]
        z.diagonal().fill_(1.0)
        loss = (z * w).sum()
        loss.backward()
        return loss, z

    return Trial(step, (w,))


@scenario
def in_place_on_data():
    model, x = mlp(8), torch.randn(4, 8)

    def step():
        model(x).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.data.clamp_(-1, 1)
                p.grad.zero_()
        x.add_(0.5)

    return Trial(step, (model, x), times=2)


@scenario
def resized():
    w = torch.randn(50, requires_grad=True)

    def step():
        out = torch.empty(0)
        torch.mul(w.detach(), 2, out=out)
        buffer = torch.zeros(10)
        buffer.resize_(500).fill_(1.0)
        storage = torch.ones(100)
        storage.untyped_storage().resize_(0)
        (w * out * buffer[:50]).sum().backward()
        return out, buffer

    return Trial(step, (w,))


# ---------------------------------------------------------------- custom Functions


class Cube(torch.autograd.Function):
    """Saves with a gap, keeps an attribute on ctx, and adds tensors of its own in backward."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, None, y)
        ctx.copy = x.detach().clone()
        return x**3 * y

    @staticmethod
    def backward(ctx, gradient):
        x, _, y = ctx.saved_tensors
        slope = 3 * x * ctx.copy
        sum_ = slope + gradient  # must not change slope
        assert not torch.equal(sum_, slope)
        return slope * gradient * y, x**3 * gradient


class Shifted(torch.autograd.Function):
    """Writes into its input, and saves its output."""

    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        (out,) = ctx.saved_tensors
        a = gradient * 2
        b = a + out.scatter(0, torch.zeros(1, 50, dtype=torch.long), 0.0)
        return a + b.index_add(0, torch.tensor([1]), torch.ones(1, 50))


@scenario
def custom_function():
    w, v = torch.randn(50, 50, requires_grad=True), torch.randn(50, 50, requires_grad=True)

    def step():
        y = Cube.apply(w, v)
        loss = (Shifted.apply(y * 1.0) + y.sin()).sum()
        loss.backward()
        return loss

    return Trial(step, (w, v))


@scenario
def custom_function_double():
    w, v = torch.randn(20, 20, requires_grad=True), torch.randn(20, 20, requires_grad=True)

    def step():
        y = Cube.apply(w, v).sum()
        gw, gv = torch.autograd.grad(y, (w, v), create_graph=True)
        (gw.pow(2).sum() + gv.sum()).backward()
        return y

    return Trial(step, (w, v))


# ---------------------------------------------------------------- passes


@scenario
def grad_create_graph():
    w = torch.randn(50, 50, requires_grad=True)

    def step():
        y = (w.exp() * w).sum()
        (g,) = torch.autograd.grad(y, w, create_graph=True)
        (g.pow(2).sum() + y).backward()
        return y

    return Trial(step, (w,))


@scenario
def grad_only():
    model, x = mlp(16), torch.randn(4, 16, requires_grad=True)

    def step():
        y = model(x)
        a = torch.autograd.grad(y.sum(), [x, model[0].weight], retain_graph=True)
        b = torch.autograd.grad(y[:, 0].sum(), model[2].bias, allow_unused=True)
        return a, b

    return Trial(step, (model, x))


@scenario
def backward_inputs():
    model, x = mlp(16), torch.randn(4, 16, requires_grad=True)

    def step():
        model(x).sum().backward(inputs=[model[2].weight])

    return Trial(step, (model, x))


@scenario
def fourth_derivative():
    x = torch.linspace(-1, 1, 500, requires_grad=True)

    def step():
        y = x.tanh()
        for _ in range(4):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return y

    return Trial(step, (x,))


@scenario
def retain_graph():
    w = torch.randn(50, 50, requires_grad=True)

    def step():
        h = w.exp()
        a, b = h.sin().sum(), h.max(0)[0].sum()
        a.backward(retain_graph=True)
        a.backward(retain_graph=True)
        (a * 2).backward(retain_graph=True)
        b.backward()
        return a, b

    return Trial(step, (w,))


@scenario
def jacobian_and_hessian():
    x, m = torch.randn(6), torch.randn(6, 6)

    def step():
        f = lambda v: (m @ v).tanh().pow(2)  # noqa: E731
        functional = torch.autograd.functional
        return functional.jacobian(f, x), functional.hessian(lambda v: f(v).sum(), x), functional.vjp(f, x, x)

    return Trial(step, (x,))


@scenario
def batched_gradients():
    x = torch.randn(6, requires_grad=True)

    def step():
        y = x.exp() * x
        return torch.autograd.grad(y, x, torch.eye(6), is_grads_batched=True)

    return Trial(step, (x,))


@scenario
def functional_transforms():
    layer, x = nn.Linear(5, 3), torch.randn(7, 5)
    weights = {k: v.detach() for k, v in layer.named_parameters()}

    def step():
        def loss(weights, row):
            return torch.func.functional_call(layer, weights, (row[None],)).pow(2).sum()

        each = torch.vmap(torch.func.grad(loss), (None, 0))(weights, x)
        value, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))
        return each, value, tangent

    return Trial(step, (layer, x))


@scenario
def forward_mode():
    x = torch.randn(30, requires_grad=True)

    def step():
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, torch.ones(30))
            y = torch.autograd.forward_ad.unpack_dual(dual.exp() * dual)
            y.primal.sum().backward()
            return y.tangent.detach()

    return Trial(step, (x,))


@scenario
def no_gradients():
    model, x = mlp(16).eval(), torch.randn(4, 16)

    def step():
        with torch.no_grad():
            a = model(x)
        with torch.inference_mode():
            b = model(x).argmax(1)
        return a, b.tolist(), a.sum().item()

    return Trial(step, (model, x))


# ---------------------------------------------------------------- gradients and hooks


@scenario
def gradients_present():
    """One gradient is there at the start, one is zero, one is shared with the learner, the rest are None."""
    model, x = mlp(16), torch.randn(4, 16)
    model[0].weight.grad = torch.randn(32, 16)
    model[0].bias.grad = torch.zeros(32)
    mine = model[2].weight.grad = torch.randn(32, 32).t()

    def step():
        model(x).sum().backward()

    return Trial(step, (model, x, mine), times=2)


@scenario
def gradients_accumulated():
    model, data = mlp(16), torch.randn(4, 4, 16)

    def step():
        total = 0.0
        for x in data:
            loss = model(x).pow(2).mean() / len(data)
            loss.backward()
            total += loss.item()
        model[0].weight.grad = None
        model.zero_grad(set_to_none=False)
        model(data[0]).sum().backward()
        return total

    return Trial(step, (model,))


@scenario
def retained_gradients():
    w = torch.randn(30, 30, requires_grad=True)

    def step():
        h = w.exp()
        h.retain_grad()
        y = h.sin() * h
        y.retain_grad()
        (y.sum() + h.max(0)[0].sum()).backward()
        return h.grad, y.grad, h, y

    return Trial(step, (w,))


@scenario
def tensor_hooks():
    w, seen = torch.randn(30, 30, requires_grad=True), []

    def step():
        h = w.exp()
        h.register_hook(lambda g: g * 2 + h.detach())
        h.grad_fn.register_prehook(lambda g: tuple(x + 1 for x in g))
        h.grad_fn.register_hook(lambda i, o: seen.append(len(i)))
        handle = w.register_hook(seen.append)
        y = h.cos()
        torch.autograd.graph.register_multi_grad_hook((h, y), lambda g: seen.append(len(g)))
        (y + h.tanh()).sum().backward()
        handle.remove()

    return Trial(step, (w, seen))


@scenario
def optimizer_in_backward():
    model, x = mlp(16), torch.randn(4, 16)
    optimizers = {p: torch.optim.SGD([p], 0.1, momentum=0.9) for p in model.parameters()}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    trial = squares(model, x)
    return Trial(trial.step, (model, list(optimizers.values())), times=2)


@scenario
def module_hooks():
    model, x, seen = mlp(16), torch.randn(4, 16, requires_grad=True), []
    model[1].register_forward_hook(lambda m, i, o: o * 2)
    model[0].register_forward_pre_hook(lambda m, i: (i[0] + 1,))
    model[3].register_full_backward_hook(lambda m, i, o: (i[0] * 0.5,))
    model[2].register_full_backward_pre_hook(lambda m, o: seen.append(o[0].sum()))
    trial = squares(model, x)
    return Trial(trial.step, (model, x, seen))


@scenario
def node_metadata():
    """The learner's own entries in a node's metadata stay."""
    w = torch.randn(5, requires_grad=True)

    def step():
        y = w.exp()
        y.grad_fn.metadata["mine"] = 1
        z = y.sin()
        return z, y.grad_fn.metadata["mine"]

    return Trial(step, (w,))


# ---------------------------------------------------------------- hooks on saved tensors


@scenario
def offloaded():
    model, x = mlp(16), torch.randn(4, 16)

    def step():
        with torch.autograd.graph.save_on_cpu():
            loss = model(x).pow(2).sum()
        loss.backward()
        return loss

    return Trial(step, (model, x))


@scenario
def packed_smaller():
    w, calls = torch.randn(30, 30, requires_grad=True), []

    def pack(t):
        calls.append("pack")
        return t.to(torch.bfloat16)

    def unpack(t):
        calls.append("unpack")
        return t.float()

    def step():
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = (w.exp() * w).sin().sum()
        loss.backward()
        return loss

    return Trial(step, (w, calls))


# ---------------------------------------------------------------- optimizers


@scenario
def autocast_adamw():
    model, x = Transformer(), torch.randn(2, 32, 64)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return Trial(step, (model, x, optimizer), times=3)


@scenario
def sgd_momentum():
    model = mlp(16)
    return training(model, torch.randn(4, 16), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True))


@scenario
def adam_foreach():
    model = mlp(16)
    return training(
        model, torch.randn(4, 16), torch.optim.Adam(model.parameters(), amsgrad=True, foreach=True), to_none=False
    )


@scenario
def adam_fused():
    model = mlp(16)
    return training(model, torch.randn(4, 16), torch.optim.AdamW(model.parameters(), fused=True))


@scenario
def lbfgs():
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(9, 6)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - 1).pow(2).mean()
        loss.backward()
        return loss

    return Trial(lambda: optimizer.step(closure), (model, optimizer), times=2)


@scenario
def clipped():
    model, x = mlp(16), torch.randn(4, 16)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    def step():
        model(x).pow(2).sum().backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return norm

    return Trial(step, (model, optimizer), times=3)


@scenario
def scaled():
    model, x = mlp(16), torch.randn(4, 16)
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("cpu")

    def step():
        scaler.scale(model(x).pow(2).mean()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return Trial(step, (model, optimizer, scaler.state_dict()), times=2)


@scenario
def two_networks():
    """A generator and a discriminator, each with its optimizer."""
    make, judge = nn.Sequential(nn.Linear(4, 24), nn.BatchNorm1d(24), nn.Linear(24, 12)), mlp(12)
    real = torch.randn(16, 12)
    a, b = torch.optim.AdamW(make.parameters()), torch.optim.SGD(judge.parameters(), 0.1, momentum=0.9)

    def step():
        fake = make(torch.randn(16, 4))
        b.zero_grad()
        loss_b = judge(real).mean() - judge(fake.detach()).mean()
        loss_b.backward()
        b.step()
        a.zero_grad()
        loss_a = judge(fake).pow(2).mean()
        loss_a.backward()
        a.step()
        return loss_a, loss_b

    return Trial(step, (make, judge, a, b), times=3)


@scenario
def averaged_weights():
    model = mlp(8)
    average = torch.optim.swa_utils.AveragedModel(model)
    trial = training(model, torch.randn(4, 8), torch.optim.SGD(model.parameters(), 0.1))

    def step():
        trial.step()
        average.update_parameters(model)
        return copy.deepcopy(model).state_dict()

    return Trial(step, (*trial.objects, average), times=2)


@scenario
def parametrized():
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    nn.utils.parametrizations.weight_norm(layer)
    nn.utils.parametrizations.spectral_norm(layer, "bias") if layer.bias.dim() > 1 else None
    normed = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
    return squares(nn.Sequential(layer, normed), x)


@scenario
def random_numbers():
    w = torch.randn(20, 20, requires_grad=True)

    def step():
        noise = torch.randn_like(w) + torch.rand(20, 20) + torch.bernoulli(torch.full((20, 20), 0.5))
        picked = torch.multinomial(torch.ones(20), 5)
        order = torch.randperm(20)
        sample = torch.distributions.Normal(w.sum(), 1.0).rsample()
        (F.dropout(w * noise, 0.3)[picked].sum() + w[order].sum() + sample).backward()
        return torch.rand(3), picked

    return Trial(step, (w,))


# ---------------------------------------------------------------- errors


@scenario
def error_second_backward():
    w = torch.randn(10, requires_grad=True)

    def step():
        y = w.exp().sin().sum()
        y.backward()
        y.backward()

    return Trial(step, (w,))


@scenario
def error_changed_in_place():
    w = torch.randn(10, requires_grad=True)

    def step():
        h = w.exp()
        y = h.sin().sum() + h.sum()
        h.mul_(2)
        y.backward()

    return Trial(step, (w,))


@scenario
def error_caught():
    """The learner's code handles the error, and goes on."""
    w = torch.randn(10, requires_grad=True)

    def step():
        h = w.exp()
        y = h.sum()
        y.backward()
        try:
            y.backward()
        except RuntimeError as error:
            text = str(error)
        (w * 2).max(0)[0].backward()
        return text

    return Trial(step, (w,))


@scenario
def error_shapes():
    w = torch.randn(10, 4, requires_grad=True)
    return Trial(lambda: (w.exp() @ w).sum().backward(), (w,))


@scenario
def error_in_place_on_leaf():
    w = torch.randn(10, requires_grad=True)
    return Trial(lambda: w.add_(1), (w,))


@scenario
def error_needs_no_gradient():
    w = torch.randn(10)
    return Trial(lambda: w.exp().sum().backward(), (w,))


@scenario
def error_not_scalar():
    w = torch.randn(10, requires_grad=True)
    return Trial(lambda: w.exp().backward(), (w,))


@scenario
def error_in_custom_backward():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("broken on purpose")

    w = torch.randn(10, requires_grad=True)
    return Trial(lambda: Broken.apply(w.exp()).sin().sum().backward(), (w,))
