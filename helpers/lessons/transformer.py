"""A Transformer layer in plain torch: the one that chapter 02 takes apart and that the explorer measures."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

ATTENTION = ("explicit", "fused")


class TransformerLayer(nn.Module):
    """LayerNorm, attention, LayerNorm, an MLP four times as wide with GELU; three dropouts. (b, s, h) → (b, s, h).

    At 16 bit on a GPU it keeps s·b·h·(34 + 5·a·s/h) bytes for backward with explicit attention (Korthikanti and
    others, "Reducing Activation Recomputation in Large Transformer Models", 2022, equation 2), and 16·s·b more:
    mean and inverse deviation of each row, in float32, of two LayerNorms.

    width: h, a multiple of heads, a. attention: "explicit" spells it out, "fused" is one kernel for all of it.
    causal: no position sees a later one. Raises ValueError for other widths and for another attention.
    """

    def __init__(
        self, width: int, heads: int, *, attention: str = "explicit", dropout: float = 0.1, causal: bool = False
    ) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"The width is divided among the heads; {width} is no multiple of {heads}.")
        if attention not in ATTENTION:
            raise ValueError(f'attention is "explicit" or "fused", not {attention!r}.')
        self.heads, self.attention, self.causal = heads, attention, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout1, self.dropout2, self.dropout3 = (nn.Dropout(dropout) for _ in range(3))

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        if self.attention == "fused":
            p = self.dropout1.p if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            if self.causal:
                later = scores.new_ones(scores.shape[-2:], dtype=bool).triu(1)
                scores = scores.masked_fill(later, -math.inf)
            mixed = self.dropout1(scores.softmax(-1)) @ v
        return self.out(mixed.transpose(1, 2).flatten(-2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout2(self.attend(self.norm1(x)))
        return x + self.dropout3(self.down(F.gelu(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    """Equal layers. With a vocabulary: an embedding of tokens (b, s) with its dropout before, a head after them.

    more: options of every layer. checkpointed: of each layer only its input is kept, and backward runs it again.
    """

    def __init__(
        self, layers: int, width: int, heads: int, *, vocabulary: int = 0, checkpointed: bool = False, **more
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(width, heads, **more) for _ in range(layers))
        self.checkpointed = checkpointed
        self.embedding, self.head = None, None
        if vocabulary:
            self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
            self.dropout = nn.Dropout(more.get("dropout", 0.1))

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.dropout(self.embedding(x))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return x if self.head is None else self.head(x)
