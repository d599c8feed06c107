"""What holds for the exercises of every chapter: each known mistake has its own message, and somebody gets it."""

import re

from helpers.lessons.check import CHAPTERS, WRONG


def gets_its_message(outcome, exercise, key):
    assert (outcome.status, outcome.mistake) == (WRONG, key), outcome.text
    assert len(outcome.message.split()) >= 12
    assert outcome.data == {"schema": 1, "exercise": exercise, "status": "wrong", "mistake": key}


def every_message_is_somebody_s(exercises, wrong_answers, answer_names, chapter):
    told = {(exercise, key) for exercise, key, _ in wrong_answers}
    assert told == {(name, key) for name, exercise in exercises.items() for key in exercise.mistakes}
    assert set(exercises) == {name for name, at in CHAPTERS.items() if at == chapter} == set(answer_names)


def short_and_warm(message):
    assert message.count("`") % 2 == 0 and len(message) < 420
    assert not re.search(r"\b(simply|just|obviously|of course|wrong!)\b|!", message)
