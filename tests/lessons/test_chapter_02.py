"""Chapter 02's exercises: each wrong answer gets its own message, each stub waits, each solution is right."""

import importlib

import pytest
import torch

from helpers.lessons import chapter_02
from helpers.lessons.chapter_02 import EXERCISES, MODELS, SETTINGS, WHOLE
from helpers.lessons.check import NOT_ATTEMPTED, RAISED, RIGHT, judge

from . import own
from .exercises import every_message_is_somebody_s, gets_its_message, short_and_warm
from .wrong_answers_02 import ANSWER, GLOBAL, NOT_HELD, RIGHT_HOOKS, attention, formula, hooks, layer, mlp
from .wrong_answers_02 import WRONG as ANSWERS

# `helpers.lessons.check` is the function
check_module = importlib.import_module("helpers.lessons.check")


@pytest.fixture(autouse=True)
def strict(monkeypatch):
    monkeypatch.setattr(check_module, "strict", True)


def judged(exercise, source):
    namespace = {"torch": torch, "nn": torch.nn}
    own.cell(source, namespace)
    return judge(exercise, namespace[ANSWER[exercise]])


@pytest.mark.parametrize(("exercise", "key", "source"), ANSWERS)
def test_wrong_answer_gets_its_message(exercise, key, source):
    gets_its_message(judged(exercise, source), exercise, key)


def test_every_message_is_somebody_s():
    every_message_is_somebody_s(EXERCISES, ANSWERS, ANSWER, "chapter_02")


@pytest.mark.parametrize(("exercise", "key"), [(e, k) for e in EXERCISES for k in EXERCISES[e].mistakes])
def test_message_is_short_and_warm(exercise, key):
    short_and_warm(EXERCISES[exercise].mistakes[key])


@pytest.mark.parametrize("exercise", ["mlp_bytes", "attention_bytes", "layer_bytes"])
@pytest.mark.parametrize("blank", ["...", "None", "n + ..."])
def test_stub_waits(exercise, blank):
    outcome = judged(exercise, formula(exercise, blank))
    assert (outcome.status, outcome.mistake) == (NOT_ATTEMPTED, None), outcome.text
    assert outcome.message.endswith(EXERCISES[exercise].start)


@pytest.mark.parametrize("exercise", EXERCISES)
@pytest.mark.parametrize("answer", [None, ...])
def test_nothing_waits(exercise, answer):
    assert judge(exercise, answer).text.endswith(EXERCISES[exercise].start)
    assert judge(exercise, answer).status == NOT_ATTEMPTED


MEASURED = """
from helpers.lessons.chapter_02 import MLP, Setting, kept_of

def mlp_bytes(b, s, h):
    return torch.tensor(kept_of(Setting(b, s, h, 1), MLP))
"""
SOLUTIONS = [
    ("mlp_bytes", mlp(), "19·s·b·h"),
    ("mlp_bytes", formula("mlp_bytes", "19.0 * n"), "19·s·b·h"),
    ("mlp_bytes", MEASURED, "19·s·b·h"),
    ("attention_bytes", attention(), "11·s·b·h + 5·a·s²·b"),
    ("attention_bytes", formula("attention_bytes", "n * (11 + 5 * a * s / h)"), "11·s·b·h + 5·a·s²·b"),
    ("attention_bytes", formula("attention_bytes", "n * (1.1 * 10 + 0.1 * 50 * a * s / h)"), "11·s·b·h + 5·a·s²·b"),
    ("mlp_bytes", formula("mlp_bytes", "1.9 * n * 10"), "19·s·b·h"),
    ("layer_bytes", layer("(1.6 * number + 0.2 * mask) * n * 10", more="1.6 * s * b * 10"), "you even count the mean"),
    ("layer_bytes", layer(), "What is measured has 16·s·b bytes more"),
    ("layer_bytes", layer(more="16 * s * b"), "you even count the mean and the deviation"),
    ("bug_hooks", RIGHT_HOOKS, "Right for all 10 models"),
    ("bug_hooks", hooks(("handle.remove()", "handle.remove()\n    print(len(outputs))")), "Right for all 10 models"),
    (
        "bug_hooks",
        hooks(("    model(x)\n", "    with torch.no_grad():\n        model(x)\n")),
        "Right for all 10 models",
    ),
]


@pytest.mark.parametrize(("exercise", "source", "said"), SOLUTIONS)
def test_solution_is_right(exercise, source, said):
    outcome = judged(exercise, source)
    assert outcome.status == RIGHT, outcome.text
    assert said in outcome.message
    assert outcome == judged(exercise, source), "the same answer again"


@pytest.mark.parametrize("it", [*SETTINGS, *WHOLE], ids=lambda it: it.whole)
def test_what_is_measured_is_what_the_solutions_say(it):
    n, pairs = it.sbh, it.ass
    mlp_part = chapter_02.kept_of(it, chapter_02.MLP)
    attention_part = chapter_02.kept_of(it, chapter_02.ATTENTION)
    norms = chapter_02.kept_of(it, chapter_02.NORMS)
    assert mlp_part == (9 * it.number + it.mask) * n
    assert attention_part == (5 * it.number + it.mask) * n + (2 * it.number + it.mask) * pairs
    assert norms == 2 * it.number * n + 16 * it.s * it.b
    assert mlp_part + attention_part + norms == sum(chapter_02.parts(it).values()), "no part is left out"


@pytest.mark.parametrize("name", ["mlp_slips", "attention_slips", "layer_slips"])
def test_no_two_slips_give_one_number(name):
    """Over all settings; of exercise 3 the first alone does not tell what `number` and `mask` are for."""
    settings = WHOLE if name == "layer_slips" else SETTINGS[:2]
    found = {}
    for key, values in {
        key: tuple(getattr(chapter_02, name)(it)[key] for it in settings) for key in getattr(chapter_02, name)(WHOLE[0])
    }.items():
        found.setdefault(values, []).append(key)
    same = [keys for keys in found.values() if len(keys) > 1]
    assert same == {
        "layer_slips": [["input_each", "residuals"]],
        "attention_slips": [["not_dropped", "no_softmax"]],
    }.get(name, [])


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.shown)
def test_models_results_are_counted_by_another_way(case):
    """Distinct storages, found by asking each pair of results whether they overlap."""
    seen = [out for _, out in chapter_02.outputs_of(case.make(), torch.rand(chapter_02.ROWS, 6))]
    storages = []
    for out in seen:
        if not any(torch._C._is_alias_of(out, other) for other in storages):
            storages.append(out)
    assert sum(out.untyped_storage().nbytes() for out in storages) == chapter_02.storage_bytes(seen)


def test_each_of_the_mean_models_refuses_a_fix_that_the_plain_ones_let_through():
    """How far each half-right answer gets: the models are in this order for a reason."""
    shown = [case.shown for case in MODELS]

    def fails_at(source):
        message = judged("bug_hooks", source).message
        return next(i for i, words in enumerate(shown) if words in message)

    sources = {key: source for exercise, key, source in ANSWERS if exercise == "bug_hooks"}
    assert fails_at(sources["all_modules"]) == 0
    assert fails_at(sources["leaves_only"]) == 3
    assert fails_at(sources["objects"]) == 4
    assert fails_at(sources["by_class"]) == 5
    assert fails_at(sources["each_module_once"]) == 7
    assert fails_at(sources["part_of_storage"]) == 8
    assert fails_at(sources["addresses"]) == 9
    assert fails_at(NOT_HELD) == 2


def test_an_error_of_the_learner_s_is_told_as_one():
    outcome = judged("bug_hooks", hooks(("handle.remove()", "handles.remove()")))
    assert outcome.status == RAISED and "TypeError" in outcome.message


@pytest.mark.parametrize("register", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_a_hook_on_all_modules_is_counted_and_taken_off(register):
    """Even where the learner's code raises; a hook of the learner's own notebook stays."""
    before = [dict(hooks) for hooks in chapter_02.GLOBAL_HOOKS]
    handle = getattr(torch.nn.modules.module, register)(lambda *_: None)
    try:
        with_it = [dict(hooks) for hooks in chapter_02.GLOBAL_HOOKS]
        stays = GLOBAL.replace("register_module_forward_hook", register).replace("module, inputs, output:", "*_:")
        assert judged("bug_hooks", GLOBAL).mistake == "hooks_left_on"
        for broken in (stays, stays.replace("    model(x)", "    1 / 0")):
            assert judged("bug_hooks", broken).status != RIGHT
            assert [dict(hooks) for hooks in chapter_02.GLOBAL_HOOKS] == with_it
        assert judged("bug_hooks", RIGHT_HOOKS).status == RIGHT
    finally:
        handle.remove()
    assert [dict(hooks) for hooks in chapter_02.GLOBAL_HOOKS] == before


def test_a_hook_left_on_does_not_outlive_the_check():
    source = hooks(("        handle.remove()", "        pass"))
    assert judged("bug_hooks", source).mistake == "hooks_left_on"
    assert judged("bug_hooks", RIGHT_HOOKS).status == RIGHT
