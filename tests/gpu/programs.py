"""Programs for the allocator, as recordings with their histories: made by hand, or by chance."""

import random
from dataclasses import replace

from helpers.data import MemoryEvent, Recording, Storage
from helpers.gpu.allocator import MIB, CachingAllocator
from helpers.gpu.history import HistoryWriter


class Program:
    """Requests and frees one by one; `done` gives the recording and its history."""

    def __init__(self, capacity=None):
        self.writer = HistoryWriter(capacity=capacity)
        self.storages, self.events, self.live = [], [], {}

    def state(self, address, nbytes, pool, blocks=(), stream=0):
        """A segment that is there before, with blocks (address, bytes, requested)."""
        segment = self.writer.allocator.add_segment(address, nbytes, pool, stream, blocks)
        for block in segment.blocks:
            if not block.free:
                number = self._storage(block.requested, -1)
                self.live[number] = block
                self.writer.hold(block, number)

    def begin(self):
        self.writer.read()

    def malloc(self, nbytes, stream=0):
        number = self._storage(nbytes, len(self.events))
        self.live[number] = self.writer.malloc(nbytes, number, stream)
        self._event("op", allocated=(number,))
        return number

    def free(self, number):
        self.storages[number] = replace(self.storages[number], freed=len(self.events))
        self.writer.free(self.live.pop(number))
        self._event("free", freed=(number,))

    def empty_cache(self):
        self.writer.allocator.empty_cache()
        self._event("op")

    def done(self):
        recording = Recording((), (), tuple(self.storages), (), (), (), tuple(self.events))
        return recording, self.writer.history("simulated")

    def _storage(self, nbytes, born):
        number = len(self.storages)
        self.storages.append(Storage(number, nbytes, "cuda:0", born, None, "other"))
        return number

    def _event(self, kind, **what):
        self.events.append(MemoryEvent(len(self.events), kind, "forward", **what))
        self.writer.read()


def by_chance(seed, events=300, capacity=None):
    """A warmed-up state, then requests and frees of all sizes; some sizes come again, some caches are emptied."""
    chance = random.Random(seed)
    sizes = [int(2 ** chance.uniform(0, 26)) for _ in range(12)]
    warm, held = CachingAllocator(), []
    for _ in range(200):
        if held and chance.random() < 0.48:
            warm.free(held.pop(chance.randrange(len(held))))
        else:
            held.append(warm.malloc(chance.choice(sizes), chance.choice([0, 0, 0, 7])))
    program = Program(capacity)
    for s in warm.segments:
        blocks = [(b.address, b.nbytes, b.requested) for b in s.blocks if not b.free]
        program.state(s.address, s.nbytes, s.pool, blocks, s.stream)
    program.begin()
    for _ in range(events):
        if chance.random() < 0.01:
            program.empty_cache()
        elif program.live and chance.random() < 0.5:
            program.free(chance.choice(sorted(program.live)))
        else:
            nbytes = chance.choice(sizes) if chance.random() < 0.5 else int(2 ** chance.uniform(0, 26))
            program.malloc(nbytes, chance.choice([0, 0, 0, 7]))
    return program


def with_hidden_slack():
    """A large block from before took 0.5 MiB too much, and a snapshot at the end cannot tell: it is gone by then.

    16 MiB seem free behind it, 15.5 are; a request of 15.6 MiB goes elsewhere.
    """
    program = Program()
    program.state(0, 20 * MIB, "large", [(0, 4 * MIB + MIB // 2, 4 * MIB)])
    program.state(100 * MIB, 16 * MIB, "large")
    program.begin()
    program.malloc(15 * MIB + 6 * MIB // 10 // 512 * 512)
    program.free(0)
    return program
