"""What a player says at each position, in a sentence or three: what ran and where, what it made, what became kept and
why, what was released or stays because somebody else holds it.

Sentences are pieces of their own, since many of them come again and again. What they speak of is replayed event by
event, so that a long recording is told in one pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from helpers.data import Graph, MemoryEvent, Node, Recording, SavedTensor, TensorInfo, Timeline
from helpers.data.model import BUFFERS, CATEGORIES, OPTIMIZER, PARAMETERS

from . import ledger, text, why
from .memory_events import grad_name, seeds
from .memory_parts import category_words, parts_words
from .overview import error_words, failed_at

#: Things that a sentence names; of more it gives the number.
MOST_NAMED = 2
#: Letters of a learner's name that a sentence gives.
MOST_LETTERS = 48

#: Reasons that tell no more than that a tensor is used.
PLAIN = (why.GENERIC_INPUT, why.GENERIC_OUTPUT, why.GENERIC_CUSTOM)
#: Kinds of events whose sentences name the phase themselves.
NAMED = ("enter", "leave", "step", "stepped", "error")
#: Operations that make no memory: their result is their input, seen another way.
VIEWS = frozenset(
    (
        "t transpose permute view _unsafe_view _reshape_alias expand squeeze unsqueeze select slice split "
        "split_with_sizes chunk unbind detach alias narrow diagonal as_strided movedim unflatten unfold "
        "view_as_real view_as_complex"
    ).split()
)
PHASE = {"forward": "Forward.", "backward": "Backward.", "step": "Step.", "between": "In between."}


def closing(keeps: bool, count: int, nbytes: int, alive: int, live: int) -> str:
    """The sentences that end every caption. keeps: whether the recording ever keeps a tensor for backward.

    count, nbytes: what is kept and counts; alive: tensors that are kept and do not, since they are alive anyway.
    """
    kept = "only what is alive anyway" if alive else "nothing"
    kept = f"{text.plural(count, 'tensor')}, {text.exact(nbytes)}" if count else kept
    return (f"Still kept: {kept}. " if keeps else "") + f"Live: {text.exact(live)}."


@dataclass
class State:
    """What is true of storages at a moment."""

    size: dict[int, int]
    category: dict[int, str]
    live: set[int]
    keepers: dict[int, dict[int, None]] = field(default_factory=dict)  # storage → saved tensors that are kept

    @classmethod
    def before(cls, recording: Recording) -> State:
        return cls(
            {s.id: s.nbytes for s in recording.storages},
            {s.id: s.category for s in recording.storages},
            {s.id for s in recording.storages if s.born < 0},
        )

    def apply(self, event: MemoryEvent) -> None:
        self.live.update(event.allocated)
        self.size.update(event.resized)
        self.category.update(event.moved)
        self.live.difference_update(event.freed)

    def keep(self, saved: SavedTensor) -> None:
        for s in saved.storages:
            self.keepers.setdefault(s, {})[saved.id] = None

    def drop(self, saved: SavedTensor) -> None:
        for s in saved.storages:
            self.keepers.get(s, {}).pop(saved.id, None)

    def bytes_of(self, storages: Iterable[int]) -> int:
        return sum(self.size[s] for s in storages)


class Teller:
    """Captions for every position of a recording, and words for its nodes and kept tensors."""

    def __init__(self, recording: Recording, line: Timeline) -> None:
        self.recording = recording
        self.line = line
        self.before_all = "Before forward." if any(e.phase == "forward" for e in recording.events) else ""
        self.seeds = seeds(recording)
        self.becomes: dict[int, str] = {}  # storage → the .grad that it becomes
        for event in recording.events:
            if event.accumulated is not None:
                for s in event.accumulated.storages:
                    self.becomes.setdefault(s, grad_name(recording, event))
        self.ever_kept = {i for saved in recording.saved if saved.kept is not None for i in saved.storages}
        self.changed: dict[int, list[SavedTensor]] = {}
        self.kept_at: dict[int, list[SavedTensor]] = {}
        self.gone_at: dict[int, list[SavedTensor]] = {}
        for saved in recording.saved:
            if saved.kept is None or saved.state == "never saved" or saved.scalar:
                continue
            self.kept_at.setdefault(saved.kept, []).append(saved)
            if saved.released is not None:
                self.gone_at.setdefault(saved.released, []).append(saved)
            if saved.changed is not None:
                self.changed.setdefault(saved.changed, []).append(saved)
        self.reasons: dict[int, tuple[dict[str, str], frozenset[str]]] = {}
        self.again: int | None = None  # the random state that stands as long as a checkpoint runs its forward again
        self.ran: set[tuple[int | None, int | None]] = set()  # (pass, node) that has run
        self.leaves = {i for n in recording.nodes if n.leaf and not n.leaf.parameter for i in n.leaf.storages}
        self.passes: dict[int, dict[int, int]] = {}  # graph → leaves that its pass has reached, with their bytes
        self.marks: list[str] = []  # the profiler's marks that have begun and not ended
        self.second: set[int] = set()  # nodes that a checkpoint made as it ran its forward again
        self.now = -1  # the event that is told
        self.born: dict[tuple[str, ...], list[int]] = {}  # a storage's names → events at which storages got them
        for storage in recording.storages:
            if storage.names:
                self.born.setdefault(storage.names, []).append(storage.born)
        self.begun = False  # whether a forward has begun
        self.step_began = 0  # bytes of optimizer state before a step
        self.phase_began = 0  # total before the phase that runs

    # ------------------------------------------------------------------------------------------------ all captions

    def captions(self) -> list[list[str]]:
        """Sentences of each position's caption, without those that end it."""
        recording, out = self.recording, [self.first()]
        state = State.before(recording)
        for saved in self.kept_at.get(-1, ()):
            state.keep(saved)
        totals = self.line.totals
        before: MemoryEvent | None = None
        for event in recording.events:
            new = self.kept_at.get(event.index, ())
            held = {s: dict(state.keepers.get(s, {})) for saved in new for s in saved.storages}
            self.now = event.index
            self.begun = self.begun or event.phase == "forward"
            state.apply(event)
            for saved in new:
                state.keep(saved)
                if self.again is not None:
                    self.second.add(saved.node)
            for saved in self.gone_at.get(event.index, ()):
                state.drop(saved)
            sentences = []
            if before is None or before.phase != event.phase:
                if before is not None:
                    sentences.append(self.over(before, totals[event.index] - self.phase_began))
                self.phase_began = totals[event.index]
            if event.kind in NAMED or self.seeds.intersection(event.allocated):
                prefix = ""  # its own sentence names the phase
            else:
                prefix = PHASE[event.phase] if event.phase != "between" or self.begun else self.before_all
            sentences += [prefix, *getattr(self, f"tell_{event.kind}")(event, state, held), *self.changes(event)]
            if event.kind == "run":
                self.ran.add((event.graph, event.node))
            out.append([s for s in sentences if s])
            before = event
        return out

    def first(self) -> list[str]:
        if not self.recording.events:
            return ["Nothing ran that could be shown.", *self.recording.notes]
        row = self.line.rows[0]
        there = parts_words(row, category_words(self.recording))
        return ["Nothing has run yet.", f"Already there: {there}." if sum(row) else "No tensor is there yet."]

    def over(self, before: MemoryEvent, grown: int) -> str:
        """What ends a forward: how much more is live than before it."""
        if before.phase != "forward":
            return ""
        if not grown:
            return "Forward is over: as much is live as before it."
        return f"Forward is over: {text.exact(abs(grown))} {'more' if grown > 0 else 'less'} are live than before it."

    # ------------------------------------------------------------------------------------------------ by kind of event

    def tell_op(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        if event.op.startswith("profiler."):
            return [self.mark(event)]
        if text.forward_operation(event.op) == "_local_scalar_dense" and event.phase != "backward":
            return [
                f"A tensor's number is read{self.where(event.place, event.module)}, as `item()` does: no new memory."
            ]
        op = code(text.forward_operation(event.op)) if event.op else "An operation"
        if self.seeds.intersection(event.allocated):
            where = self.where(event.place)
            nbytes = text.exact(state.bytes_of(event.allocated))
            return [f"Backward starts from the seed gradient{where}: the number 1, {nbytes}."]
        made = self.made(event, state)
        if event.phase == "backward" and event.node is not None:
            node = self.recording.nodes[event.node]
            begins = text.forward_operation(event.op) == "get_rng_state" and event.allocated
            if begins and (node.name.startswith("CheckpointFunction") or self.noted(node)):
                self.again = event.allocated[0]
                return [
                    f"{code(node.name)} is due{self.where(node.place)}, but what it needs was not kept: the checkpoint "
                    f"runs that part of forward again.",
                    *self.keeping(event, state, held),
                ]
            if node.leaf:
                name = short(text.names(node.leaf.names)) or "an unnamed leaf"
                sums = f"The gradient for {name} meets the one that is there: {op} sums them"
                adds = text.forward_operation(event.op) in ("add", "add_")
                sentence = f"{sums}{adding(made)}." if adds else f"The gradient for {name} is taken over: {op} {made}."
            elif (event.graph, event.node) in self.ran and text.forward_operation(event.op) in ("add", "add_"):
                sentence = f"Two gradients of {self.meeting(event)} meet, and {op} sums them{adding(made)}."
            elif (event.graph, event.node) in self.ran:
                sentence = f"After {code(node.name)}{self.where(node.place, node.module)}: {op} {made}."
            elif self.again is not None:
                sentence = f"Forward again, for {code(node.name)}{self.where(node.place)}: {op} {made}."
            else:
                sentence = f"{code(node.name)} is at work{self.where(node.place, node.module)}: {op} {made}."
        elif made.startswith("made"):
            sentence = f"{op} has run{self.where(event.place, event.module)} and {made}."
        else:
            sentence = f"{op} has run{self.where(event.place, event.module)}: it {made}."
        out = [sentence, *self.keeping(event, state, held)]
        for s, size in event.resized:
            out.append(f"{capital(self.describe(s))} now has {text.exact(size)}.")
        if event.freed:
            out.append(self.freed(event, state))
        return out

    def mark(self, event: MemoryEvent) -> str:
        """What a mark for the profiler tells: `Optimizer` sets them around its methods, and a learner may."""
        begins = event.op.startswith("profiler._record_function_enter")
        if begins:
            self.marks.append(event.note)
        name = event.note if begins else self.marks.pop() if self.marks else ""
        method = re.fullmatch(r"Optimizer\.\w+#(\w+\.\w+)", name)
        where = self.where(event.place)
        if method:
            return f"`{method[1]}()` {'is called' if begins else 'is over'}{where}."
        name = f" {short(text.quoted(name))}" if name else ""
        return f"A mark{name} for PyTorch's profiler {'begins' if begins else 'ends'}{where}: no tensor is touched."

    def tell_free(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        out = []
        if self.again in event.freed and event.node is not None:
            self.again = None
            node = self.recording.nodes[event.node]
            over = f"What {code(node.name)}{self.where(node.place)} needs is there again."
            return [over, self.freed(event, state)]
        gone = self.gone_at.get(event.index, ())
        if gone:
            nodes = dict.fromkeys(saved.node for saved in gone)
            who = (
                code(self.recording.nodes[next(iter(nodes))].name)
                if len(nodes) == 1
                else text.plural(len(nodes), "node")
            )
            again = self.second.issuperset(nodes)
            graph, there = ("The graph of the second forward", " there") if again else ("A graph", "")
            out.append(f"{graph} is dropped{self.where(event.place)}, and with it what {who} kept{there}.")
            return [*out, *self.fate(gone, event, state)]
        where = "" if event.phase == "backward" and event.node is not None else self.where(event.place)
        return [*out, self.freed(event, state, where)]

    def tell_enter(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        graph = self.recording.graphs[event.graph]
        self.passes[graph.id] = {}
        call = "`backward()`" if graph.trigger == "backward" else "`autograd.grad()`"
        roots = list(dict.fromkeys(edge.node for edge in graph.roots if edge.node is not None))
        first = f": {code(self.recording.nodes[roots[0]].name)} runs first" if len(roots) == 1 else ""
        inside = "Inside the backward that runs, another one begins" if graph.parent is not None else f"{call} begins"
        out = [f"{inside}{self.where(graph.place)}{first}."]
        if graph.pruned:
            them = "it" if len(graph.pruned) == 1 else "them"
            out.append(f"{text.plural(len(graph.pruned), 'node')} will not run: this pass does not need {them}.")
        if graph.retained or graph.create_graph:
            out.append(f"Nothing will be released: {flag(graph)}.")
        return out

    def tell_run(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        node = self.recording.nodes[event.node] if event.node is not None else None
        if node is None:
            return [f"{code(event.op) if event.op else 'A node'} has run{self.where(event.place)}."]
        sentence = f"{code(node.name)} has run{self.where(node.place, node.module)}"
        used = self.kept_by(node)
        graph = self.recording.graphs[event.graph] if event.graph is not None else None
        stays = graph is not None and (graph.retained or graph.create_graph)
        out = [f"{sentence}{self.used(node, used)}."]
        if stays and used:
            out.append(f"Nothing is released: {flag(graph)}.")
        if event.freed:
            out.append(self.freed(event, state))
        return out

    def tell_accumulate(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        found = event.accumulated
        if found is None:
            return ["A gradient arrives at a leaf."]
        leaf = self.recording.nodes[found.node].leaf
        name = short(text.names(leaf.names)) if leaf and leaf.names else "an unnamed leaf"
        nbytes = state.bytes_of(found.storages)
        if event.graph is not None:
            self.passes.setdefault(event.graph, {})[found.node] = nbytes
        into = grad_name(self.recording, event)
        into = into if leaf and leaf.names and len(into) <= MOST_LETTERS + 16 else "its .grad"
        if found.first:
            out = [f"A gradient arrives at {name}: it becomes {into}, {text.exact(nbytes)}."]
        elif found.in_place:
            out = [f"A gradient has arrived at {name}: {into} now holds the sum, {text.exact(nbytes)}."]
        else:
            out = [f"A gradient arrives at {name}: its sum with what was there becomes {into}, {text.exact(nbytes)}."]
        if event.freed:
            out.append(self.freed(event, state))
        return out

    def tell_release(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        gone = self.gone_at.get(event.index, ())
        who = code(event.op) if event.op else "The graph"
        if not gone:
            return [f"{who} lets go of what it kept.", self.freed(event, state) if event.freed else ""]
        what = self.whats(gone)
        return [f"{who} lets go of {what}.", *self.fate(gone, event, state)]

    def tell_leave(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        graph = self.recording.graphs[event.graph]
        reached = self.passes.get(graph.id, {})
        call = "Backward" if graph.trigger == "backward" else "`autograd.grad()`"
        call = "The inner backward" if graph.parent is not None else call
        leaves = text.plural(len(reached), "leaf has its gradient", "leaves have their gradients")
        got = f": {leaves}, {text.exact(sum(reached.values()))}"
        out = [f"{call} is over{self.where(graph.place)}{got if reached else ''}."]
        if graph.retained or graph.create_graph:
            out.append(f"Its graph stays, with all that it keeps: {flag(graph)}.")
        return out

    def tell_step(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        self.step_began = self.optimizer_bytes(event)
        return [f"The step of {self.optimizer(event)} begins{self.where(event.place)}."]

    def tell_stepped(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        more = self.optimizer_bytes(event) - self.step_began
        grown = f": the optimizer now holds {text.exact(more)} more" if more > 0 else ""
        return [f"The optimizer's step is over{self.where(event.place)}{grown}."]

    def tell_error(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        words = error_words(self.recording) or "The code raised an error."
        out = [words if words.endswith((".", "!", "?")) else words + "."]
        node = failed_at(self.recording)[1]
        for saved in map(self.recording.saved.__getitem__, node.saved if node else ()):
            if saved.changed is not None and saved.changed < event.index and saved.released is None:
                by = self.recording.events[saved.changed]
                op = f" by {code(text.forward_operation(by.op))}" if by.op else ""
                out.append(
                    f"It kept {self.what(saved)}, which was changed in place{op}{self.where(by.place)} after that."
                )
                break
        return out

    # ----------------------------------------------------------------------------------------------- parts of sentences

    def where(self, place: int | None, module: str = "") -> str:
        """ " (line 6, in layers.0.norm)"."""
        found = ", ".join(filter(None, (text.line(self.recording, place), short(text.in_module(module)))))
        return f" ({found})" if found else ""

    def made(self, event: MemoryEvent, state: State) -> str:
        """ "made y, 32×16 float32, 2,048 B", or what it did without making memory."""
        if not event.allocated:
            operation = text.forward_operation(event.op)
            if operation.endswith("_") and not operation.endswith("__"):
                return f"changed {self.written(event, operation)} in place"
            if operation in VIEWS:
                return "only looks at its input another way, no new memory"
            return "took no new memory"
        if len(event.allocated) > MOST_NAMED:
            nbytes = text.exact(state.bytes_of(event.allocated))
            return f"made {text.plural(len(event.allocated), 'tensor')}, {nbytes} in all"
        return "made " + " and ".join(self.new(s, state) for s in event.allocated)

    def written(self, event: MemoryEvent, operation: str) -> str:
        """What an operation changed in place, as far as can be told: a node that keeps it knows."""
        storages = {s for saved in self.changed.get(event.index, ()) for s in saved.storages}
        if operation.startswith("_foreach_"):
            return "tensors"
        return self.describe(storages.pop()) if len(storages) == 1 else "a tensor"

    def new(self, s: int, state: State) -> str:
        storage = self.recording.storages[s]
        names = short(text.names(storage.names)) if storage.names else ""
        form = text.tensor(TensorInfo(storage.shape, storage.dtype)) if storage.dtype else ""
        will = f" (will be {short(self.becomes[s])})" if s in self.becomes and not storage.names else ""
        return ", ".join(filter(None, (names, form, text.exact(state.size[s])))) + will

    def describe(self, s: int) -> str:
        """A storage in few words: its names, the .grad that it was, or what made it."""
        storage = self.recording.storages[s]
        if storage.names:
            later = any(storage.born < born <= self.now for born in self.born[storage.names])
            return f"{'the earlier ' if later else ''}{short(text.names(storage.names))}"
        if s in self.seeds:
            return "the seed gradient"
        if s in self.becomes:
            return short(self.becomes[s])
        if not storage.op:
            return "a tensor"
        born = self.recording.events[storage.born] if 0 <= storage.born < len(self.recording.events) else None
        op = code(text.forward_operation(storage.op))
        if born is not None and born.phase == "forward":
            return f"the result of {op}"
        return f"what {op} made"

    def freed(self, event: MemoryEvent, state: State, where: str = "") -> str:
        """ "Nobody holds the result of `mm` any more, and no node keeps it: 2,048 B are freed."."""
        if not event.freed:
            return f"Nothing is held any more of what was{where}."
        amount = text.exact(state.bytes_of(event.freed))
        if len(event.freed) > MOST_NAMED:
            what = f"{text.plural(len(event.freed), 'tensor')}"
            return f"Nobody holds these {what} any more{where}: {amount} are freed."
        what = self.those(event.freed, "or")
        nobody = ""
        if event.phase == "forward" and self.ever_kept and not self.ever_kept.intersection(event.freed):
            nobody = f", and no node keeps {'it' if len(event.freed) == 1 else 'them'}"
        return f"Nobody holds {what} any more{where}{nobody}: {amount} are freed."

    def keeping(self, event: MemoryEvent, state: State, held: dict) -> list[str]:
        """What became kept, by whom, and why."""
        new = self.kept_at.get(event.index, ())
        if not new:
            return []
        nodes = list(dict.fromkeys(saved.node for saved in new))
        who = code(self.recording.nodes[nodes[0]].name) if len(nodes) == 1 else text.plural(len(nodes), "node")
        verb = "keeps" if len(nodes) == 1 else "keep"
        runs = self.recording.nodes[event.node] if event.phase == "backward" and event.node is not None else None
        if runs is not None and nodes == [n for n in nodes if n != runs.id][:1]:
            made = self.recording.nodes[nodes[0]].name
            who = f"A new {who}" if made == runs.name else who  # the one that runs is not meant
        packed = [saved for saved in new if saved.packed]
        if packed and len(packed) == len(new):
            return [self.packing(who, packed, state)]
        if len(new) > MOST_NAMED or len(nodes) > 1:
            mine = {s for saved in new for s in saved.storages if not held.get(s)}
            more = sum(
                state.size[s] for s in mine if s in state.live and state.category[s] not in (PARAMETERS, BUFFERS)
            )
            return [f"{who} {verb} {text.plural(len(new), 'tensor')} for backward: {text.exact(more)} not kept before."]
        by_storage: dict[tuple, list[SavedTensor]] = {}
        for saved in new:
            by_storage.setdefault(saved.storages or (("one", saved.id),), []).append(saved)
        parts: list[tuple[str, str]] = []
        for found in by_storage.values():
            saved = found[0]
            times = " (twice)" if len(found) == 2 else ""
            because = self.why(saved)
            if saved.packed:
                parts.append((f"{self.what(saved)}, packed by a hook", because))
                continue
            anyway = self.alive(saved, state)
            others = [k for s in saved.storages for k in held.get(s, {})]
            if anyway:
                size = f"a {anyway} that is alive anyway"
            elif others:
                other = self.recording.nodes[self.recording.saved[others[0]].node]
                same = other.id != saved.node and other.name == self.recording.nodes[saved.node].name
                size = f"kept already by {'another ' if same else ''}{code(other.name)}"
            else:
                size = text.exact(state.bytes_of(s for s in saved.storages if s in state.live) or saved.nbytes)
            parts.append((f"{self.what(saved)}{times}, {size}", because))
        if len(parts) == 2 and parts[0][1] == parts[1][1]:
            because = re.sub(r"\bit$", "them", parts[0][1])
            return [f"{who} keeps {parts[0][0]}, and {parts[1][0]}: {because}."]
        return [f"{who} keeps {'; and '.join(f'{what}: {because}' for what, because in parts)}."]

    def packing(self, who: str, packed: Sequence[SavedTensor], state: State) -> str:
        one = len(packed) == 1
        what = self.what(packed[0]) if one else text.plural(len(packed), "tensor")
        if all(map(ledger.to_compute, packed)):
            return f"{who} keeps a note instead of {what}: checkpoint will compute {'it' if one else 'them'} again."
        there = {s for saved in packed for s in saved.storages if s in state.live}
        anyway = {s for s in there if state.category[s] in (PARAMETERS, BUFFERS)}
        place, alive = state.bytes_of(there - anyway), state.bytes_of(anyway)
        its = "its" if one else "their"
        stands = f"; {text.exact(place)} stand in {its} place" if place else ""
        if alive:
            stands += f", and {text.exact(alive)} that are alive anyway" if place else ""
            stands = stands or f"; what stands in {its} place is alive anyway, {text.exact(alive)}"
        if one and not there and len(packed[0].packed) <= MOST_LETTERS:
            stands = f": {text.quoted(packed[0].packed)} stands in its place"
        return f"{who} should keep {what}, but a hook packs {'it' if one else 'them'}{stands}."

    def meeting(self, event: MemoryEvent) -> str:
        """The tensor at which two gradients meet after a node has run: one that another node that ran used too."""
        nodes = self.recording.nodes
        mine = [edge for edge in nodes[event.node].edges if edge.node is not None]
        others = {e for graph, n in self.ran if graph == event.graph and n != event.node for e in nodes[n].edges}
        found = {edge for edge in mine if edge in others or mine.count(edge) > 1}
        node = nodes[found.pop().node] if len(found) == 1 else None
        if node is None or len(node.outputs) > 1:
            return "one tensor"
        names = node.leaf.names if node.leaf else node.names
        made = self.recording.events[node.event].op if node.event is not None else ""
        result = f"the result of {code(text.forward_operation(made))}" if made else "one tensor"
        return short(text.names(names)) if names else result

    def kept_by(self, node: Node) -> list[SavedTensor]:
        """The tensors that a node keeps at any time, numbers left out."""
        found = map(self.recording.saved.__getitem__, node.saved)
        return [s for s in found if s.kept is not None and not s.scalar and s.state != "never saved"]

    def used(self, node: Node, used: Sequence[SavedTensor]) -> str:
        """What a node that ran needed of forward: ": it used its input x (needed for the gradient of W)"."""
        if not used:
            if node.note or node.kind == "edge":
                return ""  # what is inside cannot be seen
            return ": it had kept no tensor" if node.kind == "custom" else ": it needed no tensor of forward"
        if len(used) > MOST_NAMED:
            return f": it used the {len(used):,} tensors that it kept"
        if all(map(ledger.to_compute, used)):
            return f": it used {self.whats(used)}, computed again"
        parts: dict[str, None] = {}
        for saved in used:
            because = self.why(saved)
            if saved.packed:
                parts[f"{self.what(saved)}, which a hook brought back"] = None
            elif because in PLAIN:
                parts[self.what(saved)] = None
            else:
                parts[f"{self.what(saved)} ({because})"] = None
        return ": it used " + listed(list(parts), "and")

    def whats(self, many: Sequence[SavedTensor]) -> str:
        """What a node keeps, in few words."""
        if len(many) > MOST_NAMED:
            return text.plural(len(many), "tensor")
        return listed(list(dict.fromkeys(map(self.what, many))), "and")

    def fate(self, gone: Sequence[SavedTensor], event: MemoryEvent, state: State) -> list[str]:
        """What becomes of tensors that are let go: freed, or held by somebody else."""
        storages = list(dict.fromkeys(s for saved in gone for s in saved.storages))
        freed = [s for s in storages if s in event.freed]
        kept = [s for s in storages if s in state.live and state.keepers.get(s)]
        alive = [s for s in storages if s in state.live and s not in kept]
        out = []
        one = len(storages) == 1
        if freed:
            subject = "it" if one else "them" if len(freed) == len(storages) else self.those(freed)
            out.append(f"Nothing else needs {subject}: {text.exact(state.bytes_of(freed))} are released.")
        if kept:
            others = dict.fromkeys(self.recording.saved[k].node for s in kept for k in state.keepers[s])
            mine = {self.recording.nodes[saved.node].name for saved in gone}
            name = self.recording.nodes[next(iter(others))].name
            who = (
                f"{'Another ' if name in mine else ''}{code(name)}"
                if len(others) == 1
                else f"{len(others):,} other nodes"
            )
            verb = "keeps" if len(others) == 1 else "keep"
            out.append(
                f"{who} still {verb} {'it' if one else self.those(kept)}: {text.exact(state.bytes_of(kept))} stay."
            )
        if alive:
            what = self.those(alive)
            kinds = {state.category[s] for s in alive}
            because = "alive anyway" if kinds <= {PARAMETERS, BUFFERS} else "held elsewhere"
            verb = "stays" if len(alive) == 1 else "stay"
            out.append(f"{capital(what)} {verb}, {because}: {text.exact(state.bytes_of(alive))}.")
        if not storages:
            out.append(f"No memory was kept for {'it' if len(gone) == 1 else 'them'}.")
        rest = [s for s in event.freed if s not in storages]
        if rest:
            what = self.those(rest)
            verb = "goes" if len(rest) == 1 else "go"
            out.append(f"{capital(what)} {verb} too, {text.exact(state.bytes_of(rest))}.")
        return out

    def those(self, storages: Sequence[int], last: str = "and") -> str:
        """Storages in few words: "y and the result of `mm`", "what `mul` and `pow` made", "3 tensors"."""
        if len(storages) > MOST_NAMED:
            return text.plural(len(storages), "tensor")
        found = [self.describe(s) for s in storages]
        if len(found) == 2:
            for head, tail in (("what ", " made"), ("the result of ", "")):
                if all(words.startswith(head) and words.endswith(tail) for words in found):
                    a, b = (words.removeprefix(head).removesuffix(tail) for words in found)
                    if a == b:
                        return f"the two results of {a}"
                    return f"the results of {a} and {b}" if not tail else f"what {a} and {b} made"
        return listed(found, last)

    def changes(self, event: MemoryEvent) -> list[str]:
        """Kept tensors that this event changed in place."""
        found = self.changed.get(event.index, ())
        found = [saved for saved in found if saved.kept != event.index]
        if not found:
            return []
        who = code(self.recording.nodes[found[0].node].name)
        return [f"Careful: {who} keeps that tensor, and will not run with it changed."]

    def what(self, saved: SavedTensor) -> str:
        """ "its input x", "its output", "its input (mat2)", "the dropout mask"."""
        role = "its output" if saved.output else "its input"
        if saved.names:
            return f"{role} {short(text.names(saved.names))}"
        if ledger.masks(self.recording, saved):
            return "the dropout mask"
        node = self.recording.nodes[saved.node]
        known = why.ARGUMENTS.get(text.operation(node.name), ())
        plain = saved.argument in ("result", "self", "input", "output") and (saved.output or len(known) < 2)
        if plain and saved.position is None:
            return role
        if not saved.output and saved.position is None and saved.argument in why.ROLES:
            return why.ROLES[saved.argument]
        if saved.argument.startswith("attribute "):
            return f"its attribute `{short(text.quoted(saved.argument[10:]))}`"
        return f"{role} `{short(ledger.formal(saved))}`"

    def why(self, saved: SavedTensor) -> str:
        node = self.recording.nodes[saved.node]
        if ledger.masks(self.recording, saved):
            return why.MASK.partition(": ")[2]
        if node.id not in self.reasons:
            names = {k: short(v) for k, v in ledger.argument_names(self.recording, node).items()}
            self.reasons[node.id] = names, ledger.idle_arguments(node)
        names, idle = self.reasons[node.id]
        operation = text.operation(node.name)
        return why.reason(operation, saved.argument, saved.output, node.kind == "custom", names, idle)

    def alive(self, saved: SavedTensor, state: State) -> str:
        """ "parameter", "leaf" or "buffer" where a tensor is alive anyway."""
        kinds = {state.category[s] for s in saved.storages if s in state.live}
        if PARAMETERS in kinds:
            return "leaf" if self.leaves.issuperset(saved.storages) else "parameter"
        return "buffer" if BUFFERS in kinds else ""

    def noted(self, node: Node) -> bool:
        """Whether a checkpoint left a note in the place of something that a node should have kept."""
        return any(ledger.to_compute(self.recording.saved[s]) for s in node.saved)

    def optimizer(self, event: MemoryEvent) -> str:
        return short(text.quoted(text.message(event))) if event.note else "the optimizer"

    def optimizer_bytes(self, event: MemoryEvent) -> int:
        return self.line.rows[event.index + 1][CATEGORIES.index(OPTIMIZER)]

    # ------------------------------------------------------------------------------------------------ nodes and tensors

    def node_words(self, node: Node) -> str:
        """What a node is, in a sentence: its line, what it made, what it keeps."""
        if node.leaf:
            kind = "parameter" if node.leaf.parameter else "leaf"
            names = short(text.names(node.leaf.names)) or "unnamed"
            form = text.tensor(TensorInfo(node.leaf.shape, node.leaf.dtype, node.leaf.device))
            return f"{kind.capitalize()} {names}, {form}, {text.exact(node.leaf.nbytes)}: gradients arrive in its .grad"
        made = short(text.names(node.names)) if node.names else ""
        form = text.tensor(node.outputs[0]) if len(node.outputs) == 1 and node.outputs[0] else ""
        made = ", ".join(filter(None, (made, form)))
        made = f", makes {made}" if made else ""
        kept = self.kept_by(node)
        keeps = f"; keeps {self.whats(kept) if kept else 'nothing'}"
        return f"{text.quoted(node.name)}{self.where(node.place, node.module)}{made}{keeps}"

    def saved_words(self, saved: SavedTensor) -> str:
        """ "its input x, 32×64 float32, 8,192 B: needed for the gradient of W"."""
        form = text.tensor(TensorInfo(saved.shape, saved.dtype, saved.device)) if saved.dtype else ""
        size = "" if saved.packed and not saved.nbytes else text.exact(saved.nbytes)
        packed = f"packed: {short(text.quoted(saved.packed))}" if saved.packed else ""
        return ", ".join(filter(None, (self.what(saved), form, size, packed))) + f": {self.why(saved)}"


def adding(made: str) -> str:
    """ " in place", or what a sum of gradients made."""
    return ": it " + made if made.startswith("made") else " in place"


def flag(graph: Graph) -> str:
    return "create_graph=True" if graph.create_graph else "retain_graph=True"


def code(name: str) -> str:
    """A name of torch's as code: `MulBackward0`."""
    return f"`{short(text.quoted(name))}`"


def short(name: str) -> str:
    return text.short_name(name, MOST_LETTERS)


_HEADS = ("the earlier ", "the result", "the two results", "the seed gradient", "the .grad", "what `", "a tensor")


def capital(words: str) -> str:
    """A sentence's first letter large, unless it begins with a learner's own name."""
    return words[0].upper() + words[1:] if words.startswith(_HEADS) else words


def listed(parts: Sequence[str], last: str) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}"
