# Models whose files are not at a path.
import io
import os
import pickle
import unittest
import zipfile

from fixture import Case, GEMMA, model, tokens
import stasis


def digest_of(opened):
    with opened.session(domain=2**64 - 1) as session:
        session.append(tokens(90))
        return session.digest


def files_of(path):
    return {each.name: each.read_bytes() for each in path.iterdir()}


class Failing(io.BytesIO):
    def read(self, count=-1):
        raise OSError("a broken disk")


class ModelFiles(Case):
    def same(self, opened, other=None):
        other = other or model(GEMMA)
        self.assertEqual(opened.digest, other.digest)
        self.assertEqual(digest_of(opened), digest_of(other))

    def test_mappings(self):
        files = files_of(GEMMA)
        self.same(stasis.Model.from_files(files))
        self.same(stasis.Model.from_files({name: io.BytesIO(each)
                                           for name, each in files.items()}, threads=2))

    def test_archives(self):
        path = self.path("a.zip")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, each in files_of(GEMMA).items():
                archive.writestr(name, each)
        with zipfile.ZipFile(path) as archive:
            self.same(stasis.Model.from_files(archive))

    def test_gguf(self):
        path = self.path("a.gguf")
        stasis.quantize(GEMMA, path)
        with stasis.Model(path) as expected, open(path, "rb") as file:
            self.same(stasis.Model.from_files({"b.gguf": file}, "b.gguf"), expected)
            opened = stasis.Model.from_descriptor(file)
            file.close()
            os.remove(path)
            self.same(opened, expected)
            with self.assertRaises(stasis.InvalidArgumentError):
                stasis.Model.from_descriptor(10000)

    def test_failures(self):
        files = files_of(GEMMA)
        for name in "config.json", "model.safetensors", "tokenizer.model":
            with self.assertRaisesRegex(OSError, "a broken disk"):
                stasis.Model.from_files(dict(files, **{name: Failing(files[name])}))
        with self.assertRaisesRegex(stasis.NotFoundError, "none.gguf"):
            stasis.Model.from_files(files, "none.gguf")
        with self.assertRaises(FileNotFoundError):
            stasis.Model.from_files({})
        with self.assertRaises(stasis.FileError):  # it ends before its size
            stasis.Model.from_files(dict(files, **{"model.safetensors": Short(
                files["model.safetensors"])}))

    def test_pickling(self):
        opened = stasis.Model.from_files(files_of(GEMMA))
        with self.assertRaisesRegex(TypeError, "path"):
            pickle.dumps(opened)
        with opened.session() as session, self.assertRaisesRegex(TypeError, "path"):
            pickle.dumps(session)


class Short(io.BytesIO):
    def read(self, count=-1):
        return super().read(count) if self.tell() < 100000 else b""


if __name__ == "__main__":
    unittest.main()
