"""Recordings made by hand, so that figures are tested without torch: a small tape that builds the data, and samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from helpers import data
from helpers.data import (
    Accumulated,
    Edge,
    Frame,
    Graph,
    Leaf,
    MemoryEvent,
    Node,
    Place,
    Recording,
    SavedScalar,
    SavedTensor,
    Source,
    Storage,
    TensorInfo,
)

SIZES = {"float32": 4, "float64": 8, "int64": 8, "bool": 1, "bfloat16": 2}


def numel(shape):
    n = 1
    for size in shape:
        n *= size
    return n


@dataclass(frozen=True)
class Value:
    """A tensor of the tape: its storage, and the node and output that made it."""

    storage: int
    shape: tuple[int, ...]
    dtype: str = "float32"
    node: int | None = None
    output: int = 0
    name: str = ""

    @property
    def nbytes(self):
        return numel(self.shape) * SIZES[self.dtype]


class Tape:
    def __init__(self, code: str = ""):
        self.lines = tuple(code.strip("\n").split("\n")) if code else ()
        self.places, self.storages, self.nodes, self.saved, self.graphs, self.events = [], [], [], [], [], []
        self.lines_seen = {}
        self.sequence = 0
        self.live = set()
        self.grads = {}
        self.category = {}
        self.notes = ()

    # -- pieces
    def place(self, line):
        if line is None:
            return None
        if line not in self.lines_seen:
            self.lines_seen[line] = len(self.places)
            self.places.append(Place(len(self.places), (Frame(0, line, ""),)))
        return self.lines_seen[line]

    def storage(self, nbytes, category, *, born=None, names=(), shape=(), dtype="float32", op="", place=None):
        s = len(self.storages)
        born = len(self.events) if born is None else born
        self.storages.append(Storage(s, nbytes, "cpu", born, None, category, tuple(names), shape, dtype, op, place))
        self.live.add(s)
        self.category[s] = category
        return s

    def event(self, kind, phase, **more):
        self.events.append(MemoryEvent(len(self.events), kind, phase, **more))
        return len(self.events) - 1

    # -- what a learner's code does
    def tensor(self, name, shape, *, dtype="float32", grad=False, parameter=False, names=None, category=None):
        """A tensor that was there before: an input, a leaf or a parameter."""
        names = tuple(names if names is not None else ((name,) if name else ()))
        nbytes = numel(shape) * SIZES[dtype]
        category = category or ("parameters" if parameter else "inputs")
        s = self.storage(nbytes, category, born=-1, names=names, shape=shape, dtype=dtype)
        node = None
        if grad or parameter:
            node = len(self.nodes)
            leaf = Leaf(names, shape, dtype, "cpu", (s,), nbytes, parameter)
            self.nodes.append(Node(node, "AccumulateGrad", "leaf", (), (), leaf=leaf))
        return Value(s, shape, dtype, node, 0, name)

    def op(
        self, name, inputs, shape, *, saved=(), line=None, names=(), dtype="float32", view=None, scalars=(), module="",
        kind="operation", outputs=1, note="", aten=None,
    ):  # fmt: skip
        """One operation. saved: (argument, Value) or (argument, "output"), or a dict of SavedTensor's fields."""
        place = self.place(line)
        n = len(self.nodes)
        at = len(self.events)
        op = aten or "aten." + name.removesuffix("Backward0").lower()
        made = []
        if view is None:
            for i in range(outputs):
                mine = names if outputs == 1 else names[i : i + 1]
                made.append(
                    self.storage(
                        numel(shape) * SIZES[dtype], "other", names=mine, shape=shape, dtype=dtype, op=op, place=place
                    )
                )
        results = [
            Value(view.storage if view else made[i], shape, dtype, n, i, names[i] if i < len(names) else "")
            for i in range(outputs)
        ]
        kept, ids, moved = [], [], []
        for item in saved:
            fields = dict(position=None, packed="", scalar="", state="live")
            if isinstance(item, dict):
                fields.update(item)
                value = fields.pop("value", None)
                argument = fields.pop("argument")
            else:
                argument, value = item
            output = value == "output"
            value = results[0] if output else value
            if fields["scalar"] or value is None:
                fields.setdefault("shape", ())
                fields.setdefault("dtype", "float32")
                fields.setdefault("nbytes", 0)
                where = ()
            else:
                fields.setdefault("shape", value.shape)
                fields.setdefault("dtype", value.dtype)
                fields.setdefault("nbytes", numel(fields["shape"]) * SIZES[fields["dtype"]])
                where = () if fields["packed"] else (value.storage,)
            names_ = (value.name,) if value is not None and value.name else ()
            if value is not None and value.storage is not None and self.storages[value.storage].names:
                names_ = self.storages[value.storage].names
            never = fields["state"] == "never saved"
            s = len(self.saved)
            self.saved.append(
                SavedTensor(
                    s, n, argument, fields["position"], fields["shape"], fields["dtype"], "cpu", fields["nbytes"],
                    where, output, fields.get("names", names_), None if never else at, None, fields["state"],
                    at if fields["state"] == "changed in place" else None, fields["packed"], fields["scalar"],
                )
            )  # fmt: skip
            ids.append(s)
            if not never:
                kept.append(s)
            for i in where:
                if self.category[i] == "other":
                    self.category[i] = "kept for backward"
                    moved.append((i, "kept for backward"))
        self.nodes.append(
            Node(
                n, name, kind, tuple(Edge(v.node if v else None, v.output if v else 0) for v in inputs),
                tuple(TensorInfo(shape, dtype) for _ in range(outputs)), tuple(ids),
                tuple(SavedScalar(*s) for s in scalars), tuple(names), place, module, self.sequence, None, at, note,
            )
        )  # fmt: skip
        self.sequence += 1
        self.event(
            "op", "forward", place=place, op=op, node=n, module=module, allocated=tuple(made), kept=tuple(kept),
            moved=tuple(moved),
        )  # fmt: skip
        return results[0] if outputs == 1 else results

    def drop(self, *values, line=None):
        """Python lets go of tensors; those that nothing keeps are freed."""
        held = {i for s in self.saved if s.released is None and s.kept is not None for i in s.storages}
        gone = tuple(v.storage for v in values if v.storage not in held and v.storage in self.live)
        at = self.event("free", "forward", place=self.place(line), freed=gone)
        self._gone(gone, at)

    def _gone(self, storages, at):
        for s in storages:
            self.live.discard(s)
            self.storages[s] = replace(self.storages[s], freed=at)

    def reachable(self, roots):
        seen, stack = {}, [r.node for r in roots if r.node is not None]
        while stack:
            n = stack.pop(0)
            if n in seen:
                continue
            seen[n] = None
            stack += [e.node for e in self.nodes[n].edges if e.node is not None]
        return list(seen)

    def capture(self, *roots, trigger="end"):
        """The graph without a backward."""
        self.graphs.append(
            Graph(
                len(self.graphs), trigger, tuple(Edge(r.node, r.output) for r in roots), tuple(self.reachable(roots)),
                (), False, False, None, None,
            )
        )  # fmt: skip

    def backward(self, root, *, line=None, retain=False, pruned=(), trigger="backward", stop_at=None, error=""):
        """A backward pass. stop_at: the node (its place in the order) at which the error is raised."""
        place, g = self.place(line), len(self.graphs)
        enter = self.event("enter", "backward", place=place, graph=g)
        nodes = self.reachable([root])
        self.graphs.append(
            Graph(g, trigger, (Edge(root.node, root.output),), tuple(nodes), tuple(pruned), retain, False, enter, place)
        )
        todo = sorted((n for n in nodes if not self.nodes[n].leaf), key=lambda n: -self.nodes[n].sequence)
        for k, n in enumerate(x for x in todo if x not in pruned):
            node = self.nodes[n]
            if k == stop_at:
                self.event("error", "backward", place=node.place, op=node.name, node=n, graph=g, note=error)
                return
            self.event("run", "backward", place=node.place, op=node.name, node=n, graph=g, module=node.module)
            if not retain and any(
                self.saved[s].released is None and self.saved[s].kept is not None for s in node.saved
            ):
                at = len(self.events)
                mine = [s for s in node.saved if self.saved[s].kept is not None and self.saved[s].released is None]
                for s in mine:
                    self.saved[s] = replace(self.saved[s], released=at, state="released")
                held = {i for s in self.saved if s.released is None and s.kept is not None for i in s.storages}
                gone = {
                    i for s in mine for i in self.saved[s].storages
                    if i not in held and i in self.live and self.category[i] == "kept for backward"
                    and not self.storages[i].names
                }  # fmt: skip
                moved = {
                    i for s in mine for i in self.saved[s].storages
                    if i not in held and i in self.live and self.category[i] == "kept for backward" and i not in gone
                }  # fmt: skip
                for i in moved:
                    self.category[i] = "other"
                self.event(
                    "release", "backward", place=node.place, op=node.name, node=n, graph=g, released=tuple(mine),
                    freed=tuple(sorted(gone)), moved=tuple((i, "other") for i in sorted(moved)),
                )  # fmt: skip
                self._gone(gone, at)
            for e in node.edges:
                if e.node is not None and self.nodes[e.node].leaf and e.node not in pruned:
                    leaf = self.nodes[e.node].leaf
                    first = e.node not in self.grads
                    if first:
                        self.grads[e.node] = self.storage(leaf.nbytes, "gradients", shape=leaf.shape, dtype=leaf.dtype)
                    self.event(
                        "accumulate", "backward", place=node.place, op="AccumulateGrad", node=e.node, graph=g,
                        allocated=(self.grads[e.node],) if first else (),
                        accumulated=Accumulated(e.node, (self.grads[e.node],), first, not first),
                    )  # fmt: skip
        self.event("leave", "backward", place=place, graph=g)

    def step(self, *parameters, line=None):
        place = self.place(line)
        self.event("step", "step", place=place, note="SGD")
        for p in parameters:
            at = len(self.events)
            if ("state", p.storage) not in self.grads:
                self.grads["state", p.storage] = self.storage(p.nbytes, "optimizer state", shape=p.shape, dtype=p.dtype)
                self.event("op", "step", place=place, op="aten.clone", allocated=(self.grads["state", p.storage],))
            temporary = self.storage(p.nbytes, "other", shape=p.shape, dtype=p.dtype, op="aten.mul", place=place)
            self.event("op", "step", place=place, op="aten.mul", allocated=(temporary,))
            at = self.event("free", "step", place=place, freed=(temporary,))
            self._gone((temporary,), at)
        self.event("stepped", "step", place=place)

    def done(self, *, notes=()) -> Recording:
        sources = (Source(0, "this cell", 1, self.lines),) if self.lines else (Source(0, "this cell", 1, ()),)
        recording = Recording(
            sources, tuple(self.places), tuple(self.storages), tuple(self.nodes), tuple(self.saved), tuple(self.graphs),
            tuple(self.events), 0, (1, len(self.lines)) if self.lines else (0, 0), tuple(notes),
        )  # fmt: skip
        again = data.loads(data.dumps(recording))
        assert again == recording  # a recording made by hand must be a sound one
        return recording


# ------------------------------------------------------------------------------------------------------------ samples


def product() -> Recording:
    t = Tape(
        "x = torch.randn(2, 3, requires_grad=True)\ny = torch.randn(2, 3, requires_grad=True)\n"
        "z = x * y\nz.sum().backward()"
    )
    x, y = t.tensor("x", (2, 3), grad=True), t.tensor("y", (2, 3), grad=True)
    z = t.op("MulBackward0", [x, y], (2, 3), saved=[("self", x), ("other", y)], line=3, names=("z",))
    total = t.op("SumBackward0", [z], (), line=4)
    t.backward(total, line=4)
    return t.done()


def layer() -> Recording:
    t = Tape(
        "x = torch.randn(32, 64)\nW = torch.randn(16, 64, requires_grad=True)\n"
        "b = torch.randn(16, requires_grad=True)\n"
        "\nwith record() as run:\n    y = torch.relu(x @ W.t() + b)\n"
    )
    x = t.tensor("x", (32, 64))
    W, b = t.tensor("W", (16, 64), grad=True), t.tensor("b", (16,), grad=True)
    w = t.op("TBackward0", [W], (64, 16), line=6, view=W)
    m = t.op("MmBackward0", [x, w], (32, 16), saved=[("self", x), dict(argument="mat2", state="never saved")], line=6)
    a = t.op("AddBackward0", [m, b], (32, 16), line=6, scalars=[("alpha", "1")])
    t.drop(m, line=6)
    y = t.op("ReluBackward0", [a], (32, 16), saved=[("result", "output")], line=6, names=("y",))
    t.drop(a, line=6)
    t.capture(y)
    return t.done()


def square() -> Recording:
    t = Tape("b = a * a\nb.sum().backward()")
    a = t.tensor("a", (4,), grad=True)
    b = t.op("MulBackward0", [a, a], (4,), saved=[("self", a), ("other", a)], line=1, names=("b",))
    t.backward(t.op("SumBackward0", [b], (), line=2), line=2)
    return t.done()


def trunk() -> Recording:
    """Two losses over one trunk: the second backward finds the trunk's tensors released."""
    t = Tape("h = torch.tanh(x)\nloss1 = (h * h).sum()\nloss2 = h.exp().sum()\nloss1.backward()\nloss2.backward()")
    x = t.tensor("x", (8, 8), grad=True)
    h = t.op("TanhBackward0", [x], (8, 8), saved=[("result", "output")], line=1, names=("h",))
    p = t.op("MulBackward0", [h, h], (8, 8), saved=[("self", h), ("other", h)], line=2)
    loss1 = t.op("SumBackward0", [p], (), line=2, names=("loss1",))
    e = t.op("ExpBackward0", [h], (8, 8), saved=[("result", "output")], line=3)
    loss2 = t.op("SumBackward0", [e], (), line=3, names=("loss2",))
    t.backward(loss1, line=4)
    t.backward(
        loss2, line=5, stop_at=2,
        error="RuntimeError: Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed).",
    )  # fmt: skip
    return t.done()


def retained() -> Recording:
    t = Tape("z = x * w\nz.backward(retain_graph=True)\nz.backward()")
    x, w = t.tensor("x", ()), t.tensor("w", (), grad=True)
    z = t.op(
        "MulBackward0",
        [x, w],
        (),
        saved=[("self", x), dict(argument="other", state="never saved")],
        line=1,
        names=("z",),
    )
    t.backward(z, line=2, retain=True)
    t.backward(z, line=3)
    return t.done()


def fan_out(n: int = 4) -> Recording:
    t = Tape("y = x.exp()\nz = sum(y * i for i in range(4))\nz.sum().backward()")
    x = t.tensor("x", (16,), grad=True)
    y = t.op("ExpBackward0", [x], (16,), saved=[("result", "output")], line=1, names=("y",))
    total = None
    for i in range(n):
        part = t.op(
            "MulBackward0",
            [y, None],
            (16,),
            saved=[dict(argument="other", value=None, scalar=str(i))],
            line=2,
            scalars=[("other", str(i))],
        )
        total = part if total is None else t.op("AddBackward0", [total, part], (16,), line=2)
    t.backward(t.op("SumBackward0", [total], (), line=3), line=3)
    return t.done()


def chain(n: int = 2_000) -> Recording:
    t = Tape("for _ in range(n):\n    x = torch.sin(x)")
    x = t.tensor("x", (8,), grad=True)
    for _ in range(n):
        x = t.op("SinBackward0", [x], (8,), saved=[("self", x)], line=2)
    t.capture(x)
    return t.done()


def mixed(n: int = 600) -> Recording:
    """A graph that does not repeat, too large to draw."""
    t = Tape("y = f(x)")
    x = t.tensor("x", (8,), grad=True)
    for i in range(n):
        name, argument = [("SinBackward0", "self"), ("ExpBackward0", "result"), ("TanhBackward0", "result")][
            (i * i + i // 7) % 3
        ]
        x = t.op(name, [x], (8 + i,), saved=[(argument, x if argument == "self" else "output")], line=1)
    t.capture(x)
    return t.done()


def transformer(blocks: int = 12, h: int = 16, tokens: int = 8) -> Recording:
    """Repeated blocks with residual paths, in modules."""
    t = Tape("out = model(ids)\nloss = out.mean()\nloss.backward()")
    ids = t.tensor("ids", (tokens,), dtype="int64")
    table = t.tensor("", (100, h), parameter=True, names=("embed.weight", "head.weight"))
    x = t.op("EmbeddingBackward0", [table], (tokens, h), saved=[("indices", ids)], line=1, module="embed")
    for i in range(blocks):
        name = f"layers.{i}"
        g = t.tensor(f"{name}.norm.weight", (h,), parameter=True)
        n = t.op(
            "NativeLayerNormBackward0", [x, g, None], (tokens, h), line=1, module=f"{name}.norm",
            saved=[("input", x), ("weight", g)], scalars=[("normalized_shape", f"({h},)")],
        )  # fmt: skip
        w = t.tensor(f"{name}.up.weight", (4 * h, h), parameter=True)
        wt = t.op("TBackward0", [w], (h, 4 * h), line=1, view=w, module=f"{name}.up")
        u = t.op("MmBackward0", [n, wt], (tokens, 4 * h), saved=[("self", n), ("mat2", w)], line=1, module=f"{name}.up")
        a = t.op("GeluBackward0", [u], (tokens, 4 * h), saved=[("self", u)], line=1, module=f"{name}.act")
        v = t.tensor(f"{name}.down.weight", (h, 4 * h), parameter=True)
        vt = t.op("TBackward0", [v], (4 * h, h), line=1, view=v, module=f"{name}.down")
        d = t.op("MmBackward0", [a, vt], (tokens, h), saved=[("self", a), ("mat2", v)], line=1, module=f"{name}.down")
        x = t.op("AddBackward0", [x, d], (tokens, h), line=1, module=name)
        t.drop(d, line=1)
    wt = t.op("TBackward0", [table], (h, 100), line=1, view=table, module="head")
    out = t.op(
        "MmBackward0",
        [x, wt],
        (tokens, 100),
        saved=[("self", x), ("mat2", table)],
        line=1,
        module="head",
        names=("out",),
    )
    loss = t.op("MeanBackward0", [out], (), line=2, names=("loss",))
    t.backward(loss, line=3)
    return t.done()


def lstm(steps: int = 160, h: int = 8) -> Recording:
    """A cell unrolled: four weights with one user a step, and a sequence cut by unbind."""
    t = Tape("for x in xs.unbind(0):\n    h, c = cell(x, (h, c))\nh.sum().backward()")
    xs = t.tensor("xs", (steps, h), grad=True)
    wi, wh = t.tensor("weight_ih", (4 * h, h), parameter=True), t.tensor("weight_hh", (4 * h, h), parameter=True)
    bi, bh = t.tensor("bias_ih", (4 * h,), parameter=True), t.tensor("bias_hh", (4 * h,), parameter=True)
    cut = t.op("UnbindBackward0", [xs], (h,), line=1, outputs=steps, scalars=[("dim", "0")])
    state = cell = None
    for i in range(steps):
        ti = t.op("TBackward0", [wi], (h, 4 * h), line=2, view=wi)
        a = t.op("AddmmBackward0", [bi, cut[i], ti], (4 * h,), saved=[("mat1", cut[i]), ("mat2", wi)], line=2)
        th = t.op("TBackward0", [wh], (h, 4 * h), line=2, view=wh)
        b = t.op(
            "AddmmBackward0",
            [bh, state, th],
            (4 * h,),
            saved=[("mat2", wh)] + ([("mat1", state)] if state else []),
            line=2,
        )
        s = t.op("AddBackward0", [a, b], (4 * h,), line=2)
        gates = t.op("SplitBackward0", [s], (h,), line=2, outputs=4)
        i_, f = (t.op("SigmoidBackward0", [g], (h,), saved=[("result", "output")], line=2) for g in gates[:2])
        g = t.op("TanhBackward0", [gates[2]], (h,), saved=[("result", "output")], line=2)
        o = t.op("SigmoidBackward0", [gates[3]], (h,), saved=[("result", "output")], line=2)
        ig = t.op("MulBackward0", [i_, g], (h,), saved=[("self", i_), ("other", g)], line=2)
        fc = t.op("MulBackward0", [f, cell], (h,), saved=[("self", f)] + ([("other", cell)] if cell else []), line=2)
        cell = t.op("AddBackward0", [fc, ig], (h,), line=2)
        tc = t.op("TanhBackward0", [cell], (h,), saved=[("result", "output")], line=2)
        state = t.op("MulBackward0", [o, tc], (h,), saved=[("self", o), ("other", tc)], line=2)
    t.backward(t.op("SumBackward0", [state], (), line=3), line=3)
    return t.done()


def states() -> Recording:
    """Every state and kind of kept tensor, in one graph."""
    t = Tape("y = f(x)")
    x = t.tensor("x", (64, 64), grad=True)
    w = t.tensor("w", (64, 64), parameter=True)
    stats = t.tensor("running_mean", (64,), category="buffers")
    a = t.op("SinBackward0", [x], (64, 64), saved=[dict(argument="self", value=x, state="changed in place")], line=1)
    b = t.op("MmBackward0", [a, w], (64, 64), line=1, saved=[("self", a), ("mat2", w)])
    c = t.op(
        "NativeBatchNormBackward0",
        [b, None, None],
        (64, 64),
        line=1,
        saved=[("input", b), ("running_mean", stats), dict(argument="weight", state="never saved")],
    )
    d = t.op(
        "GeluBackward0",
        [c],
        (64, 64),
        line=1,
        saved=[dict(argument="self", packed="an int, 3", state="packed", shape=(64, 64), nbytes=16384)],
    )
    e = t.op(
        "MyFnBackward",
        [d],
        (64, 64),
        line=1,
        kind="custom",
        saved=[
            dict(argument="attribute mask", value=d, shape=(64, 64)),
            dict(argument="saved_tensors", value=d, position=1),
        ],
    )
    f = t.op(
        "CompiledFunctionBackward",
        [e, None],
        (64, 64),
        line=1,
        kind="edge",
        note="hides what the operations inside it saved",
    )
    g = t.op("SliceBackward0", [f], (2, 2), line=1, view=f)
    u = t.op(
        "ExpBackward0",
        [g],
        (2, 2),
        line=1,
        saved=[("result", "output"), dict(argument="self", value=g, shape=(2, 2))],
        names=("u",),
    )
    t.capture(u)
    return t.done(notes=("One thing could not be seen: the compiled function.",))


AWKWARD = (
    'w<1>|{x} "q" \n',
    "<script>alert(1)</script>",
    "layers.0.weight",
    "a  b",
    "ünï",
    "日本",
    "\u202eabc",
    "&amp;",
    "unnamed",
    "",
    "x' onload='",
)


def awkward() -> Recording:
    t = Tape('y = (a * b)  # "<b>" & so on\ny.sum().backward()')
    total = None
    for k, name in enumerate(AWKWARD):
        p = t.tensor("p", (2,), parameter=k % 2 == 0, grad=True, names=(name,))
        q = t.op(
            "MulBackward0",
            [p, p],
            (2,),
            saved=[("self", p), ("other", p)],
            line=1,
            names=(name,),
            module=f"m.{name}",
            scalars=[("x<y>", 'a  "b"\n')],
        )
        total = q if total is None else t.op("AddBackward0", [total, q], (2,), line=1)
    t.backward(t.op('My<Fn>&"Backward', [total], (), line=2, kind="custom", note="a <note>\nwith lines"), line=2)
    return t.done(notes=("A <note> on & all.",))


def pruned() -> Recording:
    t = Tape("y = (x.exp() * w.sin()).sum()\ntorch.autograd.grad(y, x)")
    x, w = t.tensor("x", (4,), grad=True), t.tensor("w", (4,), grad=True)
    a = t.op("ExpBackward0", [x], (4,), saved=[("result", "output")], line=1)
    b = t.op("SinBackward0", [w], (4,), saved=[("self", w)], line=1)
    c = t.op("MulBackward0", [a, b], (4,), saved=[("self", a), ("other", b)], line=1)
    y = t.op("SumBackward0", [c], (), line=1, names=("y",))
    t.backward(y, line=2, trigger="grad", pruned=(w.node, b.node))
    return t.done()


def training(steps: int = 3) -> Recording:
    t = Tape(
        "for x, y in batches:\n    loss = model(x).pow(2).mean()   # forward\n"
        "    loss.backward()                 # backward\n"
        "    optimizer.step()                # step\n    optimizer.zero_grad()           # clear"
    )
    w = t.tensor("weight", (64, 64), parameter=True)
    v = t.tensor("head.weight", (64, 64), parameter=True)
    x = t.tensor("x", (256, 64))
    for _ in range(steps):
        wt = t.op("TBackward0", [w], (64, 64), view=w, line=2)
        a = t.op("MmBackward0", [x, wt], (256, 64), saved=[("self", x)], line=2)
        r = t.op("ReluBackward0", [a], (256, 64), saved=[("result", "output")], line=2)
        t.drop(a, line=2)
        vt = t.op("TBackward0", [v], (64, 64), view=v, line=2)
        o = t.op("MmBackward0", [r, vt], (256, 64), saved=[("self", r), ("mat2", v)], line=2)
        p = t.op("PowBackward0", [o], (256, 64), saved=[("self", o)], line=2, scalars=[("exponent", "2")])
        loss = t.op("MeanBackward0", [p], (), line=2, names=("loss",))
        t.drop(p, line=2)
        t.backward(loss, line=3)
        t.step(w, v, line=4)
        grads = tuple(t.grads.pop(n) for n in (w.node, v.node))
        at = t.event("free", "between", place=t.place(5), freed=grads)
        t._gone(grads, at)
    return t.done()


def unbind() -> Recording:
    t = Tape("q, k, v = qkv.unbind(0)\ns = q * k + v")
    x = t.tensor("qkv", (3, 4, 4), grad=True)
    q, k, v = t.op("UnbindBackward0", [x], (4, 4), line=1, outputs=3, names=("q", "k", "v"), scalars=[("dim", "0")])
    m = t.op("MulBackward0", [q, k], (4, 4), line=2, saved=[("self", q), ("other", k)])
    s = t.op("AddBackward0", [m, v], (4, 4), line=2, names=("s",))
    t.capture(s)
    return t.done()


def empty() -> Recording:
    return Recording((), (), (), (), (), (), ())


_MAKERS = {
    "product": product, "layer": layer, "square": square, "trunk": trunk, "retained": retained, "fan_out": fan_out,
    "chain": chain, "mixed": mixed, "transformer": transformer, "lstm": lstm, "states": states, "awkward": awkward,
    "pruned": pruned, "training": training, "unbind": unbind, "empty": empty,
}  # fmt: skip
#: Name → a function that gives the recording; made once, since it is frozen data.
SAMPLES = {name: cache(make) for name, make in _MAKERS.items()}
