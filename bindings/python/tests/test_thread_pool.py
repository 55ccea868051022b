# Pools of threads that models share.
import os
import pathlib
import pickle
import threading
import time
import unittest

from fixture import Case, GEMMA, LLAMA, model, tokens
import stasis


def becomes(prefix, count):
    """Waits until so many threads have a name that begins so: a thread takes its name when it first
    runs, and leaves after it was joined."""
    for _ in range(5000):
        names = []
        for task in pathlib.Path("/proc/self/task").iterdir():
            try:
                names.append((task / "comm").read_text())
            except OSError:
                pass  # it has ended
        if sum(name.startswith(prefix) for name in names) == count:
            return True
        time.sleep(0.002)
    return False


def converse(opened):
    with opened.session(domain=2**64 - 1) as session:
        session.append(tokens(90))
        return session.digest


class ThreadPool(Case):
    def test_models_share_and_keep_it(self):
        paths = [GEMMA, LLAMA, GEMMA]
        expected = [converse(model(path)) for path in paths]
        with stasis.Threads(3, name="py-pool") as pool:
            models = [stasis.Model(path, thread_pool=pool) for path in paths]
        self.assertTrue(becomes("py-pool", 2))
        self.assertEqual([each.info.threads for each in models], [3, 3, 3])
        found = [None] * len(models)

        def run(index):
            found[index] = converse(models[index])
        threads = [threading.Thread(target=run, args=(index,)) for index in range(len(models))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, expected)
        self.assertTrue(becomes("py-pool", 2))
        for each in models:
            each.close()
        self.assertTrue(becomes("py-pool", 0))
        with self.assertRaises(stasis.ClosedError):
            stasis.Model(GEMMA, thread_pool=pool)

    def test_affinity(self):
        cpu = max(os.sched_getaffinity(0))
        with stasis.Threads(2, cpus=[cpu], name="py-place"):
            self.assertTrue(becomes("py-place", 1))
            found = [os.sched_getaffinity(int(task.name))
                     for task in pathlib.Path("/proc/self/task").iterdir()
                     if (task / "comm").read_text().startswith("py-place")]
            self.assertEqual(found, [{cpu}])

    def test_refused(self):
        for named, options in [("CPU 65535", dict(cpus=[65535])), ("1025", dict(count=1025)),
                               ("much too long", dict(count=2, name="much too long a name")),
                               ("a CPU", dict(cpus=[-1]))]:
            with self.assertRaisesRegex(stasis.InvalidArgumentError, named):
                stasis.Threads(**options)
        with stasis.Threads(1) as pool:
            with self.assertRaisesRegex(stasis.InvalidArgumentError, "thread_pool"):
                stasis.Model(GEMMA, threads=2, thread_pool=pool)
            with self.assertRaises(TypeError):
                pickle.dumps(pool)


if __name__ == "__main__":
    unittest.main()
