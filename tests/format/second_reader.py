# Reads a snapshot after format/FORMAT.md and format/manifest.fbs alone, with nothing but Python's
# standard library: lists every element as JSON and checks all that can be checked without a model.
# Shares nothing with the library; zstd sections are listed and their frames checked, not decoded.
# Usage: second_reader.py FILE. Exit code 0; or 2 and one line on stderr that says what is wrong where.
import json
import math
import pathlib
import stat
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from reader.container import FIRST_SECTION, VERSION, Container, Refused, need  # noqa: E402
from reader.state import State  # noqa: E402

SOURCES = ["prompt", "template", "text", "sampled"]
ROLES = ["none", "system", "user", "assistant", "other"]


def shown(value):
    """Digests as hex; -infinity, which JSON lacks, as a string."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shown(each) for each in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def log_entry(entry):
    token, sampling, source, turn = entry
    return {"token": token, "sampling": sampling if SOURCES[source] == "sampled" else None,
            "source": SOURCES[source], "role": ROLES[turn & 15], "reply_prompt": bool(turn & 64),
            "turn_start": bool(turn & 128)}


def file_listed(container):
    root = container.root
    return {
        "format": VERSION, "bytes": len(container.data), "length": root.length, "commit": root.sequence,
        "root": root.digest.hex(), "stream": container.trailer is not None,
        "features": [root.may_ignore, root.may_read, root.must_refuse],
        "slots": [{"slot": slot["slot"], "state": slot["state"],
                   "commit": slot["root"].sequence if slot["root"] else None}
                  for slot in container.slots],
    }


def listed(state, proven):
    container, manifest = state.container, state.manifest
    geometry = {name: manifest[name] for name in ("layers", "kv_heads", "head_dim", "hidden_size",
                                                  "vocabulary", "page_positions")}
    groups = []
    for group, pages, digests in zip(manifest["groups"], state.groups, proven):
        groups.append({"window": group["window"], "layers": group["layers"], "pages": [
            {**page.listed(container), "digest_checked": checked}
            for page, checked in zip(pages, digests)]})
    rest = {name: manifest[name] for name in ("contract", "position", "digest", "keep", "samplings",
                                              "sampling", "capacity", "window_retain",
                                              "pending_system", "logits", "top")}
    return shown({
        "file": file_listed(container), "identity": state.identity, "geometry": geometry, **rest,
        "log": [log_entry(entry) for entry in state.log],
        "texts": [{"token": token, "bytes": each} for token, each in state.texts.items()],
        "groups": groups, "hidden": state.hidden, "logits_row": state.row,
        "sections": [container.reached[at].listed() for at in sorted(container.reached)],
    })


def read(path):
    """All that a file says, as JSON has it. Raises Refused."""
    path = pathlib.Path(path)
    need(stat.S_ISREG(path.stat().st_mode), "not a regular file")
    return read_bytes(path.read_bytes())


def read_bytes(data):
    state = State(Container(data))
    state.check_contents()
    return listed(state, state.check_pages())


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: second_reader.py FILE")
    try:
        found = read(sys.argv[1])
    except (Refused, OSError) as error:
        print(f"second_reader: {sys.argv[1]}: {error}", file=sys.stderr)
        return 2
    json.dump(found, sys.stdout, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
