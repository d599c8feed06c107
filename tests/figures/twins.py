"""Reading text twins back: what a twin says, as plain values, to be held against the recording it was made from."""

from __future__ import annotations

import json
import re
from collections import Counter

from helpers import data
from helpers.figures.order import forward_order

STATES = {"kept": "live"}


def fields(line: str) -> list[str]:
    """Parts of a line between two or more spaces; spaces inside double quotes do not part."""
    out, current, quoted, i = [], "", False, 0
    while i < len(line):
        c = line[i]
        if quoted and c == "\\":
            current += line[i : i + 2]
            i += 2
            continue
        if c == '"':
            quoted = not quoted
        if not quoted and line.startswith("  ", i):
            if current:
                out.append(current)
            current = ""
            while i < len(line) and line[i] == " ":
                i += 1
            continue
        current += c
        i += 1
    return [*out, current] if current else out


def parts(text: str, separator: str) -> list[str]:
    """Like str.split, but not inside double quotes."""
    out, current, quoted, i = [], "", False, 0
    while i < len(text):
        if quoted and text[i] == "\\":
            current += text[i : i + 2]
            i += 2
        elif not quoted and text.startswith(separator, i):
            out.append(current)
            current = ""
            i += len(separator)
        else:
            quoted ^= text[i] == '"'
            current += text[i]
            i += 1
    return [*out, current]


def name(text: str) -> str:
    return json.loads(text) if text.startswith('"') else text


def names(text: str) -> tuple[str, ...]:
    return () if text == "unnamed" else tuple(name(part) for part in parts(text, " and "))


def number(text: str) -> int:
    return int(text.replace(",", ""))


def nbytes(text: str) -> int:
    assert text.endswith(" B"), text
    return number(text[:-2])


def tensor(text: str) -> tuple:
    if text == "unknown":
        return None
    found = re.fullmatch(r"(scalar|\d+(?:×\d+)*) (\S+?)(?: on (\S+))?", text)
    shape = () if found[1] == "scalar" else tuple(map(int, found[1].split("×")))
    return shape, found[2], found[3] or "cpu"


def outputs(text: str) -> list[tuple]:
    if text == "no outputs":
        return []
    out = []
    for part in text.split("; "):
        times = re.match(r"([\d,]+) times ", part)
        out += [tensor(part[times.end() :] if times else part)] * (number(times[1]) if times else 1)
    return out


def value(text: str) -> str:
    return json.loads(text) if text.startswith('"') else text


def where(recording: data.Recording, place: int | None) -> str:
    found = recording.place_of(place)
    frame = found.outer if found else None
    if frame is None:
        return ""
    label = recording.sources[frame.source].label
    return f"line {frame.line}" if frame.source == (recording.cell or 0) else f"{label} line {frame.line}"


def read_heading(line: str) -> tuple[int, int]:
    """Tensors and bytes that are counted."""
    line = re.sub(r"^Kept for backward, (?:as|at|after) [^:]*:", "Kept for backward:", line)
    assert "(parameters not counted)" not in line  # said only of what is there, by its count
    if line == "Kept for backward: nothing, 0 bytes" or re.match(
        r"Kept for backward: [\d,]+ tensors? (?:to be computed again|packed by a hook)[a-z\d, ]*, 0 bytes now(?:;|$)",
        line,
    ):
        return 0, 0
    found = re.match(
        r"Kept for backward: ([\d,]+) tensors?, (?:([\d,]+) bytes?|(.*) \([\d,]+ B\): 0 bytes more$)", line
    )
    if found[3]:
        n, words = number(found[1]), found[3]
        alone = re.fullmatch(r"(?:a|both|all) (?:parameter|lea[fv]|buffer)(?:e?s)? that (?:is|are) alive anyway", words)
        mixed = re.fullmatch(r"(?:both|all) alive anyway: (.*)", words)
        assert alone or sum(number(part.split(" ")[0]) for part in mixed[1].split(" and ")) == n
        assert words.split(" ")[0] == {1: "a", 2: "both"}.get(n, "all")
        return 0, 0
    return number(found[1]), number(found[2])


# ---------------------------------------------------------------------------------------------------------------- graph


def read_graph(twin: str) -> dict:
    """A graph's twin as plain values: counts, the ledger's heading, and nodes in order."""
    lines = twin.split("\n")
    counts = re.search(r": ([\d,]+) operations?, ([\d,]+) (?:leaf|leaves), ([\d,]+) edges?$", lines[0])
    tensors, total = read_heading(lines[1])
    nodes: list[dict] = []
    for line in lines[2:]:
        if line.startswith("        "):
            read_detail(line.strip(), nodes[-1])
        elif line.startswith("  ["):
            nodes.append(read_node(fields(line.strip()), len(nodes) + 1))
    return {
        "operations": number(counts[1]), "leaves": number(counts[2]), "edges": number(counts[3]),
        "tensors": tensors, "bytes": total, "nodes": nodes,
    }  # fmt: skip


def read_node(found: list[str], expected: int) -> dict:
    assert found[0] == f"[{expected}]"
    node = dict(
        froms=[], saved=[], scalars=[], numbers=[], note="", roots=None, pruned=False, line="", module="", names=()
    )
    leaf = re.match(r"(leaf|parameter) ", found[1])
    if leaf:
        node |= dict(kind=leaf[1], names=names(found[1][leaf.end() :]), tensor=tensor(found[2]), bytes=nbytes(found[3]))
        rest = found[4:]
    else:
        node |= dict(kind="operation", name=name(found[1]))
        rest = found[2:]
    for item in rest:
        if item.startswith("makes "):
            node["names"] = names(item[6:])
        elif item == "root" or item.startswith("root at output "):
            node["roots"] = [0] if item == "root" else [int(o) for o in item[15:].split(", ")]
        elif item == "pruned":
            node["pruned"] = True
        elif item == "custom Function":
            node["kind"] = "custom"
        elif item == "compiled or unknown":
            node["kind"] = "edge"
        elif item.startswith("in "):
            node["module"] = name(re.sub(r"^in (module (?=\"?\d))?", "", item))
        elif re.search(r"(^| )line \d+$", item):
            node["line"] = item
        else:
            assert "outputs" not in node, item
            node["outputs"] = outputs(item)
    return node


def read_detail(line: str, node: dict) -> None:
    if line.startswith("from "):
        for item in line[5:].split(", "):
            found = re.fullmatch(r"\[(\d+)\](?: output (\d+))?", item)
            node["froms"].append((int(found[1]), int(found[2] or 0)) if found else item)
    elif line.startswith("keeps a number as "):
        formal, number_ = line[18:].split(" = ", 1)
        node["numbers"].append((formal, value(number_)))
    elif line.startswith("keeps "):
        node["saved"].append(read_saved(fields(line)))
    elif line.startswith("notes "):
        left, right = parts(line[6:], " = ")[0], line[6:].split(" = ", 1)[1]
        node["scalars"].append((name(left), value(right)))
    elif line.startswith("note: "):
        node["note"] = name(line[6:])
    else:
        raise AssertionError(line)


def read_saved(found: list[str]) -> dict:
    if found[-1] == "never saved":
        return dict(formal=found[0].removeprefix("keeps nothing as "), state="never saved")
    role = re.match(r"keeps its (input|output) ", found[0])
    state, _, packed = found[4].partition(": ")
    if found[3].endswith(" B now"):  # all that is known of it is what stands in its place
        packed, found = found[2], [*found[:2], "unknown", found[3].removesuffix(" now"), *found[4:]]
    out = dict(
        output=role[1] == "output", names=names(found[0][role.end() :]), formal=found[1].removeprefix("as "),
        tensor=tensor(found[2]), bytes=nbytes(found[3]), state=STATES.get(state, state),
        packed=name(packed) if packed else "",
        mask=False, alive=False, first=None, storage=None,
    )  # fmt: skip
    for item in found[5:]:
        if item == "the dropout mask":
            out["mask"] = True
        elif item.endswith(": not counted"):
            out["alive"] = True
        elif item.startswith("in its place "):
            out["storage"] = nbytes(item[13:])
        elif found_ := re.fullmatch(r"same storage as (.+) of \[(\d+)\]: counted once", item):
            out["first"] = (int(found_[2]), found_[1])
        else:
            out["storage"] = nbytes(re.fullmatch(r"a view: its whole storage of (.+) stays", item)[1])
    return out


def formal(saved: data.SavedTensor) -> str:
    text = saved.argument
    if text.startswith("attribute ") and not re.fullmatch(r"\w[\w.\[\]]*", text[10:]):
        text = "attribute " + json.dumps(text[10:], ensure_ascii=False)
    return text if saved.position is None else f"{text}[{saved.position}]"


def drawn(recording: data.Recording, saved: data.SavedTensor) -> bool:
    """Whether a kept tensor is what dropout drew."""
    if saved.argument == "result1" and recording.nodes[saved.node].name == "NativeDropoutBackward0":
        return True
    after = [recording.events[recording.storages[s].born + 1] for s in saved.storages if recording.storages[s].born >= 0
             and recording.storages[s].op.startswith("aten.empty")]  # fmt: skip
    return not saved.names and any(event.op.startswith("aten.bernoulli_") for event in after)


def info(saved: data.SavedTensor) -> tuple | None:
    return (saved.shape, saved.dtype, saved.device) if saved.dtype else None


def expected_graph(recording: data.Recording, g: int) -> dict:
    """The same plain values, from the recording itself."""
    graph = recording.graphs[g]
    moment = graph.event if graph.event is not None else len(recording.events) - 1
    ordered = forward_order(recording, graph)
    index = {n: i + 1 for i, n in enumerate(ordered)}
    live = data.live_storages(recording, moment)
    first_of: dict[int, tuple[int, str]] = {}
    nodes, tensors, total = [], 0, 0
    for n in ordered:
        node = recording.nodes[n]
        roots = [e.output for e in graph.roots if e.node == n]
        out = dict(
            froms=["no gradient" if e.node is None else (index[e.node], e.output) for e in node.edges],
            saved=[], scalars=[(s.name, s.value) for s in node.scalars], numbers=[], note=node.note,
            roots=roots or None, pruned=n in graph.pruned, line="", module=node.module, names=node.names,
        )  # fmt: skip
        if node.leaf:
            leaf = node.leaf
            out |= dict(
                kind="parameter" if leaf.parameter else "leaf", names=leaf.names, bytes=leaf.nbytes,
                tensor=(leaf.shape, leaf.dtype, leaf.device),
            )  # fmt: skip
            nodes.append(out)
            continue
        made = [o and (o.shape, o.dtype, o.device) for o in node.outputs]
        out |= dict(kind=node.kind, name=node.name, line=where(recording, node.place), outputs=made)
        for s in node.saved:
            saved = recording.saved[s]
            state = data.state_at(saved, moment)
            if state is None:
                continue
            if saved.scalar:
                out["numbers"].append((formal(saved), saved.scalar))
                continue
            if state == "never saved":
                out["saved"].append(dict(formal=formal(saved), state=state))
                continue
            here = [i for i in saved.storages if i in live and state != "released"]
            new = [i for i in here if i not in first_of]
            first = next((first_of[i] for i in here if i in first_of), None)
            for i in new:
                first_of[i] = (index[n], formal(saved))
            alive = any(live[i][1] in ("parameters", "buffers") for i in here)
            size = sum(live[i][0] for i in here)
            if not alive:
                total += sum(live[i][0] for i in new)
                tensors += first is None and (state in ("live", "changed in place") or size > 0)
            view = size not in (0, saved.nbytes if state != "packed" else 0) and first is None and not alive
            out["saved"].append(
                dict(
                    output=saved.output, names=saved.names, formal=formal(saved), bytes=saved.nbytes, state=state,
                    tensor=info(saved), packed=saved.packed if state == "packed" else "",
                    mask=drawn(recording, saved), alive=alive, first=first, storage=size if view else None,
                )
            )  # fmt: skip
        nodes.append(out)
    operations = sum(recording.nodes[n].leaf is None for n in ordered)
    edges = sum(e.node is not None for n in ordered for e in recording.nodes[n].edges)
    return {
        "operations": operations, "leaves": len(ordered) - operations, "edges": edges, "tensors": tensors,
        "bytes": total,
        "nodes": nodes,
    }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------- ledger

FLAG = re.compile(r" \[([^\[\]]*(?:\"(?:[^\"\\]|\\.)*\"[^\[\]]*)*)\]$")


def read_kept(twin: str) -> dict:
    """A ledger's twin (the full one): its total, its rows, and the bytes that each row adds."""
    lines = twin.split("\n")
    tensors, total = read_heading(lines[0])
    rows = []
    for line in lines[1:]:
        if not line.startswith("  "):
            continue
        found = fields(line)
        if found[4].endswith(" B now"):
            found[3:5] = "unknown", found[4].removesuffix(" now")
        size = nbytes(found[4])
        flag = FLAG.search(line)
        flags = flag[1] if flag else ""
        whole = re.search(r"(?:keeps its whole storage of|in its place) ([\d,]+ B)", flags)
        state = "packed" if "packed" in flags else "changed in place" if "changed in place" in flags else "live"
        counts = not ("counted once" in flags or "not counted" in flags or (state == "packed" and not whole))
        rows.append(
            dict(
                node=name(found[0]), output=found[1] == "keeps its output",
                label=found[2] if found[2].startswith("(") else names(found[2]), tensor=tensor(found[3]), bytes=size,
                state=state, counted=(nbytes(whole[1]) if whole else size) if counts else 0, why=found[-1],
            )
        )  # fmt: skip
    return {"tensors": tensors, "bytes": total, "rows": rows}


def check_kept(recording: data.Recording, twin: str, moment: int | None = None) -> None:
    found = read_kept(twin)
    total = data.kept_bytes(recording, moment)
    assert found["bytes"] == total
    assert sum(row["counted"] for row in found["rows"]) == total
    at = data.kept_moment(recording) if moment is None else moment
    expected = Counter()
    for saved in data.kept_at(recording, moment):
        if not saved.scalar:
            label = saved.names or f"({formal(saved)})"
            state = data.state_at(saved, at)
            expected[(recording.nodes[saved.node].name, saved.output, label, info(saved), saved.nbytes, state)] += 1
    said = Counter((r["node"], r["output"], r["label"], r["tensor"], r["bytes"], r["state"]) for r in found["rows"])
    assert said == expected
    assert all(row["why"] for row in found["rows"])


# --------------------------------------------------------------------------------------------------------------- memory


PARAMETERS = {"leaves": "parameters", "parameters and leaves": "parameters"}


def categories(text: str) -> dict[str, int]:
    if text == "nothing":
        return {}
    out = {}
    for part in re.findall(r"([a-z ]+?) ([\d,]+ B)(?:, |$)", text):
        out[PARAMETERS.get(part[0].strip(), part[0].strip())] = nbytes(part[1])
    return out


def parameter_words(recording: data.Recording) -> str:
    """What a twin calls the category of parameters: by what its storages are leaves of."""
    plain = {s for n in recording.nodes if n.leaf and not n.leaf.parameter for s in n.leaf.storages}
    moved = {s for e in recording.events for s, category in e.moved if category == "parameters"}
    mine = moved | {s.id for s in recording.storages if s.category == "parameters"}
    if not any(n.leaf for n in recording.nodes) and mine:
        module = any("." in name_ for s in mine for name_ in recording.storages[s].names)
        return "parameters" if module else "leaves"
    return "parameters" if not mine & plain else "parameters and leaves" if mine - plain else "leaves"


def birth(recording: data.Recording, storage: data.Storage) -> str:
    """How a twin says a storage came to be, where an operation made it."""
    if not storage.op:
        return ""
    op = storage.op.removeprefix("aten.").split(".")[0].lstrip("_")  # without the underscore of torch's own kernels
    event = recording.events[storage.born]
    line_ = where(recording, event.place)
    if event.phase not in ("backward", "step"):
        return f"made by {op}" + (f" on {line_}" if line_ else "")
    node = event.node is not None and recording.nodes[event.node].kind != "leaf" and event.phase == "backward"
    return f"made in {event.phase} by {op}" + ((f", for {line_}" if node else f" on {line_}") if line_ else "")


def check_memory(recording: data.Recording, twin: str) -> None:
    """Every number of a memory twin (the full one), against the folds over the recording."""
    line = data.timeline(recording)
    totals = line.totals
    lines = twin.split("\n")
    head = re.fullmatch(r"Memory: ([\d,]+) events?; ([\d,]+ B) live before, ([\d,]+ B) after", lines[0])
    assert number(head[1]) == len(recording.events)
    assert (nbytes(head[2]), nbytes(head[3])) == (totals[0], totals[-1])
    peak = re.match(r"Peak: ([\d,]+ B), (?:at event ([\d,]+) of|before the first event)", lines[1])
    assert nbytes(peak[1]) == max(totals)
    moment = number(peak[2]) - 1 if peak[2] else -1
    assert moment == line.peak
    at = {k: v for k, v in line.at(moment).items() if v}
    assert categories(lines[2].removeprefix("  at the peak: ")) == at
    live = sorted((n for n, _ in data.live_storages(recording, moment).values() if n), reverse=True)
    named = [fields(x) for x in lines if x.startswith("    ")]
    biggest = [nbytes(x[0]) for x in named]
    assert biggest == live[: len(biggest)] and (len(biggest) == 8 or len(biggest) == len(live))
    there = {}
    for s, (n, category) in data.live_storages(recording, moment).items():
        there.setdefault((n, PARAMETERS.get(category, category)), []).append(recording.storages[s])
    for x in named:
        like = there[nbytes(x[0]), PARAMETERS.get(x[1], x[1])]
        assert any(not storage.op or x[2].endswith(birth(recording, storage)) for storage in like), x
    said = {word for word in (*PARAMETERS, "parameters") if re.search(rf"(?<!and )\b{word} [\d,]+ B", twin)}
    assert said <= {parameter_words(recording)}
    begins = [
        next((where(recording, e.place) for e in recording.events[a : b + 1] if e.place is not None), "")
        for name_, a, b in data.phases(recording) if name_ == "forward"
    ]  # fmt: skip
    rounds = next((x for x in lines if x.startswith("Rounds: ")), "")
    assert bool(rounds) == (bool(begins) and begins[0] != "" and begins.count(begins[0]) > 1)
    if rounds:
        assert rounds.startswith(f"Rounds: {begins.count(begins[0])}, each beginning on {begins[0]}: at events ")
    rows = []
    begin = lines.index("Phases:") + 1 if "Phases:" in lines else len(lines)
    for text in lines[begin:]:
        if not text.startswith("  "):
            break
        span, name_, start, ends, top = fields(text)
        end, _, left = ends.partition(": ")
        first, _, last = span.partition("–")
        size, _, split = top.removeprefix("peak ").partition(": ")
        rows.append((name_, int(first) - 1, int(last or first) - 1, nbytes(start[6:]), nbytes(end[4:]), nbytes(size)))
        assert sum(categories(split).values()) == nbytes(size)
        after = line.rows[rows[-1][2] + 1]
        assert {k: v for k, v in zip(line.categories, after, strict=True) if v} == categories(left)
        assert any(
            {k: v for k, v in zip(line.categories, row, strict=True) if v} == categories(split)
            for row in line.rows[rows[-1][1] : rows[-1][2] + 2]
        )
    expected = [
        (name_, a, b, totals[a], totals[b + 1], max(totals[a : b + 2])) for name_, a, b in data.phases(recording)
    ]
    assert rows == expected
    if recording.events:
        begin = lines.index("Events:") + 1
        check_events(recording, lines[begin : begin + len(recording.events)])
        assert not any(x.startswith("  ") for x in lines[begin + len(recording.events) :])


RAN = {
    "op": " ran", "free": "no longer referred to", "enter": "the backward pass begins", "run": " has run",
    "accumulate": "a gradient arrives", "release": " lets go of what it kept", "leave": "the backward pass ends",
    "step": "the optimizer's step begins", "stepped": "the optimizer's step ends", "error": "an error",
}  # fmt: skip
SEED = "the seed gradient 1"
EVENT_DETAIL = re.compile(
    "allocated|resized|keeps|released|freed|added into|the sum becomes|becomes|now (?=kept)|now counted as"
)


def check_events(recording: data.Recording, lines: list[str]) -> None:
    """Every event that a twin lists: number, phase, what ran and where, each storage with its bytes, the total."""
    totals = data.timeline(recording).totals
    for event, line in zip(recording.events, lines, strict=True):
        index, phase, words = fields(line)
        assert (number(index) - 1, phase) == (event.index, event.phase)
        what, *details = parts(words, "; ")
        assert RAN[event.kind] in what
        if event.kind in ("op", "run", "release") and event.op:
            op = event.op.split(".")[1] if event.op.startswith("aten.") else event.op
            assert what.startswith((f"{op} ", json.dumps(op, ensure_ascii=False))), what
        at = where(recording, event.place)
        assert event.kind == "accumulate" or (what.endswith(f" {at}") if at else " line " not in what), what
        assert nbytes(details.pop().removeprefix("total ")) == totals[event.index + 1]
        found: dict[str, list[str]] = {}
        for detail in details:
            key = EVENT_DETAIL.match(detail)[0]
            found.setdefault(key.strip(), []).append(detail[len(key) :].strip())
        for key, ids in (("allocated", event.allocated), ("freed", event.freed)):
            check_storages(recording, event, ids, found.pop(key, []))
        assert len(found.pop("resized", [])) == len(event.resized)
        for key, ids in (("keeps", event.kept), ("released", event.released)):
            saved = [recording.saved[k] for k in ids if not recording.saved[k].scalar]
            expected = [s.names or f"({formal(s)})" for s in saved]
            said = [x if x.startswith("(") else names(x) for text in found.pop(key, []) for x in parts(text, ", ")]
            assert said == expected
        grads: tuple[int, ...] = ()
        if event.accumulated is not None:
            grads = event.accumulated.storages
            first, in_place = event.accumulated.first, event.accumulated.in_place
            key = "added into" if in_place else "becomes" if first else "the sum becomes"
            into, _, left = found.pop(key)[0].partition(": ")
            leaf = recording.nodes[event.accumulated.node].leaf
            if into.endswith(".grad"):
                assert (into.removesuffix(".grad"),) == leaf.names
            else:
                assert names(into.removeprefix("the .grad of ").replace("an unnamed leaf", "unnamed")) == leaf.names
            check_storages(recording, event, grads, [left])
        moved = [(s, c) for s, c in event.moved if not (c == "gradients" and s in grads)]
        said = [*found.pop("now", []), *found.pop("now counted as", [])]
        assert not found
        assert len(said) == len(moved)
        kept = [m for m in moved if m[1] == "kept for backward"]
        for (s, category), text in zip([*kept, *(m for m in moved if m not in kept)], said, strict=True):
            word, _, left = text.partition(": ")
            assert PARAMETERS.get(word, word) == category
            check_storages(recording, event, [s], [left])


def check_storages(recording: data.Recording, event: data.MemoryEvent, ids, said: list[str]) -> None:
    """ "8 B (z), 4 B (scalar float32 of event 2)": each storage's bytes, and its names or where it came from."""
    found = said[0] if said else ""
    for k, s in enumerate(ids):
        storage = recording.storages[s]
        head = f"{', ' if k else ''}{storage.nbytes:,} B ("
        assert found.startswith(head), (found, head)
        inside, found = parts(found[len(head) :], ")")[0], ")".join(parts(found[len(head) :], ")")[1:])
        while inside.count("(") > inside.count(")") and found and '"' not in inside:
            more, *rest = parts(found, ")")
            inside, found = f"{inside}){more}", ")".join(rest)
        if storage.names:
            assert names(inside) == storage.names
            continue
        form, _, born = inside.partition(" of event ")
        assert (number(born) - 1 if born else event.index) == storage.born or (storage.born < 0 and not born)
        if form == SEED:
            assert recording.events[storage.born].node is None and storage.op.startswith("aten.ones_like")
            assert recording.events[storage.born + 1].kind == "enter"
        elif form != "unnamed":
            assert tensor(form)[:2] == (storage.shape, storage.dtype)
    assert not found
