# stasis store: sessions from files to a store and back, its lists, forks and collections, and what
# is refused.
from stasis_process import CommandTest, GEMMA, LLAMA, comma


class Store(CommandTest):
    def save(self, name, model, tokens):
        return self.json("run", model, "--tokens", comma(tokens), "-n", 0, "--save",
                         self.path(name))["digest"]

    def names(self, uri):
        return {session["name"]: session["position"]
                for session in self.json("store", uri, "list")["sessions"]}

    def test_there_and_back(self):
        digest = self.save("a.stasis", GEMMA, range(3, 200))
        for scheme in "dir", "sqlite":
            uri = f"{scheme}:{self.path(scheme)}"
            imported = self.json("store", uri, "import", self.path("a.stasis"), "my talk")
            self.assertEqual(imported["digest"], digest)
            self.assertEqual(imported["shared_bytes"], 0)
            again = self.json("store", uri, "import", self.path("a.stasis"), "again")
            self.assertGreater(again["shared_bytes"], 10 * again["written_bytes"])
            self.ok("store", uri, "fork", "my talk", "fork")
            self.assertEqual(self.names(uri), {"my talk": 197, "again": 197, "fork": 197})
            out = self.ok("store", uri, "list")
            self.assertIn(f"my talk: 197 tokens, digest {digest}\n", out)
            self.ok("store", uri, "export", "fork", self.path(f"{scheme}.stasis"))
            self.assertEqual(self.json("inspect", self.path(f"{scheme}.stasis"))["digest"], digest)
            self.ok("verify", self.path(f"{scheme}.stasis"), GEMMA)
            for name in "my talk", "again", "fork":
                self.ok("store", uri, "remove", name)
            collected = self.json("store", uri, "collect")
            self.assertEqual(collected["removed_objects"], collected["objects"])
            self.assertGreater(collected["removed_bytes"], 10000)
            self.assertEqual(self.names(uri), {})

    def test_refusals(self):
        self.save("a.stasis", GEMMA, range(3, 50))
        self.save("b.stasis", LLAMA, range(3, 60))
        uri = f"dir:{self.path('store')}"
        self.refused("store", uri, "list", names=["there is no store"])
        self.ok("store", uri, "import", self.path("a.stasis"), "s")
        self.refused("store", uri, "import", self.path("b.stasis"), "s", names=["CONFLICT"])
        self.ok("store", uri, "import", self.path("b.stasis"), "s", "--overwrite")
        self.assertEqual(self.names(uri), {"s": 57})
        self.refused("store", uri, "export", "s", self.path("a.stasis"), names=["it is there"])
        self.refused("store", uri, "fork", "s", names=["takes 2 names, not 1"])
        self.refused("store", uri, "put", "s", names=["there is no action 'put'"])
        self.refused("store", uri, "collect", "--overwrite", names=["overwrites nothing"])
        self.refused("store", uri, "remove", "none", names=["no session 'none'"])
        self.refused("store", "ftp:x", "list", names=["scheme 'ftp'"])
