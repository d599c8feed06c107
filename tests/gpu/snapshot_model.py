"""The training step that the public CUDA snapshots recorded, written here from its description alone.

A decoder-only Transformer of 423,183,360 parameters in operations as plain as they get: every linear layer an einsum;
attention, softmax, normalization and loss spelled out; AdamW by hand.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH, LAYERS, HEADS, INNER, BATCH = 10_000, 1024, 24, 16, 4096, 4
PARAMETERS = 423_183_360


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        given = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (x * scale * self.weight).to(given)


class Rotary(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.empty(2, context, WIDTH // HEADS // 2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        even, odd = x[..., 0::2], x[..., 1::2]
        cos, sin = self.table[:, : x.shape[-2]]
        first = cos * even - sin * odd
        second = sin * even + cos * odd
        return torch.cat([first, second], dim=-1)


def softmax(x: Tensor) -> Tensor:
    x = x - x.max(dim=-1, keepdim=True).values
    exponents = torch.exp(x)
    return exponents / exponents.sum(dim=-1, keepdim=True)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(q.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, v)


class Attention(nn.Module):
    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.query, self.key, self.value = Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH)
        self.out = Linear(WIDTH, WIDTH)
        self.rotary = rotary

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part(x).view(batch, length, HEADS, -1).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        q = self.rotary(q)
        k = self.rotary(k)
        index = torch.arange(length, device=x.device)
        mask = index[:, None] >= index[None, :]
        mixed = attend(q, k, v, mask)
        mixed = mixed.transpose(1, 2).reshape(batch, length, WIDTH)
        return self.out(mixed)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = Linear(WIDTH, INNER), Linear(INNER, WIDTH), Linear(WIDTH, INNER)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(rotary), FeedForward()
        self.norm1, self.norm2 = Norm(), Norm()

    def forward(self, x: Tensor) -> Tensor:
        attended = self.attention(self.norm1(x))
        x = x + attended
        fed = self.feed_forward(self.norm2(x))
        return x + fed


class Model(nn.Module):
    def __init__(self, context: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(VOCABULARY, WIDTH))
        rotary = Rotary(context)
        self.blocks = nn.ModuleList(Block(rotary) for _ in range(LAYERS))
        self.norm, self.head = Norm(), Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        embedded = self.embedding[tokens]  # this name keeps it for the whole forward
        x = embedded
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def log_softmax(x: Tensor) -> Tensor:
    top = x.max(dim=-1, keepdim=True).values
    x = x - top
    return x - torch.log(torch.exp(x).sum(dim=-1, keepdim=True))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    losses = -log_softmax(logits)
    return losses.gather(-1, targets.unsqueeze(-1)).mean()


class AdamW(torch.optim.Optimizer):
    def __init__(self, parameters) -> None:
        super().__init__(parameters, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.01})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                t = state.get("t", 1)
                m = state.get("m", torch.zeros_like(p))
                v = state.get("v", torch.zeros_like(p))
                g = p.grad.data
                p.data -= group["lr"] * group["decay"] * p.data
                m = b1 * m + (1 - b1) * g
                v = b2 * v + (1 - b2) * g**2
                rate = group["lr"] * math.sqrt(1 - b2**t) / (1 - b1**t)
                p.data -= rate * m / (torch.sqrt(v) + group["eps"])
                state["t"], state["m"], state["v"] = t + 1, m, v
