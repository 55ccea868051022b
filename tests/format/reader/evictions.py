# Which positions no later token sees (FORMAT.md, "Evictions"): the section, what must hold of it,
# and the pages that need not be stored any more.
import struct

from reader.container import EVICTED, EVICTIONS, need
from reader.pages import finite


def read_evictions(container, manifest):
    """(position, [(begin, end), ...]) for each event."""
    content = container.referred(manifest["evictions"], EVICTIONS, "evictions")
    need((content is not None) == bool(container.root.must_refuse & EVICTED),
         "evictions: the root's features and the manifest disagree")
    if content is None:
        return []
    events, at, before, evicted = [], 8, 0, []
    count = number(content, 0)
    need(count > 0, "evictions: none")
    for _ in range(count):
        position, ranges = number(content, at), number(content, at + 8)
        at += 16
        need(before < position <= manifest["position"], f"eviction at {position}: out of order")
        before = position
        listed = []
        need(0 < ranges <= (len(content) - at) // 16, f"eviction at {position}: {ranges} ranges")
        for _ in range(ranges):
            begin, end = number(content, at), number(content, at + 8)
            at += 16
            need(begin < end <= position and (not listed or listed[-1][1] < begin),
                 f"eviction at {position}: range [{begin}, {end})")
            listed.append((begin, end))
        hidden = content[at:at + 2 * manifest["hidden_size"]]
        at += 2 * manifest["hidden_size"]
        need(at <= len(content) and finite(hidden), f"eviction at {position}: its hidden state")
        events.append((position, listed))
        evicted += listed
    need(at == len(content), "evictions: bytes behind them")
    evicted.sort()
    need(all(a[1] <= b[0] for a, b in zip(evicted, evicted[1:])), "evictions: one twice")
    return events


def number(content, at):
    need(at + 8 <= len(content), "evictions: they end early")
    return struct.unpack_from("<Q", content, at)[0]


def evicted_pages(events, manifest):
    """Indexes of pages all of whose positions are evicted."""
    size = manifest["page_positions"]
    gone = {}
    for _, ranges in events:
        for begin, end in ranges:
            for index in range(begin // size, -(-end // size)):
                gone[index] = gone.get(index, 0) + \
                    min(end, (index + 1) * size) - max(begin, index * size)
    return {index for index, count in gone.items() if count == size}
