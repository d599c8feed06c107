"""Reading a graph in the DOT language, such as torchviz writes, and writing it again for a layout program.

torchviz names its boxes by memory addresses, so names are replaced by numbers in order of appearance: the same graph
gives the same text in every process. Fonts are replaced by two whose widths every layout program knows by heart.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|(?:(?<=\n)|\A)\#[^\n]*)
    |(?P<quoted>"(?:[^"\\]|\\.)*")
    |(?P<html><)
    |(?P<arrow>->|--)
    |(?P<id>[^\W\d][\w\u00a0-\U0010ffff]*|-?(?:\.\d+|\d+(?:\.\d*)?))
    |(?P<sign>[{}\[\];,=:+])""",
    re.S | re.X,
)
#: What could read files, name a page's parts, or scale the drawing.
DROPPED = frozenset(
    "image shapefile fontpath imagepath id href url tooltip target edgehref edgeurl headhref headurl tailhref tailurl "
    "labelhref labelurl edgetooltip headtooltip tailtooltip labeltooltip comment size ratio page class stylesheet "
    "_background".split()
)
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{4,}")
DEEPEST = 50  # subgraphs inside one another


@dataclass(frozen=True, slots=True)
class Value:
    """An attribute's value; `markup` if it is an HTML-like label."""

    text: str
    markup: bool = False

    def __str__(self) -> str:
        return f"<{self.text}>" if self.markup else '"' + self.text.replace('"', '\\"') + '"'


Attributes = dict[str, Value]


@dataclass(slots=True)
class Node:
    """A box. `lines` is its label as it is read; `fill` its fill colour by name, "" for the usual one."""

    name: str
    attributes: Attributes

    @property
    def lines(self) -> list[str]:
        label = self.attributes.get("label")
        return [shown_name(self.name)] if label is None else lines_of(label, self)

    @property
    def fill(self) -> str:
        return plain(self.attributes, "fillcolor")

    @property
    def shape(self) -> str:
        return plain(self.attributes, "shape") or "ellipse"  # the language's own choice


@dataclass(slots=True)
class Edge:
    """An arrow between two nodes, by their indices; or a line, where neither end has a head."""

    tail: int
    head: int
    attributes: Attributes
    directed: bool

    @property
    def arrow(self) -> bool:
        return self.directed and plain(self.attributes, "dir") != "none"

    @property
    def dotted(self) -> bool:
        return "dotted" in plain(self.attributes, "style") or "dashed" in plain(self.attributes, "style")

    @property
    def label(self) -> str:
        value = self.attributes.get("label")
        return " ".join(lines_of(value)) if value else ""


@dataclass(slots=True)
class Cluster:
    """A region drawn around nodes, given by their indices; its label ("" for none) and the style of its line."""

    label: str
    style: str
    nodes: list[int]


@dataclass(slots=True)
class DotGraph:
    """A graph as read. `text` is the same graph in the DOT language, its boxes named n0, n1, … as in `nodes`."""

    nodes: list[Node]
    edges: list[Edge]
    torchviz: bool
    text: str
    clusters: list[Cluster] = field(default_factory=list)


@dataclass(slots=True)
class _Scope:
    node: Attributes = field(default_factory=dict)
    edge: Attributes = field(default_factory=dict)
    graph: Attributes = field(default_factory=dict)

    def inner(self) -> _Scope:
        return _Scope(dict(self.node), dict(self.edge), dict(self.graph))


def read(source: str) -> DotGraph:
    """The graph that `source` describes. Raises ValueError, with the line, for what is no graph in the DOT language."""
    return _Reader(source).graph()


class _Reader:
    def __init__(self, source: str) -> None:
        self.tokens = list(tokens(source))
        self.at = 0
        self.nodes: list[Node] = []
        self.numbers: dict[str, int] = {}
        self.edges: list[Edge] = []
        self.clusters: list[Cluster] = []
        self.out: list[str] = []
        self.directed = True
        self.torchviz = False
        self.depth = 0

    # ---------------------------------------------------------------- tokens

    def peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self.at + ahead
        return self.tokens[at][:2] if at < len(self.tokens) else ("end", "its end")

    def take(self, sign: str = "") -> str:
        kind, text = self.peek()
        if kind == "end" or (sign and (kind not in ("sign", "arrow") or text != sign)):
            self.fail(f"{sign!r} was expected" if sign else "something was expected")
        self.at += 1
        return text

    def fail(self, what: str):
        line = self.tokens[min(self.at, len(self.tokens) - 1)][2] if self.tokens else 1
        raise ValueError(f"This is no graph in the DOT language: {what} in line {line}, not {self.peek()[1][:40]!r}.")

    def sign(self, text: str) -> bool:
        if self.peek() == ("sign", text):
            self.at += 1
            return True
        return False

    def keyword(self) -> str:
        kind, text = self.peek()
        word = text.lower() if kind == "id" else ""
        return word if word in ("graph", "digraph", "node", "edge", "subgraph", "strict") else ""

    def value(self) -> Value:
        kind, text = self.peek()
        if kind not in ("id", "quoted", "html"):
            self.fail("a name or a value was expected")
        self.at += 1
        while kind == "quoted" and self.peek() == ("sign", "+") and self.peek(1)[0] == "quoted":
            text += self.peek(1)[1]
            self.at += 2
        return Value(text, kind == "html")

    # ---------------------------------------------------------------- grammar

    def graph(self) -> DotGraph:
        strict = self.keyword() == "strict"
        self.at += strict
        kind = self.keyword()
        if kind not in ("graph", "digraph"):
            self.fail("`digraph` or `graph` was expected")
        self.at += 1
        self.directed = kind == "digraph"
        if self.peek()[0] in ("id", "quoted", "html"):
            self.value()
        self.out += [f"{'strict ' if strict else ''}{kind} {{"]
        self.out += [f'{what} [fontname="Helvetica"]' for what in ("graph", "node", "edge")]
        self.take("{")
        self.statements(_Scope())
        if self.peek()[0] != "end":
            self.fail("the end was expected")
        for i, node in enumerate(self.nodes):
            if "label" not in node.attributes:
                self.out.append(f"n{i} [label={Value(shown_name(node.name).replace(chr(92), chr(92) * 2))}]")
        self.out.append("}")
        if strict:
            self.edges = list({(e.tail, e.head): e for e in self.edges}.values())
        return DotGraph(self.nodes, self.edges, self.torchviz, "\n".join(self.out), self.clusters)

    def statements(self, scope: _Scope) -> list[int]:
        """Up to and with the closing brace; the nodes that were named, in order."""
        named: list[int] = []
        while not self.sign("}"):
            if not self.sign(";"):
                named += self.statement(scope)
        return list(dict.fromkeys(named))

    def statement(self, scope: _Scope) -> list[int]:
        word = self.keyword()
        if word in ("graph", "node", "edge"):
            self.at += 1
            self.defaults(word, scope)
            return []
        if self.peek(1) == ("sign", "=") and not word:
            name = self.value().text
            self.take("=")
            kept = adjusted({name: self.value()})
            scope.graph |= kept
            self.out += [f"{Value(k)}={v}" for k, v in kept.items()]
            return []
        ends = [self.endpoint(scope)]
        while self.peek()[0] == "arrow":
            if (self.peek()[1] == "->") != self.directed:
                self.fail(f"{'->' if self.directed else '--'!r} was expected")
            self.at += 1
            ends.append(self.endpoint(scope))
        attributes = self.attributes()
        named = [number for numbers, _ in ends for number in numbers]
        if len(ends) > 1:
            for (tails, out), (heads, into) in zip(ends, ends[1:], strict=False):
                for tail in tails:
                    for head in heads:
                        self.edges.append(Edge(tail, head, {**scope.edge, **attributes}, self.directed))
                        arrow = "->" if self.directed else "--"
                        self.out.append(f"n{tail}{out} {arrow} n{head}{into}{listed(attributes)}")
        elif len(named) == 1:
            own(attributes, self.nodes[named[0]])
            self.nodes[named[0]].attributes |= attributes
            self.out.append(f"n{named[0]}{listed(attributes)}")
        return named

    def defaults(self, word: str, scope: _Scope) -> None:
        attributes = self.attributes()
        if word == "node":
            # torchviz's own mark: it alone gives nodes a distance of ranks
            self.torchviz |= {"align", "ranksep", "fontsize"} <= set(attributes)
            if attributes.get("label") == Value("\\N"):
                del attributes["label"]
            scope.node |= attributes
        elif word == "edge":
            scope.edge |= attributes
        else:
            scope.graph |= attributes
        if attributes:
            self.out.append(f"{word}{listed(attributes)}")

    def endpoint(self, scope: _Scope) -> tuple[list[int], str]:
        """A node with its port, or the nodes of a subgraph."""
        if self.keyword() == "subgraph" or self.peek() == ("sign", "{"):
            return self.subgraph(scope), ""
        key = self.value()
        name = str(key) if key.markup else key.text
        if name not in self.numbers:
            self.numbers[name] = len(self.nodes)
            self.nodes.append(Node(name, dict(scope.node)))
        port = ""
        while self.sign(":"):
            port += f":{self.value()}"
        return [self.numbers[name]], port

    def subgraph(self, scope: _Scope) -> list[int]:
        name, cluster = "", False
        if self.keyword() == "subgraph":
            self.at += 1
            if self.peek()[0] in ("id", "quoted"):
                value = self.value()
                name, cluster = f"subgraph {value} ", value.text.startswith("cluster")
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(f"at most {DEEPEST} subgraphs inside one another were expected")
        self.out.append(f"{name}{{")
        self.take("{")
        within, at = scope.inner(), len(self.clusters)
        named = self.statements(within)
        self.out.append("}")
        self.depth -= 1
        if cluster and named:
            label = within.graph.get("label")
            words = " ".join(lines_of(label)) if label else ""
            self.clusters.insert(at, Cluster(words, plain(within.graph, "style"), named))  # before those inside it
        return named

    def attributes(self) -> Attributes:
        found: Attributes = {}
        while self.sign("["):
            while not self.sign("]"):
                if self.sign(",") or self.sign(";"):
                    continue
                name = self.value().text
                found[name] = self.value() if self.sign("=") else Value("true")
        return adjusted(found)


def tokens(source: str):
    """(kind, text, line) of each token; a quoted text without its quotes, markup without its outer brackets."""
    at, line = 0, 1
    while at < len(source):
        found = TOKEN.match(source, at)
        if not found:
            raise ValueError(f"This is no graph in the DOT language: line {line} has {source[at : at + 20]!r}.")
        kind, text = str(found.lastgroup), found[0]
        if kind == "html":
            text = markup(source, at, line)
        if kind == "quoted":
            yield kind, re.sub(r'\\("|\n|\\)', unquoted, text[1:-1]), line
        elif kind != "skip":
            yield kind, text[1:-1] if kind == "html" else text, line
        at += len(text)
        line += text.count("\n")


def markup(source: str, at: int, line: int) -> str:
    """The HTML-like value that begins at `at`, its brackets balanced."""
    depth = 0
    for found in re.compile("[<>]").finditer(source, at):
        depth += 1 if found[0] == "<" else -1
        if not depth:
            return source[at : found.end()]
    raise ValueError(f"This is no graph in the DOT language: a label that begins with '<' in line {line} never ends.")


def unquoted(found: re.Match[str]) -> str:
    return {'"': '"', "\n": "", "\\": "\\\\"}[found[1]]


def adjusted(attributes: Attributes) -> Attributes:
    """Attributes as they go on: without what is dropped, without addresses, in fonts whose widths are known."""
    out = {}
    for name, value in attributes.items():
        if name.lower() in DROPPED:
            continue
        text = ADDRESS.sub("0x…", value.text)
        if name == "fontname":
            text = "Courier" if re.search("mono|cour|consol|menlo|code", text, re.I) else "Helvetica"
        if value.markup:
            text = re.sub(r"<IMG\b[^>]*>", "", text, flags=re.I)
            text = re.sub(r'\b(?:FACE|ID|HREF|TITLE|TOOLTIP|TARGET)\s*=\s*("[^"]*"|\'[^\']*\')', "", text, flags=re.I)
        out[name] = Value(text, value.markup)
    return out


def own(attributes: Attributes, node: Node) -> None:
    """Write out `\\N`, a node's name, which the layout program would take for our number."""
    label = attributes.get("label")
    if label and not label.markup and "\\N" in label.text:
        name = shown_name(node.name).replace("\\", "\\\\")
        attributes["label"] = Value(re.sub(r"\\(.)", lambda m: name if m[1] == "N" else m[0], label.text, flags=re.S))


def listed(attributes: Attributes) -> str:
    return f" [{', '.join(f'{Value(k)}={v}' for k, v in attributes.items())}]" if attributes else ""


def plain(attributes: Attributes, name: str) -> str:
    return attributes[name].text.strip().lower() if name in attributes else ""


def shown_name(name: str) -> str:
    """The name of a node that has no label; "?" for what is only an address."""
    return "?" if re.fullmatch(r"\d{9,}|0x[0-9a-fA-F]+", name) else ADDRESS.sub("0x…", name)


def lines_of(label: Value, node: Node | None = None) -> list[str]:
    """A label as a reader sees it: its lines, stripped, without empty ones."""
    if label.markup:
        text = re.sub(r"<(?:br|/tr)\b[^>]*>", "\n", label.text, flags=re.I)
        text = re.sub(r"</td>|<[vh]r/?>", " ", text, flags=re.I)
        text = re.sub(r"<[^<>]*>", "", text)
    else:
        text = label.text
        if node and plain(node.attributes, "shape") in ("record", "mrecord"):
            text = re.sub(r"(?<!\\)<[^<>]*>|(?<!\\)[{}]", "", text)
            text = re.sub(r"(?<!\\)\|", r"\\n", text)
        special = {"n": "\n", "l": "\n", "r": "\n", "N": shown_name(node.name) if node else "", "G": ""}
        text = re.sub(r"\\(.)", lambda m: special.get(m[1], m[1]), text, flags=re.S)
    return [line for line in (" ".join(part.split()) for part in html.unescape(text).split("\n")) if line]
