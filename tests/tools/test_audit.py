# stasis verify --audit: a changed page is found as often as it says, always by the whole
# verification, and what an audit cannot reach is named.
import json
import re

import forgery
from stasis_process import CommandTest, GEMMA, LLAMA, all_tokens, comma

PAGE = 64
POSITIONS = 600  # 9 pages and a last one of 24 positions
SEEDS = 30


class Audit(CommandTest):
    def save(self, name, model, tokens, *options):
        return self.json("run", model, "--tokens", comma(tokens), "-n", 0, "--save",
                         self.path(name), *options)

    def forged(self, model, page, layer_group, layer):
        """A file whose page `page` holds one bit that the model did not compute, and all that
        comes after it computed from that: nothing but this page can tell."""
        tokens = (2 * all_tokens(model))[:POSITIONS]
        end = (page + 1) * PAGE
        self.save("prefix", model, tokens[:end])
        forgery.flip_value(self.path("prefix"), layer_group, layer, page * PAGE + 5)
        self.save("forged", model, tokens[end:], "--resume", self.path("prefix"))
        return self.path("forged")

    def audit(self, path, model, percent, seed, code=None):
        done = self.run_command("verify", path, model, "--audit", percent, "--audit-seed", seed,
                                "--json")
        self.assertIn(done.returncode, (0, 1) if code is None else (code,), done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if report["verified"] else 1)
        return report

    def test_a_changed_page_is_found_as_often_as_the_audit_says(self):
        path = self.forged(LLAMA, 2, 0, 7)
        place = {"position": 2 * PAGE + 5, "layer": 7, "head": 1, "part": "values",
                 "element": "kv_cache"}
        whole = self.json("verify", path, LLAMA, code=1)
        self.assertEqual({key: whole[key] for key in place}, place)
        self.assertEqual({key: self.audit(path, LLAMA, 100, 0, code=1)[key] for key in place},
                         place)
        found = 0
        for seed in range(SEEDS):
            report = self.audit(path, LLAMA, 30, seed)
            self.assertEqual((report["audit"]["pages"], report["audit"]["drawn"]), (9, 3))
            self.assertAlmostEqual(report["audit"]["one_page_found"], 1 / 3)
            # 7 changed pages of 9 cannot all be missed by 3 draws; of 6 pages, with 1 in 84.
            self.assertEqual(report["audit"]["pages_found_99"], 7)
            self.assertEqual(report["audit"]["unreachable"], [0, 0])
            if not report["verified"]:
                self.assertEqual({key: report[key] for key in place}, place)
                found += 1
        out = self.ok("verify", path, LLAMA, "--audit", 100, "--audit-seed", 4, code=1)
        self.assertIn("seed 4: drew 9 of 9 pages, and computed no further", out)
        # 10 expected, with a standard deviation of 2.6.
        self.assertGreater(found, 1)
        self.assertLess(found, 20)

    def test_an_honest_file_passes_and_the_seed_repeats_an_audit(self):
        self.save("s", LLAMA, (2 * all_tokens(LLAMA))[:POSITIONS])
        for percent in 0.1, 40, 100:
            self.assertTrue(self.audit(self.path("s"), LLAMA, percent, 7)["verified"])
        chosen = self.json("verify", self.path("s"), LLAMA, "--audit", 40)
        again = self.audit(self.path("s"), LLAMA, 40, chosen["audit"]["seed"])
        del chosen["seconds"], again["seconds"]
        self.assertEqual(chosen, again)
        out = self.ok("verify", self.path("s"), LLAMA, "--audit", 40, "--audit-seed", 9)
        self.assertIn("seed 9: drew 4 of 9 pages; with the last one, hidden state and logits", out)
        self.assertIn("found with a probability of 44.44 %", out)
        self.assertNotIn("out of reach", out)

    def test_pages_that_were_released_are_out_of_reach(self):
        path = self.forged(GEMMA, 1, 0, 1)  # layer 11 sees all positions, the local ones do not
        report = self.audit(path, GEMMA, 100, 0, code=0)
        begin, end = report["audit"]["unreachable"]
        self.assertEqual(begin, PAGE)
        self.assertGreater(end, 2 * PAGE)
        self.assertLess(end, POSITIONS)
        self.assertEqual(report["positions"], PAGE + POSITIONS - end)
        out = self.ok("verify", path, GEMMA, "--audit", 100)
        self.assertIn(f"out of reach: positions {PAGE} to {end - 1},", out)
        whole = self.json("verify", path, GEMMA, code=1)
        self.assertEqual((whole["position"], whole["layer"]), (PAGE + 5, 11))

    def test_without_keys_and_values_only_the_first_page_is_reached(self):
        tokens = all_tokens(GEMMA)[:200]
        self.save("s", GEMMA, tokens, "--keep", "none")
        report = self.audit(self.path("s"), GEMMA, 100, 0, code=0)
        self.assertEqual(report["audit"]["unreachable"], [PAGE, 200])
        self.assertEqual(report["positions"], PAGE)
        out = self.ok("verify", self.path("s"), GEMMA, "--audit", 100)
        self.assertIn("hidden state and logits are out of reach as well", out)
        self.assertRegex(out, re.escape(f"out of reach: positions {PAGE} to 199,"))
        self.assertTrue(self.json("verify", self.path("s"), GEMMA)["verified"])

    def test_refusals(self):
        self.save("s", GEMMA, [1, 2, 3])
        for percent in "0", "-1", "100.5", "nan", "", "5%":
            self.refused("verify", self.path("s"), GEMMA, f"--audit={percent}", names=["--audit"])
        self.refused("verify", self.path("s"), GEMMA, "--audit-seed", 1, names=["--audit-seed"])
        self.assertEqual(self.audit(self.path("s"), GEMMA, 1, 0)["audit"]["one_page_found"], None)
