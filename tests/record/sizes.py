"""Steps of real sizes: what every claim about large graphs is tried on. Each maker gives (step, modules)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tests.gpu.steps import Basic

Made = tuple[Callable[[], Any], nn.Module]


class LstmCell(nn.Module):
    """In plain torch: 15 operations a step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


def lstm_160() -> Made:
    cell, xs = LstmCell(8), torch.randn(160, 2, 8)

    def step() -> Tensor:
        h = c = torch.zeros(2, 8)
        for x in xs:
            h, c = cell(x, (h, c))
        return h.pow(2).sum()

    return step, cell


def fan_in_2000() -> Made:
    parts = nn.ParameterList(nn.Parameter(torch.randn(3)) for _ in range(2_000))

    def step() -> Tensor:
        total = torch.zeros(3)
        for part in parts:
            total = total + part * part
        return total.sum()

    return step, parts


def chain(length: int) -> Callable[[], Made]:
    def make() -> Made:
        layer = nn.Linear(2, 2)

        def step() -> Tensor:
            y = layer(torch.ones(1, 2))
            for _ in range(length):
                y = y.sin()
            return y.sum()

        return step, layer

    return make


def shared_module() -> Made:
    """One layer, run forty times."""
    layer, x = nn.Linear(6, 6), torch.randn(2, 6)

    def step() -> Tensor:
        h = x
        for _ in range(40):
            h = layer(h).relu()
        return h.sum()

    return step, layer


def deep_resnet() -> Made:
    """97 convolutions."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), *(Basic(8, 8, 1) for _ in range(48)))
    x = torch.randn(1, 3, 8, 8)
    return lambda: model(x).mean(), model


STEPS: dict[str, Callable[[], Made]] = {
    "LSTM cell, 160 steps": lstm_160,
    "fan-in of 2,000": fan_in_2000,
    "chain of 10,000": chain(10_000),
    "a module used 40 times": shared_module,
    "ResNet of 97 convolutions": deep_resnet,
}
