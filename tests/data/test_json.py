"""A recording to JSON and back: equal, and the same text twice."""

import json
import pickle
import random

import pytest

from helpers.data import Recording, RecordingFormatError, dumps, loads

from .samples import ALL, by_hand


@pytest.mark.parametrize("name", ALL)
def test_round_trip(name):
    recording = ALL[name]()
    text = dumps(recording)
    back = loads(text)
    assert isinstance(back, Recording) and back == recording and hash(back) == hash(recording)
    assert dumps(back) == text == dumps(recording)
    assert loads(text.encode()) == recording


def test_plain_json_without_defaults():
    document = json.loads(dumps(by_hand()))
    assert list(document) == ["format", "schema", "recording"] and document["schema"] == 1
    recording = document["recording"]
    assert recording["events"][2] == {"index": 2, "kind": "enter", "phase": "backward", "place": 1, "graph": 0}
    assert recording["nodes"][0]["edges"] == [{"node": 1}]
    assert "pruned" in recording["graphs"][0] and "resized" not in recording["events"][0]


def test_any_text_survives():
    from dataclasses import replace

    recording = by_hand()
    name = 'w<1>|{x} "q" \\n \n\u2028\x00é😀\ud800'[:-1]
    storages = (replace(recording.storages[0], names=(name,)), *recording.storages[1:])
    recording = replace(recording, storages=storages, notes=("</script>", name))
    assert loads(dumps(recording)) == recording


def test_what_json_cannot_hold_is_refused_on_writing():
    from dataclasses import replace

    recording = replace(by_hand(), span=(float("nan"), 1))
    with pytest.raises(ValueError):
        dumps(recording)


# Every reference that points nowhere, every id that is not its index, every kind that is none.
BROKEN = {
    "an id": lambda r: r["storages"][1].update(id=7),
    "a storage of a saved tensor": lambda r: r["saved"][0].update(storages=[99]),
    "a node of an edge": lambda r: r["nodes"][0]["edges"][0].update(node=3),
    "a negative node": lambda r: r["nodes"][0]["edges"][0].update(node=-1),
    "a saved tensor of a node": lambda r: r["nodes"][0].update(saved=[3]),
    "a place": lambda r: r["nodes"][0].update(place=2),
    "a source of a frame": lambda r: r["places"][0]["frames"][0].update(source=1),
    "a storage of a leaf": lambda r: r["nodes"][1]["leaf"].update(storages=[5]),
    "a root": lambda r: r["graphs"][0]["roots"][0].update(node=3),
    "an event of a graph": lambda r: r["graphs"][0].update(event=9),
    "a graph's parent": lambda r: r["graphs"][0].update(parent=1),
    "an event of a storage": lambda r: r["storages"][1].update(born=9),
    "an end of a storage": lambda r: r["storages"][1].update(freed=9),
    "a category": lambda r: r["storages"][0].update(category="weights"),
    "a category in a move": lambda r: r["events"][5].update(moved=[[1, "weights"]]),
    "a state": lambda r: r["saved"][0].update(state="gone"),
    "an event of a saved tensor": lambda r: r["saved"][0].update(released=99),
    "an event of a node": lambda r: r["nodes"][0].update(event=9),
    "a storage freed": lambda r: r["events"][6].update(freed=[9]),
    "a storage freed twice": lambda r: r["events"][8].update(freed=[1]),
    "a storage freed before it was made": lambda r: r["events"][0].update(freed=[4]),
    "an accumulated node": lambda r: r["events"][7]["accumulated"].update(node=9),
    "an accumulated storage": lambda r: r["events"][7]["accumulated"].update(storages=[9]),
    "a kind": lambda r: r["events"][0].update(kind="operation"),
    "a phase": lambda r: r["events"][0].update(phase="sideways"),
    "the order of events": lambda r: r["events"].reverse(),
    "a type": lambda r: r["storages"][0].update(nbytes="8"),
    "a truth for a number": lambda r: r["storages"][0].update(nbytes=True),
    "a negative size": lambda r: r["storages"][0].update(nbytes=-8),
    "a field that is none": lambda r: r["storages"][0].update(colour="red"),
    "a field that is missing": lambda r: r["storages"][0].pop("nbytes"),
    "the cell": lambda r: r.update(cell=3),
}


@pytest.mark.parametrize("what", BROKEN)
def test_damage_is_named(what):
    document = json.loads(dumps(by_hand()))
    BROKEN[what](document["recording"])
    with pytest.raises(RecordingFormatError, match="^This recording is damaged: "):
        loads(json.dumps(document))


def test_every_fold_works_on_what_loads(monkeypatch):
    """Random damage is refused, or leaves a recording that every fold can read."""
    from helpers.data import kept_at, kept_bytes, live_storages, phases, timeline

    text, chance = dumps(by_hand()), random.Random(1)
    accepted = 0
    for _ in range(2000):
        document = json.loads(text)
        part = document["recording"][chance.choice(["storages", "events", "saved", "graphs"])]
        item = chance.choice(part)
        field = chance.choice(list(item))
        item[field] = chance.choice([None, -1, 0, 1, 3, 8, 99, [], [0], [1, 2], [[1, 4]], "other", "", True])
        try:
            recording = loads(json.dumps(document))
        except RecordingFormatError:
            continue
        accepted += 1
        assert timeline(recording).peak >= -1 and phases(recording)
        for moment in range(-1, len(recording.events)):
            live_storages(recording, moment)
            kept_bytes(recording, moment)
            kept_at(recording, moment)
    assert accepted > 20


def test_pickle_and_copy():
    recording = by_hand()
    assert pickle.loads(pickle.dumps(recording)) == recording
