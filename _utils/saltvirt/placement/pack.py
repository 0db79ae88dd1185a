"""
Find room for many VMs at once: bin packing in several dimensions, over plain numbers.

First each VM goes where most is left, which suits the hosts best. If some find no room, all are
packed as tightly as possible: by best fit, then by chains of VMs that make room for each other, at
last by a search through all ways. All three have a fixed order and limits, so that the same
question has the same answer, in bounded time.
"""

import heapq
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.placement import groups

# The tries of a VM on a host that the chains may take, and the search: about half a second each.
EFFORT = 200_000
_CHAIN = 4
_SEARCHED = 200
Vector = tuple[int, ...]
# The score of a spot, by the room that would be left there: higher is better.
_Score = Callable[[str, Vector], float]
_Entry = tuple[float, str]
_Tags = Mapping[str, Mapping[str, str]]
# A group, and the place where it has one VM.
_Taken = tuple[str, groups.Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """
    The content of one spot: a VM, or several that stay together.

    size
        Its needs, in each dimension.
    spots
        The spots that all rules allow.
    apart
        Anti-affinity groups; items that share one do not go to the same place.
    count
        The number of its VMs.
    """

    key: str
    size: tuple[int, ...]
    spots: tuple[str, ...]
    apart: frozenset[str] = frozenset()
    count: int = 1


class _Spent(Exception):
    """The limit of tries was reached."""


class _Packing:
    """The spots of items; changes can be undone back to a mark."""

    def __init__(self, rooms: Mapping[str, Vector], tags: _Tags, effort: int) -> None:
        self.left = {spot: tuple(room) for spot, room in rooms.items()}
        self.taken: set[_Taken] = set()
        self._tags = tags
        self.on: dict[str, dict[str, Item]] = {spot: {} for spot in rooms}
        self.where: dict[str, str] = {}
        self._trail: list[tuple[Item, str | None]] = []
        self._effort = effort

    def spend(self, looks: int = 1) -> None:
        """Count some tries; raise :class:`_Spent` when they are too many."""
        self._effort -= looks
        if self._effort < 0:
            raise _Spent

    def has_room(self, item: Item, spot: str) -> bool:
        """Return whether a spot has room for an item; ignore groups."""
        return all(map(operator.le, item.size, self.left[spot]))

    def fits(self, item: Item, spot: str) -> bool:
        """Return whether an item can be put on a spot now."""
        return self.has_room(item, spot) and self.is_apart(item, spot)

    def is_apart(self, item: Item, spot: str) -> bool:
        """Return whether no other VM of an item's groups excludes a spot."""
        return not item.apart or self.taken.isdisjoint(self.takes(item.apart, spot))

    def takes(self, apart: Iterable[str], spot: str) -> list[_Taken]:
        """Return the places that groups take with a spot: the spot itself, or all of its rack."""
        tags = self._tags.get(spot, {})
        return [(group, groups.place_for(group, spot, tags)) for group in apart]

    def put(self, item: Item, spot: str | None) -> None:
        """Put an item on a spot, from any other spot; None removes it."""
        before = self.where.pop(item.key, None)
        self._trail.append((item, before))
        if before is not None:
            del self.on[before][item.key]
            self.taken.difference_update(self.takes(item.apart, before))
            self._fill(item, before, 1)
        if spot is not None:
            self.where[item.key] = spot
            self.on[spot][item.key] = item
            self.taken.update(self.takes(item.apart, spot))
            self._fill(item, spot, -1)

    def _fill(self, item: Item, spot: str, sign: int) -> None:
        room = self.left[spot]
        self.left[spot] = tuple(a + sign * b for a, b in zip(room, item.size, strict=True))

    def mark(self) -> int:
        """Return a mark for :meth:`rewind`."""
        return len(self._trail)

    def rewind(self, mark: int) -> None:
        """Undo everything since a mark."""
        while len(self._trail) > mark:
            item, before = self._trail[-1]
            self.put(item, before)
            del self._trail[-2:]


def pack(
    items: Sequence[Item],
    rooms: Mapping[str, Vector],
    score: _Score,
    tags: _Tags | None = None,
) -> dict[str, str]:
    """
    Return ``{key: spot}`` of as many items as find room.

    items
        In the order in which they may choose.
    rooms
        ``{spot: room left}``, in each dimension.
    score
        Called with a spot and the room that would be left there: higher is better.
    tags
        ``{spot: {tag: value}}``, for groups that are called after a tag.
    """
    tags = tags or {}
    spread = _pack_spread(items, rooms, score, tags)
    if len(spread) == len(items) or not any(item.spots for item in items):
        return spread
    tight, is_all = _pack_tightly(items, rooms, tags)
    if not is_all and (spots_by_key := _search(items, rooms, tags)) is not None:
        return spots_by_key
    counts = {item.key: item.count for item in items}

    def packed(keys: Iterable[str]) -> int:
        return sum(counts[key] for key in keys)

    return tight if packed(tight) > packed(spread) else spread


def _pack_spread(
    items: Sequence[Item], rooms: Mapping[str, Vector], score: _Score, tags: _Tags
) -> dict[str, str]:
    packing = _Packing(rooms, tags, 0)
    heaps: dict[tuple[Vector, tuple[str, ...]], list[_Entry]] = {}

    def entry(item: Item, spot: str) -> _Entry:
        return -score(spot, _room_left(packing.left[spot], item.size)), spot

    for item in items:
        shape = (item.size, item.spots)
        if shape not in heaps:
            heaps[shape] = [
                entry(item, spot) for spot in item.spots if packing.has_room(item, spot)
            ]
            heapq.heapify(heaps[shape])
        spot = _pop_best(packing, item, heaps[shape], entry)
        if spot is not None:
            packing.put(item, spot)
    return packing.where


def _pop_best(
    packing: _Packing, item: Item, heap: list[_Entry], entry: Callable[[Item, str], _Entry]
) -> str | None:
    """Return the best spot now, from a heap of former scores: spots only get worse."""
    passed_entries: list[_Entry] = []
    best = None
    while heap and best is None:
        old_score, spot = heapq.heappop(heap)
        if not packing.has_room(item, spot):
            continue  # for good: nothing is removed again
        new_entry = entry(item, spot)
        if new_entry[0] > old_score:
            heapq.heappush(heap, new_entry)
            continue
        passed_entries.append(new_entry)
        if packing.is_apart(item, spot):
            best = spot
    for passed_entry in passed_entries:
        heapq.heappush(heap, passed_entry)
    return best


def _room_left(room: Vector, size: Vector) -> Vector:
    return tuple(map(operator.sub, room, size))


def _scarcity(items: Sequence[Item], rooms: Mapping[str, Vector]) -> list[float]:
    """Return the weight of each dimension: the total need, by the square of the total room."""
    total_need = map(sum, zip(*(item.size for item in items), strict=True))
    total_room = map(sum, zip(*rooms.values(), strict=True))
    return [
        required / max(room, 1) / max(room, 1)
        for required, room in zip(total_need, total_room, strict=True)
    ]


def _weight(vector: Vector, scarcity: Sequence[float]) -> float:
    weight: float = sum(map(operator.mul, vector, scarcity))
    return weight


def _hardest_first(items: Iterable[Item], scarcity: Sequence[float]) -> list[Item]:
    return sorted(items, key=lambda i: (-_weight(i.size, scarcity), len(i.spots), i.key))


def _pack_tightly(
    items: Sequence[Item], rooms: Mapping[str, Vector], tags: _Tags
) -> tuple[dict[str, str], bool]:
    """Return ``({key: spot}, whether all have room)``: best fit, then by chains."""
    packing, scarcity = _Packing(rooms, tags, EFFORT), _scarcity(items, rooms)
    unplaced_items = []
    for item in _hardest_first(items, scarcity):
        if not _best_fit(packing, item, scarcity):
            unplaced_items.append(item)
    try:
        for item in unplaced_items:
            _place_by_chain(packing, item, scarcity, {item.key}, _CHAIN)
    except _Spent:
        pass
    # A chain may have freed room for an item that found none before.
    for item in unplaced_items:
        if item.key not in packing.where:
            _best_fit(packing, item, scarcity)
    return packing.where, len(packing.where) == len(items)


def _best_fit(packing: _Packing, item: Item, scarcity: Sequence[float]) -> bool:
    spot = min(
        (spot for spot in item.spots if packing.fits(item, spot)),
        key=lambda spot: _weight(packing.left[spot], scarcity),
        default=None,
    )
    if spot is not None:
        packing.put(item, spot)
    return spot is not None


def _place_by_chain(
    packing: _Packing, item: Item, scarcity: Sequence[float], chain: set[str], depth: int
) -> bool:
    """Put an item on a spot by moving others elsewhere in a chain; return whether that worked."""
    packing.spend(len(item.spots))
    if _best_fit(packing, item, scarcity):
        return True
    if not depth:
        return False
    for spot in item.spots:
        for other_item in _hardest_first(packing.on[spot].values(), scarcity)[::-1]:
            if other_item.key in chain:
                continue
            packing.spend()
            mark = packing.mark()
            packing.put(other_item, None)
            if packing.fits(item, spot):
                packing.put(item, spot)
                if _place_by_chain(
                    packing, other_item, scarcity, {*chain, other_item.key}, depth - 1
                ):
                    return True
            packing.rewind(mark)
    return False


def _search(
    items: Sequence[Item], rooms: Mapping[str, Vector], tags: _Tags
) -> dict[str, str] | None:
    """Return ``{key: spot}`` of all items if a search finds a way, else None."""
    if len(items) > _SEARCHED or not all(item.spots for item in items):
        return None
    useful = {spot for item in items for spot in item.spots}
    rooms = {spot: room for spot, room in rooms.items() if spot in useful}
    try:
        return _Search(items, rooms, tags).found()
    except _Spent:
        return None


class _Search:
    """Depth first, the hardest item first; dead ends are recognized early, and only once."""

    def __init__(self, items: Sequence[Item], rooms: Mapping[str, Vector], tags: _Tags) -> None:
        scarcity = _scarcity(items, rooms)
        self._items = _hardest_first(items, scarcity)
        self._packing, self._scarcity = _Packing(rooms, tags, EFFORT), scarcity
        apart = sorted({group for item in items for group in item.apart})
        self._takes = {spot: self._packing.takes(apart, spot) for spot in rooms}
        kinds = {spot: self._kind_of(spot) for spot in rooms}
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds.values()))}
        self._kind = {spot: numbers[kind] for spot, kind in kinds.items()}
        self._failed: set[tuple[int, tuple[Any, ...]]] = set()
        sizes = [item.size for item in self._items]
        self._needed = [tuple(map(sum, zip(*sizes[n:], strict=True))) for n in range(len(sizes))]
        self._least = [tuple(map(min, zip(*sizes[n:], strict=True))) for n in range(len(sizes))]

    def _kind_of(self, spot: str) -> Hashable:
        # Spots of one rack for the same items are equal if as much is left there.
        racks = tuple(at for group, at in self._takes[spot] if groups.tag_of(group))
        return racks, frozenset(item.key for item in self._items if spot in item.spots)

    def found(self) -> dict[str, str] | None:
        """Return ``{key: spot}``, None if there is no way."""
        return dict(self._packing.where) if self._placed(0) else None

    def _placed(self, number: int) -> bool:
        if number == len(self._items):
            return True
        state = self._state()
        key = (number, tuple(sorted(state.values())))
        if key in self._failed or not self._has_room(number):
            return False
        item = self._items[number]
        seen_states: set[tuple[Any, ...]] = set()
        for spot in sorted(item.spots, key=self._tightness):
            if state[spot] in seen_states or not self._packing.fits(item, spot):
                continue
            seen_states.add(state[spot])
            mark = self._packing.mark()
            self._packing.put(item, spot)
            if self._placed(number + 1):
                return True
            self._packing.rewind(mark)
        self._failed.add(key)
        return False

    def _state(self) -> dict[str, tuple[Any, ...]]:
        packing = self._packing
        packing.spend(len(self._kind))
        return {
            spot: (kind, packing.left[spot], tuple(t for t, _ in self._taken(spot)))
            for spot, kind in self._kind.items()
        }

    def _taken(self, spot: str) -> Iterable[_Taken]:
        return (entry for entry in self._takes[spot] if entry in self._packing.taken)

    def _tightness(self, spot: str) -> float:
        return _weight(self._packing.left[spot], self._scarcity)

    def _has_room(self, number: int) -> bool:
        """Return whether the spots that can still take an item have room enough in total."""
        least = self._least[number]
        usable = [
            room for room in self._packing.left.values() if all(map(operator.ge, room, least))
        ]
        have = map(sum, zip(*usable, strict=True)) if usable else (0 for _ in least)
        return all(map(operator.le, self._needed[number], have))
