"""Training steps of five kinds, on whatever device: what a real GPU, the ledger and the prediction are compared on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import snapshot_model


class Basic(nn.Module):
    """A residual block of two 3×3 convolutions."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.short = None
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet18(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        widths = (64, 64, 128, 256, 512)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(Basic(before, width, 1 if i == 0 else 2), Basic(width, width, 1))
                for i, (before, width) in enumerate(zip(widths, widths[1:], strict=False))
            )
        )
        self.head = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.stem(x), 3, 2, 1)
        return self.head(self.stages(x).mean(dim=(2, 3)))


class GPT2Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        x = x + F.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, width)), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.norm2(x)))), 0.1)


class GPT2(nn.Module):
    """124 million parameters, head and embedding tied."""

    def __init__(self, width: int = 768, layers: int = 12, heads: int = 12, length: int = 512) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50_257, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(GPT2Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm, self.head = nn.Embedding(5_000, 256), nn.LSTM(256, 512, 2), nn.Linear(512, 5_000)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.tokens(tokens))[0])


def training(model: nn.Module, x: Tensor, target: Tensor, amp: bool = False) -> Callable[[], None]:
    """Forward, backward and AdamW, one step each call; gradients are cleared at the end."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16) if amp else nullcontext():
            logits = model(x)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def mlp(device: str) -> Callable[[], None]:
    with torch.device(device):
        model = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.ReLU())))
        return training(model, torch.randn(512, 2048), torch.randint(2048, (512,)))


def resnet(device: str) -> Callable[[], None]:
    with torch.device(device):
        return training(ResNet18(), torch.randn(8, 3, 224, 224), torch.randint(1000, (8,)))


def lstm(device: str) -> Callable[[], None]:
    with torch.device(device):
        tokens = torch.randint(5_000, (64, 16))
        return training(Words(), tokens, tokens)


def gpt2(device: str, amp: bool = False) -> Callable[[], None]:
    with torch.device(device):
        tokens = torch.randint(50_257, (2, 512))
        return training(GPT2(), tokens, tokens, amp)


def gpt2_bf16(device: str) -> Callable[[], None]:
    return gpt2(device, amp=True)


def snapshots(device: str) -> Callable[[], None]:
    with torch.device(device):
        model = snapshot_model.Model(128)
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.02)
        tokens = torch.randint(snapshot_model.VOCABULARY, (snapshot_model.BATCH, 128))
    optimizer = snapshot_model.AdamW(model.parameters())

    def step() -> None:
        loss = snapshot_model.cross_entropy(model(tokens), tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


#: name → maker of a step on a device.
STEPS = {
    "MLP": mlp,
    "ResNet-18": resnet,
    "LSTM": lstm,
    "GPT-2": gpt2,
    "GPT-2, bf16": gpt2_bf16,
    "the snapshots' model": snapshots,
}
#: Of these the GPU runs kernels of cuDNN whose reserve only cuDNN knows: no prediction.
NOT_PREDICTED = {"LSTM"}
