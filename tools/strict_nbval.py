"""A pytest plugin that closes nbval's traps (load it with -p tools.strict_nbval):

- cells run as in JupyterLab, with history, so that a `;` at a line's end hides the value and `_` works;
- a kernel that died fails its cell at once, where nbval would wait for the cell's timeout;
- an error that came without a traceback (an unknown %magic) fails its cell, where nbval sees nothing.
"""

import time
from queue import Empty

import pytest
from nbval import plugin
from nbval.kernel import RunningKernel

from tools.notebooks import private_ipython

SLICE = 0.5


class StrictKernel(RunningKernel):
    reply = None

    def execute_cell_input(self, cell_input, allow_stdin=None):
        return self.kc.execute(cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False)

    def get_message(self, stream, timeout=None):
        """Waits in slices and looks between them whether the kernel is alive."""
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while True:
            left = end - time.monotonic()
            try:
                message = super().get_message(stream, timeout=max(0, min(SLICE, left)))
            except Empty:
                if not self.is_alive():
                    raise RuntimeError("The kernel died while it ran this cell.") from None
                if left <= SLICE:
                    raise
                continue
            if message["msg_type"] == "execute_reply":
                self.reply = message["content"]
            return message


def pytest_configure(config):
    if config.option.nbval:
        private_ipython()
        plugin.RunningKernel = StrictKernel


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    result = yield
    if isinstance(item, plugin.IPyNbCell):
        reply = item.parent.kernel.reply or {}
        shown = any(output.output_type == "error" for output in item.test_outputs or [])
        if reply.get("status") == "error" and not shown:
            item.raise_cell_error(f"An error without a traceback: {reply.get('ename')}: {reply.get('evalue')}")
    return result
