"""The course's Transformer layer: what the formula says it keeps, and one result however attention is computed."""

import pytest
import torch

from helpers import as_if_on_gpu
from helpers.data import kept_bytes
from helpers.lessons.transformer import Transformer, TransformerLayer

BF16 = torch.bfloat16


def keeps(s, b, h, a, dtype=BF16, **options):
    with torch.device("meta"):
        layer, x = TransformerLayer(h, a, **options).to(dtype), torch.empty(b, s, h, dtype=dtype)
    return kept_bytes(as_if_on_gpu(lambda: layer(x)).recording)


def published(s, b, h, a):
    """Korthikanti and others, 2022, equation 2."""
    return 34 * s * b * h + 5 * a * s * s * b


def statistics(s, b):
    """Mean and inverse deviation of each row, in float32, of two LayerNorms."""
    return 2 * 2 * 4 * s * b


def test_the_published_example():
    assert keeps(2048, 1, 4096, 32) == 956_334_080 == published(2048, 1, 4096, 32) + statistics(2048, 1)


@pytest.mark.parametrize("shape", [(1024, 1, 4096, 32), (2048, 3, 4096, 32), (512, 2, 96, 6), (64, 5, 128, 1)])
def test_the_formula_for_other_sizes(shape):
    assert keeps(*shape) == published(*shape) + statistics(*shape[:2])


def test_what_each_option_takes_or_adds():
    s, b, h, a = shape = (512, 2, 96, 6)
    whole, square = keeps(*shape), a * s * s * b
    assert whole - keeps(*shape, dropout=0.0) == 2 * s * b * h + 3 * square  # masks, and what the first gives
    assert keeps(*shape, causal=True) - whole == s * s  # a mask of booleans
    fused = keeps(*shape, attention="fused")
    assert 5 * square - (whole - fused) < 0.01 * square + 4 * s * b * a * 2  # numbers of each row stay
    assert fused == keeps(*shape, attention="fused", causal=True)


@pytest.mark.parametrize("causal", [False, True])
def test_explicit_and_fused_attention_agree(causal):
    torch.manual_seed(0)
    explicit = TransformerLayer(24, 3, dropout=0.0, causal=causal).double()
    fused = TransformerLayer(24, 3, attention="fused", dropout=0.0, causal=causal).double()
    fused.load_state_dict(explicit.state_dict())
    x = torch.randn(2, 7, 24, dtype=torch.float64)
    gradients = []
    for layer in (explicit, fused):
        layer.zero_grad()
        out = layer(x)
        out.pow(2).sum().backward()
        gradients.append([out, *(p.grad for p in layer.parameters())])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)
    assert torch.allclose(explicit(x)[:, :3], explicit(x[:, :3])) is causal


def test_fused_attention_drops_out_in_training_only():
    torch.manual_seed(0)
    layer, x = TransformerLayer(8, 2, attention="fused", dropout=0.5), torch.randn(1, 6, 8)
    assert not torch.equal(layer.attend(x), layer.attend(x))
    layer.eval()
    assert torch.equal(layer.attend(x), layer.attend(x))


def test_layers_with_checkpoints_compute_the_same():
    torch.manual_seed(0)
    plain = Transformer(3, 16, 2, dropout=0.0, vocabulary=11)
    kept = Transformer(3, 16, 2, dropout=0.0, vocabulary=11, checkpointed=True)
    kept.load_state_dict(plain.state_dict())
    tokens = torch.tensor([[1, 2, 3, 10]])
    for model in (plain, kept):
        out = model(tokens)
        assert out.shape == (1, 4, 11)
        out.sum().backward()
    for a, b in zip(plain.parameters(), kept.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_equal_layers_keep_equal_bytes():
    def of(layers, **options):
        with torch.device("meta"):
            model, x = Transformer(layers, 96, 6, **options).to(BF16), torch.empty(2, 32, 96, dtype=BF16)
        return kept_bytes(as_if_on_gpu(lambda: model(x)).recording)

    assert of(4) == 4 * of(1)
    assert of(5, checkpointed=True) - of(4, checkpointed=True) < of(1) / 10


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"heads": 5}, "16 is no multiple of 5"),
        ({"heads": 0}, "16 is no multiple of 0"),
        ({"attention": "flash"}, '"explicit" or "fused", not \'flash\''),
    ],
)
def test_sentences(arguments, said):
    with pytest.raises(ValueError) as raised:
        TransformerLayer(**{"width": 16, "heads": 2, **arguments})
    assert said in str(raised.value)
