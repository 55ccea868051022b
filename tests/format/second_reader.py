# Reads a snapshot after format/FORMAT.md and format/manifest.fbs alone, with nothing but Python's
# standard library: lists every element as JSON and checks all that can be checked without a model.
# Shares nothing with the library. Runs and recurrent states under zstd are listed and their frames
# checked, not decoded; what only decoding shows stays open: their XXH3-128, whether their numbers
# are finite, and the digest of a page that has one or of a state, which is then listed with
# "digest_checked": false.
# Usage: second_reader.py FILE. Exit code 0; or 2 and a line on stderr: what is wrong where.
import json
import math
import pathlib
import stat
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from reader import constraints, recurrent  # noqa: E402
from reader.container import FIRST_SECTION, VERSION, Container, Refused, need  # noqa: E402
from reader.features import features  # noqa: E402
from reader.schema import OFF, SESSION_NUMBERS  # noqa: E402
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


def spans(log):
    """Runs of tokens of one origin, cut where a turn starts."""
    found = []
    for position, entry in enumerate(log):
        origin = {name: entry[name] for name in ("source", "role", "sampling")}
        if entry["turn_start"] or not found or origin.items() - found[-1].items():
            found.append({"begin": position, "turn_start": entry["turn_start"], **origin})
        found[-1]["end"] = position + 1
    return found


def layer_windows(manifest):
    windows = {layer: group["window"] for group in manifest["groups"] for layer in group["layers"]}
    return [windows.get(layer) for layer in range(manifest["layers"])]


def pairs(found):
    return {pair["name"]: pair["value"] for pair in found}


def contract(manifest):
    parts = {name: manifest[f"contract_{name}"] for name in ("recurrent", "experts")}
    return {**manifest["contract"], **{name: part for name, part in parts.items() if part}}


def kv_cache(state, proven, proven_states):
    groups, listed = [], []
    for index, (group, pages) in enumerate(zip(state.manifest["groups"], state.groups)):
        stored = [page for page in pages if page.runs]
        sizes = {name: group[name] for name in ("kv_heads", "head_dim") if group[name]}
        groups.append({"layers": group["layers"], **sizes, "window": group["window"],
                       "pages": len(pages), "stored": len(stored),
                       "runs": sum(len(page.runs) for page in stored)})
        listed += [{"group": index, **page.listed(state.container), "digest_checked": checked}
                   for page, checked in zip(pages, proven[index])]
    return {"keep": ["full", "none"][state.manifest["keep"]], "groups": groups, "pages": listed,
            **({"sharing": state.manifest["sharing"]} if state.manifest["sharing"] else {}),
            **recurrent.listed(state.manifest, proven_states)}


def settings(state):
    found = []
    for item in state.settings:
        each = state.manifest["samplings"][item.plain]
        found.append({**{name: value for name, value in each.items() if name not in ("v2", "v3")},
                      **(each["v2"] or OFF), **constraints.listed_constraint(each),
                      **item.listed()})
    return found


def elements(state, proven, proven_states, log):
    """The Big 8 + 4 in their order."""
    manifest, identity = state.manifest, state.identity
    config = pairs(identity["config"])
    return {
        "kv_cache": kv_cache(state, proven, proven_states),
        "token_embeddings": {"digest": identity["embeddings"], "hidden": manifest["hidden_size"],
                             "vocabulary": manifest["vocabulary"]},
        "positional_state": {
            "position": manifest["position"], "window_retain": manifest["window_retain"],
            "rope": {name: value for name, value in config.items() if "rope" in name},
            "layer_windows": layer_windows(manifest)},
        "input_token_buffer": {
            "tokens": len(log), "log": log,
            "texts": [{"token": token, "bytes": each} for token, each in state.texts.items()]},
        "attention_mask": {"rule": "causal", "layer_windows": layer_windows(manifest),
                           "evicted": [{"position": position,
                                        "ranges": [list(each) for each in ranges]}
                                       for position, ranges in state.evictions]},
        "model_config": {"architecture": identity["architecture"], "model": identity["model"],
                         "config": config, **constraints.listed(manifest),
                         "samplings": settings(state),
                         "sampling": manifest["sampling"],
                         **{name: manifest[name] for name in SESSION_NUMBERS}},
        "layer_norm": {"digest": identity["norms"]},
        "attention_weights": {name: identity[name] for name in ("attention", "mlp", "head")},
        "logits": {"digest": manifest["logits"], "row": state.row is not None,
                   "hidden": len(state.hidden) // 2,
                   "top": [{"token": each["token"], "logit": each["value"]}
                           for each in manifest["top"]]},
        "tokenizer": {"digest": identity["tokenizer"], "type": identity["tokenizer_type"],
                      "rules": pairs(identity["tokenizer_rules"]),
                      "chat_template": identity["chat_template"]},
        "kv_format_version": {
            "format": VERSION, "contract": contract(manifest), "profile": manifest["profile"],
            **{name: manifest[name] for name in ("page_positions", "layers", "kv_heads",
                                                 "head_dim")}},
        "prompt_injection_meta": {"spans": spans(log),
                                  "pending_system": manifest["pending_system"]},
    }


def file_listed(container):
    root = container.root
    return {
        "bytes": root.length, "bytes_behind": len(container.data) - root.length,
        "commits": root.sequence, "stream": container.trailer is not None,
        "older": container.older,
        "features": [root.may_ignore, root.may_read, root.must_refuse],
        "slots": [{"slot": slot["slot"], "state": slot["state"],
                   "commit": slot["root"].sequence if slot["root"] else None}
                  for slot in container.slots],
    }


def listed(state, proven, proven_states):
    container = state.container
    log = [log_entry(entry) for entry in state.log]
    return shown({
        "position": len(log), "digest": state.manifest["digest"], "root": container.root.digest,
        "file": file_listed(container), "elements": elements(state, proven, proven_states, log),
        "data": [{"name": name, "bytes": len(value)} for name, value in state.data.items()],
        "sections": [container.reached[at].listed() for at in sorted(container.reached)],
    })


def read(path):
    """All that a file says, as JSON has it. Raises Refused."""
    path = pathlib.Path(path)
    need(stat.S_ISREG(path.stat().st_mode), "not a regular file")
    data = path.read_bytes()
    for _ in range(1000):  # others may commit: readings that agree are of one moment
        again = path.read_bytes()
        if again[:FIRST_SECTION] == data[:FIRST_SECTION]:
            break
        data = again
    return read_bytes(data)


def read_bytes(data):
    state = State(Container(data, features))
    state.check_contents()
    return listed(state, state.check_pages(), state.check_states())


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
