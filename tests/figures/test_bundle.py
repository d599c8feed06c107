"""The one HTML bundle: what survives in an untrusted notebook, alt text, saving, labels that try to be markup."""

import re
from html.parser import HTMLParser

import pytest

from helpers.figures import Figure, graph_figure, kept_figure, memory_figure, overview_figure
from helpers.figures.bundle import prose
from tests.figures.recordings import AWKWARD, SAMPLES
from tests.figures.sound import check_sound, check_svg, texts

VIEWS = (graph_figure, kept_figure, memory_figure, overview_figure)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_sound(name, view):
    check_sound(view(SAMPLES[name]()))


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("name", ["transformer", "awkward", "states", "trunk"])
def test_same_bytes_each_time(name, view):
    first, second = view(SAMPLES[name]()), view(SAMPLES[name]())
    assert first is not second
    assert first == second
    assert first.html == second.html


def test_labels_stay_labels():
    """Awkward names make no element (check_sound has parsed all), and are shown: whole, or cut with a sign."""
    figure = graph_figure(SAMPLES["awkward"]())
    shown = texts(figure.svg)
    assert '"<script>alert(1)</script>"' in shown
    assert '"w<1>|{x} \\"q\\" \\n"' in shown
    assert '"&amp;"' in shown
    assert "日本" in shown
    assert '"\\u202eabc"' in shown  # a sign that turns the text's direction is written out
    for name in AWKWARD:
        assert not any(name in t for t in shown if name.startswith("\u202e"))
    reader = check_sound(kept_figure(SAMPLES["awkward"]()))
    assert '"<script>alert(1)</script>"' in reader.text


def test_names_reach_every_twin():
    recording = SAMPLES["awkward"]()
    for view in (graph_figure, kept_figure):
        assert r'"w<1>|{x} \"q\" \n"' in view(recording).text
    assert "layers.0.weight" in memory_figure(recording).text_full()


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.lang, self.title, self._last = [], None, "", ""

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self._last = tag
        if tag == "html":
            self.lang = dict(attrs)["lang"]
        for key, value in attrs:
            assert not key.startswith("on")
            assert key not in ("href", "id")
            assert key != "src" or value.startswith("data:")

    def handle_data(self, data):
        if self._last == "title":
            self.title += data.strip()


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_saved_page(tmp_path, view):
    """A page with language, title and one H1; nothing that needs a network; the whole twin in it."""
    figure = view(SAMPLES["awkward"]())
    path = figure.save(tmp_path / "a figure.html")
    content = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(content)
    assert page.lang == "en"
    assert page.title
    assert page.tags.count("h1") == 1
    assert not {"script", "link", "iframe", "style", "object"} & set(page.tags)
    assert "http" not in re.sub(r"base64,[^\"]*", "", content)


def test_saved_svg_and_text(tmp_path):
    figure = graph_figure(SAMPLES["layer"]())
    check_svg(figure.save(tmp_path / "g.svg").read_text(encoding="utf-8"))
    assert figure.save(tmp_path / "g.txt").read_text(encoding="utf-8") == figure.text_full() + "\n"


def test_saving_as_something_else(tmp_path):
    with pytest.raises(ValueError, match=r"saved as \.html, \.svg or \.txt"):
        graph_figure(SAMPLES["layer"]()).save(tmp_path / "g.png")
    with pytest.raises(ValueError, match="a table, not a drawing"):
        kept_figure(SAMPLES["layer"]()).save(tmp_path / "k.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_lone_surrogate_can_be_saved(tmp_path):
    figure = Figure("t", "t", "t", "", "<p>\ud800</p>")
    assert "?" in figure.save(tmp_path / "a.html").read_text(encoding="utf-8")


def test_colours_are_inline_on_every_cell():
    """A front end's own style sheet gives table rows grounds of its own: each cell brings both colours."""
    body = kept_figure(SAMPLES["layer"]()).html
    for cell in re.findall(r"<t[dh] [^>]*>", body):
        assert "background-color:" in cell and "color:" in cell.replace("background-color:", "")


def test_numbers_stay_beside_their_units():
    assert prose("keeps 8,192 B <for> 2 bytes, 3 Bananas") == "keeps 8,192\u00a0B &lt;for&gt; 2\u00a0bytes, 3 Bananas"
