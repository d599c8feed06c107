"""What a step of the player costs, and how large its figures are: `python -m tests.bench.player`.

Script, style and layout of each step as the browser itself counts them (chromium, no GPU), with the key pressed and a
frame drawn; the first steps count too. Touched nodes are a test (tests/figures/test_player_browser.py), times are not.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Page

from helpers.figures.player import HERE, player_figure
from tests.chromium import chromium
from tests.chromium import found as found_chromium
from tests.figures.player_samples import SAMPLES

NAMES = ("product", "layer", "accumulation", "retained", "version_error", "transformer")
#: Steps measured at most, spread over a recording in runs of ten.
MOST_STEPS = 400
COUNTED = ("ScriptDuration", "RecalcStyleDuration", "LayoutDuration")
FRAME = "() => new Promise(resolve => requestAnimationFrame(() => setTimeout(resolve)))"


def costs(page: Page, steps: int) -> list[float]:
    """Milliseconds of script, style and layout of each measured step."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def spent() -> float:
        metrics = {m["name"]: m["value"] for m in session.send("Performance.getMetrics")["metrics"]}
        return 1000 * sum(metrics[name] for name in COUNTED)

    slider = page.get_by_role("slider", name="Step")
    # What asking costs by itself: the same questions, and no step.
    page.evaluate(FRAME)
    idle = []
    for _ in range(20):
        before = spent()
        page.evaluate(FRAME)
        idle.append(spent() - before)
    out = []
    stride = max(10, 10 * steps // MOST_STEPS)
    for start in range(0, steps, stride):
        slider.evaluate("(slider, p) => { slider.value = p; slider.dispatchEvent(new Event('input')); }", start)
        page.evaluate(FRAME)
        slider.focus()
        for _ in range(min(10, steps - start)):
            before = spent()
            page.keyboard.press("ArrowRight")
            page.evaluate(FRAME)
            out.append(max(0.0, spent() - before - median(idle)))
    return out


def main() -> None:
    path = found_chromium()
    if path is None:
        sys.exit("no chromium found")
    js, css = ((HERE / name).stat().st_size for name in ("player.js", "player.css"))
    print(f"player.js {js:,} B, player.css {css:,} B\n")
    print("| | events | figure, B | of it script, B | steps measured | median, ms | worst, ms |")
    print("|---|---|---|---|---|---|---|")
    with chromium(path) as browser, tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            recording = SAMPLES[name]()
            figure = player_figure(recording)
            page = browser.new_page(viewport={"width": 1200, "height": 1100})
            page.goto(figure.save(Path(folder) / f"{name}.html").as_uri())
            found = costs(page, len(recording.events))
            page.close()
            whole, script = len(figure.html.encode()), len(figure.script.encode())
            print(
                f"| {name} | {len(recording.events):,} | {whole:,} | {script:,} "
                f"| {len(found)} | {median(found):.2f} | {max(found):.2f} |"
            )


if __name__ == "__main__":
    main()
