# Settings with sets of tokens in files: the second reader says of them what the library says, both
# refuse the same, and the command replays what was drawn under them.
import struct
import sys

import test_second_reader
from stasis_process import DATA, GEMMA, LLAMA, ROOT, CommandTest

sys.path.insert(0, str(ROOT / "tests/format"))
import reseal  # noqa: E402
import second_reader  # noqa: E402

READERS = test_second_reader.SecondReader


class StoredSets(CommandTest):
    agree, contains, first = READERS.agree, READERS.contains, READERS.first
    check_golden_files = READERS.check_golden_files

    def test_golden_files_of_sets(self):
        folder = DATA / "golden/sets"
        self.check_golden_files(folder)
        found = self.agree(folder / "commits.stasis")
        self.assertEqual(found["file"]["features"], [0, 2, 32])
        settings = found["elements"]["model_config"]["samplings"]
        self.assertGreater(len(settings), 32)  # of three leaves
        told = [each for each in settings if "allowed_from" in each]
        self.assertGreater(len(told), 20)
        self.assertTrue(any(each["allowed"] == [] for each in told))  # the same set once more
        self.assertTrue(any("allowed" in each and "allowed_from" not in each for each in settings))
        self.assertTrue(any("allowed" not in each for each in settings))
        self.assertTrue(any("constraint" in each for each in settings))

    def test_items_of_settings_are_checked(self):
        """Every rule of settings with sets, by both readers."""
        data = (DATA / "golden/sets/none.stasis").read_bytes()
        snapshot = reseal.Snapshot(data)
        manifest = second_reader.State(snapshot.container).manifest
        node = manifest["settings"]
        first = node["section"] + 64 + node["begin"] + 16
        second = first + 16 + struct.unpack_from("<I", data, first + 12)[0]
        count = data.index(struct.pack("<I", manifest["setting_count"]), snapshot.manifest.start)
        for at, change, why in (
                (first, struct.pack("<I", 1), "settings 1"),
                (second, struct.pack("<I", 9), "settings 9"),
                (first + 4, struct.pack("<I", 1), "from 1 before"),
                (second + 4, struct.pack("<I", 2), "from 2 before"),
                (first + 8, struct.pack("<I", 0), "a code of nothing"),
                (first + 8, struct.pack("<I", 3), "its code"),
                (first + 8, struct.pack("<I", 1 << 20), "its code"),
                (first + 12, struct.pack("<I", 1 << 20), "its leaf ends early"),
                (first + 16, bytes([32]), "its code"),
                (second + 12, struct.pack("<I", 0), "a code of nothing|its code"),
                (count, struct.pack("<I", 0), "a number of them, but no tree|settings: 0 items"),
                (count, struct.pack("<I", 65537), "settings: 65537 items"),
                (snapshot.root_at + 24, bytes(1), "root's features|settings: a tree, or not")):
            forged = snapshot.changed(at, change)
            with self.assertRaisesRegex(second_reader.Refused, why):
                second_reader.read_bytes(forged)
            self.assertIsNone(self.first(forged, "inspect", "FILE"), why)

    def test_replays_what_was_drawn_under_sets(self):
        for name, model in (("commits", LLAMA), ("stream", GEMMA), ("none", GEMMA)):
            file = DATA / f"golden/sets/{name}.stasis"
            self.assertTrue(self.json("verify", file, model)["verified"])
            found = self.json("replay", file, model)
            self.assertEqual(found["drawn_otherwise"], [], name)
            self.assertGreaterEqual(found["drawn"], 15, name)
