# Arguments of the wrong kind or size: each is refused with its name, and none is cut to fit.
import unittest

from fixture import Case, FIRST, model, tokens
import stasis


class Numbers(Case):
    def test_what_64_bits_do_not_hold(self):
        session = self.session(tokens(10))
        with session.snapshot() as snapshot:
            for name, call in (("begin", session.tokens), ("begin", session.sources),
                               ("begin", session.text), ("begin", snapshot.tokens),
                               ("end", lambda end: session.text(0, end))):
                for value in (2**64 + 3, -1):
                    with self.assertRaisesRegex(ValueError, f"{name} is {value}"):
                        call(value)
                with self.assertRaisesRegex(TypeError, f"{name} is 1.5"):
                    call(1.5)

    def test_tokens(self):
        session = self.session(tokens(10))
        for wrong in (b"abc", bytearray(b"abc"), None, 5, [7, 1.5], [7, None], [7, "a"]):
            with self.assertRaisesRegex(TypeError, "token"):
                session.append(wrong)
            with self.assertRaisesRegex(TypeError, "token"):
                session.score(wrong)
        with self.assertRaisesRegex(TypeError, "tokens are 'abc'"):
            session.score("abc")
        self.assertEqual(session.position, 10)


class Texts(Case):
    def test_none_and_bytes(self):
        session = self.session(tokens(10))
        for wrong in (None, b"a"):
            for name, call in (("the text", model().tokenize),
                               ("the role", lambda text: session.append_message(text, "a")),
                               ("the text", lambda text: session.append_message("user", text)),
                               ("a role", lambda text: model().render([{"role": text,
                                                                        "content": "a"}])),
                               ("a content", lambda text: model().render([{"role": "user",
                                                                           "content": text}])),
                               ("a stop string", lambda text: session.generate(stop=[text]))):
                with self.assertRaisesRegex(TypeError, f"{name} is {wrong!r}: expected a str"):
                    call(wrong)
        self.assertEqual(session.position, 10)

    def test_one_stop(self):
        session = self.session()
        session.append_message("user", FIRST, reply=True)
        for stop in ("5.", ["5."]):
            generation = session.fork().generate(stop=stop)
            self.assertEqual("".join(each.text for each in generation), "k is ")
            self.assertEqual(generation.stop, "string")
        with self.assertRaises(ValueError):
            session.generate(stop="")


class Repr(Case):
    def test_during_a_call(self):
        session, seen = self.session(tokens(10)), []
        session.append([7], progress=lambda *_: seen.append(repr(session)))
        self.assertIn("in a call", seen[0])
        self.assertIn("at 11", repr(session))
        session.close()
        self.assertIn("closed", repr(session))


if __name__ == "__main__":
    unittest.main()
