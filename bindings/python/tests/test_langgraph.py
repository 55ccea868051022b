# LangGraph's graphs with sessions in their state, on the real package: every checkpoint continues
# with the bits that the first run had, in time, in branches, in processes and in tasks.
import asyncio
import concurrent.futures
import dataclasses
import os
import pickle
import re
import threading
import time
import unittest
from typing import Any, TypedDict
from unittest import mock

from fixture import FIRST, SECOND, model
from graphs import (GraphCase, PROGRAM, THIRD, TURNS, alone, at, graph_of, missing, nodes_of,
                    tests_of)
import stasis

if not missing:
    import langgraph.graph
    import langgraph.types
    import pydantic
    from langchain_core.messages import HumanMessage
    from stasis.langgraph import SessionState


class Graphs(GraphCase):
    def test_each_checkpoint_has_its_session(self):
        results = self.run_turns("a", *TURNS)
        self.assertEqual([each["reply"] for each in results],
                         ["k is 5.", "m is 55.", "m is 66."])
        expected = alone(*TURNS)
        self.assertEqual(self.files(), set(expected))
        history = list(self.graph.get_state_history(at("a")))
        found = [each.values["talk"] for each in reversed(history) if each.values.get("talk")]
        self.assertEqual(list(dict.fromkeys(each.digest for each in found)), expected)
        self.assertEqual(found[-1].position, len(self.saver.session(found[-1])))
        with stasis.Snapshot(self.saver.path(found[-1])) as snapshot:
            self.assertTrue(snapshot.verify(model(), strict=True).verified)
            self.assertEqual(snapshot.digest, expected[-1])

    def test_what_has_not_changed_is_not_written_again(self):
        self.run_turns("a", FIRST)
        before = {path: path.stat() for path in self.path("kept").glob("sessions/*")}
        self.run_turns("b", FIRST)  # the same states in another thread
        self.graph.update_state(at("a"), {"said": 7})
        after = {path: path.stat() for path in self.path("kept").glob("sessions/*")}
        self.assertEqual([(each.st_ino, each.st_mtime_ns) for each in before.values()],
                         [(each.st_ino, each.st_mtime_ns) for each in after.values()])

    def test_back_in_time(self):
        self.run_turns("a", *TURNS)
        expected = alone(*TURNS)
        past = [each for each in self.graph.get_state_history(at("a"))
                if each.values.get("said") == 1 and not each.next][0]
        self.assertEqual(past.values["talk"].digest, expected[1])
        again = self.graph.invoke({"text": SECOND}, past.config)
        self.assertEqual(again["talk"].digest, expected[3])
        other = self.graph.invoke({"text": THIRD}, past.config)
        self.assertEqual(other["talk"].digest, alone(FIRST, THIRD)[-1])
        self.assertNotEqual(other["talk"].digest, expected[3])
        # The first branch is as it was, and goes on.
        first = [each for each in self.graph.get_state_history(at("a"))
                 if each.values.get("said") == 3][0]
        self.assertEqual(first.values["talk"].digest, expected[-1])
        self.assertEqual(self.saver.session(first.values["talk"]).digest, expected[-1])
        more = "What is m?"
        self.assertEqual(self.graph.invoke({"text": more}, first.config)["talk"].digest,
                         alone(*TURNS, more)[-1])

    def test_replayed_from_within_a_turn(self):
        """A checkpoint between two nodes: only the second runs again."""
        self.run_turns("a", FIRST, SECOND)
        between = [each for each in self.graph.get_state_history(at("a"))
                   if each.next == ("answer",)]
        self.assertEqual([each.values["talk"].digest for each in reversed(between)],
                         alone(FIRST, SECOND)[::2])
        for each in between:
            self.assertIn(self.graph.invoke(None, each.config)["talk"].digest,
                          alone(FIRST, SECOND)[1::2])

    def test_resumed_in_another_process(self):
        self.run_turns("a", FIRST)
        self.saver.close()
        with self.script(PROGRAM, self.path("kept"), "a", SECOND, THIRD) as process:
            out, err = process.communicate(timeout=120)
        self.assertEqual((out.split(), err), (alone(*TURNS)[3::2], ""))

    def test_two_processes_in_one_folder(self):
        processes = [self.script(PROGRAM, self.path("kept"), thread, *TURNS)
                     for thread in ("a", "b")]
        for process in processes:
            with process:
                out, err = process.communicate(timeout=120)
            self.assertEqual(out.split(), alone(*TURNS)[1::2], err)
        self.assertEqual(self.files(), set(alone(*TURNS)))

    def test_update_state(self):
        """A session that was repaired by hand takes the place of the last one."""
        self.run_turns("a", FIRST, SECOND)
        session = self.saver.session(self.graph.get_state(at("a")).values["talk"])
        session.rewind(36)
        config = self.graph.update_state(at("a"), {"talk": self.saver.state(session)})
        self.assertEqual(self.graph.get_state(config).values["talk"].digest, alone(FIRST)[-1])
        self.assertEqual(self.run_turns("a", SECOND)[0]["talk"].digest,
                         alone(FIRST, SECOND)[-1])

    def test_interrupt(self):
        """A person is asked, after the reply and in another process's time."""
        def approve(state):
            return {"reply": langgraph.types.interrupt(state["reply"])}

        def nodes(saver):
            return {**nodes_of(saver), "approve": approve}
        graph = graph_of(self.saver, nodes(self.saver))
        asked = self.run_turns("a", FIRST, graph=graph)[0]
        self.assertEqual(asked["__interrupt__"][0].value, "k is 5.")
        self.saver.close()
        saver = self.opened()
        graph = graph_of(saver, nodes(saver))
        self.assertEqual(graph.get_state(at("a")).next, ("approve",))
        done = graph.invoke(langgraph.types.Command(resume="k is five."), at("a"))
        self.assertEqual((done["reply"], done["talk"].digest), ("k is five.", alone(FIRST)[-1]))

    def test_a_node_that_failed_begins_again(self):
        """Whatever a node did to its session before it failed is gone with it."""
        failing = []

        def fragile(state):
            session = self.saver.session(state.get("talk"))
            "".join(session.say(state["text"], max_tokens=16))
            if not failing:
                failing.append(1)
                raise RuntimeError("it failed")
            return {"talk": self.saver.state(session)}
        graph = graph_of(self.saver, {"fragile": fragile})
        with self.assertRaisesRegex(RuntimeError, "it failed"):
            self.run_turns("a", FIRST, graph=graph)
        self.assertEqual(self.files(), set())
        self.assertEqual(graph.invoke(None, at("a"))["talk"].digest, alone(FIRST)[-1])

    def test_branches_side_by_side(self):
        """Nodes of one step continue one state, at the same time."""
        class Both(TypedDict, total=False):
            talk: Any
            second: Any
            third: Any
        self.run_turns("a", FIRST)
        talk = self.graph.get_state(at("a")).values["talk"]
        builder = langgraph.graph.StateGraph(Both)

        def saying(key, text):
            def node(state):
                session = self.saver.session(state["talk"])
                "".join(session.say(text, max_tokens=16))
                return {key: self.saver.state(session)}
            return node
        for key, text in (("second", SECOND), ("third", THIRD)):
            builder.add_node(key + "_node", saying(key, text))
            builder.set_entry_point(key + "_node")
        result = builder.compile(checkpointer=self.saver).invoke({"talk": talk}, at("b"))
        self.assertEqual(result["second"].digest, alone(FIRST, SECOND)[-1])
        self.assertEqual(result["third"].digest, alone(FIRST, THIRD)[-1])
        self.assertEqual(result["talk"], talk)

    def test_threads(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda i: self.run_turns(f"t{i}", *TURNS[:2])[-1]["talk"].digest,
                                  range(8)))
        self.assertEqual(set(found), {alone(FIRST, SECOND)[-1]})

    def test_tasks(self):
        async def talk(graph, thread):
            for text in TURNS[:2]:
                result = await graph.ainvoke({"text": text}, at(thread))
            history = [each async for each in graph.aget_state_history(at(thread))]
            past = [each for each in history if each.values.get("said") == 1 and not each.next][0]
            other = await graph.ainvoke({"text": THIRD}, past.config)
            return [result["talk"].digest, other["talk"].digest]

        async def main():
            return await asyncio.gather(*(talk(self.graph, f"t{i}") for i in range(4)))
        expected = [alone(FIRST, SECOND)[-1], alone(FIRST, THIRD)[-1]]
        self.assertEqual(asyncio.run(main()), [expected] * 4)

    def test_durability(self):
        """Checkpoints that are only written at the end: sessions of those between are not."""
        result = self.graph.invoke({"text": FIRST}, at("a"), durability="exit")
        self.assertEqual(self.files(), {result["talk"].digest})
        self.assertEqual(self.graph.get_state(at("a")).values["talk"], result["talk"])

    def test_kept_without_keys_and_values(self):
        graph = graph_of(self.opened("small", keep="none"))
        self.assertEqual([each["talk"].digest for each in self.run_turns("a", *TURNS, graph=graph)],
                         alone(*TURNS)[1::2])
        self.run_turns("a", *TURNS)
        sizes = [sum(path.stat().st_size for path in self.path(folder).glob("sessions/*"))
                 for folder in ("small", "kept")]
        self.assertLess(sizes[0] * 5, sizes[1])


class Values(GraphCase):
    """What a state is, and how it is stored, wherever it stands."""

    def test_a_value(self):
        session, _ = self.talk()
        state = self.saver.state(session)
        self.assertEqual((state.digest, state.position), (session.digest, session.position))
        session.append([7])
        mine = self.saver.session(state)
        self.assertEqual(mine.digest, state.digest)
        mine.append([8])
        self.assertEqual(self.saver.session(state).digest, state.digest)
        again = pickle.loads(pickle.dumps(state))
        self.assertEqual((again, hash(again), again.position), (state, hash(state), state.position))
        self.assertNotEqual(state, self.saver.state(session))
        self.assertIn(state.digest, repr(state))
        self.assertEqual(len(self.saver.session()), 0)

    def test_wherever_it_stands(self):
        class Deep(pydantic.BaseModel):
            talk: SessionState
            anything: Any = None

        @dataclasses.dataclass
        class Plain:
            talk: Any
        globals().update(Deep=Deep, Plain=Plain)  # where the serializer looks for them
        states = []
        for number in range(7):
            states.append(self.saver.state(self.session([6, 7, 8 + number])))
        value = {"list": [states[0]], "tuple": (1, states[1]), "plain": Plain(states[2]),
                 "deep": Deep(talk=states[3], anything={"more": states[4]}),
                 "message": HumanMessage("hello", additional_kwargs={"talk": states[5]}),
                 "as key": {states[6].digest: states[6]}}

        def give(_):
            return {"talk": value}
        graph_of(self.saver, {"give": give}).invoke({"text": ""}, at("a"))
        self.assertEqual(self.files(), {each.digest for each in states})
        self.saver.close()
        with self.assertLogs("langgraph") as logs:
            found = graph_of(self.opened(), {"give": give}).get_state(at("a")).values["talk"]
        self.assertEqual(sorted(re.findall(r"unregistered type (\S+)", "".join(logs.output))),
                         ["test_langgraph.Deep", "test_langgraph.Plain"])
        self.assertEqual((found["list"][0], found["tuple"][1], found["plain"].talk,
                          found["deep"].talk, found["deep"].anything["more"],
                          found["message"].additional_kwargs["talk"],
                          found["as key"][states[6].digest]), tuple(states))

    def test_a_state_of_pydantic_s(self):
        class Strict(pydantic.BaseModel):
            text: str = ""
            talk: SessionState = None

        def say(state):
            session = self.saver.session(state.talk)
            "".join(session.say(state.text, max_tokens=16))
            return {"talk": self.saver.state(session)}
        graph = graph_of(self.saver, {"say": say}, Strict)
        found = [graph.invoke({"text": text}, at("a"))["talk"].digest for text in TURNS[:2]]
        self.assertEqual(found, alone(FIRST, SECOND)[1::2])

    def test_in_json(self):
        class Deep(pydantic.BaseModel):
            talk: SessionState
        state = self.saver.state(self.session([6, 7]))
        self.assertEqual(Deep.model_validate_json(Deep(talk=state).model_dump_json()).talk, state)

    def test_the_strict_mode(self):
        """In which the serializer refuses types that it does not know, and otherwise warns of."""
        self.run_turns("a", FIRST)
        with self.script(PROGRAM, self.path("kept"), "a", SECOND, env=dict(
                os.environ, LANGGRAPH_STRICT_MSGPACK="true")) as process:
            out, err = process.communicate(timeout=120)
        self.assertEqual((out.split(), err), (alone(FIRST, SECOND)[-1:], ""))

    def test_equal_states_of_which_one_is_in_memory(self):
        """That one is saved, wherever it stands among them."""
        def put(value):
            graph_of(self.saver, {"put": lambda _: {"talk": value}}).invoke({"text": ""}, at("a"))
        for number in range(2):
            live = self.saver.state(self.session([6, 7 + number]))
            equal = [pickle.loads(pickle.dumps(live)), live][::1 - 2 * number]
            put(equal)
            self.assertIn(live.digest, self.files())

    def test_one_state_for_many_threads(self):
        """A session serves one caller at a time, and a state any number."""
        state, real, held = self.saver.state(self.talk()[0]), stasis.Session.fork, threading.Lock()

        def fork(session):
            if not held.acquire(False):
                raise stasis.BusyError("another call is running")
            time.sleep(0.01)
            held.release()
            return real(session)
        with mock.patch.object(stasis.Session, "fork", fork), \
                concurrent.futures.ThreadPoolExecutor(4) as pool:
            taken = pool.map(lambda _: self.saver.session(state).digest, range(8))
            self.assertEqual(list(taken), [state.digest] * 8)


def load_tests(*_):
    return tests_of(Graphs, Values)


if __name__ == "__main__":
    unittest.main()
