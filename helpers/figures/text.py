"""Words and numbers as all figures write them: bytes, shapes, names, lines. No drawing here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence

from helpers.data import MemoryEvent, Place, Recording, Storage, TensorInfo

_PLAIN = re.compile(r"\w[\w.\[\]()]*(?: [\w.\[\]()]+)*\Z")
_TAIL = re.compile(r"Backward\d*\Z")
#: Words that would read as part of a twin's own grammar if they stood bare where a name stands.
_RESERVED = frozenset({"unnamed", "and"})


def grouped(n: int) -> str:
    """8192 → "8,192"."""
    return f"{n:,}"


def exact(n: int) -> str:
    """8192 → "8,192 B": exact bytes, as text twins give them."""
    return f"{n:,} B"


def human(n: int) -> str:
    """Bytes in decimal units (GB is 1e9), to three digits: 8192 → "8.19 kB". Below 1,000: exact."""
    if abs(n) < 1000:
        return f"{n} B"
    value, unit = n / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if abs(value) < 999.5:
            break
        value, unit = value / 1000, larger
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def both(n: int) -> str:
    """Exact bytes, and the human form where it is shorter to read: "10,240 B (10.2 kB)"."""
    return exact(n) if abs(n) < 10_000 else f"{exact(n)} ({human(n)})"


def shape(sizes: Sequence[int]) -> str:
    """(32, 64) → "32×64"; () → "scalar"; (5,) → "5"."""
    return "×".join(map(str, sizes)) if len(sizes) else "scalar"


def tensor(info: TensorInfo | None) -> str:
    """ "32×64 float32", with the device if it is not the CPU; "unknown" where shape and dtype are not known."""
    if info is None or not info.dtype:
        return "unknown"
    where = "" if info.device == "cpu" else f" on {info.device}"
    return f"{shape(info.shape)} {info.dtype}{where}"


def element_bytes(dtype: str) -> int | None:
    """Bytes of one element of a dtype by its name; None if unknown."""
    if dtype == "bool":
        return 1
    if dtype.startswith("float8"):
        return 1
    if dtype == "bfloat16":
        return 2
    found = re.fullmatch(r"(?:u?int|float|complex|quint|qint)(\d+)", dtype)
    return int(found[1]) // 8 if found and int(found[1]) >= 8 else None


def nbytes(info: TensorInfo | None) -> int | None:
    """Elements × element size; None if the dtype is unknown."""
    size = element_bytes(info.dtype) if info else None
    if size is None:
        return None
    for n in info.shape:
        size *= n
    return size


def quoted(name: str) -> str:
    """A name as it stands if it is a plain one (words, "W.t()"), else in double quotes with JSON's escapes."""
    if _PLAIN.match(name) and _RESERVED.isdisjoint(name.split(" ")):
        return name
    text = json.dumps(name, ensure_ascii=False)
    return "".join(c if c.isprintable() else escape_unprintable(c) for c in text)


def escape_unprintable(character: str) -> str:
    """JSON escapes of a character that must not stand in a line of text (controls, direction marks, surrogates)."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


#: Saved numbers that change nothing: their names, with the values at which they do.
_USUAL = {
    "alpha": ("1", "1.0"),
    "beta": ("1", "1.0"),
    "approximate": ("none", "'none'"),
    "ignore_index": ("-100",),
    "reduction": ("0", "1", "2"),
    "keepdim": ("False",),
    "non_blocking": ("False",),
    "training": ("True",),
}
_BREAKS = re.compile(r"(?<!\d) | (?!(?:B|kB|MB|GB|TB|KiB|MiB|GiB|TiB|bytes?)\b)")
_SIZES = re.compile(r"_sym_|sizes?$|strides?$|numel$|layout$|options$|scalar_type$")


def is_size(name: str) -> bool:
    """Whether a saved number's name says that it only tells a tensor's size or form."""
    return _SIZES.search(name) is not None


def is_usual(name: str, content: str) -> bool:
    """Whether a saved number tells a reader nothing: a size, a factor of one before a sum's terms, a usual setting."""
    return is_size(name) or content in _USUAL.get(name, ())


def value(content: str) -> str:
    """A value at a line's end: as it stands if it is printable and cannot be taken for a quoted one, else quoted."""
    plain = content.isprintable() and content.strip() == content and content and not content.startswith('"')
    return content if plain else quoted(content)


def in_module(name: str) -> str:
    """ "in layers.0.norm", "in module 0" for a name that begins with a number; "" for none."""
    return f"in {'module ' if name[:1].isdigit() else ''}{quoted(name)}" if name else ""


def names(many: Iterable[str]) -> str:
    """Every name, joined by " and "; "" if there is none."""
    return " and ".join(quoted(n) for n in many)


def operation(node_name: str) -> str:
    """ "MulBackward0" → "Mul": what ran in forward. Names of another form stay as they are."""
    return _TAIL.sub("", node_name) or node_name


def forward_operation(op: str) -> str:
    """ "aten.addmm.default" → "addmm"."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 and parts[0] in ("aten", "prims", "torchvision") else op


def line(recording: Recording, place: int | None) -> str:
    """ "line 6" of the recorded cell, or "model.py line 6"; "" if unknown."""
    found = recording.place_of(place)
    return frame_words(recording, found) if found else ""


def frame_words(recording: Recording, place: Place) -> str:
    frame = place.outer
    if frame is None:
        return ""
    home = recording.cell if recording.cell is not None else 0
    where = "" if frame.source == home else f"{recording.sources[frame.source].label} "
    return f"{where}line {frame.line}"


def moment(recording: Recording, event: MemoryEvent) -> str:
    """When something happened: "on line 6", "in backward, for line 6", "in step, on line 9"; "" if unknown.

    A backward node's line is the one that made it in forward: that line does not run again.
    """
    where = line(recording, event.place)
    if event.phase == "backward":
        ran = event.node is not None and recording.nodes[event.node].leaf is None
        return "in backward" + (f", {'for' if ran else 'on'} {where}" if where else "")
    if event.phase == "step":
        return "in step" + (f", on {where}" if where else "")
    return f"on {where}" if where else ""


def message(event: MemoryEvent) -> str:
    """An event's note in one line; an error without words of its own is only its kind: "ValueError"."""
    note = " ".join(event.note.split())
    return note.removesuffix(":") if event.kind == "error" else note


def made(recording: Recording, storage: Storage) -> str:
    """How a storage came to be: "made by mm on line 6", "made in backward by mul, for line 6"; "" if unknown."""
    if not storage.op:
        return ""
    by = f"by {quoted(forward_operation(storage.op).lstrip('_'))}"  # "_softmax" is what a user calls softmax
    event = recording.events[storage.born] if 0 <= storage.born < len(recording.events) else None
    when = moment(recording, event) if event else ""
    if when.startswith("in "):
        phase, _, where = when.partition(", ")
        return f"made {phase} {by}" + (f", {where}" if where.startswith("for") else f" {where}" if where else "")
    where = line(recording, storage.place)
    return f"made {by}" + (f" on {where}" if where else "")


def plural(n: int, one: str, many: str | None = None) -> str:
    """ "1 tensor", "2 tensors", "1,024 nodes"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def aligned(rows: Sequence[Sequence[str]], *, indent: str = "  ", right: frozenset[int] = frozenset()) -> list[str]:
    """Rows as lines: columns padded to one width, two spaces between them, no space at a line's end."""
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(max(map(len, rows))) if all(i < len(r) for r in rows)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row) if widths[i]
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def short(text: str, limit: int) -> str:
    """A text cut in its middle to `limit` characters, shown by an ellipsis; figures give the whole elsewhere."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def short_name(name: str, limit: int) -> str:
    """A name cut to `limit` characters: one with a path ("layers.1.norm.weight") at its left, since its end tells."""
    return name if len(name) <= limit else f"…{name[1 - limit :]}" if "." in name else short(name, limit)


def wrapped(text: str, width: float, measure: Callable[[str], float] = len) -> list[str]:
    """Words broken into lines of at most `width`, counted in characters unless measured; a longer word stands alone.

    A number stays on one line with its unit.
    """
    lines, current = [], ""
    for word in _BREAKS.split(" ".join(text.split())):
        if current and measure(f"{current} {word}") > width:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}" if current else word
    return [*lines, current] if current else lines or [""]
