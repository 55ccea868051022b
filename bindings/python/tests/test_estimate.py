# Memory of models and sessions, said beforehand and then taken; metadata.
import json
import pathlib
import tempfile
import unittest

from fixture import Case, GEMMA, model
import stasis


class Memory(Case):
    def test_sessions(self):
        opened = model(GEMMA)
        for positions in (0, 1, 100, 400):
            before = opened.stats.kv_used_bytes
            with opened.session(domain=2 ** 64 - 1) as session:
                session.append([5] * positions)
                said = opened.session_memory(positions)
                self.assertEqual(opened.stats.kv_used_bytes - before, said.kv_bytes)
                self.assertEqual(session.info.kv_bytes, said.kv_bytes)
                self.assertGreaterEqual(said.bytes, said.kv_bytes + said.fixed_bytes)
        near, far = opened.session_memory(1000), opened.session_memory(2000)
        self.assertLess(far.global_position_bytes, far.position_bytes)
        self.assertLess(far.kv_bytes, 2000 * far.position_bytes)
        self.assertGreater(opened.session_memory(100, track_attention="total").tracking_bytes, 0)
        self.assertGreaterEqual(far.kv_bytes, near.kv_bytes)
        with self.assertRaises(stasis.InvalidArgumentError):
            opened.session_memory(101, capacity=100)

    def test_estimates(self):
        opened = model(GEMMA)
        told = stasis.estimate(GEMMA, 300, window_retain=64)
        self.assertEqual(told.session, opened.session_memory(300, window_retain=64))
        self.assertEqual((told.architecture, told.layers, told.vocabulary, told.weight_types),
                         (opened.info.architecture, opened.info.layers, opened.info.vocabulary,
                          opened.info.weight_types))
        self.assertEqual(told.weight_bytes, opened.info.weight_bytes)
        self.assertGreater(told.mapped_bytes, told.allocated_bytes)
        mapped = stasis.estimate(GEMMA, kernels="reference")
        copied = stasis.estimate(GEMMA, kernels="reference", copy_weights=True)
        self.assertEqual((copied.mapped_bytes, copied.allocated_bytes - mapped.allocated_bytes),
                         (0, mapped.mapped_bytes))
        with self.assertRaises(stasis.NotFoundError):
            stasis.estimate("/no/such/model")
        with self.assertRaises(stasis.UnsupportedError):
            stasis.estimate(GEMMA, kernels="none such")


class Metadata(Case):
    def test_a_directory(self):
        config = json.loads((GEMMA / "config.json").read_text())
        told = model(GEMMA).metadata()
        self.assertEqual(list(told), sorted(told))
        for key, value in config.items():
            if not isinstance(value, dict):
                self.assertEqual(told["config." + key], value)

    def test_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            stasis.quantize(GEMMA, path)
            with stasis.Model(path) as opened:
                told = opened.metadata()
        self.assertEqual(told["general.architecture"], "gemma3")
        self.assertIsInstance(told["tokenizer.ggml.tokens"], stasis.LeftOut)
        self.assertRegex(told["tokenizer.ggml.tokens"], r"^an array of \d+ STRING$")


if __name__ == "__main__":
    unittest.main()
