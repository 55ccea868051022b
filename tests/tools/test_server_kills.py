# stasis serve, killed at any moment: after a restart over the same store, or at another server over
# it, each conversation goes on as if nothing had been, and at most the turn that ran is repeated.
import http.client
import os
import random
import threading

import seaweedfs
from served import ServerTest
from stasis_process import LLAMA, turns_of

KILLED = (OSError, http.client.HTTPException, ValueError)  # a cut line is no JSON


class Talks:
    """Conversations on threads of their own, each turn at any of the servers there are."""

    def __init__(self, count, turns):
        users = [turn["user"] for turn in turns_of(LLAMA)]
        self.bodies = [[{"input": f"{users[(i + j) % len(users)]} ({i})", "temperature": 1.5,
                         "seed": i, "max_output_tokens": 24} for j in range(turns)]
                       for i in range(count)]
        self.ids = [[] for _ in range(count)]
        self.changed = threading.Condition()
        self.servers, self.events, self.broken = [], 0, []
        self.fresh, self.kill_at = [], 0  # servers to take the place of killed ones

    def count(self, rng):
        """An event came. Under the lock, so that each kill is at its event, however slow all is."""
        self.events += 1
        if self.fresh and self.events >= self.kill_at:
            self.servers.pop(rng.randrange(len(self.servers))).kill()
            self.servers.append(self.fresh.pop())
            self.kill_at = self.events + rng.randint(1, 25)
        self.changed.notify_all()

    def turn(self, server, index, rng):
        ids = self.ids[index]
        body = dict(self.bodies[index][len(ids)], previous_response_id=ids[-1] if ids else None)
        for event in server.events("/v1/responses", body):
            if event["type"] in ("response.failed", "error"):
                raise AssertionError(event)
            with self.changed:
                if event["type"] == "response.completed":
                    ids.append(event["response"]["id"])
                self.count(rng)

    def talk(self, index):
        rng = random.Random(index)
        try:
            while len(self.ids[index]) < len(self.bodies[index]):
                with self.changed:
                    server = rng.choice(self.servers)
                try:
                    self.turn(server, index, rng)
                except KILLED:
                    with self.changed:
                        if not self.changed.wait_for(lambda: server not in self.servers, 60):
                            raise AssertionError("a server that nobody killed cut a stream")
        except Exception as error:  # said by the thread that waits for all
            with self.changed:
                self.broken.append(error)

    def run(self, start, kills, rng, servers=1):
        """Talks at servers, of which one after the other is killed. Returns the ids."""
        self.servers = [start() for _ in range(servers)]
        self.fresh = [start() for _ in range(kills)]
        self.kill_at = rng.randint(1, 25)
        threads = [threading.Thread(target=self.talk, args=(index,))
                   for index in range(len(self.ids))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for server in self.servers + self.fresh:
            server.kill()
        if self.broken:
            raise self.broken[0]
        return self.ids, len(self.fresh)


class Kills(ServerTest):
    def setUp(self):
        super().setUp()
        self.rng = random.Random(int(os.environ.get("STASIS_TEST_SEED", 0)))
        self.kills = 100 if "STASIS_TEST_ALL" in os.environ else 4
        self.whole = self.talks(f"dir:{self.path('whole')}", 0)
        self.assertEqual(len({ids[-1] for ids in self.whole}), len(self.whole))

    def talks(self, uri, kills, servers=1):
        talks = Talks(*((32, 12) if "STASIS_TEST_ALL" in os.environ else (6, 4)))
        ids, left = talks.run(lambda: self.serve(LLAMA, "--store", uri), kills, self.rng, servers)
        self.assertEqual(left, 0, "the conversations ended before the last kill")
        return ids

    def test_killed_and_begun_again(self):
        for scheme in "dir", "sqlite":
            self.assertEqual(self.talks(f"{scheme}:{self.path(scheme)}", self.kills), self.whole)

    def test_two_servers_over_one_directory(self):
        self.assertEqual(self.talks(f"dir:{self.path('both')}", self.kills, 2), self.whole)


class KillsOverObjectStorage(Kills):
    test_killed_and_begun_again = test_two_servers_over_one_directory = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.service = seaweedfs.start(cls)
        os.environ.update(AWS_ACCESS_KEY_ID=seaweedfs.ACCESS,
                          AWS_SECRET_ACCESS_KEY=seaweedfs.SECRET)
        cls.addClassCleanup(lambda: [os.environ.pop(name) for name in (
            "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")])

    def test_two_servers_one_killed_again_and_again(self):
        self.assertEqual(self.talks(self.service.uri("kills"), self.kills, 2), self.whole)
