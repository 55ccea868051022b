# What the tests of LangGraph's graphs share: two nodes that hold a conversation, and what comes of
# it.
import asyncio
from typing import Any, TypedDict
import unittest

from fixture import Case, FIRST, SECOND, model

try:
    import langgraph.graph
    from stasis.langgraph import StasisSaver
    missing = None
except ImportError as problem:
    missing = problem

THIRD = "If we increment k by 1, what is the new value of m?"
TURNS = (FIRST, SECOND, THIRD)
PROGRAM = """
import sys
from graphs import *
with StasisSaver(sys.argv[1], model()) as saver:
    graph = graph_of(saver)
    for text in sys.argv[3:]:
        print(graph.invoke({"text": text}, at(sys.argv[2]))["talk"].digest)
"""


class State(TypedDict, total=False):
    text: str
    reply: str
    talk: Any
    said: int


def nodes_of(saver):
    def listen(state):
        session = saver.session(state.get("talk"))
        session.append_message("user", state["text"], reply=True)
        return {"talk": saver.state(session)}

    def answer(state):
        session = saver.session(state["talk"])
        reply = "".join(each.text for each in session.generate(max_tokens=16))
        return {"reply": reply, "talk": saver.state(session), "said": state.get("said", 0) + 1}
    return {"listen": listen, "answer": answer}


def graph_of(saver, nodes=None, schema=State):
    """A graph that runs the nodes in a row."""
    builder = langgraph.graph.StateGraph(schema)
    builder.add_sequence(list((nodes or nodes_of(saver)).items()))
    builder.set_entry_point(next(iter(nodes or nodes_of(saver))))
    return builder.compile(checkpointer=saver)


def at(thread, checkpoint=None):
    return {"configurable": {"thread_id": thread, **(
        {"checkpoint_id": checkpoint} if checkpoint else {})}}


def alone(*turns):
    """The digests after each node, without a graph."""
    session, digests = model().session(), []
    for text in turns:
        session.append_message("user", text, reply=True)
        digests.append(session.digest)
        "".join(each.text for each in session.generate(max_tokens=16))
        digests.append(session.digest)
    return digests


class GraphCase(Case):
    def setUp(self):
        super().setUp()
        self.saver = self.opened()
        self.graph = graph_of(self.saver)

    def opened(self, folder="kept", **options):
        saver = StasisSaver(self.path(folder), model(), **options)
        self.addCleanup(saver.close)
        return saver

    def check_conformance(self, **options):
        """LangGraph's tests of savers, all of them."""
        try:
            from langgraph.checkpoint.conformance import checkpointer_test, validate
        except ImportError as problem:
            self.skipTest(f"langgraph-checkpoint-conformance is not there: {problem}")

        @checkpointer_test(name="StasisSaver")
        async def saver():
            with StasisSaver(self.path("conformance"), model(), **options) as made:
                yield made
        report = asyncio.run(validate(saver))
        self.assertEqual({name: each.failures for name, each in report.results.items()
                          if not each.passed}, {})
        self.assertGreaterEqual(sum(each.tests_passed for each in report.results.values()), 81)

    def files(self, folder="kept"):
        return {path.name.partition(".")[0] for path in self.path(folder).glob("sessions/*")}

    def run_turns(self, thread, *turns, graph=None):
        return [(graph or self.graph).invoke({"text": text}, at(thread)) for text in turns]


def tests_of(*cases):
    """The tests of a module; without LangGraph one, which is skipped and says so."""
    @unittest.skip(f"LangGraph is not there: {missing}")
    class WithoutLangGraph(unittest.TestCase):
        def test_graphs(self):
            """Nothing can be said of them."""
    suite = unittest.TestSuite()
    for case in (WithoutLangGraph,) if missing else cases:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromTestCase(case))
    return suite
