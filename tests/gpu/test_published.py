"""Numbers that others have published come out of steps as if on a GPU: to the byte where they are bytes.

Where a number differs, the test says by how much and from what.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from helpers import as_if_on_gpu
from helpers.data import kept_bytes, timeline
from helpers.data.model import GRADIENTS, KEPT, OPTIMIZER, PARAMETERS
from helpers.gpu.private import overload
from tests.cells import largest_ram

from .models import Layer, Llama, Stack

GIB = 2**30
BF16 = torch.bfloat16


def gib(nbytes, digits=2):
    return f"{nbytes / GIB:.{digits}f}"


# ---------------------------------------------------------------- Korthikanti et al. 2022


def one_layer(s, b, h, a, dtype=BF16, selective=False, **choices):
    """A layer's forward, its result still there."""
    with torch.device("meta"):
        layer, x = Layer(h, a, selective=selective).to(dtype), torch.empty(b, s, h, dtype=dtype)
    return as_if_on_gpu(lambda: layer(x), workspace=0, **choices).recording


def layer_keeps(*shape, **options):
    """Bytes that its nodes keep for backward."""
    return kept_bytes(one_layer(*shape, **options))


def layer_holds(*shape, **options):
    """Bytes that live after it, parameters and its result left out."""
    recording, (s, b, h, _) = one_layer(*shape, **options), shape
    after = timeline(recording).at(len(recording.events) - 1)
    return sum(after.values()) - after[PARAMETERS] - 2 * s * b * h


def formula(s, b, h, a, of_width=34, of_square=5):
    return of_width * s * b * h + of_square * a * s * s * b


def statistics(s, b):
    """What the formula leaves out: mean and inverse deviation of each row, in float32, of two LayerNorms."""
    return 2 * 2 * 4 * s * b


@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_a_layer_keeps_what_korthikanti_says(dtype):
    kept = layer_keeps(2048, 1, 4096, 32, dtype=dtype)
    assert formula(2048, 1, 4096, 32) == 956_301_312
    assert kept == 956_334_080 == 956_301_312 + statistics(2048, 1)


@pytest.mark.parametrize(
    "shape", [(1024, 1, 4096, 32), (4096, 1, 4096, 32), (2048, 3, 4096, 32), (2048, 1, 8192, 64), (512, 2, 96, 6)]
)
@pytest.mark.parametrize(("dropout", "coefficients"), [(True, (34, 5)), (False, (36, 6))])
def test_both_terms_for_other_sizes(shape, dropout, coefficients):
    """Without native dropout each of three masks takes two bytes an element instead of one."""
    kept = layer_keeps(*shape, dropout=dropout)
    assert kept == formula(*shape, *coefficients) + statistics(*shape[:2])


@pytest.mark.parametrize(("dropout", "slopes"), [(True, ("34.004", "5.000")), (False, ("36.004", "6.000"))])
def test_the_slopes(dropout, slopes):
    """Two lengths, two unknowns: bytes per s·b·h and per a·s²·b, from measured bytes alone."""
    h, a, (short, long) = 4096, 32, (1024, 2048)
    per_row = [layer_keeps(s, 1, h, a, dropout=dropout) / s for s in (short, long)]
    of_square = (per_row[1] - per_row[0]) / (a * (long - short))
    of_width = (per_row[0] - of_square * a * short) / h
    assert (f"{of_width:.3f}", f"{of_square:.3f}") == slopes


@pytest.mark.parametrize(
    ("shape", "share"), [((2048, 1, 12_288, 96), "70.2"), ((2048, 1, 20_480, 128), "65.3")], ids=["GPT-3", "MT-NLG"]
)
def test_selective_recomputation(shape, share):
    """Counted by what lives behind the layer's result: a checkpoint holds query, key and value itself."""
    s, b, h, a = shape
    whole, selective = layer_holds(*shape), layer_holds(*shape, selective=True)
    assert whole == layer_keeps(*shape)
    assert selective == formula(*shape, of_square=0) + statistics(s, b)
    assert f"{100 * (whole - selective) / whole:.1f}" == share
    assert f"{100 * (5 * a * s / h) / (34 + 5 * a * s / h):.1f}" == share


@pytest.mark.parametrize(
    ("s", "widget"), [(1024, 3.564453125), (2048, 12.12890625), (4096, 44.2578125), (8192, 168.515625)]
)
def test_the_playbooks_widget(s, widget):
    """L=16, h=2048, a=32. The widget has one s·b·h more than its layers: the mask of the dropout behind the embedding.
    What it leaves out: the LayerNorms' statistics, and the tokens, which the embedding keeps as 64-bit numbers."""
    layers, h, a = 16, 2048, 32
    assert widget * GIB == layers * formula(s, 1, h, a) + s * h
    with torch.device("meta"):
        model, tokens = Stack(layers, h, a).to(BF16), torch.zeros(1, s, dtype=torch.long)
    kept = kept_bytes(as_if_on_gpu(lambda: model(tokens)).recording)
    assert kept == widget * GIB + layers * statistics(s, 1) + 8 * s


# ---------------------------------------------------------------- Llama-7B

PARAMETER_COUNT, TENSORS = 6_738_415_616, 291
WEIGHTS = 13_476_831_232  # bytes, in bf16
TOKENS, ROTARY = 2 * 8 * 2048, 2 * 2 * 2048 * 128  # bytes: inputs and targets; cos and sin
LOSS = 4


def llama(**options):
    with torch.device("meta"):
        model = Llama(**options).to(BF16)
        tokens, targets = torch.zeros(1, 2048, dtype=torch.long), torch.zeros(1, 2048, dtype=torch.long)
    return model, tokens, targets


def loss_of(model, tokens, targets):
    logits = model(tokens)  # this name keeps the logits in bf16 until the loss is there
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def second_step(checkpointed=False, **choices):
    """A training step of Llama-7B, b=1, s=2048, bf16, AdamW with its state in place: recording, peaks by phase."""
    model, tokens, targets = llama(checkpointed=checkpointed)
    optimizer = torch.optim.AdamW(model.parameters())
    for p in model.parameters():
        p.grad = torch.empty_like(p)
    optimizer.step()
    optimizer.zero_grad()

    def step():
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        return loss

    recording = as_if_on_gpu(step, workspace=0, **choices).recording
    peaks = {}
    for event, total in zip(recording.events, timeline(recording).totals[1:], strict=True):
        peaks[event.phase] = max(peaks.get(event.phase, 0), total)
    return recording, peaks


@pytest.fixture(scope="module")
def chain():
    """With RMSNorm as a chain of operations, as the published totals were made."""
    return second_step(rms_norm=False)


@pytest.fixture
def fused():
    """Torch with a fused RMSNorm also has another chain of operations, which keeps more than the chain before it."""
    if overload("_fused_rms_norm") is None:
        pytest.skip("fused-rms-norm: not in this torch")


def test_the_model_is_llama_7b():
    model, *_ = llama()
    assert sum(p.numel() for p in model.parameters()) == PARAMETER_COUNT
    assert len(list(model.parameters())) == TENSORS
    assert sum(p.nbytes for p in model.parameters()) == WEIGHTS
    assert (gib(WEIGHTS), f"{WEIGHTS / 1e9:.2f}") == ("12.55", "13.48")


def test_what_stands_after_the_step(chain):
    recording, _ = chain
    after = timeline(recording).at(len(recording.events) - 1)
    assert after[PARAMETERS] == after[GRADIENTS] == WEIGHTS
    assert after[OPTIMIZER] == 2 * WEIGHTS  # its 291 counters are on the CPU, as on CUDA unless it is capturable
    assert (gib(WEIGHTS, 3), gib(2 * WEIGHTS, 3), gib(4 * WEIGHTS, 3)) == ("12.551", "25.103", "50.205")
    assert any(f"{4 * (TENSORS + 1):,} B" in n for n in recording.notes)  # foreach makes one number more on the CPU


def test_the_steps_peak_to_the_byte(chain):
    """The published 67,384,337,920 B: five times the weights, the tokens, and a block of 512 B for each counter of
    AdamW. Here the counters are on the CPU, and the model has rotary tables and a loss that the step gives back."""
    published = 67_384_337_920
    assert published == 5 * WEIGHTS + TOKENS + 512 * TENSORS
    peak = chain[1]["step"]
    assert peak == published - 512 * TENSORS + ROTARY + LOSS
    assert peak == second_step()[1]["step"]  # the norms have no part in it
    assert gib(peak) == "62.76" and gib(peak - 4 * WEIGHTS) == "12.55"


def test_the_steps_peak_without_foreach(chain):
    """The published 54,431,802,880 B: two temporaries of the largest parameter and the last norm's denominator."""
    published, largest = 54_431_802_880, 2 * 32_000 * 4096
    assert published == 4 * WEIGHTS + 2 * largest + 2 * 4096 + TOKENS + 512 * TENSORS
    _, peaks = second_step(foreach=False)
    assert peaks["step"] == published - 512 * TENSORS + ROTARY + LOSS
    assert gib(peaks["step"]) == "50.69" and f"{peaks['step'] / 1e9:.0f}" == "54"
    assert gib(chain[1]["step"] - peaks["step"]) == "12.06"


def test_peaks_of_forward_and_backward(chain, fused):
    """Published in GiB with two digits; so they are compared."""
    recording, peaks = chain
    assert (gib(peaks["forward"]), gib(peaks["backward"])) == ("50.73", "50.85")
    assert gib(kept_bytes(recording)) == "12.71"


def test_fused_rms_norm(chain, fused):
    """As a chain each of 65 norms keeps its input and the normalized rows in float32, fused its input in bf16."""
    recording, _ = second_step()
    assert gib(kept_bytes(recording)) == "9.66"
    less = kept_bytes(chain[0]) - kept_bytes(recording)
    rows = 2048 * 4096
    assert less == 65 * rows * (4 + 4 - 2) == 3_271_557_120 and gib(less) == "3.05"


def test_attention_by_matrix_products():
    fused, plain = second_step(), second_step(attention="math")
    assert gib(plain[1]["forward"] - fused[1]["forward"], 1) == "17.5"
    assert gib(kept_bytes(plain[0]) - kept_bytes(fused[0]), 1) == "17.5"


def test_a_checkpoint_per_block(chain, fused):
    recording, peaks = second_step(checkpointed=True, rms_norm=False)
    assert gib(peaks["forward"]) == "38.84"
    assert peaks["forward"] < chain[1]["forward"] - 11 * GIB
    assert kept_bytes(recording) < kept_bytes(chain[0]) / 30


# ---------------------------------------------------------------- bytes per parameter (ZeRO)


def in_mixed_precision(keep_float32_gradients):
    """A step with master weights in float32: what stands after it."""
    model, tokens, targets = llama(length=16)
    masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()]
    optimizers = [torch.optim.AdamW([m]) for m in masters]

    def step():
        loss_of(model, tokens[:, :16], targets[:, :16]).backward()
        for p, master, optimizer in zip(model.parameters(), masters, optimizers, strict=True):
            master.grad = p.grad.float()
            if keep_float32_gradients:
                p.grad = None
            optimizer.step()
            if not keep_float32_gradients:
                master.grad = None
            p.data.copy_(master.data)

    return as_if_on_gpu(step, workspace=0).recording


def in_pure_bf16():
    model, tokens, targets = llama(length=16)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        loss_of(model, tokens[:, :16], targets[:, :16]).backward()
        optimizer.step()

    return as_if_on_gpu(step, workspace=0).recording


@pytest.mark.parametrize(
    ("make", "bytes_each", "total"),
    [
        (lambda: in_mixed_precision(False), 16, "107.8"),
        (lambda: in_mixed_precision(True), 18, "121.3"),
        (in_pure_bf16, 8, "53.9"),
    ],
    ids=["mixed precision", "with float32 gradients", "pure bf16"],
)
def test_bytes_per_parameter(make, bytes_each, total):
    """All that lives after the step but the rotary tables and the tokens."""
    recording = make()
    after = timeline(recording).at(len(recording.events) - 1)
    standing = sum(after.values()) - 2 * 2 * 16 * 128 - TOKENS
    assert standing == bytes_each * PARAMETER_COUNT and f"{standing / 1e9:.1f}" == total
    assert after[KEPT] == 0 and after[PARAMETERS] + after[OPTIMIZER] >= bytes_each * PARAMETER_COUNT * 3 / 4


# ---------------------------------------------------------------- what it takes to find out


def test_a_7b_step_takes_under_a_gigabyte():
    """In a process of its own: its largest size in memory, of one whole step and its figures' data."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", f"{__package__}.test_published"], cwd=root, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    most, seconds = done.stdout.decode().split()
    print(f"A 7B step: {seconds} s, {int(most) / 1e9:.2f} GB")
    assert 50e6 < int(most) < 1e9


if __name__ == "__main__":
    begun = time.perf_counter()
    assert second_step()[1]["step"] > 60 * GIB
    print(largest_ram(), f"{time.perf_counter() - begun:.1f}")
