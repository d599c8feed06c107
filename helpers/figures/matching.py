"""Which items of one sequence are which of another: in the same order, as many as there are. Loops only."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence

#: Insertions and deletions that are searched through for a longest common subsequence; beyond, equal items are paired
#: by how often they have occurred.
MOST_EDITS = 600


def aligned(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Pairs (i, j) with a[i] == b[j], both rising: a longest common subsequence.

    Where the two differ in more than MOST_EDITS places, a common subsequence, which need not be the longest.
    """
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    left, right = range(start, len(a) - end), range(start, len(b) - end)
    there, here = {b[j] for j in right}, {a[i] for i in left}
    left, right = [i for i in left if a[i] in there], [j for j in right if b[j] in here]  # the rest has no partner
    x, y = [a[i] for i in left], [b[j] for j in right]
    found = fewest_edits(x, y)
    pairs = by_occurrence(x, y) if found is None else found
    return [
        *((i, i) for i in range(start)),
        *((left[i], right[j]) for i, j in pairs),
        *((len(a) - k, len(b) - k) for k in range(end, 0, -1)),
    ]


def fewest_edits(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]] | None:
    """A longest common subsequence (Myers 1986, "An O(ND) difference algorithm"); None if that is too far to seek."""
    n, m = len(a), len(b)
    furthest = {1: 0}  # on each diagonal i − j, how far a is read
    history: list[dict[int, int]] = []
    for edits in range(min(n + m, MOST_EDITS) + 1):
        history.append(dict(furthest))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            i = furthest[k + 1] if down else furthest[k - 1] + 1
            while i < n and i - k < m and a[i] == b[i - k]:
                i += 1
            furthest[k] = i
            if i >= n and i - k >= m:
                return walked_back(history, n, m)
    return None


def walked_back(history: list[dict[int, int]], i: int, j: int) -> list[tuple[int, int]]:
    pairs = []
    for edits in range(len(history) - 1, -1, -1):
        furthest, k = history[edits], i - j
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        before = k + 1 if down else k - 1
        x = furthest[before] if edits else 0
        y = x - before if edits else 0
        while i > x + (not down) * bool(edits) and j > y + down * bool(edits):
            i, j = i - 1, j - 1
            pairs.append((i, j))
        i, j = x, y
    return pairs[::-1]


def by_occurrence(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """The k-th of each kind with the k-th of that kind, and of these pairs the most that keep the order."""
    places: dict[Hashable, list[int]] = {}
    for j, item in enumerate(b):
        places.setdefault(item, []).append(j)
    used: dict[Hashable, int] = {}
    pairs = []
    for i, item in enumerate(a):
        k = used.get(item, 0)
        if k < len(places.get(item, ())):
            used[item] = k + 1
            pairs.append((i, places[item][k]))
    ends: list[int] = []  # of the runs of each length that rise, the lowest last j
    last: list[int] = []  # and the pair with it
    behind: list[int] = []
    for p, (_, j) in enumerate(pairs):
        length = bisect_left(ends, j)
        behind.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [j]
        last[length : length + 1] = [p]
    out = []
    p = last[-1] if last else -1
    while p >= 0:
        out.append(pairs[p])
        p = behind[p]
    return out[::-1]
