# Every function of the ABI can be had in each language: its layer calls it, or leaves it out for a
# reason that stands here. What is left out is not called all the same, and is a function that is
# there.
import re
import unittest

from stasis_process import ROOT

INIT = {r"\w+_init": "the layer makes its structs itself"}
LAYERS = {
    "bindings/cpp": ("*.hpp", r"\b(stasis_\w+)", {
        **INIT,
        "stasis_session_generate": "Generation is the same, token by token, without a callback",
    }),
    "bindings/go": ("*.go", r"\b(stasis_\w+)\(", {  # also in the C that stands in its comments
        r"stasis_cancel_(reset|progress)": "a context ends a call, which has a handle of its own; "
                                           "Progress reports it",
    }),
    "bindings/rust/stasis/src": ("*.rs", r"\b(stasis_\w+)", {
        **INIT,
        "stasis_session_take_trace": "a Trace is called with each event; a channel is a queue",
    }),
    "bindings/python/stasis": ("*.py", r"\b_?library\.(stasis_\w+)", {
        **INIT,
        "stasis_status_name": "Status has the names, and each status a class",
        "stasis_model_get_metadata": "metadata is a dict of all of it, by get_metadata_at",
        "stasis_session_generate": "a callback of Python's may not run while a daemon thread ends; "
                                   "generate is an iterator over generation_next",
        "stasis_sessions_step": "Scheduler computes many sessions together, and waits for events "
                                "without the interpreter's lock",
        "stasis_session_(set|take)_trace": "the page of `stasis trace` and `stasis report` shows "
                                           "the KV cache; no host in Python has asked for events",
    }),
}


def uncommented(text, suffix):
    comment = {".py": r"#[^\n]*", ".go": r"\Z"}.get(suffix, r"/\*.*?\*/|//[^\n]*")
    return re.sub(comment, " ", text, flags=re.DOTALL)


def exported():
    return re.findall(r"^ +(stasis_\w+);",
                      (ROOT / "abi/exports.map").read_text(encoding="utf-8"), re.MULTILINE)


def missed(names, text, call, reasons):
    """The functions that the text neither calls nor leaves out for a reason, those that it calls
    although it leaves them out, and the reasons that are about no function."""
    called = set(re.findall(call, text)) & set(names)
    excused = {name for name in names if any(re.fullmatch(each, name) for each in reasons)}
    idle = [each for each in reasons if not any(re.fullmatch(each, name) for name in names)]
    return sorted(set(names) - called - excused), sorted(called & excused), idle


class Functions(unittest.TestCase):
    def test_every_layer_has_them(self):
        names = exported()
        self.assertGreater(len(names), 110)
        for folder, (pattern, call, reasons) in LAYERS.items():
            text = "\n".join(uncommented(path.read_text(encoding="utf-8"), path.suffix)
                             for path in sorted((ROOT / folder).rglob(pattern))
                             if not path.name.endswith("_test.go"))
            self.assertEqual(missed(names, text, call, reasons), ([], [], []), folder)
            # One that is not called any more is found.
            less = re.sub(r"\bstasis_session_fork\b", "stasis_gone", text)
            self.assertEqual(missed(names, less, call, reasons)[0], ["stasis_session_fork"], folder)
