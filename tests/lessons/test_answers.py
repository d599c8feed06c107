"""The learner's file: kept, merged, moved aside when broken, and never in the way."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from helpers.lessons import answers
from tools.stamp import ROOT


@pytest.fixture
def file(tmp_path, monkeypatch):
    """An answers file of one's own, not there yet, in a folder that is not there yet."""
    path = tmp_path / "a folder" / "answers.json"
    monkeypatch.setenv(answers.VARIABLE, str(path))
    monkeypatch.setattr(answers, "_unsaved", {})
    return path


def written(file):
    return json.loads(file.read_text(encoding="utf-8"))


def new_kernel(monkeypatch):
    """What another kernel, or this one restarted, has in memory: nothing."""
    monkeypatch.setattr(answers, "_unsaved", {})


def test_kept_over_a_restart(file, monkeypatch):
    answers.put("predictions", "kept", {"answer": 10_240, "rows": [True, None, "é"]})
    new_kernel(monkeypatch)
    assert answers.get("predictions", "kept") == {"answer": 10_240, "rows": [True, None, "é"]}
    assert written(file) == {
        "schema": 1,
        "predictions": {"kept": {"answer": 10_240, "rows": [True, None, "é"]}},
        "quizzes": {},
        "exercises": {},
        "verdicts": {},
    }
    assert os.listdir(file.parent) == ["answers.json"]


def test_any_text_can_be_kept(file, monkeypatch):
    answers.put("predictions", "odd \ud800", "\udfff\u2028\x00")
    new_kernel(monkeypatch)
    assert answers.get("predictions", "odd \ud800") == "\udfff\u2028\x00"


@pytest.mark.parametrize("where", ["~no-such-user/answers.json", "", "."])
def test_a_place_that_is_no_file_stops_nobody(where, monkeypatch, tmp_path):
    for home in ("HOME", "XDG_DATA_HOME", "USERPROFILE", "LOCALAPPDATA"):
        monkeypatch.setenv(home, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(answers.VARIABLE, where)
    new_kernel(monkeypatch)
    answers.put("predictions", "kept", 1)
    assert answers.get("predictions", "kept") == 1


def test_what_is_got_is_a_copy(file):
    answers.put("quizzes", "01", {"leaf": {"first": "a"}})
    answers.get("quizzes", "01")["leaf"]["first"] = "b"
    assert answers.get("quizzes", "01") == {"leaf": {"first": "a"}}


@pytest.mark.parametrize("section", ["prediction", "", "schema"])
def test_no_other_section(file, section):
    with pytest.raises(ValueError, match="predictions, quizzes, exercises, verdicts"):
        answers.put(section, "x", 1)


def test_off_writes_nothing(tmp_path, monkeypatch):
    for home in ("HOME", "XDG_DATA_HOME", "USERPROFILE", "LOCALAPPDATA"):
        monkeypatch.setenv(home, str(tmp_path))
    monkeypatch.setenv(answers.VARIABLE, "OFF")
    new_kernel(monkeypatch)
    answers.put("predictions", "kept", 1)
    assert answers.path() is None and answers.get("predictions", "kept") == 1
    assert list(tmp_path.rglob("*")) == []


def test_in_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.delenv(answers.VARIABLE)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert answers.path().name == "answers.json"
    assert "gradients-and-intermediates" in answers.path().parts
    assert answers.path().is_absolute()


def test_a_read_only_place_keeps_in_memory_and_says_nothing(tmp_path, monkeypatch, capfd, recwarn):
    # A file where the folder should be refuses even root, who may write into a read-only folder.
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv(answers.VARIABLE, str(tmp_path / "no folder" / "answers.json"))
    new_kernel(monkeypatch)
    answers.put("predictions", "kept", 1)
    assert answers.get("predictions", "kept") == 1
    assert capfd.readouterr() == ("", "") and not recwarn.list


def test_a_full_disk_leaves_the_old_file_whole_and_nothing_beside_it(file, monkeypatch):
    answers.put("predictions", "old", 1)
    before = file.read_bytes()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(json, "dump", full)
        answers.put("predictions", "new", 2)
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == ["answers.json"]
    assert answers.get("predictions", "new") == 2 and answers.get("predictions", "old") == 1
    # Room again: the next write takes along what waited.
    answers.put("predictions", "newer", 3)
    assert written(file)["predictions"] == {"old": 1, "new": 2, "newer": 3}


def test_an_interrupt_leaves_the_old_file_whole(file, monkeypatch):
    answers.put("predictions", "old", 1)
    before = file.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            answers.put("predictions", "new", 2)
    assert file.read_bytes() == before
    assert os.listdir(file.parent) == ["answers.json"]
    answers.put("predictions", "newer", 3)
    assert written(file)["predictions"] == {"old": 1, "new": 2, "newer": 3}


BROKEN = [
    b"",
    b'{"schema": 1, "predictions": {"kept"',
    b"\xff\xfe\x00",
    b"[]",
    b'"text"',
    b'{"predictions": {}}',
    b'{"schema": true}',
    b'{"schema": 1, "quizzes": []}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("content", BROKEN, ids=lambda c: repr(c[:20]))
def test_a_broken_file_is_kept_aside_and_a_new_one_begun(file, content):
    file.parent.mkdir()
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="answers-broken-1.json"):
        assert answers.get("predictions", "kept") is None
    answers.put("predictions", "kept", 1)
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="answers-broken-2.json"):
        answers.put("predictions", "again", 2)
    assert written(file)["predictions"] == {"again": 2}
    assert (file.parent / "answers-broken-1.json").read_bytes() == content
    assert (file.parent / "answers-broken-2.json").read_bytes() == content


def test_a_later_schema_is_left_alone(file):
    file.parent.mkdir()
    file.write_text('{"schema": 2, "anything": 1}')
    answers.put("predictions", "kept", 1)
    assert file.read_text() == '{"schema": 2, "anything": 1}'
    assert answers.get("predictions", "kept") == 1


def test_two_kernels_keep_both_their_answers(file, tmp_path):
    """Two processes that write at the same time, many times."""
    code = """
    import sys
    from helpers.lessons import answers
    for at in range(60):
        answers.put("exercises", f"{sys.argv[1]}{at}", at)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    both = [subprocess.Popen([*command, name], cwd=ROOT) for name in "ab"]
    assert [process.wait(120) for process in both] == [0, 0]
    assert written(file)["exercises"] == {f"{name}{at}": at for name in "ab" for at in range(60)}
    assert os.listdir(file.parent) == ["answers.json"]


def test_a_lock_left_behind_stops_nobody(file, monkeypatch):
    monkeypatch.setattr(answers, "LOCK_WAIT", 0.05)
    file.parent.mkdir()
    lock = file.with_name("answers.json.lock")
    lock.write_text("")
    answers.put("predictions", "kept", 1)
    assert written(file)["predictions"] == {"kept": 1} and lock.exists()
    os.utime(lock, (0, 0))
    answers.put("predictions", "again", 2)
    assert written(file)["predictions"] == {"kept": 1, "again": 2} and not lock.exists()


def test_clear_one_name_in_whatever_section(file, monkeypatch):
    for section, name in (("predictions", "kept"), ("exercises", "kept"), ("quizzes", "01")):
        answers.put(section, name, 1)
    assert answers.clear("kept") == ["kept"]
    new_kernel(monkeypatch)
    assert answers.all() == {"predictions": {}, "quizzes": {"01": 1}, "exercises": {}, "verdicts": {}}
    assert answers.clear("kept") == []
    assert answers.clear() == ["01"]
    assert not any(written(file)[section] for section in answers.SECTIONS)


def test_cleared_in_memory_too(monkeypatch):
    new_kernel(monkeypatch)
    answers.put("verdicts", "A3b", 1)
    assert answers.clear() == ["A3b"]
    assert answers.get("verdicts", "A3b") is None


def test_a_file_deleted_by_hand_is_gone(file):
    answers.put("predictions", "kept", 1)
    file.unlink()
    assert answers.get("predictions", "kept") is None
