# The official clients of OpenAI and Anthropic against `stasis serve`: what they ask for is answered
# by models, and each answer passes their types' strict validation. Run by clients.py, in an
# environment that has them.
import json

import anthropic
import openai
import scripted_model
from pydantic import BaseModel
from served import ServerTest
from stasis_process import LLAMA, turns_of
from test_embed import EMBEDDING

ARGUMENTS = {"city": "Bern", "days": 2}
CALL = ("\n<tool_call>\n" + json.dumps({"name": "Weather", "arguments": ARGUMENTS}) +
        "\n</tool_call>")
# What the model says after the last byte of its prompt: to a user, to a tool, in its thoughts.
SCRIPT = {"\n": ["Let me look.", CALL],
          "\t": ["Dry and calm."], ">": ["Hm, hm.", "</think>", "Yes."]}
# Here the thought's end is of several tokens, and the content begins as it does.
CUT_END = {">": ["Hm, ", "hm.", "</t", "hink", ">\n\nth", "ink", " so"]}


class Weather(BaseModel):
    """The weather of a city."""
    city: str
    days: int


class Number(BaseModel):
    k: int


class Served(ServerTest):
    def setUp(self):
        super().setUp()
        scripted_model.write(self.folder / "scripted", SCRIPT)
        self.store = f"dir:{self.path('store')}"
        self.begin()

    def begin(self):
        self.server = self.serve(LLAMA, self.folder / "scripted", EMBEDDING, "--store", self.store)
        place, options = f"http://{self.server.address}", {"api_key": "x", "max_retries": 0}
        self.openai = openai.OpenAI(base_url=place + "/v1", **options,
                                    _strict_response_validation=True)
        self.lenient = openai.OpenAI(base_url=place + "/v1", **options)  # see test_clients.py
        self.anthropic = anthropic.Anthropic(base_url=place, **options,
                                             _strict_response_validation=True)
        for client in self.openai, self.lenient, self.anthropic:
            self.addCleanup(client.close)

    def test_chat(self):
        messages = [{"role": "user", "content": turns_of(LLAMA)[0]["user"]}]
        whole = self.openai.chat.completions.create(model=LLAMA.name, messages=messages,
                                                    temperature=0, logprobs=True, top_logprobs=3)
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        likelihoods = whole.choices[0].logprobs.content
        self.assertEqual(len(likelihoods), whole.usage.completion_tokens - 1)  # but for the end
        self.assertEqual(b"".join(bytes(each.bytes) for each in likelihoods).decode(),
                         whole.choices[0].message.content)
        with self.openai.chat.completions.stream(
                model=LLAMA.name, messages=messages, temperature=0, logprobs=True, top_logprobs=3,
                stream_options={"include_usage": True}) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, whole.choices[0].message.content)
        self.assertEqual(final.choices[0].logprobs.content, whole.choices[0].logprobs.content)
        self.assertEqual(final.usage.total_tokens, whole.usage.total_tokens)
        with self.assertRaises(openai.NotFoundError):
            self.openai.chat.completions.create(model="other", messages=messages)
        with self.assertRaises(openai.BadRequestError):
            self.openai.chat.completions.create(
                model=LLAMA.name, messages=messages,
                tools=[openai.pydantic_function_tool(Weather)])

    def test_schema(self):
        made = self.openai.chat.completions.parse(
            model=LLAMA.name, response_format=Number, temperature=0, logit_bias={},
            messages=[{"role": "user", "content": turns_of(LLAMA)[0]["user"]}], max_tokens=100)
        self.assertIsInstance(made.choices[0].message.parsed, Number)

    def test_calls(self):
        user = {"role": "user", "content": "How is it?"}
        tools = [openai.pydantic_function_tool(Weather)]
        made = self.openai.chat.completions.parse(model="scripted", messages=[user], tools=tools)
        choice = made.choices[0]
        self.assertEqual(choice.finish_reason, "tool_calls")
        call = choice.message.tool_calls[0]
        self.assertEqual(call.function.parsed_arguments, Weather(**ARGUMENTS))
        with self.openai.chat.completions.stream(model="scripted", messages=[user],
                                                 tools=tools) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.tool_calls[0].id,
                             call.id)
        answer = self.openai.chat.completions.create(
            model="scripted", tools=tools, messages=[
                user, choice.message.model_dump(exclude_none=True, include={
                    "role": True, "content": True, "tool_calls": {"__all__": {
                        "id": True, "type": True, "function": {"name", "arguments"}}}}),
                {"role": "tool", "tool_call_id": call.id, "content": "calm"}])
        self.assertEqual(answer.choices[0].message.content, "Dry and calm.")
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens,
                           made.usage.prompt_tokens)

        response = self.openai.responses.create(
            model="scripted", input="How is it?",
            tools=[openai.pydantic_function_tool(Weather)["function"] | {"type": "function"}])
        items = [item for item in response.output if item.type == "function_call"]
        self.assertEqual(json.loads(items[0].arguments), ARGUMENTS)
        follow = self.openai.responses.create(
            model="scripted", previous_response_id=response.id, input=[
                {"type": "function_call_output", "call_id": items[0].call_id, "output": "calm"}],
            tools=[openai.pydantic_function_tool(Weather)["function"] | {"type": "function"}])
        self.assertEqual(follow.output_text, "Dry and calm.")

        tool = {"name": "Weather", "input_schema": Weather.model_json_schema()}
        message = self.anthropic.messages.create(
            model="scripted", max_tokens=200, tools=[tool], messages=[user])
        self.assertEqual(message.stop_reason, "tool_use")
        self.assertEqual(message.content[-1].input, ARGUMENTS)

    def test_responses(self):
        user = turns_of(LLAMA)[0]["user"]
        first = self.openai.responses.create(model=LLAMA.name, input=user, temperature=0)
        with self.openai.responses.stream(model=LLAMA.name, input=user, temperature=0) as stream:
            final = stream.get_final_response()
        self.assertEqual(final.output_text, first.output_text)
        ids = []
        for before in first.id, final.id:
            second = self.openai.responses.create(model=LLAMA.name, input="What is k?",
                                                  previous_response_id=before, temperature=0)
            ids.append(second.id)
        self.assertEqual(ids[0], ids[1])
        self.assertEqual(self.server.end(), 0)
        self.begin()
        kept = self.openai.responses.retrieve(final.id)
        self.assertEqual((kept.id, kept.output_text, kept.usage),
                         (final.id, final.output_text, final.usage))
        again = self.openai.responses.create(model=LLAMA.name, input="What is k?",
                                             previous_response_id=final.id, temperature=0)
        self.assertEqual((again.id, again.output), (second.id, second.output))
        items = self.openai.responses.input_items.list(second.id).data
        self.assertEqual(items[0].content[0].text, "What is k?")
        self.openai.responses.delete(second.id)
        with self.assertRaises(openai.NotFoundError):
            self.openai.responses.retrieve(second.id)

    def test_forced_calls(self):
        user = {"role": "user", "content": "How is it?"}
        schema = {"type": "object", "properties": {"city": {"enum": ["Bern", "Basel"]},
                                                   "days": {"type": "integer", "maximum": 9,
                                                            "minimum": 0}},
                  "required": ["city", "days"], "additionalProperties": False}
        function = {"name": "Weather", "parameters": schema, "strict": True}
        members = {"model": "scripted", "temperature": 0.5, "seed": 3}
        for choice in "required", {"type": "function", "function": {"name": "Weather"}}:
            made = self.openai.chat.completions.create(
                messages=[user], tools=[{"type": "function", "function": function}],
                tool_choice=choice, parallel_tool_calls=False, **members)
            call = made.choices[0].message.tool_calls[0]
            Weather.model_validate_json(call.function.arguments)
            with self.openai.chat.completions.stream(
                    messages=[user], tools=[{"type": "function", "function": function}],
                    tool_choice=choice, parallel_tool_calls=False, **members) as stream:
                final = stream.get_final_completion().choices[0]
            self.assertEqual(final.finish_reason, "tool_calls")
            self.assertEqual(final.message.tool_calls[0].function.arguments,
                             call.function.arguments)
        del members["seed"]
        kept = self.openai.conversations.create()
        for choice in "required", {"type": "function", "name": "Weather"}:
            made = self.openai.responses.create(
                input="How is it?", tools=[{"type": "function", **function}], tool_choice=choice,
                conversation=kept.id, **members)
            calls = [item for item in made.output if item.type == "function_call"]
            self.assertTrue(calls)
            items = self.openai.conversations.items
            items.create(kept.id, items=[{"type": "function_call_output", "call_id": call.call_id,
                                          "output": "calm"} for call in calls])
            for call in calls:
                Weather.model_validate_json(call.arguments)
        self.assertEqual(self.openai.responses.create(
            model="scripted", conversation=kept.id).output_text, "Dry and calm.")
        tool = {"name": "Weather", "input_schema": schema}
        for choice in {"type": "any"}, {"type": "tool", "name": "Weather"}:
            message = self.anthropic.messages.create(
                model="scripted", max_tokens=900, tools=[tool], messages=[user],
                tool_choice=choice, extra_body={"temperature": 0.5})
            self.assertEqual(message.stop_reason, "tool_use")
            for block in message.content:
                if block.type == "tool_use":
                    Weather.model_validate(block.input)

    def test_thoughts_are_counted_and_kept_apart(self):
        members = {"model": "scripted", "messages": [{"role": "user", "content": "So?"}],
                   "logprobs": True, "extra_body": {"chat_template_kwargs": {
                       "enable_thinking": True}}}
        made = self.openai.chat.completions.create(**members)
        message = made.choices[0].message
        self.assertEqual((message.reasoning_content, message.content), ("Hm, hm.", "Yes."))
        self.assertEqual(made.usage.completion_tokens, 4)  # the thought, its end, content, end
        self.assertEqual(made.usage.completion_tokens_details.reasoning_tokens, 1)
        likelihoods = made.choices[0].logprobs.content
        self.assertEqual([each.token for each in likelihoods], ["Yes."])
        with self.openai.chat.completions.stream(**members) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].logprobs.content, likelihoods)
        response = self.openai.responses.create(
            model="scripted", input="So?", reasoning={"effort": "high"},
            include=["message.output_text.logprobs"])
        self.assertEqual(response.usage.output_tokens_details.reasoning_tokens, 1)
        self.assertEqual([each.token for each in response.output[1].content[0].logprobs],
                         ["Yes."])

    def test_likelihoods_are_those_of_the_text(self):
        scripted_model.write(self.folder / "cut", CUT_END)
        server = self.serve(self.folder / "cut")
        client = openai.OpenAI(base_url=f"http://{server.address}/v1", api_key="x",
                               _strict_response_validation=True)
        self.addCleanup(client.close)
        members = {"model": "cut", "messages": [{"role": "user", "content": "So?"}],
                   "logprobs": True, "top_logprobs": 1, "extra_body": {"chat_template_kwargs": {
                       "enable_thinking": True}}}
        made = client.chat.completions.create(**members)
        message = made.choices[0].message
        self.assertEqual((message.reasoning_content, message.content), ("Hm, hm.", "think so"))
        likelihoods = made.choices[0].logprobs.content
        self.assertEqual([each.token for each in likelihoods], [">\n\nth", "ink", " so"])
        with client.chat.completions.stream(**members) as stream:
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].logprobs.content, likelihoods)
        stopped = client.chat.completions.create(stop=" so", **members)
        self.assertEqual([each.token for each in stopped.choices[0].logprobs.content],
                         [">\n\nth", "ink"])
        whole = client.completions.create(model="cut", prompt="a>", logprobs=1, stop=[" so"])
        self.assertEqual("".join(whole.choices[0].logprobs.tokens), whole.choices[0].text)

    def test_conversations(self):
        user = turns_of(LLAMA)[0]["user"]
        made = self.openai.conversations.create(metadata={"topic": "k"})
        self.assertEqual((made.object, made.metadata), ("conversation", {"topic": "k"}))
        first = self.openai.responses.create(model=LLAMA.name, input=user, temperature=0,
                                             conversation=made.id)
        self.assertEqual(first.conversation.id, made.id)
        self.assertEqual(self.server.end(), 0)
        self.begin()
        with self.openai.responses.stream(model=LLAMA.name, input="What is k?", temperature=0,
                                          conversation={"id": made.id}) as stream:
            streamed = stream.get_final_response()
        plain = self.openai.responses.create(model=LLAMA.name, input="What is k?", temperature=0,
                                             previous_response_id=first.id)
        self.assertEqual(streamed.output_text, plain.output_text)
        items = self.openai.conversations.items
        said = list(items.list(made.id, order="asc", limit=3))  # two pages
        self.assertEqual([said[1].id, said[3].id], [first.output[0].id, streamed.output[0].id])
        self.assertEqual([item.content[0].text for item in said],
                         [user, first.output_text, "What is k?", plain.output_text])
        self.assertEqual(items.retrieve(said[2].id, conversation_id=made.id), said[2])
        shorter = items.delete(said[2].id, conversation_id=made.id)
        self.assertEqual((shorter.id, shorter.object), (made.id, "conversation"))
        with self.assertRaises(openai.NotFoundError):
            items.retrieve(said[2].id, conversation_id=made.id)
        self.assertEqual(list(items.list(made.id, order="asc")),
                         said[:2] + said[3:])
        added = items.create(made.id, items=[
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
                {"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "calm"},
            {"role": "developer", "content": "Be short."}])
        self.assertEqual([item.type for item in added.data], [
            "reasoning", "function_call", "function_call_output", "message"])
        self.assertEqual((added.first_id, added.last_id), (added.data[0].id, added.data[-1].id))
        self.assertEqual(items.list(made.id, limit=4).data, added.data[::-1])
        self.assertEqual(self.openai.conversations.update(made.id, metadata={"a": "b"}).metadata,
                         {"a": "b"})
        self.assertEqual(self.openai.conversations.retrieve(made.id).created_at, made.created_at)
        with self.assertRaises(openai.BadRequestError):
            self.openai.responses.create(model=LLAMA.name, input="x", conversation=made.id,
                                         previous_response_id=first.id)
        gone = self.openai.conversations.delete(made.id)
        self.assertEqual((gone.id, gone.deleted), (made.id, True))
        with self.assertRaises(openai.NotFoundError):
            self.openai.conversations.retrieve(made.id)

    def test_the_other_calls(self):
        names = [model.id for model in self.openai.models.list()]
        self.assertEqual(names, [LLAMA.name, "scripted", EMBEDDING.name])
        self.assertEqual(self.openai.models.retrieve("scripted").id, "scripted")
        made = self.openai.completions.create(model=LLAMA.name, prompt="k is", max_tokens=5,
                                              temperature=0)
        streamed = self.lenient.completions.create(model=LLAMA.name, prompt="k is", max_tokens=5,
                                                   temperature=0, stream=True)
        self.assertEqual("".join(piece.choices[0].text for piece in streamed),
                         made.choices[0].text)
        vectors = self.lenient.embeddings.create(model=EMBEDDING.name, input=[[5, 6, 7], [8, 9]])
        self.assertEqual(len(vectors.data), 2)
        self.assertAlmostEqual(sum(x * x for x in vectors.data[0].embedding), 1, 3)
        self.assertEqual(vectors.usage.prompt_tokens, 5)

    def test_messages(self):
        user = {"role": "user", "content": turns_of(LLAMA)[0]["user"]}
        whole = self.anthropic.messages.create(model=LLAMA.name, max_tokens=40, messages=[user])
        with self.anthropic.messages.stream(model=LLAMA.name, max_tokens=40,
                                            messages=[user]) as stream:
            self.assertEqual("".join(stream.text_stream), whole.content[0].text)
            final = stream.get_final_message()
        self.assertEqual(final.content[0].text, whole.content[0].text)
        self.assertEqual(final.usage, whole.usage)
        count = self.anthropic.messages.count_tokens(model=LLAMA.name, messages=[user])
        self.assertEqual(count.input_tokens, whole.usage.input_tokens)
        with self.assertRaises(anthropic.NotFoundError):
            self.anthropic.messages.create(model="other", max_tokens=4, messages=[user])
        thought = self.anthropic.messages.create(
            model="scripted", max_tokens=80, thinking={"type": "enabled", "budget_tokens": 1024},
            messages=[{"role": "user", "content": "So >"}])
        self.assertEqual(thought.stop_reason, "end_turn")
