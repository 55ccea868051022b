# Vocabularies: what tokens are; and how the library was built.
import collections
import math
import unittest

from fixture import Case, GEMMA, WITHOUT_TOKENIZER, model
import stasis


class Vocabulary(Case):
    def test_tokens(self):
        opened = model(GEMMA)
        tokens = list(opened.vocabulary())
        self.assertEqual([each.token for each in tokens], list(range(opened.info.vocabulary)))
        kinds = collections.Counter(each.kind for each in tokens)
        self.assertEqual((kinds["byte"], kinds["unknown"]), (256, 1))
        self.assertGreaterEqual(kinds["special"], 4)
        self.assertEqual([each.token for each in tokens if each.ends],
                         sorted(opened.info.end_tokens))
        scores = [each.score for each in tokens if each.score is not None]
        self.assertTrue(all(map(math.isfinite, scores)))
        self.assertLess(min(scores), 0)
        for token in opened.tokenize("What is k?"):
            self.assertEqual(tokens[token].piece.decode().replace("\u2581", " "),
                             opened.detokenize([token], middle=True))
        self.assertEqual(opened.token(7), tokens[7])

    def test_what_has_no_such_token(self):
        opened = model(GEMMA)
        with self.assertRaises(stasis.InvalidArgumentError):
            opened.token(opened.info.vocabulary)
        with self.assertRaises(stasis.UnsupportedError):
            next(model(WITHOUT_TOKENIZER).vocabulary())

    def test_build(self):
        self.assertTrue(stasis.build().startswith(f"{stasis.version()} ("))


if __name__ == "__main__":
    unittest.main()
