"""What was left out, and what may not be.

A test that cannot run here says so as `pytest.skip("browser: no chromium found")`, the missing thing's name first. The
run ends with one line of all that was left out. Where REQUIRE is set (as in .ci/run: REQUIRE="browser snapshots"), a
skip for one of these names fails, and so does a skip that names nothing.
"""

import os
import re
from collections import Counter

import pytest

# Nobody's own answers are read or written, in the kernels that tests start either.
os.environ["GRADIENTS_ANSWERS"] = "off"

REQUIRED = os.environ.get("REQUIRE", "").split()
NAMED = re.compile(r"(?:Skipped: )?([a-z][\w-]*): \S")


def refused(report):
    """Why this skip fails the run; None where it may stand."""
    if not REQUIRED or not report.skipped or hasattr(report, "wasxfail"):
        return None
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    named = NAMED.match(reason)
    if named is None:
        return f"a skip must name what is missing, as in `browser: no chromium found`, not: {reason}"
    return f"required here, yet skipped: {reason}" if named[1] in REQUIRED else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if why := refused(report):
        report.outcome, report.longrepr = "failed", why
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if why := refused(report):
        report.outcome, report.longrepr = "failed", why
    return report


def pytest_unconfigure(config):
    """The very last line, after pytest's own."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reporter.stats.get("skipped", []))
    listed = "; ".join(f"{reason} ({count})" for reason, count in sorted(reasons.items()))
    reporter.write_line(f"Left out: {listed or 'nothing'}")


@pytest.fixture(scope="module")
def browser():
    from tests import chromium

    path = chromium.found()
    if path is None:
        pytest.skip("browser: no chromium found")
    with chromium.chromium(path) as browser:
        yield browser


@pytest.fixture(scope="module")
def one_thread():
    """Small steps on several threads mostly wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
