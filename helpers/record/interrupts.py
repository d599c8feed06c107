"""Ctrl-C while the recorder does its own work: it waits a moment, then goes where it would have gone.

A recording that is put in place or taken away must not stop half way; and what is raised in the callback of a weak
reference, Python prints and drops, so that Ctrl-C would be lost. The learner's code and torch's kernels stay as
interruptible as ever.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_held: set[CodeType] = set()
_free: set[CodeType] = set()

#: Seconds until a held interrupt is tried again.
PAUSE = 0.01


def held(function: Function) -> Function:
    """Interrupts wait while this function runs."""
    _held.add(function.__code__)
    return function


def free(function: Function) -> Function:
    """Within a held function, what this one calls can be interrupted."""
    _free.add(function.__code__)
    return function


class Interrupts:
    """Stands before the handler of SIGINT from `begin` to `end`. Only a program's main thread is ever interrupted."""

    def __init__(self) -> None:
        self.previous: Any = None
        self.again: threading.Timer | None = None

    def begin(self) -> None:
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self.previous = signal.signal(signal.SIGINT, self._arrived)

    def end(self) -> None:
        """Step aside. An interrupt that waits comes now."""
        if self.previous is None:
            return
        if signal.getsignal(signal.SIGINT) == self._arrived:
            signal.signal(signal.SIGINT, self.previous)
        previous, self.previous = self.previous, None
        if self.again is not None:
            again, self.again = self.again, None
            again.cancel()
            again.join()
            previous(signal.SIGINT, sys._getframe())

    def _arrived(self, number: int, frame: FrameType | None) -> Any:
        self.again = None
        inner = frame
        while inner is not None and inner.f_code not in _free:
            if inner.f_code in _held:
                self.again = threading.Timer(PAUSE, _interrupt)
                self.again.daemon = True
                self.again.start()
                return None
            inner = inner.f_back
        return self.previous(number, frame)


def _interrupt() -> None:
    if hasattr(signal, "pthread_kill"):  # wakes a main thread that sleeps
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    else:
        _thread.interrupt_main()
