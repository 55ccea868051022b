# Constraints: replies are texts of them, in files too; from a schema's text, a dict, and a model of
# pydantic's; masks of the caller's own; refusals.
import array
import json
import re
import unittest

from fixture import Case, DATA, LLAMA, model
import stasis
from stasis import Constraint

SCHEMA = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 8},
                         "age": {"type": "integer", "minimum": 0, "maximum": 120}}}
WORD = "(yes|no), [a-z]{2,9}[.!]"


class Described:
    """As a model of pydantic's."""
    @classmethod
    def model_json_schema(cls):
        return {"title": "Described", **SCHEMA}


class Constraints(Case):
    def asked(self):
        session = model(LLAMA).session()
        session.append_message("user", "What is k?", reply=True)
        return session

    def test_schemas(self):
        texts = []
        for schema in json.dumps(SCHEMA), SCHEMA, Described:
            session = self.asked()
            session.set_constraint(Constraint.of_json_schema(schema))
            generation = session.generate(max_tokens=100)
            texts.append("".join(each.text for each in generation))
            self.assertEqual(generation.stop, "end")
            found = json.loads(texts[-1])
            self.assertEqual(set(found), {"name", "age"})
            self.assertTrue(0 <= found["age"] <= 120 and len(found["name"]) <= 8, found)
        self.assertEqual(len(set(texts)), 1)

    def test_a_conversation_and_its_file(self):
        session = model(LLAMA).session()
        session.set_sampling(stasis.Sampling(temperature=0.9, seed=3))
        session.set_constraint(Constraint.of_regex(WORD))
        for question in "hello", "and you?":
            text = "".join(session.say(question, max_tokens=60))
            self.assertTrue(re.fullmatch(WORD, text), text)
        session.save(self.path("saved"))
        loaded = model(LLAMA).load(self.path("saved"))
        texts = ["".join(each.say("again", max_tokens=60)) for each in (session, loaded)]
        self.assertEqual(texts[0], texts[1])
        self.assertTrue(re.fullmatch(WORD, texts[0]), texts)
        self.assertEqual(loaded.digest, session.digest)
        report = session.verify()
        self.assertEqual((report.drawn_otherwise, report.drawn > 10), (0, True))
        session.set_constraint(None)
        self.assertFalse(re.fullmatch(WORD, "".join(session.say("again", max_tokens=60))))

    def test_golden_files(self):
        """What the C library has drawn under constraints and sets of tokens."""
        folder = DATA / "golden/constraints"
        for file in json.loads((folder / "golden.json").read_text()):
            with stasis.Snapshot(folder / file["name"]) as snapshot:
                report = snapshot.verify(model(DATA / file["model"]))
                self.assertEqual((report.drawn_otherwise, report.drawn > 5), (0, True))
            session = model(DATA / file["model"]).load(folder / file["name"])
            self.assertEqual([session.decode() for _ in file["next"]], file["next"])

    def test_masks_of_the_callers_own(self):
        session = self.asked()
        session.set_allowed([103])
        self.assertEqual(session.decode(), 103)
        bits = array.array("i", [0] * 32)  # as xgrammar fills it
        bits[1] = -2**31
        session.set_allowed(bits=bits)
        self.assertEqual(session.sample(), 63)
        self.assertEqual(session.decode(), 63)
        session.set_constraint(Constraint.of_regex("q"))
        session.set_allowed([63])
        with self.assertRaises(stasis.NoTokenError):
            session.decode()
        generation = session.generate()
        self.assertEqual((list(generation), generation.stop), ([], "no token"))
        session.set_allowed()
        session.decode()

    def test_refusals(self):
        session = self.asked()
        for constraint, kind, part in (
                (Constraint.of_json_schema({"multipleOf": 3}), stasis.UnsupportedError,
                 "multipleOf"),
                (Constraint.of_regex("a("), stasis.InvalidArgumentError, "byte 1"),
                (Constraint("sql", "x"), stasis.InvalidArgumentError, "sql")):
            with self.assertRaises(kind) as caught:
                session.set_constraint(constraint)
            self.assertIn(part, str(caught.exception))
        for call in (lambda: session.set_allowed([]), lambda: session.set_allowed([1024]),
                     lambda: session.set_allowed(bits=bytes(5)),
                     lambda: session.set_allowed(bits=bytes(8)),
                     lambda: session.set_allowed([1], bits=bytes(128))):
            with self.assertRaises(stasis.InvalidArgumentError):
                call()
        for other in "[a-z]", {"type": "integer"}, 5:
            with self.assertRaisesRegex(TypeError, "expected a stasis.Constraint"):
                session.set_constraint(other)


if __name__ == "__main__":
    unittest.main()
