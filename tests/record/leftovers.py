"""What a recording could leave behind, as data that can be compared; and interrupts at chosen moments."""

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module
from torch.optim import optimizer
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import helpers
from helpers.record import interrupts, recorder
from helpers.record.nodes import _KEY

HOME = os.path.dirname(helpers.__file__)


def standing() -> dict[str, Any]:
    """Everything global that a recording touches, or might."""
    return {
        "module hooks": {n: dict(v) for n, v in vars(module).items() if n.startswith("_global_") and _sized(v)},
        "optimizer hooks": {n: dict(v) for n, v in vars(optimizer).items() if n.startswith("_global_") and _sized(v)},
        "engine": (torch.autograd._engine_run_backward, torch.autograd.graph._engine_run_backward),
        "random": (torch.get_rng_state, torch.random.get_rng_state),
        "linear": (torch.nn.functional.linear, len(torch.jit._builtins._get_builtin_table())),
        "dispatch modes": _get_current_dispatch_mode_stack(),
        "function modes": _get_current_function_mode_stack(),
        "keys": (repr(torch._C._dispatch_tls_local_include_set()), repr(torch._C._dispatch_tls_local_exclude_set())),
        "saved-tensor hooks": saved_tensor_hooks(),
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()),
        "threads": (torch.autograd.is_multithreading_enabled(), threading.active_count()),
        "gc": (gc.isenabled(), gc.get_threshold(), list(gc.callbacks), gc.get_debug()),
        "python": (sys.gettrace(), sys.getprofile(), sys.getrecursionlimit(), sys.unraisablehook, sys.excepthook),
        "interrupt": signal.getsignal(signal.SIGINT),
        "recording": recorder._active,
    }


def saved_tensor_hooks() -> Any:
    """The pair that packs and unpacks what is saved now; None for none, and where an early torch does not tell."""
    return getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda ignore: None)(True)


def _sized(value: Any) -> bool:
    return isinstance(value, dict)


def marked(*tensors: torch.Tensor) -> int:
    """How many nodes behind these tensors still carry a recording's marker."""
    queue = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen = set(queue)
    count = 0
    while queue:
        node = queue.pop()
        count += _KEY in node.metadata
        for target, _ in node.next_functions:
            if target is not None and target not in seen:
                seen.add(target)
                queue.append(target)
    return count


def tensors_alive() -> int:
    return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())


class Interrupt:
    """Presses Ctrl-C before the n-th line that runs in the helpers' own files."""

    def __init__(self, at: int | None) -> None:
        self.at, self.lines, self.where = at, 0, ""

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self

    def during(self, work: Callable[[], Any]) -> bool:
        """Run; whether an interrupt came out, there or soon after."""
        sys.settrace(self)
        try:
            work()
            sys.settrace(None)
            if self.where:  # it may come a moment later
                time.sleep(50 * interrupts.PAUSE)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return False
