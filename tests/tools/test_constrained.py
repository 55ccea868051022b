# Constraints of the command: each reply is one of their texts, a file keeps its constraint, what
# was drawn under it is verified and replayed by other processes, and a tampered one is found.
import json
import pathlib
import re
import sys

from stasis_process import ROOT, CommandTest, GEMMA, LLAMA

sys.path.insert(0, str(ROOT / "tests/format"))
import reseal  # noqa: E402

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 8},
                         "age": {"type": "integer", "minimum": 0, "maximum": 120}}}
WORD = "(yes|no), [a-z]{2,9}[.!]"


class Constrained(CommandTest):
    def schema(self, schema=None):
        pathlib.Path(self.path("schema.json")).write_text(json.dumps(schema or SCHEMA))
        return self.path("schema.json")

    def test_conversations(self):
        """A sampled conversation by a schema: resumed, verified and replayed by other processes."""
        for model in LLAMA, GEMMA:
            file = self.path(model.name)
            replies = self.chat(model, ["hello", "and you?"], "--session", file, "--json-schema",
                                self.schema(), "--temperature", 0.9, "--seed", 4)
            replies += self.chat(model, ["again"], "--session", file)  # keeps it
            for reply in replies:
                found = json.loads(reply["text"])
                self.assertEqual(set(found), {"name", "age"})
                self.assertTrue(0 <= found["age"] <= 120 and len(found["name"]) <= 8, found)
                self.assertIsNone(reply["cut"])
            self.assertTrue(self.json("verify", file, model)["verified"])
            replayed = self.json("replay", file, model)
            self.assertEqual(replayed["drawn_otherwise"], [], replayed)
            self.assertGreater(replayed["drawn"], 30)
            [last] = self.chat(model, ["again"], "--session", file, "--unconstrained")
            self.assertRaises(ValueError, json.loads, last["text"])
            self.assertTrue(self.json("verify", file, model)["verified"])

    def test_notations(self):
        grammar = pathlib.Path(self.path("g.gbnf"))
        grammar.write_text('root ::= "x" root? "y" | [0-9]{1,3}\n')
        for option, fits in (
                (["--regex", WORD], lambda text: re.fullmatch(WORD, text)),
                (["--grammar", grammar], lambda text: re.fullmatch("x*[0-9]*y*", text)),
                (["--json-text"], lambda text: re.match(r'[\[{"\dtfn-]', text))):
            reply = self.json("run", LLAMA, "--prompt", "hello", "-n", 60, "--temperature", 0.7,
                              *option)
            if option != ["--json-text"]:  # which has texts without end
                self.assertEqual(reply["stop_reason"], "end_token")
            self.assertTrue(fits(reply["text"]), reply)

    def test_refusals(self):
        self.refused("run", LLAMA, "--prompt", "a", "--json-schema",
                     self.schema({"multipleOf": 3}), names=["multipleOf", "schema.json"])
        self.refused("run", LLAMA, "--prompt", "a", "--regex", "a(", names=["byte 1"])
        self.refused("run", LLAMA, "--prompt", "a", "--grammar", self.path("none"), names=["none"])
        self.refused("run", LLAMA, "--prompt", "a", "--regex", "a", "--json-text")

    def test_a_tampered_constraint_is_found(self):
        file, forged = self.path("s"), pathlib.Path(self.path("forged"))
        self.ok("run", LLAMA, "--prompt", "hello", "-n", 6, "--regex", "[a-m]{40}", "--save", file)
        data = pathlib.Path(file).read_bytes()
        snapshot = reseal.Snapshot(data)
        at = data.index(b"[a-m]{40}", snapshot.manifest.start)
        forged.write_bytes(snapshot.changed(at, b"[n-z]{40}"))
        found = self.json("verify", forged, LLAMA, code=1)
        self.assertFalse(found["verified"])
        self.refused("run", LLAMA, "--resume", forged, "-n", 1, names=["constraint"])
        self.assertGreater(len(self.json("replay", forged, LLAMA, code=1)["drawn_otherwise"]), 0)
