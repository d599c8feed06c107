"""What the player says: every number in a caption is the recording's, and the twin tells the same story."""

import re
from functools import cache

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from helpers import record
from helpers.data import MemoryEvent, phases, state_at, timeline
from helpers.figures import graph_figure, kept_figure, player_figure
from helpers.figures.overview import error_words
from helpers.figures.player import MOST_STEPS
from helpers.figures.player_words import State, Teller
from tests.figures.player_samples import SAMPLES as REAL
from tests.figures.recordings import SAMPLES as BY_HAND

SAMPLES = {**BY_HAND, **REAL}
BYTES = r"([\d,]+) B"


@cache
def captions(name):
    recording = SAMPLES[name]()
    return [" ".join(parts) for parts in Teller(recording, timeline(recording)).captions()]


def total(pattern, words):
    return sum(int(found.replace(",", "")) for found in re.findall(pattern, words))


def size_at(recording, event, s):
    size = recording.storages[s].nbytes
    for other in recording.events[: event.index + 1]:
        size = dict(other.resized).get(s, size)
    return size


def bare(words):
    """Without what stands in quotes: a learner's own names."""
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', words)


@pytest.mark.parametrize("name", SAMPLES)
def test_bytes_made_and_freed(name):
    """What a caption says was made, freed and added up is what the event did."""
    recording = SAMPLES[name]()
    resized = any(event.resized for event in recording.events)
    checked = 0
    for event, words in zip(recording.events, captions(name)[1:], strict=True):
        words = bare(words)
        size = (lambda s: size_at(recording, event, s)) if resized else (lambda s: recording.storages[s].nbytes)  # noqa: B023
        freed = sum(map(size, event.freed))
        assert total(rf"{BYTES} are (?:freed|released)\.", words) + total(rf"goe?s? too, {BYTES}\.", words) == freed
        if event.kind == "op" and event.allocated and event.resized == ():
            made = sum(map(size, event.allocated))
            if "seed gradient" in words and "starts" in words:
                assert f"the number 1, {made:,} B." in words
            elif "runs that part of forward again" not in words:
                sentence = re.search(r"made [^.]*?(?:\.[^ ][^.]*?)*(?:\.(?= |$)|$)", words)[0]
                assert total(BYTES, sentence) == made, words
                checked += 1
    assert checked or not any(event.allocated for event in recording.events if event.kind == "op")


@pytest.mark.parametrize("name", SAMPLES)
def test_what_becomes_kept_is_said_with_its_reason(name):
    recording = SAMPLES[name]()
    for event, words in zip(recording.events, captions(name)[1:], strict=True):
        new = [s for s in recording.saved if s.kept == event.index and s.state != "never saved" and not s.scalar]
        if event.kind != "op" or not new:
            assert "keeps its" not in words.replace("still keeps its", "")
            continue
        assert "keep" in words or "hook packs" in words
        if len(new) > 2:
            assert re.search(rf"keeps? (?:a note instead of )?{len(new)} tensors|keep {len(new)} tensors", words), words
        elif not new[0].packed:
            assert ": " in words.split(" keeps ")[1]


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_let_go_stays_only_if_held(name):
    """ "Nothing else needs it" where it is freed, "still keeps" where another node does, "stays" where neither."""
    recording = SAMPLES[name]()
    for event, words in zip(recording.events, captions(name)[1:], strict=True):
        gone = [s for s in recording.saved if s.released == event.index and not s.scalar]
        if event.kind != "release" or not gone:
            continue
        storages = {i for s in gone for i in s.storages}
        kept = {
            i
            for s in recording.saved
            if not s.scalar and state_at(s, event.index) in ("live", "packed", "changed in place")
            for i in s.storages
        }
        live = {i for i in storages if recording.storages[i].freed is None or recording.storages[i].freed > event.index}
        assert ("Nothing else needs" in words) == bool(storages & set(event.freed))
        assert (" still keep" in words) == bool(storages & kept & live)
        assert ("alive anyway" in words or "held elsewhere" in words) == bool((storages & live) - kept)


@pytest.mark.parametrize("name", SAMPLES)
def test_gradients_and_phases(name):
    recording = SAMPLES[name]()
    said = captions(name)
    before = ""
    for event, words in zip(recording.events, said[1:], strict=True):
        if event.kind == "accumulate":
            assert re.search("A gradient (arrives|has arrived) at ", words)
            first = event.accumulated.first
            assert first == ("it becomes" in words) and first != ("was there" in words or "now holds the sum" in words)
        if event.kind == "enter":
            graph = recording.graphs[event.graph]
            assert ("retain_graph=True" in words or "create_graph=True" in words) == graph.retained
            assert ("will not run" in words) == bool(graph.pruned)
        if event.kind == "step":
            assert words.startswith(("The step of ", "Forward is over"))
        assert ("Forward is over" in words) == (before == "forward" != event.phase)
        before = event.phase
    assert said[0].startswith("Nothing ")


@pytest.mark.parametrize("name", SAMPLES)
def test_captions_are_short_sentences(name):
    """One line, at most 60 words (an error's message aside), a stop at the end, no closing sentence of their own."""
    recording = SAMPLES[name]()
    lengths = []
    for p, words in enumerate(captions(name)):
        assert words.isprintable() and "  " not in bare(words) and words.endswith((".", "!", "?"))
        assert "Still kept" not in words and "Live:" not in words and "None" not in words and ".." not in bare(words)
        if p and recording.events[p - 1].kind == "error":
            assert error_words(recording) in words
            continue
        lengths.append(len(bare(words).split()))
        assert lengths[-1] <= 60, words
    assert sum(lengths) / len(lengths) <= 30


def test_the_tone():
    said = captions("layer")
    assert said[2] == (
        "Forward. `mm` has run (line 35) and made 32×16 float32, 2,048 B. "
        "`MmBackward0` keeps its input x, 8,192 B: needed for the gradient of W."
    ).replace("line 35", re.search(r"line \d+", said[2])[0])
    assert "`PowBackward0` keeps its input y, kept already by `ReluBackward0`: " in said[7]
    assert "`PowBackward0` lets go of its input y. `ReluBackward0` still keeps it: 2,048 B stay." in said[19]
    assert "it used its output y (tells where the input was positive)." in said[21]
    assert "`ReluBackward0` lets go of its output y. Nothing else needs it: 2,048 B are released." in said[22]
    assert "x stays, held elsewhere: 8,192 B." in said[28]
    assert said[30] == "Backward. A gradient arrives at W: it becomes W.grad, 4,096 B."


def test_errors_say_which_node_and_why():
    words = captions("version_error")[-1]
    assert "as SinBackward0 of line" in words and "modified by an inplace operation" in words
    assert re.search(r"It kept its input y, which was changed in place by `add_` \(line \d+\) after that\.$", words)
    changed = captions("version_error")[3]
    assert re.search(r"`add_` has run \(line \d+\): it changed y in place\. Careful: ", changed)
    assert changed.endswith("`ExpBackward0` keeps that tensor, and will not run with it changed.")
    assert re.search(r"What it had kept was released by the backward on line \d+\.$", captions("second_time")[-1])
    assert "mat1 and mat2 shapes cannot be multiplied" in captions("forward_error")[-1]


def test_checkpoint_says_that_forward_runs_again():
    for name in ("checkpointed", "reentrant"):
        said = captions(name)
        assert sum("the checkpoint runs that part of forward again" in words for words in said) == 2
        assert any("Forward again, for" in words and "`addmm` made" in words for words in said)
        assert sum("needs is there again" in words for words in said) == 2
    assert any(
        "keeps a note instead of its input: checkpoint will compute it again." in w for w in captions("checkpointed")
    )
    assert any(words.startswith("Inside the backward that runs, another one begins") for words in captions("reentrant"))
    assert not any("Forward again" in words for words in captions("accumulation"))


def test_packed_retained_and_meeting_gradients():
    assert any("`ExpBackward0` should keep its output, but a hook packs it" in words for words in captions("offloaded"))
    assert any("which a hook brought back" in words for words in captions("offloaded"))
    said = captions("retained")
    assert sum("Nothing is released: retain_graph=True." in words for words in said) == 2
    assert any("Its graph stays, with all that it keeps: retain_graph=True." in words for words in said)
    assert any(words.startswith("Backward. Two gradients of x meet") for words in said)
    assert any("The gradient for x meets the one that is there: `add_` sums them in place." in words for words in said)
    assert any("Nothing is released: create_graph=True." in words for words in captions("double"))


def said_of(run):
    recording = run.recording
    return [" ".join(parts) for parts in Teller(recording, timeline(recording)).captions()]


def test_reading_a_number_is_no_forward():
    """item() at the end of a round opens no forward, and is of the round that it ends."""
    recording, said = REAL["loop"](), captions("loop")
    reads = [p for p, words in enumerate(said) if "A tensor's number is read" in words]
    assert len(reads) == 3 and reads[-1] == len(recording.events)
    assert all(re.search(r"In between\. .* \(line \d+\), as `item\(\)` does: no new memory\.$", said[p]) for p in reads)
    forwards = [first for phase, first, _ in phases(recording) if phase == "forward"]
    assert len(forwards) == 3 and all(recording.events[first].op == "aten.t" for first in forwards)
    assert sum("Forward is over" in words for words in said) == 3


def test_marks_of_the_optimizer():
    said = captions("loop")
    assert re.fullmatch(r"Before forward\. `SGD\.zero_grad\(\)` is called \(line \d+\)\.", said[1])
    assert re.fullmatch(r"Before forward\. `SGD\.zero_grad\(\)` is over \(line \d+\)\.", said[2])
    for method in ("zero_grad", "step"):
        assert sum(f"`SGD.{method}()` is called" in words for words in said) == 3
        assert sum(f"`SGD.{method}()` is over" in words for words in said) == 3
    x = torch.ones(2)
    with record() as run:
        with torch.profiler.record_function("mine"):
            x + 1
    assert said_of(run)[1].startswith("A mark mine for PyTorch's profiler begins (line")
    assert said_of(run)[-1].startswith("A mark mine for PyTorch's profiler ends (line")
    assert not any("In between" in words or "Before forward" in words for words in said_of(run))


def test_what_a_hook_packs_may_be_alive_anyway():
    """A checkpoint's second forward puts leaves in the place of leaves: they are no bytes more."""
    model, x = torch.nn.Linear(16, 16), torch.ones(8, 16, requires_grad=True)
    layers = torch.nn.Sequential(model, torch.nn.ReLU())
    with record() as run:
        h = checkpoint(layers, x, use_reentrant=False)
        checkpoint(layers, h, use_reentrant=False).sum().backward()
    packs = [words for words in said_of(run) if "hook packs" in words]
    assert "packs them; 512 B stand in their place, and 1,024 B that are alive anyway." in packs[0]
    assert "packs them; what stands in their place is alive anyway, 1,536 B." in packs[1]


def test_the_graph_of_a_second_forward_is_called_so():
    recording = REAL["reentrant"]()
    told = Teller(recording, timeline(recording))
    told.captions()
    made = [n.id for n in recording.nodes if n.event is not None and recording.events[n.event].phase == "backward"]
    assert told.second and told.second <= set(made)
    saved = next(s for s in recording.saved if s.node in told.second)
    told.gone_at = {0: [saved]}
    event = MemoryEvent(0, "free", "backward")
    assert told.tell_free(event, State.before(recording), {})[0].startswith(
        "The graph of the second forward is dropped"
    )
    told.gone_at = {0: [next(s for s in recording.saved if s.node not in told.second)]}
    assert told.tell_free(event, State.before(recording), {})[0].startswith("A graph is dropped")


def test_two_nodes_of_one_name():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        a = x * 1
        loss = (a.pow(2) + a.pow(3)).sum()
        (g,) = torch.autograd.grad(loss, x, create_graph=True)
        g.sum().backward()
    said = said_of(run)
    assert sum("`PowBackward0` keeps its input a, 16 B" in words for words in said) == 1
    another = "`PowBackward0` keeps its input a, kept already by another `PowBackward0`"
    assert sum(another in words for words in said if words.startswith("Forward.")) == 1
    assert any("A new `PowBackward0` keeps its input a, " in words for words in said if "is at work" in words)
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        a = x * 1
        (a.pow(2) + a.pow(3)).sum().backward()
    assert any(" Another `PowBackward0` still keeps it: 16 B stay." in words for words in said_of(run))


def test_nodes_made_in_backward_are_of_the_line_that_called_it():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = x.tanh().sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        g.pow(2).sum().backward()
    recording = run.recording
    node = next(n for n in recording.nodes if n.name == "TanhBackwardBackward0")
    assert node.place == recording.graphs[0].place
    line = recording.place_of(node.place).outer.line
    assert any(f"`TanhBackwardBackward0` has run (line {line})" in words for words in said_of(run))
    assert any(f"`TanhBackward0` has run (line {line - 1})" in words for words in said_of(run))


def test_a_sum_of_gradients_is_told_once():
    assert any(
        words.endswith("A gradient has arrived at x: x.grad now holds the sum, 48 B.") for words in captions("retained")
    )
    with record() as run:
        (torch.ones(4, requires_grad=True) * 2).sum().backward()
    assert any("A gradient arrives at an unnamed leaf: it becomes its .grad, 16 B." in words for words in said_of(run))
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        y = x.exp()
        (y.sin() + y.cos()).sum().backward()
        (x.exp() * x).sum().backward()
        h = (x * 1).tanh()
        (h * h.detach() * (x * 1).sin().mul(3)).sum()
    said = [words for words in said_of(run) if "Two gradients of" in words]
    assert [re.search("Two gradients of (.*) meet", words)[1] for words in said] == ["y", "x"]


def test_an_earlier_tensor_of_a_name():
    x = torch.ones(4, requires_grad=True)
    with record() as run:
        for _ in range(2):
            loss = (x * x).sum()
            loss.backward()
    said = said_of(run)
    assert sum("the earlier loss" in words for words in said) == 1
    assert not any("the earlier loss" in words for words in said[: len(said) // 2])
    assert loss.requires_grad


def test_a_graph_that_is_dropped():
    x = torch.ones(4, 4, requires_grad=True)
    with record() as run:
        y = x.exp()
        z = y.sin()
        del y, z
    words = run.player.text
    assert "and with it what `ExpBackward0` kept. Nothing else needs it: 64 B are released." in words


# ---------------------------------------------------------------------------------------------------------------- twins


@pytest.mark.parametrize("name", SAMPLES)
def test_twin(name):
    """Code, graph, ledger, memory in short, and each step with its number, its caption and the bytes after it."""
    recording = SAMPLES[name]()
    figure = player_figure(recording)
    n = len(recording.events)
    assert figure.text.startswith(f"Recording of {n:,} event{'s' * (n != 1)}, step by step\n\n")
    assert all(c.isprintable() or c == "\n" for c in figure.text)
    if len(recording.graphs) <= 1:
        for part in (graph_figure(recording), kept_figure(recording)):
            assert part.text in figure.text
    assert "\nMemory: " in figure.text and "\nEvents:" not in figure.text
    totals, said = timeline(recording).totals, captions(name)
    for twin in (figure.text, figure.text_full()):
        heading, *steps = twin[twin.rindex("\nSteps:") + 1 :].split("\n")
        numbers = []
        for step in steps:
            number, words = re.fullmatch(r" +([\d,]+)  (.*)", step).groups()
            p = int(number.replace(",", ""))
            numbers.append(p)
            assert words.startswith(said[p] + " ") and words.endswith(f" Live: {totals[p]:,} B.")
        if twin == figure.text_full() or n <= MOST_STEPS:
            assert heading == "Steps:" and numbers == list(range(n + 1))
        else:
            assert "print(run.player.text_full()) gives each." in heading and f"Steps: {n:,}, " in heading
            assert numbers == sorted(set(numbers)) and len(numbers) <= MOST_STEPS
            assert {0, n, timeline(recording).peak + 1} <= set(numbers)


def test_an_error_comes_before_all_else():
    lines = player_figure(REAL["second_time"]()).text.split("\n")
    assert "raised an error as TanhBackward0" in lines[2]


def test_run_shows_the_player(tmp_path):
    x = torch.ones(3, requires_grad=True)
    with record() as run:
        (x * 2).sum().backward()
    figure = run.player
    assert run._repr_mimebundle_() == figure._repr_mimebundle_() and str(run) == figure.text
    page = run.save(tmp_path / "run.html").read_text(encoding="utf-8")
    assert figure.html in page and page.index("<script>") < page.index("<details")
    assert run.save(tmp_path / "run.svg").exists()
