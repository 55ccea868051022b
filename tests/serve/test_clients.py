# The official clients of OpenAI and Anthropic against the API's readers and writers, behind a tiny
# HTTP server: what they send is read, and what is answered passes their types' strict validation.
# Run by clients.py, in an environment that has them.
import http.server
import json
import subprocess
import threading
import unittest

import stasis_process

import anthropic
import openai
from pydantic import BaseModel

TEXT = "Good day, Zürich."
THOUGHTS = "Let me see."
ARGUMENTS = {"town": "Zürich", "days": 2}


class Weather(BaseModel):
    """The weather of a town."""
    town: str
    days: int


class Answers:
    """The program that reads requests and writes replies; a line each."""

    def __init__(self):
        self.process = subprocess.Popen([stasis_process.command().parent / "api_answers"],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()
        self.last = None

    def ask(self, method, path, body):
        with self.lock:
            self.process.stdin.write(json.dumps(
                {"method": method, "path": path, "body": body}).encode() + b"\n")
            self.process.stdin.flush()
            self.last = json.loads(self.process.stdout.readline())
            return self.last

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.process.stdout.close()


class Handler(http.server.BaseHTTPRequestHandler):
    answers = None

    def do_GET(self):
        self.reply("GET", "")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.reply("POST", body)

    def reply(self, method, body):
        path = self.path.split("?")[0]
        if method == "GET" and "anthropic-version" in self.headers:
            path = "/anthropic" + path
        made = self.answers.ask(method, path, body)
        data = made["body"].encode()
        self.send_response(made["status"])
        self.send_header("Content-Type", made.get("type", "application/json"))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.answers = Answers()
        cls.addClassCleanup(cls.answers.close)
        handler = type("Bound", (Handler,), {"answers": cls.answers})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        cls.addClassCleanup(lambda: (server.shutdown(), thread.join(), server.server_close()))
        place = f"http://127.0.0.1:{server.server_address[1]}"
        options = {"api_key": "x", "max_retries": 0, "timeout": 60}
        cls.openai = openai.OpenAI(base_url=place + "/v1", **options,
                                   _strict_response_validation=True)
        # Types of the client that OpenAI's own answers do not have: no null for a completion's
        # reason to finish while it goes on, no base64 for an embedding, which it asks for itself.
        cls.lenient = openai.OpenAI(base_url=place + "/v1", **options)
        cls.addClassCleanup(cls.lenient.close)
        cls.anthropic = anthropic.Anthropic(base_url=place, **options,
                                            _strict_response_validation=True)
        cls.addClassCleanup(cls.openai.close)
        cls.addClassCleanup(cls.anthropic.close)

    def read(self):
        """What was made of the last request."""
        return self.answers.last["read"]


class Chat(Clients):
    user = {"role": "user", "content": "How is the weather?"}

    def test_a_body(self):
        made = self.openai.chat.completions.create(
            model="small", messages=[self.user], n=2, logprobs=True, top_logprobs=2, max_tokens=9)
        self.assertEqual([choice.message.content for choice in made.choices], [TEXT, TEXT])
        self.assertEqual(made.choices[0].message.reasoning_content, THOUGHTS)
        likelihoods = made.choices[1].logprobs.content
        self.assertEqual([each.bytes for each in likelihoods], [[71, 111, 111, 100], [0xc3]])
        self.assertEqual(likelihoods[0].top_logprobs[1].logprob, -1.5)
        self.assertEqual(made.usage.completion_tokens, 10)
        self.assertEqual(made.usage.prompt_tokens_details.cached_tokens, 8)
        self.assertEqual(self.read()["conversation"], {"messages": [self.user]})

    def test_a_stream_of_text(self):
        with self.openai.chat.completions.stream(
                model="small", messages=[self.user], stream_options={"include_usage": True},
                logprobs=True) as stream:
            deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
        self.assertEqual("".join(deltas), TEXT)
        self.assertEqual(final.choices[0].message.content, TEXT)
        self.assertEqual(final.choices[0].finish_reason, "stop")
        self.assertEqual(len(final.choices[0].logprobs.content), 2)
        self.assertEqual(final.usage.total_tokens, 17)

    def test_calls_and_what_follows(self):
        tools = [openai.pydantic_function_tool(Weather)]
        with self.openai.chat.completions.stream(model="small", messages=[self.user],
                                                 tools=tools) as stream:
            streamed = stream.get_final_completion().choices[0]
        stored = self.read()["with_reply"]
        self.assertEqual(streamed.finish_reason, "tool_calls")
        self.assertEqual(streamed.message.tool_calls[0].function.parsed_arguments,
                         Weather(**ARGUMENTS))
        whole = self.openai.chat.completions.parse(model="small", messages=[self.user],
                                                   tools=tools, tool_choice="required")
        self.assertTrue(self.read()["must_call"])
        call = whole.choices[0].message.tool_calls[0]
        self.assertEqual(call.id, streamed.message.tool_calls[0].id)
        for message in (streamed.message, whole.choices[0].message):
            made = self.openai.chat.completions.create(
                model="small", tools=tools, messages=[
                    self.user, message.model_dump(exclude={"parsed"}),
                    {"role": "tool", "tool_call_id": call.id, "content": "rain"}])
            self.assertEqual(made.choices[0].message.content, TEXT)
            said = self.read()["conversation"]
            self.assertEqual(said["messages"][2]["name"], "Weather")
            said["messages"] = said["messages"][:2]
            self.assertEqual(json.dumps(said), json.dumps(stored))

    def test_a_schema(self):
        made = self.openai.chat.completions.parse(model="small", messages=[self.user],
                                                  response_format=Weather)
        self.assertEqual(made.choices[0].message.parsed, Weather(town="Bern", days=3))
        self.assertEqual(json.loads(self.read()["form"])["required"], ["town", "days"])

    def test_failures(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.chat.completions.create(model="small", messages=[self.user],
                                                modalities=["audio"])
        self.assertEqual(caught.exception.param, "modalities")
        self.assertEqual(caught.exception.code, "unsupported_value")
        with self.assertRaises(openai.APIError) as caught:
            list(self.openai.chat.completions.create(model="breaks", messages=[self.user],
                                                     stream=True))
        self.assertEqual(caught.exception.message, "the model broke")


class Responses(Clients):
    tools = [openai.pydantic_function_tool(Weather)["function"] | {"type": "function"}]

    def stream(self, **members):
        """The last answer of a stream that reached its end."""
        kinds = []
        with self.openai.responses.stream(model="small", **members) as stream:
            for event in stream:
                kinds.append(event.type)
        self.assertEqual(kinds[:2], ["response.created", "response.in_progress"])
        self.assertEqual(kinds[-1], "response.completed")
        return stream.get_final_response()

    def test_text(self):
        members = {"input": "a", "include": ["message.output_text.logprobs"], "top_logprobs": 1,
                   "metadata": {"k": "v"}}
        for id_, made in ((64 * "d", self.openai.responses.create(model="small", **members)),
                          ("0123456789abcdef", self.stream(**members))):
            self.assertEqual(made.id, "resp_" + id_)
            self.assertEqual(made.output_text, TEXT)
            self.assertEqual(made.output[0].content[0].text, THOUGHTS)
            self.assertEqual(made.output[1].content[0].logprobs[1].bytes, [0xc3])
            self.assertEqual(made.metadata, {"k": "v"})
            self.assertEqual(made.usage.input_tokens_details.cached_tokens, 8)

    def test_calls_and_what_follows(self):
        first = {"role": "user", "content": "How is the weather?"}
        whole = self.openai.responses.create(model="small", input=[first], tools=self.tools)
        streamed = self.stream(input=[first], tools=self.tools)
        stored = self.read()["with_reply"]
        for made in (whole, streamed):
            call = made.output[1]
            self.assertEqual(json.loads(call.arguments), ARGUMENTS)
            items = [item.model_dump(exclude={"parsed_arguments"}) for item in made.output]
            output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
            again = self.openai.responses.create(model="small", input=[first, *items, output],
                                                 tools=self.tools)
            self.assertEqual(again.output_text, TEXT)
            said = self.read()["conversation"]
            said["messages"] = said["messages"][:2]
            self.assertEqual(json.dumps(said), json.dumps(stored))

    def test_a_schema(self):
        made = self.openai.responses.parse(model="small", input="a", text_format=Weather)
        self.assertEqual(made.output_parsed, Weather(town="Bern", days=3))
        self.assertEqual(json.loads(self.read()["form"])["required"], ["town", "days"])

    def test_input_items(self):
        items = list(self.openai.responses.input_items.list("resp_1"))
        self.assertEqual([item.type for item in reversed(items)],
                         ["message", "reasoning", "function_call", "function_call_output",
                          "message"])

    def test_failures(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.responses.create(model="small", input="a", tools=[{"type": "web_search"}])
        self.assertEqual(caught.exception.param, "tools[0].type")
        events = list(self.openai.responses.create(model="breaks", input="a", stream=True))
        self.assertEqual(events[-1].type, "response.failed")
        self.assertEqual(events[-1].response.error.message, "the model broke")


class Others(Clients):
    def test_completions(self):
        made = self.openai.completions.create(model="small", prompt="a", logprobs=1)
        self.assertEqual(made.choices[0].text, TEXT)
        self.assertEqual(made.choices[0].logprobs.top_logprobs[0], {"Good": -0.25})
        pieces = list(self.lenient.completions.create(model="small", prompt=[1, 2], stream=True))
        self.assertEqual("".join(piece.choices[0].text for piece in pieces), TEXT)
        self.assertEqual(self.read()["tokens"], [1, 2])

    def test_embeddings(self):
        for client, form in ((self.openai, "float"), (self.lenient, openai.NOT_GIVEN)):
            made = client.embeddings.create(model="small", input=["a", "b"],
                                                 encoding_format=form)
            self.assertEqual(len(made.data), 2)
            for got, expected in zip(made.data[1].embedding, (0.5, -2, 1e-3)):
                self.assertAlmostEqual(got, expected, places=6)

    def test_models(self):
        self.assertEqual([model.id for model in self.openai.models.list()], ["small", "small"])
        self.assertEqual(self.openai.models.retrieve("small").owned_by, "stasis")
        self.assertEqual([model.id for model in self.anthropic.models.list()],
                         ["small", "small"])
        self.assertEqual(self.anthropic.models.retrieve("small").created_at.year, 2023)


class Messages(Clients):
    user = {"role": "user", "content": "How is the weather?"}
    tools = [{"name": "Weather", "description": Weather.__doc__,
              "input_schema": Weather.model_json_schema()}]

    def test_text(self):
        members = {"model": "small", "max_tokens": 9, "messages": [self.user],
                   "system": [{"type": "text", "text": "be brief"}], "stop_sequences": ["x"]}
        whole = self.anthropic.messages.create(**members)
        with self.anthropic.messages.stream(**members) as stream:
            text = "".join(stream.text_stream)
            streamed = stream.get_final_message()
        self.assertEqual(text, TEXT)
        for made in (whole, streamed):
            self.assertEqual([block.type for block in made.content], ["thinking", "text"])
            self.assertEqual(made.content[0].thinking, THOUGHTS)
            self.assertEqual(made.content[1].text, TEXT)
            self.assertEqual((made.stop_reason, made.stop_sequence), ("stop_sequence", "x"))
            self.assertEqual(made.usage.cache_read_input_tokens, 8)
            self.assertEqual(made.usage.output_tokens, 5)
        self.assertEqual(self.read()["conversation"]["messages"][0],
                         {"role": "system", "content": "be brief"})

    def test_calls_and_what_follows(self):
        members = {"model": "small", "max_tokens": 9, "tools": self.tools}
        with self.anthropic.messages.stream(messages=[self.user], **members) as stream:
            streamed = stream.get_final_message()
        whole = self.anthropic.messages.create(messages=[self.user], **members,
                                               tool_choice={"type": "any"})
        self.assertTrue(self.read()["must_call"])
        stored = self.read()["with_reply"]
        for made in (whole, streamed):
            call = made.content[1]
            self.assertEqual(call.input, ARGUMENTS)
            self.assertEqual(made.stop_reason, "tool_use")
            content = [block.model_dump(exclude_none=True) for block in made.content]
            result = {"type": "tool_result", "tool_use_id": call.id, "content": "rain"}
            self.anthropic.messages.create(messages=[
                self.user, {"role": "assistant", "content": content},
                {"role": "user", "content": [result]}], **members)
            said = self.read()["conversation"]
            self.assertEqual(said["messages"][2]["content"], "rain")
            said["messages"] = said["messages"][:2]
            self.assertEqual(json.dumps(said), json.dumps(stored))

    def test_count(self):
        made = self.anthropic.messages.count_tokens(model="small", messages=[self.user],
                                                    tools=self.tools)
        self.assertEqual(made.input_tokens, 12)

    def test_failures(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.anthropic.messages.create(model="small", max_tokens=9, messages=[
                {"role": "user", "content": [{"type": "image", "source": {
                    "type": "url", "url": "http://x"}}]}])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("messages[0].content[0]", caught.exception.body["error"]["message"])
        with self.assertRaises(anthropic.APIError) as caught:
            list(self.anthropic.messages.create(model="breaks", max_tokens=9, stream=True,
                                                messages=[self.user]))
        self.assertIn("the model broke", str(caught.exception))
