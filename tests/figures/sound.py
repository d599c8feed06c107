"""What holds for every figure's HTML and SVG."""

from __future__ import annotations

import base64
import html
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

#: What JupyterLab leaves of an output of a notebook that it does not trust, as far as figures use it.
TAGS = {"div", "p", "img", "table", "caption", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"style", "src", "alt", "scope"}
STYLES = {
    "background-color", "border", "border-bottom", "border-collapse", "border-radius", "box-sizing", "caption-side",
    "color", "display", "font-family", "font-size", "font-weight", "height", "line-height", "margin", "max-width",
    "overflow", "padding", "text-align", "vertical-align", "white-space",
}  # fmt: skip
SHAPES = {"svg", "g", "title", "rect", "ellipse", "path", "text"}
SVG = "{http://www.w3.org/2000/svg}"


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.images, self.open, self.scopes, self.captions, self.tables, self.text = [], [], 0, 0, 0, ""

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        attributes = dict(attrs)
        assert len(attributes) == len(attrs)
        assert set(attributes) <= ATTRIBUTES, attributes
        for part in filter(None, attributes.get("style", "").split(";")):
            assert part.split(":")[0] in STYLES, part
        if tag == "img":
            self.images.append(attributes)
        else:
            self.open.append(tag)
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if tag == "th":
            assert attributes["scope"] in ("row", "col")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check_sound(figure, most: int = 300_000) -> Reader:
    """HTML that survives, images with alt text, drawings of known shapes only, no ids, sizes within their bar."""
    bundle = figure._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"] == str(figure) == repr(figure) == figure.text
    assert figure.text.strip() and figure.alt.strip() and figure.title.strip()
    assert len(bundle["text/html"]) < most
    reader = Reader()
    reader.feed(bundle["text/html"])
    reader.close()
    assert not reader.open
    assert reader.captions == reader.tables
    assert "background-color:#ffffff" in bundle["text/html"].split(">", 1)[0]
    for image in reader.images:
        assert image["alt"].strip()
        assert "max-width:100%" in image["style"]
        head, _, data = image["src"].partition(",")
        assert head == "data:image/svg+xml;base64"
        check_svg(base64.b64decode(data).decode())
    assert all(c.isprintable() or c == "\n" for c in figure.text)
    return reader


def check_svg(svg: str) -> ET.Element:
    """Well-formed, with an opaque ground, and no element, script or reference that a label could have made."""
    root = ET.fromstring(svg)
    for element in root.iter():
        assert element.tag.removeprefix(SVG) in SHAPES, element.tag
        for key, value in element.attrib.items():
            assert key != "id" and not key.startswith("on") and "href" not in key and "url(" not in value
    width, height = float(root.get("width")), float(root.get("height"))
    ground = root.find(f"{SVG}rect")
    assert (ground.get("width"), ground.get("height")) == (root.get("width"), root.get("height"))
    assert re.fullmatch(r"#[0-9a-f]{6}", ground.get("fill"))
    assert width > 0 and height > 0
    return root


def texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{SVG}text")]


def unescaped(text: str) -> str:
    return html.unescape(text)
