"""Chapter 02's exercises: the bytes that a Transformer layer keeps, in three steps, and a bug hunt with forward hooks.

What is right is measured when it is asked, on the course's own layer, with shapes alone; no formula stands in for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from helpers.run import as_if_on_gpu, record

from .check import Exercise, Mistake, run
from .own_autograd import kind
from .transformer import TransformerLayer

# -------------------------------------------------------------------------------------------------- what a layer keeps

MLP = ("up", "down", "gelu", "dropout3")
ATTENTION = ("q", "k", "v", "attention", "out", "dropout1", "dropout2")
NORMS = ("norm1", "norm2")


@dataclass(frozen=True, slots=True)
class Setting:
    """Sizes of a layer and its run. number: bytes a number; mask: bytes that a dropout's mask takes an element."""

    b: int
    s: int
    h: int
    a: int
    number: int = 2
    mask: int = 1

    def __str__(self) -> str:
        return f"b={self.b}, s={self.s}, h={self.h}, a={self.a}"

    @property
    def whole(self) -> str:
        return f"{self}, number={self.number}, mask={self.mask}"

    @property
    def sbh(self) -> int:
        return self.s * self.b * self.h

    @property
    def ass(self) -> int:
        return self.a * self.s * self.s * self.b


#: No two of b, s, h, a alike, and no two slips of a kind that give one number (test_chapter_02 holds that).
SETTINGS = (Setting(3, 24, 40, 5), Setting(2, 14, 96, 4), Setting(1, 128, 64, 2))
#: 16 bit as on a GPU; float32 on a CPU; float32 as on a GPU; 16 bit with masks as long as numbers.
WHOLE = (Setting(3, 24, 40, 5), Setting(2, 14, 96, 4, 4, 4), Setting(3, 24, 40, 5, 4, 1), Setting(2, 14, 96, 4, 2, 2))


@cache
def parts(setting: Setting) -> dict[str, int]:
    """Part of the layer (its module; "gelu", "attention" for what is no module) → bytes kept, measured."""
    dtype = {2: torch.bfloat16, 4: torch.float32}[setting.number]
    with torch.device("meta"):
        layer = TransformerLayer(setting.h, setting.a).to(dtype)
        x = torch.empty(setting.b, setting.s, setting.h, dtype=dtype)
    ran = as_if_on_gpu(layer, x) if setting.mask == 1 else record(layer, x)
    found: dict[str, int] = {}
    for row in ran.kept.all_rows:
        part = row.node.module
        if not hasattr(layer, part):
            part = "gelu" if row.node.name.startswith("Gelu") else "attention"
        found[part] = found.get(part, 0) + row.counted
    return found


def kept_of(setting: Setting, names: tuple[str, ...]) -> int:
    return sum(parts(setting).get(name, 0) for name in names)


def statistics(setting: Setting) -> int:
    """Mean and inverse deviation of each row, in float32, of two LayerNorms: what the published formula leaves out."""
    return 2 * 2 * 4 * setting.s * setting.b


NONE: Mapping[str, str] = {}


def number_of(found: Any) -> float | None:
    if isinstance(found, Tensor):
        found = found.detach()
    try:
        value = None if isinstance(found, (str, bytes, bool)) else float(found)
    except Exception:
        return None
    return value if value is not None and math.isfinite(value) else None


def asked(answer: Callable, *arguments: int) -> float:
    """What the learner's formula gives, as a number."""
    if not callable(answer) or isinstance(answer, type):
        raise Mistake("not_a_function", got=kind(answer))
    found = run(answer, *arguments)
    value = number_of(found)
    if value is None:
        raise Mistake("not_a_number", got=kind(found))
    return value


def same_number(found: float, wanted: float) -> bool:
    """Equal but for the rounding of a formula that is written with fractions."""
    return math.isclose(found, wanted, rel_tol=1e-9)


def refuse(found: float, wanted: int, slips: Mapping[str, float], facts: Mapping[str, object], same=NONE) -> None:
    """Raise the mistake that leads to this number; nothing if it is right. same: slip → whose message it shares."""
    if same_number(found, wanted):
        return
    facts = {**facts, "got": f"{found:,.10g}", "expected": f"{wanted:,}", "ratio": f"{found / wanted:.3g}"}
    for key, wrong in slips.items():
        if same_number(found, wrong):
            raise Mistake(same.get(key, key), **facts)
    raise Mistake("other", **facts)


# ----------------------------------------------------------------------------------------------------------- mlp_bytes


#: Sums, in s·b·h, of a wrong term for `down` (0, 2 or 4) and a wrong one for `dropout3` (0, 1/8, 2 or 4).
BOTH_WRONG = (0, 2, 4, 6, 0.125, 2.125, 4.125)
MLP_SAME = {f"both_{terms:g}": "both" for terms in BOTH_WRONG}


def mlp_slips(it: Setting) -> dict[str, float]:
    n = it.sbh
    return {
        "narrow": 13 * n,
        "wide_mask": 22 * n,
        "mask_two": 20 * n,
        "no_mask": 18 * n,
        "no_down": 11 * n,
        "numbers": 15 * n,
        "no_batch": 19 * n / it.b,
        "mask_bits": 18.125 * n,
        **{f"both_{terms:g}": (10 + terms) * n for terms in BOTH_WRONG},
    }


def mlp_bytes(answer: Any) -> str:
    for it in SETTINGS:
        found = asked(answer, it.b, it.s, it.h)
        refuse(found, kept_of(it, MLP), mlp_slips(it), {"at": f"b={it.b}, s={it.s}, h={it.h}"}, MLP_SAME)
    return (
        f"Right for {len(SETTINGS)} layers, to the byte of what was measured: 19·s·b·h. Sixteen of the nineteen are "
        "GELU's input and GELU's output, the two tensors that are four times as wide."
    )


COUNTED = "For {at} you count {got} bytes, and the layer keeps {expected}. "

FORMULA = {
    "not_a_function": "`check` wants the function itself, its name without brackets; it got {got}.",
    "not_a_number": "The function gives {got}. What is wanted is a number of bytes.",
    "no_batch": COUNTED + "It is as if there were one sequence only: which size does not stand in your formula?",
    "other": COUNTED + "That is {ratio} times as much. Take the terms one by one: which tensor, of which shape, how "
    "many bytes a number?",
}

MLP_BYTES = {
    **FORMULA,
    "narrow": COUNTED + "The input of `down` is what GELU gave, and GELU works on the wide side of `up`. How many "
    "numbers are that for each token?",
    "wide_mask": COUNTED + "`dropout3` stands behind `down`: how wide is what it drops from?",
    "mask_two": COUNTED + "A mask says yes or no. On a GPU it takes one byte an element, not the two of a number.",
    "no_mask": COUNTED + "One tensor is missing: dropout must know which elements it dropped.",
    "no_down": COUNTED
    + "One tensor is missing, and a wide one: `down` is a linear layer whose weight wants a gradient.",
    "numbers": COUNTED + "For `down` you count numbers where bytes are wanted. In 16 bit each of them takes two.",
    "both": COUNTED
    + "Both of your terms are off. `down` takes what GELU gives: how wide is that? And `dropout3` keeps a "
    "mask: one byte for each number that `down` gives.",
    "mask_bits": COUNTED + "A yes or no would fit into a bit, but PyTorch gives each a whole byte.",
}

# ------------------------------------------------------------------------------------------------------ attention_bytes


def attention_slips(it: Setting) -> dict[str, float]:
    n, square = it.sbh, it.ass
    return {
        "input_each": 15 * n + 5 * square,
        "two_tensors": 7 * n + 5 * square,
        "scores_too": 11 * n + 7 * square,
        "scaled_too": 11 * n + 9 * square,
        "not_dropped": 11 * n + 3 * square,
        "no_softmax": 11 * n + 3 * square,
        "only_softmax": 11 * n + 2 * square,
        "square_mask_two": 11 * n + 6 * square,
        "no_square_mask": 11 * n + 4 * square,
        "one_head": 11 * n + 5 * square / it.a,
        "per_width": 11 * n + 5 * square * it.h,
        "head_width": 11 * n + 5 * square * it.h / it.a,
        "one_tensor": 9 * n + 5 * square,
        "no_mask": 10 * n + 5 * square,
        "mask_two": 12 * n + 5 * square,
        "not_squared": 11 * n + 5 * square / it.s,
        "square_no_batch": 11 * n + 5 * square / it.b,
        "no_batch": (11 * n + 5 * square) / it.b,
        "elements": 5.5 * n + 2.5 * square,
    }


#: What the same slip is called, whichever way the number came about.
SAME = {"no_softmax": "not_dropped"}


def attention_bytes(answer: Any) -> str:
    for it in SETTINGS:
        found = asked(answer, it.b, it.s, it.h, it.a)
        refuse(found, kept_of(it, ATTENTION), attention_slips(it), {"at": str(it)}, SAME)
    return (
        f"Right for {len(SETTINGS)} layers, to the byte of what was measured: 11·s·b·h + 5·a·s²·b. The second term is "
        "the only one in the whole layer that grows with the square of the sequence."
    )


ATTENTION_BYTES = {
    **FORMULA,
    "input_each": COUNTED + "`q`, `k` and `v` are made of one and the same tensor. Three nodes keep it, and it is "
    "there once.",
    "two_tensors": COUNTED + "Two tensors of s·b·h numbers are missing. Queries, keys and values are three tensors of "
    "that size, and each linear layer keeps its input: are all of them in it?",
    "scores_too": COUNTED + "You count the scores before the softmax. Does anybody keep them? Softmax's derivative is "
    "made of its output.",
    "scaled_too": COUNTED + "You count the product and the scaled scores as well. A product keeps its factors, and a "
    "division by a number keeps no tensor.",
    "not_dropped": COUNTED + "Of the two large 16-bit tensors you have one. Softmax keeps what it gave; and the "
    "product with `v` keeps its left factor. Is that the same tensor, after a dropout?",
    "only_softmax": COUNTED + "Of the three large tensors one is there, of two bytes a number. Softmax, a dropout and "
    "the product with `v` follow one another: what does each of them keep?",
    "square_mask_two": COUNTED + "The mask of the attention weights takes one byte an element on a GPU, not two.",
    "no_square_mask": COUNTED + "One tensor is missing, of one byte an element: how does `dropout1` know, in backward, "
    "what it dropped?",
    "one_head": COUNTED + "Each head has weights of its own: s × s of them, a times.",
    "per_width": COUNTED + "A head's weights are one number for each pair of tokens. No width is left in them.",
    "head_width": COUNTED + "A head's weights are one number for each pair of tokens. The width of a head was summed "
    "over in the product.",
    "one_tensor": COUNTED + "One tensor of s·b·h numbers is missing. Is it the input of `q`, `k` and `v`, one of these "
    "three themselves, or the input of `out`?",
    "no_mask": COUNTED + "One mask is missing: `dropout2` stands behind `out`.",
    "mask_two": COUNTED + "A mask says yes or no. On a GPU it takes one byte an element, not the two of a number.",
    "not_squared": COUNTED + "How many attention weights has one head: one a token, or one for each pair of tokens?",
    "square_no_batch": COUNTED + "Each sequence of the batch has attention weights of its own.",
    "elements": COUNTED + "That is half of it: you count numbers as if each took one byte, and masks as half a byte.",
}

# ---------------------------------------------------------------------------------------------------------- layer_bytes


def layer_slips(it: Setting) -> dict[str, float]:
    n, square, number, mask = it.sbh, it.ass, it.number, it.mask
    width, pairs = 16 * number + 2 * mask, 2 * number + mask
    right = width * n + pairs * square
    return {
        "fixed": 34 * n + 5 * square,
        "mask_as_number": 18 * number * n + 3 * number * square,
        "mask_one": (16 * number + 2) * n + (2 * number + 1) * square,
        "two_tensors": right - 2 * number * n,
        "one_tensor": right - number * n,
        "input_each": right + 2 * number * n,
        "no_square": width * n,
        "no_heads": width * n + pairs * square / it.a,
        "no_batch": right / it.b,
        "square_no_batch": width * n + pairs * square / it.b,
        "scores_too": right + number * square,
        "not_dropped": right - number * square,
        "weights_too": right + number * (12 * it.h**2),
        "all_weights_too": right + number * (12 * it.h**2 + 13 * it.h),
        "no_masks": 16 * number * n + 2 * number * square,
        "elements": 18 * n + 3 * square,
        "residuals": right + 2 * number * n,
        "output_too": right + number * n,
        "statistics": right + 4 * number * it.s * it.b,
    }


LAYER_SAME = {"all_weights_too": "weights_too", "residuals": "input_each"}


def layer_bytes(answer: Any) -> str:
    counted: list[tuple[bool, dict[str, object]]] = []  # are the statistics in it?
    for it in WHOLE:
        found = asked(answer, it.b, it.s, it.h, it.a, it.number, it.mask)
        measured, left_out = kept_of(it, MLP + ATTENTION + NORMS), statistics(it)
        assert measured - left_out > 0
        counted.append(
            (same_number(found, measured), {"at": it.whole, "got": f"{found:,.10g}", "expected": f"{measured:,}"})
        )
        if counted[-1][0]:
            continue
        slips = layer_slips(it)
        if any(same_number(found, wrong + left_out) for wrong in slips.values()):
            found -= left_out
        refuse(found, measured - left_out, slips, {"at": it.whole}, LAYER_SAME)
    with_statistics = [inside for inside, _ in counted]
    if any(with_statistics) and not all(with_statistics):
        raise Mistake("statistics", **next(facts for inside, facts in counted if not inside))
    said = f"Right for {len(WHOLE)} runs that were measured: 16 bit and float32, with short masks and long ones. "
    if all(with_statistics):
        return said + "To the byte: you even count the mean and the deviation of each row that the LayerNorms keep."
    return said + (
        "What is measured has 16·s·b bytes more: a mean and a deviation for each row, in float32, of two LayerNorms. "
        "The published formula leaves them out as well."
    )


LAYER_BYTES = {
    **FORMULA,
    "fixed": COUNTED + "That is the number for 16 bit with masks of one byte. Where do `number` and `mask` stand in "
    "your formula?",
    "mask_as_number": COUNTED + "Your masks take as many bytes as a number. That is `mask`, not `number`.",
    "mask_one": COUNTED + "Your masks take one byte an element whatever `mask` says.",
    "no_masks": COUNTED + "The masks of three dropouts are missing.",
    "two_tensors": COUNTED + "Two tensors of s·b·h numbers are missing. Are the inputs of both LayerNorms in it? And "
    "`q`, `k` and `v`, all three?",
    "one_tensor": COUNTED
    + "One tensor of s·b·h numbers is missing. There are two LayerNorms and three of `q`, `k` and "
    "`v`, and `out` and `up` have an input each: which of them did you leave out?",
    "input_each": COUNTED + "That is two tensors of s·b·h numbers too many. Is the input of `q`, `k` and `v` counted "
    "three times, or does a sum `x + …` keep something?",
    "no_square": COUNTED + "What grows with the square of the sequence is missing: the attention weights.",
    "no_heads": COUNTED + "Each head has attention weights of its own.",
    "square_no_batch": COUNTED + "Each sequence of the batch has attention weights of its own.",
    "scores_too": COUNTED + "One tensor of s × s numbers a head is too many. The scores before the softmax are kept by "
    "nobody.",
    "not_dropped": COUNTED + "One tensor of s × s numbers a head is missing: softmax keeps its output, and the product "
    "with `v` keeps what the dropout made of it.",
    "weights_too": COUNTED + "You count the weights as well. They are alive anyway: the ledger does not count them.",
    "elements": COUNTED + "That is how many numbers and mask elements there are. How many bytes has each?",
    "statistics": COUNTED + "Means and deviations take 4 bytes each, `float32` whatever `number` is: 16·s·b bytes in "
    "all. Count them in every run, or in none.",
    "output_too": COUNTED
    + "One tensor of s·b·h numbers is too many. Is it the layer's own output, which the next layer keeps and not this "
    "one, or what a sum `x + …` gives?",
}

# ------------------------------------------------------------------------------------------------------------ bug_hooks


class Residual(nn.Sequential):
    """A container that computes something itself."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Swap(nn.Module):
    """Gives a view that lies otherwise in memory: what flattens it has to copy."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class SomeRows(nn.Module):
    """Gives a view of a part of what it computes, or of what its child gives."""

    def __init__(self, inside: nn.Module | None = None) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor) -> Tensor:
        return (self.inside(x) if self.inside else 2 * x)[1:3]


def _again() -> nn.Module:
    shared = nn.Tanh()
    return nn.Sequential(nn.Linear(6, 6), shared, nn.Linear(6, 6), shared)


def _frozen() -> nn.Module:
    return nn.Sequential(*(nn.Linear(6, 6) for _ in range(6))).requires_grad_(False)


@dataclass(frozen=True, slots=True)
class Model:
    """A model for the bug hunt. shown: as a learner reads it. make: builds it anew."""

    shown: str
    make: Callable[[], nn.Module]


#: From the plain to the special, so that the first that fails says most.
MODELS = (
    Model("`Sequential(Linear(6, 8), Tanh())`", lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh())),
    Model(
        "two such layers, one inside another `Sequential`",
        lambda: nn.Sequential(nn.Sequential(nn.Linear(6, 8), nn.Tanh()), nn.Linear(8, 4)),
    ),
    Model("six frozen `Linear(6, 6)` in a row", _frozen),
    Model(
        "a `Sequential` of its own kind, whose forward is `x + super().forward(x)`",
        lambda: nn.Sequential(Residual(nn.Linear(6, 6)), nn.Tanh()),
    ),
    Model(
        "`Sequential(Linear(6, 8), Unflatten(1, (2, 4)), Flatten())`",
        lambda: nn.Sequential(nn.Linear(6, 8), nn.Unflatten(1, (2, 4)), nn.Flatten()),
    ),
    Model(
        "the same with `x.transpose(1, 2)` before the `Flatten`",
        lambda: nn.Sequential(nn.Linear(6, 8), nn.Unflatten(1, (2, 4)), Swap(), nn.Flatten()),
    ),
    Model("`Sequential(Linear(6, 8), ReLU(inplace=True))`", lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(True))),
    Model("a net that uses one `Tanh` module in two places", _again),
    Model("a net whose last module gives `(2 * x)[1:3]`", lambda: nn.Sequential(nn.Linear(6, 8), SomeRows())),
    Model("a block that gives `[1:3]` of what the `Linear` inside it gives", lambda: SomeRows(nn.Linear(6, 8))),
)
ROWS = 64


def outputs_of(model: nn.Module, x: Tensor) -> list[tuple[nn.Module, Tensor]]:
    """What each call of a module gave, all of it still alive, in the order of the calls."""
    seen: list[tuple[nn.Module, Tensor]] = []
    # the module itself stands in the list: a hook that gave back anything would replace the output
    handles = [m.register_forward_hook(lambda m, _, out: seen.append((m, out))) for m in model.modules()]
    model(x)
    for handle in handles:
        handle.remove()
    return seen


def storage_bytes(tensors: list[Tensor]) -> int:
    """Bytes of the storages behind tensors that are all alive, each once and whole."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


#: What one may think never gives memory of its own.
NO_MEMORY_OF_THEIR_OWN = (nn.Sequential, nn.Flatten, nn.Unflatten)


def hook_slips(seen: list[tuple[nn.Module, Tensor]]) -> dict[str, int]:
    """Mistake → the number that it leads to."""
    leaf = [out for module, out in seen if not list(module.children())]
    by_module = {module: out for module, out in seen}
    every = [out for _, out in seen]
    once = {out.untyped_storage().data_ptr(): out for out in reversed(every)}
    last = {out.untyped_storage().data_ptr(): out for out in every}
    return {
        "all_modules": sum(out.nbytes for out in every),
        "leaves_only": storage_bytes(leaf),
        "by_class": storage_bytes([out for module, out in seen if type(module) not in NO_MEMORY_OF_THEIR_OWN]),
        "addresses": sum({out.data_ptr(): out.untyped_storage().nbytes() for out in every}.values()),
        "each_module_once": storage_bytes(list(by_module.values())),
        "part_of_storage": sum(out.nbytes for out in once.values()),
        "part_at_last": sum(out.nbytes for out in last.values()),
        "elements": sum(out.untyped_storage().nbytes() // out.element_size() for out in once.values()),
        "whole_each": sum(out.untyped_storage().nbytes() for out in every),
        "objects": sum(out.nbytes for out in {id(out): out for out in every}.values()),
        "only_result": every[-1].nbytes,
    }


HOOK_SAME = {"part_at_last": "part_of_storage", "whole_each": "all_modules"}


def bug_hooks(answer: Any) -> str:
    if not callable(answer) or isinstance(answer, type):
        raise Mistake("not_a_function", got=kind(answer))
    for case in MODELS:
        _examine(answer, case)
    return (
        f"Right for all {len(MODELS)} models: each piece of memory once and whole, whoever gives it, and no hook is "
        "left behind. It is what the modules give in forward. What the graph keeps is another list: that of "
        "`run.kept`."
    )


#: torch's registers of hooks that run for every module there is.
GLOBAL_HOOKS = (
    torch.nn.modules.module._global_forward_hooks,
    torch.nn.modules.module._global_forward_pre_hooks,
)


def put_back(before: list[dict]) -> int:
    """Take off the hooks for all modules that were not there before; how many they were."""
    left = 0
    for hooks, old in zip(GLOBAL_HOOKS, before, strict=True):
        for key in [key for key in hooks if key not in old]:
            del hooks[key]
            left += 1
    return left


def _examine(answer: Callable, case: Model) -> None:
    model, x = case.make(), torch.linspace(-1, 1, ROWS * 6).reshape(ROWS, 6)
    seen = outputs_of(model, x)
    with torch.no_grad():
        expected, slips, result = storage_bytes([out for _, out in seen]), hook_slips(seen), seen[-1][1].clone()
    del seen
    calls: list[Tensor] = []
    counter = model.register_forward_hook(lambda m, _, out: calls.append(out.detach().clone()))
    before = [dict(hooks) for hooks in GLOBAL_HOOKS]
    try:
        found = run(answer, model, x)
    finally:
        counter.remove()
        left = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
        left += put_back(before)
    value = number_of(found)
    if value is None:
        raise Mistake("not_a_number", got=kind(found), model=case.shown)
    if not calls:
        raise Mistake("not_called", model=case.shown)
    if not torch.equal(calls[-1], result):
        raise Mistake("changed", model=case.shown)
    if value != expected:
        facts = {"model": case.shown, "got": f"{value:,.10g}", "expected": f"{expected:,}"}
        for key, wrong in slips.items():
            if value == wrong:
                raise Mistake(HOOK_SAME.get(key, key), **facts)
        raise Mistake("reused" if value < expected else "other", **facts)
    if left:
        raise Mistake("hooks_left_on", model=case.shown, count=left)
    if len(calls) > 1:
        raise Mistake("ran_again", model=case.shown, count=len(calls))
    if not all(module.training for module in model.modules()):
        raise Mistake("mode_changed", model=case.shown)


OF = "For {model} it gives {got} bytes, and the results take {expected}. "

BUG_HOOKS = {
    "not_a_function": "`check` wants the function itself, `forward_bytes` without brackets; it got {got}, and that "
    "cannot be run.",
    "not_a_number": "For {model} the function gives {got}. What is wanted is a number of bytes.",
    "not_called": "For {model} the function gave a number without running the model: no hook can have seen anything.",
    "changed": "For {model} the model's own result is another one while your hooks are on. What a forward hook gives "
    "back takes the place of the output: give back nothing.",
    "all_modules": OF + "Print the class of the module in the hook. Whose result is the result of a `Sequential`?",
    "leaves_only": OF + "What a container computes itself is missing, and no module inside it gives that tensor. What "
    "tells two results apart, if not who gave them?",
    "by_class": OF
    + "Does a `Flatten` give memory of its own? A view where it can, and a copy where it must: the class "
    "does not tell. Ask the result which memory it looks into.",
    "addresses": OF + "A view may begin in the middle of a piece of memory. `output.data_ptr()` says where the view "
    "begins, `output.untyped_storage().data_ptr()` where the memory does.",
    "each_module_once": OF + "A module can run more than once in a forward, and each time it gives a new tensor. What "
    "is to be counted once is memory, not modules.",
    "part_of_storage": OF + "One of the results is a view of a part, and a view keeps all the memory that it looks "
    "into. A tensor's storage knows its own size.",
    "elements": OF + "That many numbers there are; how many bytes does each of them take?",
    "objects": OF + "Two tensor objects can look into one memory: a view is a new object. Compare the memory, with "
    "`tensor.untyped_storage().data_ptr()`.",
    "only_result": OF + "That is the last result alone.",
    "reused": OF + "Some results seem to be missing. A tensor that nobody holds is freed, and the next one may get its "
    "address: then two tensors look like one. Hold on to what you compare until you have added up.",
    "other": OF + "Print module, shape and storage size for each call of the hook, for this model alone.",
    "hooks_left_on": "The number is right, but for {model} {count} hook or hooks are still on afterwards: they would "
    "run in every later forward. `handle.remove()` takes one off.",
    "ran_again": "The number is right, but for {model} you ran the model {count} times. Each forward costs, and "
    "with a dropout no two are alike. One forward is enough.",
    "mode_changed": "The number is right, but {model} is in another mode afterwards: `eval()` stays on until somebody "
    "calls `train()`. Whoever measures leaves things as they were.",
}

# ------------------------------------------------------------------------------------------------------------ exercises

EXERCISES = {
    "mlp_bytes": Exercise(
        mlp_bytes,
        start="Write down the shape of what each of the two keeps, then the bytes of one number of it.",
        mistakes=MLP_BYTES,
    ),
    "attention_bytes": Exercise(
        attention_bytes,
        start="Go through `explicit` line by line, and ask of each operation which tensors its derivative is made of.",
        mistakes=ATTENTION_BYTES,
    ),
    "layer_bytes": Exercise(
        layer_bytes,
        start="Begin with what you have: MLP and attention, each with its numbers and its masks apart. Then the "
        "LayerNorms.",
        mistakes=LAYER_BYTES,
    ),
    "bug_hooks": Exercise(
        bug_hooks,
        start="Print the module's class and the output's shape inside the hook, for a small `Sequential`.",
        mistakes=BUG_HOOKS,
    ),
}
