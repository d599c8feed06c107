"""Watches a block of torch code while it runs once. What it sees becomes a Recording; what it touches it puts back."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import get_ident
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.nn.modules import module as _module
from torch.optim import optimizer as _optimizer

from ..data.allocator import AllocatorHistory
from ..data.model import BUFFERS, GRADIENTS, INPUTS, OPTIMIZER, PARAMETERS, Recording
from . import private
from .build import EventNote, GraphNote, Rooted, StorageNote, freeze, spell_out
from .collector import eased, uncollected
from .cuda import CountedEvents, Counters
from .errors import RecordError
from .interrupts import Interrupts, held
from .kernels import Kernels
from .nodes import Nodes
from .operations import Operation, dense
from .places import Places, variables
from .tensors import PLAIN, geometry, name_of, shape_of, storages_of

Tensor = torch.Tensor
aten = torch.ops.aten

#: Devices whose memory we can follow by their storages.
DEVICES = ("cpu", "cuda", "meta")
_FOLLOWED = set(DEVICES)

#: Why there is no graph although there was one.
GONE = (
    "Operations that need a gradient ran, but nothing that they made was alive at the end, and their graph went with "
    "it. Keep the result: in a variable inside the block, or as the value that the function returns. Or call backward "
    "there."
)

#: Operations that make the product inside F.linear.
_PRODUCTS = {"aten.mm", "aten.bmm", "aten.mv"}

_active: Recorder | None = None
_lock = threading.Lock()


class _StorageWatch(weakref.ref):
    __slots__ = ("key", "note")


class _Mode(private.DispatchMode):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.operation = recorder.operation

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.operation(func, args, kwargs or {})


class Recorder:
    """One recording: `start`, the watched code, `stop`.

    graph: False says that no graph is wanted (code without gradients); memory is recorded just the same.
    names: extra names, a dict name → tensor (a state_dict, say); matched by memory, so detached tensors do.
    kernels: True measures what kernels hold inside themselves too, with PyTorch's profiler (CPU only, and slow).
    history: True lets the CUDA allocator note every block with its address and stack: `snapshot`, once stopped.
    """

    #: Tests set it: a fault of our own then raises instead of ending the recording with a note.
    strict = False

    def __init__(
        self,
        *,
        graph: bool = True,
        names: dict[str, Tensor] | None = None,
        kernels: bool = False,
        history: bool = False,
    ) -> None:
        self.graph_wanted = graph
        self.history = history
        self.snapshot: dict[str, Any] | None = None
        self.kernels = Kernels() if kernels else None
        self.given = dict(names or {})
        self.events: list[EventNote] = []
        self.storages: list[StorageNote] = []
        self.live: dict[int, StorageNote] = {}
        self.nodes = Nodes(self)
        self.made: dict[int, EventNote] = {}  # node's sequence number → the op event that made it
        self._done: EventNote | None = None  # the last operation that has ended
        self.graphs: list[GraphNote] = []
        self.notes: list[str] = []
        self.before = EventNote("free", "between", None)  # stands for "before the recording"; its index stays -1
        self.broken = False
        self._pending: list[tuple[Any, EventNote]] = []
        self._outputs: dict[int, Any] = {}  # node id → weak reference to the tensor it made
        self._modules: list[str | Rooted] = []
        self._paths: dict[int, tuple[Any, Rooted]] = {}
        self._roots: list[tuple[str, str]] = []  # of modules called on their own: variable's name, class
        self._lazy: list[tuple[Any, int]] = []  # modules with parameters still to come, and their root
        self._leaves: dict[int, list] = {}  # id → [weak reference to the leaf, its gradient's storages now]
        self._forward = False
        self._steps: list[int | None] = []  # places of the optimizer steps that run
        self._passes: list[GraphNote] = []
        self._running: list[int | None] = []  # for each pass: the node inside its formula, None between nodes
        self._last: list[int | None] = []  # for each pass: the node that ran last
        self._last_line: Any = None
        self._ops: dict[int, Operation] = {}
        self._failure: tuple | None = None  # the exception that left a backward pass last: its id, the pass, the node
        self._interrupts = Interrupts()
        self._linear: Any = None  # inside F.linear that adds its bias in place: see `_linear_runs`
        self._blind: Any = None  # while a formula runs that must not see our mode: the guard that hides it

    # ---------------------------------------------------------------- start and stop

    @held
    def start(self, boundary: FrameType, *, include_boundary: bool) -> None:
        global _active
        with _lock:
            if _active is not None:
                raise RecordError(
                    "A recording is running already, and a recording cannot watch another one. End the outer `with "
                    "record()` block first, or take the inner one out."
                )
            _active = self
        try:
            self._interrupts.begin()
            self.thread = get_ident()
            self.capabilities = private.capabilities()
            self.notes.extend(self.capabilities.missing)
            self.places = Places(boundary, include_boundary=include_boundary)
            self._stack = ExitStack()
            self._stack.enter_context(eased())
            self._prepare_names()
            if self.kernels is not None:
                self._stack.enter_context(self.kernels)
            if self.history:
                self._stack.enter_context(self._noting())
            if not private.RAW:
                self.hooks = private.DefaultHooks()
                self._stack.enter_context(self.hooks.followed())
            self.sequence = self._sequence = private.sequence_number()
            if (counters := Counters.found()) is not None:
                self.events = CountedEvents(counters, self.before)
                self.events.read()
            self._stack.enter_context(private.engine_entry(self._backward))
            self._stack.enter_context(private.random_states(self._random_state))
            self._stack.enter_context(private.linear_calls(self._linear_runs))
            for hook in (
                _module.register_module_forward_pre_hook(self._enter_module),
                _module.register_module_forward_hook(self._leave_module, always_call=True),
                _optimizer.register_optimizer_step_pre_hook(self._enter_step),
                _optimizer.register_optimizer_step_post_hook(self._leave_step),
            ):
                self._stack.callback(hook.remove)
            self._stack.enter_context(_Mode(self))
        except BaseException:
            self._tear_down()
            self._interrupts.end()
            raise

    @held
    def stop(self, error: BaseException | None = None, result: Any = None) -> Callable[[], Recording]:
        """End the watching and put everything back. What it gives makes the Recording, once somebody wants it.

        `result` keeps a call's value alive till here.
        """
        try:
            return self._stop(error)
        finally:
            self._interrupts.end()

    @uncollected
    def _stop(self, error: BaseException | None) -> Callable[[], Recording]:
        try:
            self._stack.close()
            if self.kernels is not None:
                self._guarded(self.kernels.note)
            with private.no_dispatch():
                self._guarded(self._finish, error)
        finally:
            self._tear_down()
        nodes = self.nodes
        spell_out(self.events, self.storages, nodes.notes, self._roots)
        notes, allocator = self._allocator()
        return partial(
            _frozen, self.events, self.storages, nodes.saved, nodes.notes, self.graphs, self.places, notes, allocator
        )

    @contextmanager
    def _noting(self) -> Iterator[None]:
        if not torch.cuda.is_available():
            raise RecordError(
                "history=True asks the CUDA allocator to note its blocks, and here is no CUDA device. "
                "as_if_on_gpu(…).allocator shows what it would do."
            )
        with private.memory_history() as take:
            yield
            self.snapshot = take()

    def _allocator(self) -> tuple[list[str], AllocatorHistory | None]:
        """The allocator's counts, where something lay on its device; and the notes, with what there is to say of it."""
        events = self.events
        if not isinstance(events, CountedEvents):
            return self.notes, None
        devices = {s.device for s in self.storages if s.device.startswith("cuda")}
        own = f"cuda:{events.counters.device}"
        if own not in devices:
            return self.notes, None
        notes = list(self.notes)
        if len(devices) > 1:
            notes.append(
                f"The allocator's counts are those of {own} alone; storages lie on {', '.join(sorted(devices))}."
            )
        events.read()
        return notes, events.counters.history(self.before, events)

    def refused(self, error: BaseException | None) -> BaseException | None:
        """The error that the watched code raised; our own sentence again where torch's compiler has wrapped it."""
        sentence = self.places.refusal
        if error is None or isinstance(error, RecordError) or not sentence or sentence not in str(error):
            return error
        return RecordError(sentence).with_traceback(error.__traceback__)

    def _tear_down(self) -> None:
        global _active
        self._blind = None
        stack = getattr(self, "_stack", None)
        try:
            if stack is not None:
                stack.close()
        finally:
            for storage in self.storages:
                storage.watch = None
            if getattr(self, "places", None) is not None and self.places.boundary is not None:
                self.places.close()
            self.live.clear()
            self._pending.clear()
            self._outputs.clear()
            self._leaves.clear()
            self._paths.clear()
            self._lazy.clear()
            self.given.clear()
            self.nodes.watches.clear()
            self.nodes.recorder = None
            with _lock:
                if _active is self:
                    _active = None

    def _finish(self, error: BaseException | None) -> None:
        self._settle()
        waiting, self._lazy = self._lazy, []
        for module, prefix in waiting:
            if module() is not None:
                self._call_parameters(module(), prefix)
        if error is not None:
            event = EventNote("error", self._phase(), self.places.of_traceback(error.__traceback__))
            event.note = f"{type(error).__name__}: {error}"
            if self._failure is not None and self._failure[0] == id(error):  # it came out of a backward pass
                event.phase = "backward"
                event.graph, event.node = self._failure[1:]
                if event.node is not None:
                    event.op = self.nodes.notes[event.node].name
                    place = self.nodes.notes[event.node].place
                    event.place = event.place if place is None else place
            self.events.append(event)
        if self.places.boundary is not None and self.places.include_boundary:
            self._read_names(self.places.boundary)
        self._read_globals()
        roots = self._living()
        if not self.graphs and self.graph_wanted:
            self._capture_end()
            if not self.graphs and self.made:
                self.notes.append(GONE)
        self.nodes.unmark(roots)
        if self.nodes.watches:  # nodes whose tensors we did not know; look at every tensor there is
            self.nodes.unmark(t.grad_fn for t in _all_tensors() if t.grad_fn is not None)
        if not any(e.kind != "free" for e in self.events):
            self.notes.append(
                "record() saw no operation of torch. Operations that ran before the block, and functions that were "
                "only defined in it, are not seen: call the code inside the block."
            )

    def _living(self) -> list[Any]:
        """grad_fn of every tensor that is still alive and that an operation of ours made."""
        alive = (reference() for reference in self._outputs.values())
        return [t.grad_fn for t in alive if t is not None and t.grad_fn is not None]

    def _capture_end(self) -> None:
        """With no backward: the graphs of live tensors that nothing has consumed."""
        ids: dict[int, tuple[Any, int]] = {}
        for tensor in _all_tensors():
            function = tensor.grad_fn
            if function is None:
                continue
            id = self.nodes.known(function)
            if id is None and self.sequence <= function._sequence_nr() < private.NO_SEQUENCE:
                id = self.nodes.add(function)
            if id is not None and self.maker(function._sequence_nr()) is not None:
                ids.setdefault(id, (function, tensor.output_nr))
        walked = self.nodes.walk([function for function, _ in ids.values()])
        consumed = {target for _, id in walked for target, _ in self.nodes.notes[id].edges}
        roots = [(id, output) for id, (_, output) in sorted(ids.items()) if id not in consumed]
        if roots:
            order = self.nodes.walk([ids[id][0] for id, _ in roots])
            self.graphs.append(GraphNote(len(self.graphs), "end", roots, [id for _, id in order], None, None))

    def _guarded(self, work: Any, *args: Any) -> Any:
        """A fault of ours must not become the learner's: the recording ends with a note instead."""
        try:
            return work(*args)
        except RecordError:
            raise
        except Exception as fault:
            self._fault(fault)
            return None

    def _fault(self, fault: Exception) -> None:
        if self.strict:
            raise fault
        self.broken = True
        self.notes.append(
            f"The recording stopped here: the recorder met something it cannot read ({type(fault).__name__}: {fault}). "
            "What ran before is right; what ran after was not seen."
        )

    # ---------------------------------------------------------------- storages

    def unknown(self, tensor: Tensor) -> bool:
        return all(private.storage_key(s) not in self.live for s in storages_of(tensor))

    def see_all(self, tensor: Tensor, event: EventNote | None = None, op: str = "") -> tuple[StorageNote, ...]:
        """The notes of a tensor's storages; one not met before was there before the recording, or `event` made it."""
        storages = storages_of(tensor)
        if len(storages) == 1:  # nearly always
            note = self.live.get(private.storage_key(storages[0]))
            return (note or self._see(storages[0], tensor, event, op),)
        return tuple(self._see(s, tensor, event, op) for s in storages)

    @held
    def _see(self, storage: Any, tensor: Tensor, event: EventNote | None, op: str) -> StorageNote:
        key = private.storage_key(storage)
        note = self.live.get(key)
        if note is not None:
            return note
        device = name_of(storage.device)
        if device.split(":")[0] not in _FOLLOWED:
            raise RecordError(unfollowed(device))
        note = StorageNote(
            storage.nbytes(),
            device,
            event,
            shape_of(tensor),
            name_of(tensor.dtype),
            op,
            event.place if event else None,
            event is not None and event.phase == "between",
        )
        watch = _StorageWatch(storage, self._freed)
        watch.key, watch.note = key, note
        note.watch = watch
        self.live[key] = note
        self.storages.append(note)
        if event is not None:
            event.allocated += (note,)
        for name, (reference, where) in self.given.items():
            if reference() is storage:
                note.call(name, where, parameter=True)
        return note

    @held
    def _freed(self, watch: _StorageWatch) -> None:
        """A storage went. Attributed to the node that ran last, or to the line that runs now."""
        if self.live.get(watch.key) is watch.note:
            del self.live[watch.key]
        if watch.note.freed is None and _active is self:
            event = self._free_event()
            watch.note.freed = event
            event.freed += (watch.note,)
            for saved in watch.note.saved:
                if saved.again and saved.released is None:
                    saved.released = event
                    event.released += (saved,)

    def _free_event(self) -> EventNote:
        last = self.events[-1] if self.events else None
        if self._passes:
            node = self._running[-1]
            if node is None:
                node = self._last[-1]
            if last is not None and last.kind in ("free", "release") and last.node == node and last.graph is not None:
                return last
            event = EventNote("free", "backward", self._node_place(node), node=node, graph=self._passes[-1].id)
        else:
            place, _ = self.places.here(3)
            phase = self._phase()
            if last is not None and last.place == place:
                if last.kind == "leave" or (last.kind == "free" and last.phase == "backward"):
                    phase = "backward"  # what the call to backward itself lets go at its end
                if last.kind == "free" and last.phase == phase:
                    return last
            event = EventNote("free", phase, place)
        self.events.append(event)
        return event

    def _node_place(self, node: int | None) -> int | None:
        place = self.nodes.notes[node].place if node is not None else None
        return self._passes[-1].place if place is None and self._passes else place

    @held
    def node_died(self, watch: Any) -> None:
        """A node went with its graph. What it had saved and not released goes with it."""
        if self.nodes.watches.pop(watch.id, None) is None or _active is not self:
            return
        note = self.nodes.notes[watch.id]
        if any(not (s := self.nodes.saved[i]).never and s.released is None for i in note.saved):
            self.nodes.release(watch.id, self._free_event())

    def maker(self, number: int) -> EventNote | None:
        """The operation that made the node of this number; None for leaves and for nodes from before the recording.

        Some make more once they are done (in place on a view, on a subclass): those have no operation of their own.
        """
        if number == private.NO_SEQUENCE or number < self.sequence:
            return None
        return self.made.get(number, self._done)

    def leaf(self, tensor: Tensor, name: Rooted | None = None) -> tuple[StorageNote, ...]:
        """Note a leaf that wants a gradient: its category, its name, and the gradient that it has."""
        try:
            notes = self.see_all(tensor)
        except ValueError:  # a parameter of a lazy module has no memory yet
            return ()
        for note in notes:
            # Made here and kept for backward: an activation that reentrant checkpointing detached into a leaf.
            if isinstance(tensor, torch.nn.Parameter) or note.born is None or not note.saved:
                note.fixed = PARAMETERS
            if name is not None:
                note.call(name, geometry(tensor), parameter=True)
        known = self._leaves.get(id(tensor))
        if known is None or known[0]() is not tensor:
            gradient = tensor.grad
            grads = self.see_all(gradient) if gradient is not None else ()
            for note in grads:
                if note.born is None and note.initial == INPUTS:
                    note.initial = GRADIENTS
            # One that was made here, before the leaf was met (master weights): `_check_gradients` finds it new.
            self._leaves[id(tensor)] = [weakref.ref(tensor), tuple(n for n in grads if n.born is None)]
        return notes

    def _check_gradients(self, event: EventNote) -> None:
        """`.grad` may have been set, replaced or dropped by the learner's code since the last look."""
        for entry in self._leaves.values():
            tensor = entry[0]()
            if tensor is None:
                continue
            gradient = tensor.grad
            new = self.see_all(gradient) if gradient is not None else ()
            if new != entry[1]:
                event.roles += tuple((s, GRADIENTS, False) for s in entry[1] if s not in new and s.freed is None)
                event.roles += tuple((s, GRADIENTS, True) for s in new if s not in entry[1])
                entry[1] = new

    # ---------------------------------------------------------------- names

    def _prepare_names(self) -> None:
        given: dict[str, Any] = {}
        for name, tensor in self.given.items():
            if not isinstance(tensor, Tensor):
                kind = type(tensor).__name__
                raise RecordError(f"names[{name!r}] is a {kind}; names take tensors, as state_dict() gives.")
            for storage in storages_of(tensor)[:1]:
                given[name] = (weakref.ref(storage), geometry(tensor))
        self.given = given

    def _read_names(self, frame: FrameType) -> None:
        """Names of the learner's variables that hold tensors, as far as the running code names them."""
        self._call(variables(frame))

    def _read_globals(self) -> None:
        """The same for what the learner's functions name outside themselves."""
        for code, names in self.places.namespaces.items():
            self._call([(name, names[name]) for name in code.co_names if name in names])

    def _call(self, named: list[tuple[str, Any]]) -> None:
        for name, tensor in named:
            if not isinstance(tensor, Tensor) or name.startswith("_"):
                continue
            for storage in storages_of(tensor):
                note = self.live.get(private.storage_key(storage))
                if note is not None:
                    note.call(name, geometry(tensor))
            stale = tensor._is_view() and tensor._version > 0  # its grad_fn might be made anew by asking
            if tensor.requires_grad and not tensor.is_leaf and not stale:
                function = tensor.grad_fn
                if function is not None and self.sequence <= function._sequence_nr() < private.NO_SEQUENCE:
                    node = self.nodes.notes[self.nodes.add(function)]
                    if name not in node.names:
                        node.names += (name,)
                if tensor.retains_grad and (gradient := tensor.grad) is not None and self.events:
                    for grad_note in self.see_all(gradient):
                        self.events[-1].roles += ((grad_note, GRADIENTS, True),)

    @held
    def _enter_module(self, module: Any, inputs: Any) -> None:
        if self.broken:
            return
        with private.no_dispatch():
            found = self._paths.get(id(module))
            if found is None or found[0]() is not module:
                self._guarded(self._root, module)
                found = self._paths.get(id(module))
        self._modules.append(found[1] if found else type(module).__name__)
        self._forward = self._forward or not self._passes

    @held
    def _leave_module(self, module: Any, inputs: Any, output: Any) -> None:
        if self._modules:
            self._modules.pop()

    def _root(self, module: Any) -> None:
        """Paths and parameters' names of a module met for the first time, and of all inside it."""
        name, module = self._owner(module)
        root = len(self._roots)
        self._roots.append((name, type(module).__name__))
        for path, child in module.named_modules(remove_duplicate=False):
            if id(child) not in self._paths:
                self._paths[id(child)] = (weakref.ref(child), Rooted(root, path))
        self._call_parameters(module, root)

    def _owner(self, module: Any) -> tuple[str, Any]:
        """The largest module in the learner's variables that holds this one (`for layer in model:` calls its parts)."""
        best, most = ("", module), 0
        for frame in self.places.learners():
            for name, value in variables(frame):
                if isinstance(value, torch.nn.Module) and not name.startswith("_"):
                    inside = list(value.modules())
                    if len(inside) >= most and any(child is module for child in inside):
                        best, most = ("" if name == "self" else name, value), len(inside)
        return best

    def _call_parameters(self, module: Any, root: int) -> None:
        """Names of a module's parameters and buffers; those of a lazy module come into being when it first runs."""
        lazy = False
        for path, parameter in module.named_parameters(remove_duplicate=False):
            if torch.nn.parameter.is_lazy(parameter):
                lazy = True
                continue
            if parameter.requires_grad:
                self.leaf(parameter, Rooted(root, path))
            else:
                for note in self.see_all(parameter):
                    note.fixed = PARAMETERS
                    note.call(Rooted(root, path), geometry(parameter), parameter=True)
        for path, buffer in module.named_buffers(remove_duplicate=False):
            if torch.nn.parameter.is_lazy(buffer):
                lazy = True
                continue
            for note in self.see_all(buffer):
                note.fixed = note.fixed or BUFFERS
                note.call(Rooted(root, path), geometry(buffer), parameter=True)
        if lazy:
            self._lazy.append((weakref.ref(module), root))

    # ---------------------------------------------------------------- forward

    def _phase(self) -> str:
        if self._passes:
            return "backward"
        if self._steps:
            return "step"
        return "forward" if self._forward or not self.graph_wanted else "between"

    def operation(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """One operation, called below autograd in place of its kernel."""
        if self.broken:
            return func(*args, **kwargs)
        op = self._ops.get(id(func)) or self._op(func)
        if op.question:
            return func(*args, **kwargs)
        try:
            event, twin = self._before(op, args, kwargs)
        except RecordError:
            raise
        except Exception as fault:
            self._fault(fault)
            return func(*args, **kwargs)
        kernel = twin or func
        versions = op.versions(args, kwargs) if op.foreach else ()
        if self.kernels is None:
            out = kernel(*args, **kwargs)
        else:
            out = self.kernels.run(event, kernel, args, kwargs)
        if twin is not None:
            increment_version(args[0])  # as the operation itself does when autograd calls it
        for tensor, version in versions:
            if tensor._version == version:  # torch counts the changes inside such an operation, unless it sees a mode
                increment_version(tensor)
        try:
            self._after(op, args, kwargs, out, event)
        except RecordError:
            raise
        except Exception as fault:
            self._fault(fault)
        return out

    def _op(self, func: Any) -> Operation:
        op = self._ops[id(func)] = Operation(func)
        return op

    @held
    def _before(self, op: Operation, args: tuple, kwargs: dict) -> tuple[EventNote, Any]:
        if self._pending and not op.detach:  # a node detaches each output that it saves: it is not complete yet
            self._settle()
        grad = torch.is_grad_enabled()
        needs = False
        tensors = []
        # Nodes are numbered by thread, and on a GPU backward runs in a thread of its own.
        sequence = private.sequence_number() if get_ident() == self.thread else self._sequence
        if type(self.events) is CountedEvents:
            self.events.read()
        for value in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(value, Tensor):
                tensors.append(value)
                needs = needs or value.requires_grad
            elif isinstance(value, (list, tuple)):
                for item in value:
                    if isinstance(item, Tensor):
                        tensors.append(item)
                        needs = needs or item.requires_grad
        twin = fresh = None
        if self._passes:
            node = self._running[-1]
            shown = self._last[-1] if node is None else node
            event = EventNote("op", "backward", self._node_place(shown), op.name, shown, self._passes[-1].id)
            if len(self._modules) > self._passes[-1].modules:  # a checkpoint computes its part again
                event.module = self._modules[-1]
            elif shown is not None:
                event.module = self.nodes.notes[shown].module
            if op.add and node is None and not grad and self.capabilities.exclusive:  # between nodes: the engine itself
                twin = aten.add_.Tensor if self._adds_in_place(args, kwargs) else None
        else:
            if self._steps and not (grad and needs):
                place = self._steps[-1]
                phase = "step"
            else:
                place, outer = self.places.here(3)
                if (
                    grad and needs and not op.reads or sequence != self._sequence
                ):  # a custom Function's forward runs without grad
                    self._forward = True
                phase = "forward" if self._forward or not self.graph_wanted else "between"
                if outer is not None:
                    last = self._last_line
                    if last is None or last[1] != outer.f_lineno or last[0] is not outer.f_code:
                        self._last_line = (outer.f_code, outer.f_lineno)
                        fresh = outer
            event = EventNote("op", phase, place, op.name)
            if self._modules:
                event.module = self._modules[-1]
        if self._linear is not None and op.add and self._adds_bias(args, kwargs):
            twin, event.op = aten.add_.Tensor, "aten.add_"
        newborn = event if op.lift else None
        live = self.live
        for tensor in tensors:
            if type(tensor) in PLAIN and tensor.layout is torch.strided:
                note = live.get(tensor.untyped_storage()._cdata)
                if note is not None and (note.fixed is not None or not (note.made_between or tensor.requires_grad)):
                    continue
            for note in self.see_all(tensor, newborn, op.name if newborn else ""):
                if note.fixed is None:
                    # What backward unpacks may look like a leaf; a leaf is met in forward, or in a recomputed one.
                    if tensor.requires_grad and tensor.is_leaf and (grad or not self._passes):
                        self.leaf(tensor)
                    elif note.made_between and event.phase == "forward" and not tensor.requires_grad:
                        note.made_between = False
                        event.roles += ((note, INPUTS, True),)
        if fresh is not None:  # a new line of the learner's; its tensors are known by now
            self._read_names(fresh)
        if sequence != self._sequence and not op.detach:
            for number in range(self._sequence, sequence):
                self.made[number] = event
            self._sequence = sequence
        return event, twin

    @held
    def _after(self, op: Operation, args: tuple, kwargs: dict, out: Any, event: EventNote) -> None:
        follow = event.phase == "forward" or torch.is_grad_enabled()
        for value in out if isinstance(out, (tuple, list)) else (out,):
            for tensor in value if isinstance(value, (tuple, list)) else (value,):
                if not isinstance(tensor, Tensor):
                    continue
                for storage in storages_of(tensor):
                    note = self.live.get(storage._cdata)
                    if note is None:
                        self._see(storage, tensor, event, op.name)
                    elif note.size != (size := storage.nbytes()):
                        note.size = size
                        event.resized += ((note, size),)
                if follow:
                    self._pending.append((weakref.ref(tensor), event))
        if not op.detach:
            self._done = event
        if not private.RAW:
            event.hooked = self.hooks.depth > 0
        if op.name == "profiler._record_function_enter_new" and args and isinstance(args[0], str):
            event.note = args[0]
        if op.written:
            for tensor in op.writes(args, kwargs):
                for note in self.see_all(tensor):
                    for saved in note.saved:
                        if saved.changed is None and saved.kept is not event:
                            saved.changed = event
        if (
            event.allocated
            or not op.quiet
            or event.resized
            or event.roles
            or self.made.get(self._sequence - 1) is event
        ):
            self.events.append(event)
        elif follow and self._pending and self._pending[-1][1] is event:
            self._pending.pop()

    def _settle(self) -> None:
        """Read the nodes that the last operations made; by now autograd has saved what it saves."""
        pending, self._pending = self._pending, []
        for reference, _ in pending:
            tensor = reference()
            if tensor is None or not tensor.requires_grad:
                continue
            function = tensor.grad_fn
            if function is not None and self.sequence <= function._sequence_nr() < private.NO_SEQUENCE:
                self._outputs[self.nodes.add(function)] = reference

    def _adds_in_place(self, args: tuple, kwargs: dict) -> bool:
        """Whether the engine, unwatched, adds these two gradients in place: it does if it alone owns the first."""
        if kwargs or not isinstance(args[1], Tensor) or private.tangents_run():
            return False
        if any(type(t) is not Tensor or t.layout is not torch.strided for t in args):
            return False
        old = args[0]
        return not old.is_nested and private.owners(old) == self.capabilities.exclusive and dense(old)

    def _linear_runs(self, shapes: tuple[Any, Any] | None) -> None:
        self._linear = None if shapes is None else (*shapes, len(self.events))

    def _adds_bias(self, args: tuple, kwargs: dict) -> bool:
        """Whether this is F.linear adding its bias to the product that it has just made."""
        if kwargs or len(args) != 2 or not all(isinstance(t, Tensor) for t in args):
            return False
        (product, bias), (result, shape, began) = args, self._linear
        if product.shape != result or bias.shape != shape or product._is_view() or product.is_inference():
            return False
        note = self.live.get(private.storage_key(product.untyped_storage()))
        return note is not None and note.op in _PRODUCTS and any(e is note.born for e in self.events[began:])

    @held
    def _random_state(self, state: Tensor) -> None:
        if self.broken:
            return
        if self._passes:
            node = self._running[-1] if self._running[-1] is not None else self._last[-1]
            event = EventNote("op", "backward", self._node_place(node), "get_rng_state", node, self._passes[-1].id)
        else:
            place, _ = self.places.here(3)
            event = EventNote("op", self._phase(), place, "get_rng_state")
        with private.no_dispatch():
            self._guarded(self.see_all, state, event, event.op)
        self.events.append(event)

    # ---------------------------------------------------------------- backward

    def _backward(self, original: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """In place of the engine's entry: capture the graph, watch each node, let the engine run."""
        if self.broken:
            return original(tensors, *args, **kwargs)
        with private.no_dispatch():
            begun = self._guarded(self._enter, tensors, args, kwargs)
        if begun is None:
            return original(tensors, *args, **kwargs)
        graph, handles, _roots = begun  # a root that is a leaf lives by our reference alone
        try:
            out = original(tensors, *args, **kwargs)
        except BaseException:
            for handle in handles:
                handle.remove()
            self._failed(graph)
            raise
        for handle in handles:
            handle.remove()
        with private.no_dispatch():
            self._guarded(self._leave, graph)
        return out

    @uncollected
    @held
    def _enter(self, tensors: Any, args: tuple, kwargs: dict) -> tuple[GraphNote, list[Any], list[Any]]:
        self._settle()
        if get_ident() == self.thread:
            self._sequence = private.sequence_number()
        parent = self._passes[-1] if self._passes else None
        if parent is None:
            place, outer = self.places.here(5)
            if outer is not None:
                self._last_line = None
                self._read_names(outer)
                self._read_globals()
        else:
            place = self._node_place(self._running[-1])
        functions, roots = [], []
        for item in tensors:
            if isinstance(item, Tensor):
                function, output = item.grad_fn, item.output_nr
                if function is None and item.requires_grad:
                    function = torch.autograd.graph.get_gradient_edge(item).node
            else:
                function, output = item.node, item.output_nr
            if function is not None:
                functions.append(function)
                id = self.nodes.add(function)
                roots.append((id, output))
                if isinstance(item, Tensor):
                    self._outputs[id] = weakref.ref(item)  # one from before the recording is known by now too
        order = self.nodes.walk(functions)
        trigger = "backward" if kwargs.get("accumulate_grad", True) else "grad"
        nodes = [id for _, id in order]
        graph = GraphNote(len(self.graphs), trigger, roots, nodes, place, parent.id if parent else None)
        graph.retained, graph.create_graph = bool(args[1]), bool(args[2])
        graph.modules = len(self._modules)
        if self.events and self.events[-1].op == "aten.ones_like" and self.events[-1].place == place:
            self.events[-1].phase, self.events[-1].graph = "backward", graph.id  # the gradient that it starts from
        event = EventNote("enter", "backward", place, graph=graph.id)
        event.note = "retain_graph" if graph.retained and not graph.create_graph else ""
        graph.event = event
        self._check_gradients(event)
        self.events.append(event)
        self.graphs.append(graph)
        self._forward = False
        handles = []
        for function, id in order:
            leaf = self.nodes.notes[id].kind == "leaf"
            before = partial(self._node_begins, id)
            after = partial(self._leaf_ran if leaf else self._node_ran, id)
            handles += (function.register_prehook(before), function.register_hook(after))
        self._passes.append(graph)
        self._running.append(None)
        self._last.append(None)
        return graph, handles, functions

    @held
    def _node_begins(self, id: int, gradients: Any) -> None:
        if self._running:
            self._running[-1] = id
            note = self.nodes.notes[id]
            if note.kind == "operation" and note.name.rstrip("0123456789") in private.FORMULAS_THAT_LOOK:
                self._blind = private.Unseen()
                if self.kernels is not None:
                    self.kernels.open()

    @held
    def _node_ran(self, id: int, inputs: Any, outputs: Any) -> None:
        if not self._passes or self.broken:
            return
        graph, note = self._passes[-1], self.nodes.notes[id]
        self._running[-1], self._last[-1] = None, id
        graph.ran.add(id)
        place = self._node_place(id)
        event = EventNote("run", "backward", place, note.name, id, graph.id, note.module)
        if self._blind is not None:
            if self.kernels is not None:
                self.kernels.close(event)
            self._blind = None  # guards end in the order in which they began: before the next one
            with private.no_dispatch():
                self._guarded(self._see_again, inputs, event)
        self.events.append(event)
        if not graph.retained:
            event = EventNote("release", "backward", place, note.name, id, graph.id, note.module)
            if self.nodes.release(id, event):
                self.events.append(event)

    def _see_again(self, gradients: Any, event: EventNote) -> None:
        """A formula ran unwatched: what it made is seen now, as the node's own."""
        for gradient in gradients:
            if gradient is not None:
                self.see_all(gradient, event, event.op)
        sequence = private.sequence_number() if get_ident() == self.thread else self._sequence
        self.made.update(dict.fromkeys(range(self._sequence, sequence), event))
        self._sequence = sequence

    @held
    def _leaf_ran(self, id: int, inputs: Any, outputs: Any) -> None:
        if not self._passes or self.broken:
            return
        graph, note = self._passes[-1], self.nodes.notes[id]
        self._running[-1], self._last[-1] = None, id
        graph.ran.add(id)
        event = EventNote("accumulate", "backward", self._node_place(id), note.name, id, graph.id)
        with private.no_dispatch():
            self._guarded(self._accumulated, note, event)
        self.events.append(event)

    def _accumulated(self, note: Any, event: EventNote) -> None:
        tensor = note.tensor() if note.tensor is not None else None
        entry = self._leaves.get(id(tensor))
        if entry is None or tensor.grad is None:
            return
        new = self.see_all(tensor.grad, event, "AccumulateGrad")
        old = entry[1]
        event.accumulated = (note.id, new, not old, bool(old) and new == old)
        event.roles += tuple((s, GRADIENTS, True) for s in new if s not in old)
        event.roles += tuple((s, GRADIENTS, False) for s in old if s not in new and s.freed is None)
        entry[1] = new

    @held
    def _leave(self, graph: GraphNote) -> None:
        event = EventNote("leave", "backward", graph.place, graph=graph.id)
        self.events.append(event)
        graph.pruned = [id for id in graph.nodes if id not in graph.ran]
        self._pop(graph)
        if not self._passes:
            self.nodes.release_again(event)
        self._check_gradients(event)
        if not self._passes:
            _, outer = self.places.here(5)
            if outer is not None:
                self._read_names(outer)

    def _failed(self, graph: GraphNote) -> None:
        """The engine raised. If nobody catches it, `stop` will tell which node ran; if somebody does, we go on."""
        self._blind = None
        error = id(sys.exc_info()[1])
        if self._failure is None or self._failure[0] != error:  # of passes inside passes, the innermost knows
            self._failure = (error, graph.id, self._running[-1] if self._running else None)
        self._pop(graph)

    def _pop(self, graph: GraphNote) -> None:
        while self._passes:
            done = self._passes.pop()
            self._running.pop()
            self._last.pop()
            if done is graph:
                break

    # ---------------------------------------------------------------- optimizers

    def _enter_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.broken:
            with private.no_dispatch():
                self._guarded(self._step, optimizer)

    @held
    def _step(self, optimizer: Any) -> None:
        self._settle()
        place, _ = self.places.here(5)
        event = EventNote("step", "step", place)
        event.note = type(optimizer).__name__
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.leaf(parameter)
        self._note_state(optimizer)
        self._check_gradients(event)
        self.events.append(event)
        self._steps.append(place)
        self._forward = False

    def _leave_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.broken:
            with private.no_dispatch():
                self._guarded(self._stepped, optimizer)

    @held
    def _stepped(self, optimizer: Any) -> None:
        place = self._steps.pop() if self._steps else None
        self._note_state(optimizer)
        event = EventNote("stepped", "step", place)
        event.note = type(optimizer).__name__
        self._check_gradients(event)
        self.events.append(event)

    def _note_state(self, optimizer: Any) -> None:
        queue = list(optimizer.state.values())
        for value in queue:
            if isinstance(value, Tensor):
                for note in self.see_all(value):
                    note.fixed = note.fixed or OPTIMIZER
            elif isinstance(value, dict):
                queue.extend(value.values())
            elif isinstance(value, (list, tuple)):
                queue.extend(value)


@uncollected
def _frozen(*notes: Any) -> Recording:
    return freeze(*notes, (("torch", str(torch.__version__)),))


def unfollowed(device: str) -> str:
    """The sentence for a device whose memory cannot be followed."""
    return (
        f"A tensor lives on {device}, and recordings follow only {', '.join(DEVICES)}. Move the model and its data to "
        "the CPU for the recording: model.to('cpu')."
    )


def _all_tensors() -> list[Tensor]:
    return [o for o in gc.get_objects() if issubclass(type(o), Tensor) and o.requires_grad and not o.is_leaf]
