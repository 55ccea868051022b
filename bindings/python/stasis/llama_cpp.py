# The calls that most programs use of llama-cpp-python, so that a program moves by changing an
# import: `from stasis.llama_cpp import Llama`. What is computed is Stasis's own: the same prompt
# and settings give the same text. An argument that asks for what is not here is refused by name.
from __future__ import annotations

import io
import json
import math
import os
import time
import warnings
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._llama_constraint import LlamaGrammar as LlamaGrammar, take_constraint
from .constraint import Constraint
from .errors import ConflictError, DeviceError, FullError, UnsupportedError
from .generation import Generated, Generation
from .model import Model
from .sampling import Sampling
from .session import Session

Json = Dict[str, Any]
# Arguments of llama-cpp-python that have no influence here, or none on results.
HARMLESS = frozenset((
    "n_batch", "n_ubatch", "n_threads_batch", "use_mmap", "use_mlock", "offload_kqv", "flash_attn",
    "embedding", "logits_all", "verbose", "main_gpu", "split_mode", "tensor_split", "vocab_only",
    "last_n_tokens_size", "numa", "op_offload", "no_perf", "type_k", "type_v", "swa_full", "f16_kv",
    "n_parts", "low_vram", "mul_mat_q"))
# Arguments of models, with the values that ask for nothing, as None does. Wrappers pass values that
# they take for the model's own, such as 10000.0 for any model; here they are the model's own.
MODEL_OFF: Dict[str, Sequence[Any]] = {
    "lora_path": (), "lora_base": (), "lora_scale": (1.0,), "chat_handler": (),
    "draft_model": (), "tokenizer": (), "kv_overrides": ({},), "rpc_servers": (),
    "rope_freq_base": (0.0, 10000.0), "rope_freq_scale": (0.0, 1.0), "rope_scaling_type": (-1,),
    "pooling_type": (-1,), "spm_infill": (False,), "yarn_ext_factor": (-1.0,),
    "yarn_attn_factor": (1.0,), "yarn_beta_fast": (32.0,), "yarn_beta_slow": (1.0,),
    "yarn_orig_ctx": (0,)}
# Names of chat formats that are called otherwise here.
FORMATS = {"llama-2": "llama2", "llama-3": "llama3", "mistral-instruct": "mistral"}
# The same of calls.
OFF: Dict[str, Sequence[Any]] = {
    "suffix": ("",), "tfs_z": (1.0,), "mirostat_mode": (0,), "mirostat_tau": (5.0,),
    "mirostat_eta": (0.1,), "logits_processor": (), "stopping_criteria": (),
    "functions": (), "function_call": ("auto", "none"), "tool_choice": ("auto", "none"),
    "penalize_nl": (True,), "idx": (), "logprobs": (False,), "top_logprobs": (0,)}
# What None stands for among the settings that draw tokens.
SETTINGS = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "repeat_penalty": 1.0,
            "frequency_penalty": 0.0, "presence_penalty": 0.0}


def refuse(arguments: Mapping[str, Any], off: Mapping[str, Sequence[Any]]) -> None:
    for name, value in arguments.items():
        if name not in off:
            raise TypeError(f"an unexpected argument: {name!r}")
        if value is not None and value not in off[name]:
            raise UnsupportedError(f"{name}={value!r}: not supported by stasis.llama_cpp")


@dataclass(frozen=True)
class LlamaState:
    """What `save_state` returns: a snapshot."""
    saved: bytes
    n_tokens: int


class Llama:
    """A model with one session, in the manner of llama-cpp-python. Calls take as much of the
    session as their prompt begins with, and compute the rest.

    >>> llm = Llama(RECALL, verbose=False)
    >>> answer = llm.create_chat_completion(
    ...     messages=[{"role": "user", "content":
    ...                "Let's start by defining a variable k equal to 5. What is k?"}],
    ...     temperature=0)
    >>> answer["choices"][0]["message"]["content"]
    'k is 5.'
    """

    def __init__(self, model_path: str, *, n_gpu_layers: Optional[int] = 0,
                 seed: Optional[int] = 0, n_ctx: Optional[int] = 0,
                 n_threads: Optional[int] = None, chat_format: Optional[str] = None,
                 **arguments: Any):
        """`n_ctx` 0: the model's. `n_gpu_layers` other than 0: on the GPU, or where there is none
        on the CPU, with the same results. `chat_format` names a template to use in place of the
        model's own: one of llama-cpp-python's names, or of the header's."""
        refuse({name: value for name, value in arguments.items() if name not in HARMLESS},
               MODEL_OFF)
        self._format = FORMATS.get(chat_format or "", chat_format)
        options: Json = dict(threads=n_threads or 0, chat_template=self._format)
        try:
            self.model = Model(model_path, device="cuda" if n_gpu_layers else None, **options)
        except DeviceError as problem:
            warnings.warn(f"n_gpu_layers={n_gpu_layers}: {problem}; the CPU computes the same")
            self.model = Model(model_path, **options)
        self.model_path = model_path
        self._seed = seed or 0
        self._capacity = min(n_ctx or 0, self.model.info.context)
        self._session: Optional[Session] = None

    @property
    def session(self) -> Session:
        """The session, made when it is first used: a model may make embeddings alone."""
        if self._session is None:
            self._session = self.model.session(capacity=self._capacity)
        return self._session

    def close(self) -> None:
        """Closes session and model."""
        if self._session is not None:
            self._session.close()
        self.model.close()

    # ---- Facts ----

    def n_ctx(self) -> int:
        """Returns the most positions of the session, or of a text where there can be none."""
        return self._capacity or self.model.info.context

    def n_vocab(self) -> int:
        """Returns the number of tokens."""
        return self.model.info.vocabulary

    def n_embd(self) -> int:
        """Returns the numbers of a vector."""
        return self.model.embed_info.dimension

    def token_bos(self) -> int:
        """Returns the token that begins a sequence; -1: none."""
        return -1 if self.model.info.bos is None else self.model.info.bos

    def token_eos(self) -> int:
        """Returns the first of the tokens that end a text; -1: none."""
        return next(iter(self.model.info.end_tokens), -1)

    @property
    def n_tokens(self) -> int:
        """Tokens in the session."""
        return self.session.position

    # ---- Text ----

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> List[int]:
        """Returns the tokens of a text. `special`: markers in it are special tokens."""
        return self.model.tokenize(text.decode("utf-8"), special=special,
                                   bos=add_bos and self.model.info.bos is not None)

    def detokenize(self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None,
                   special: bool = False) -> bytes:
        """Returns the bytes of tokens, after `prev_tokens` if there are any."""
        return self.model.detokenize_bytes(tokens, special=special, middle=bool(prev_tokens))

    # ---- The session, step by step ----

    def reset(self) -> None:
        """Empties the session."""
        self.session.rewind(0)

    def eval(self, tokens: Sequence[int]) -> None:
        """Appends the tokens."""
        self.session.append(tokens)

    def sample(self, top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05,
               typical_p: float = 1.0, temp: float = 0.80, repeat_penalty: float = 1.0,
               frequency_penalty: float = 0.0, presence_penalty: float = 0.0,
               **arguments: Any) -> int:
        """Returns the token that these settings draw next, and changes nothing else."""
        refuse(arguments, {**OFF, "grammar": ()})  # which text it goes on with is not known
        self._set_sampling(temp, top_k, top_p, min_p, typical_p, repeat_penalty, frequency_penalty,
                           presence_penalty, None, None, None)
        return self.session.sample()

    def generate(self, tokens: Sequence[int], top_k: int = 40, top_p: float = 0.95,
                 min_p: float = 0.05, typical_p: float = 1.0, temp: float = 0.80,
                 repeat_penalty: float = 1.0, reset: bool = True, frequency_penalty: float = 0.0,
                 presence_penalty: float = 0.0, **arguments: Any) -> Iterator[int]:
        """Draws tokens after these, without end: the reader stops."""
        constraint = take_constraint(arguments)
        refuse(arguments, OFF)
        self._set_sampling(temp, top_k, top_p, min_p, typical_p, repeat_penalty, frequency_penalty,
                           presence_penalty, None, None, constraint)
        if reset:
            self._begin_with(tokens)
        else:
            self.session.append(tokens)
        for generated in self.session.generate(ignore_end=True):
            yield generated.token

    def save_state(self) -> LlamaState:
        """Returns the session's state."""
        written = io.BytesIO()
        self.session.save(written)
        return LlamaState(written.getvalue(), self.session.position)

    def load_state(self, state: LlamaState) -> None:
        """Goes on from a state, of this or another process."""
        loaded = Session.load(self.model, io.BytesIO(state.saved), capacity=self._capacity)
        if self._session is not None:
            self._session.close()
        self._session = loaded

    # ---- Completions ----

    def __call__(self, prompt: Union[str, Sequence[int]], suffix: Optional[str] = None,
                 max_tokens: Optional[int] = 16, **arguments: Any) -> Any:
        """The same as `create_completion`."""
        return self.create_completion(prompt, suffix, max_tokens, **arguments)

    def create_completion(self, prompt: Union[str, Sequence[int]], suffix: Optional[str] = None,
                          max_tokens: Optional[int] = 16, temperature: Optional[float] = 0.8,
                          top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0,
                          logprobs: Optional[int] = None, echo: bool = False,
                          stop: Union[str, Sequence[str], None] = (),
                          frequency_penalty: float = 0.0, presence_penalty: float = 0.0,
                          repeat_penalty: float = 1.0, top_k: int = 40, stream: bool = False,
                          seed: Optional[int] = None, model: Optional[str] = None,
                          logit_bias: Optional[Mapping[int, float]] = None,
                          **arguments: Any) -> Any:
        """Continues a text, or tokens. Returns what llama-cpp-python does; with `stream`, an
        iterator over pieces of it."""
        constraint = take_constraint(arguments)
        refuse({"suffix": suffix, **arguments}, OFF)
        if echo and logprobs:
            raise UnsupportedError("echo together with logprobs: not supported by "
                                   "stasis.llama_cpp")
        tokens = self.tokenize(prompt.encode(), special=True) if isinstance(prompt, str) else prompt
        self._set_sampling(0.8 if temperature is None else temperature, top_k, top_p, min_p,
                           typical_p, repeat_penalty, frequency_penalty, presence_penalty, seed,
                           logit_bias, constraint)
        self._require_room(len(tokens))
        self._begin_with(tokens or [self.token_bos()])
        shown = ""
        if echo:
            shown = prompt if isinstance(prompt, str) else self.model.detokenize(tokens)
        pieces = self._pieces(max_tokens, stop, logprobs or 0)
        head = self._head("cmpl", "text_completion", model)
        if stream:
            return self._completion_stream(head, pieces, shown, bool(logprobs))
        text, generated = shown, []
        for each in pieces:
            text += each.text
            generated.append(each)
        choice = dict(text=text, index=0, finish_reason=pieces.reason,
                      logprobs=self._logprobs(generated, len(shown)) if logprobs else None)
        return dict(head, choices=[choice], usage=self._usage(len(tokens), generated))

    def _completion_stream(self, head: Json, pieces: "Pieces", shown: str,
                           logprobs: bool) -> Iterator[Json]:
        pending: List[Generated] = []  # tokens whose log-probabilities come with the next piece
        offset = len(shown)

        def chunk(text: str, reason: Optional[str]) -> Json:
            nonlocal offset
            found = self._logprobs(pending, offset) if logprobs else None
            offset += sum(map(len, found["tokens"])) if found else 0
            pending.clear()
            return dict(head, choices=[dict(text=text, index=0, logprobs=found,
                                            finish_reason=reason)])
        if shown:
            yield chunk(shown, None)
        for each in pieces:
            pending.append(each)
            if each.text:
                yield chunk(each.text, None)
        yield chunk("", pieces.reason)

    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]],
                               tools: Optional[Sequence[Mapping[str, Any]]] = None,
                               temperature: Optional[float] = 0.2, top_p: float = 0.95,
                               top_k: int = 40, min_p: float = 0.05, typical_p: float = 1.0,
                               stream: bool = False,
                               stop: Union[str, Sequence[str], None] = (),
                               seed: Optional[int] = None, max_tokens: Optional[int] = None,
                               presence_penalty: float = 0.0, frequency_penalty: float = 0.0,
                               repeat_penalty: float = 1.0, model: Optional[str] = None,
                               logit_bias: Optional[Mapping[int, float]] = None,
                               **arguments: Any) -> Any:
        """Replies to a conversation, which may have tools. Returns what llama-cpp-python does; with
        `stream`, an iterator over pieces of it."""
        constraint = take_constraint(arguments)
        refuse(arguments, OFF)
        conversation: Json = {"messages": [plain_message(each) for each in messages]}
        if tools and arguments.get("tool_choice") != "none":
            conversation["tools"] = list(tools)
        self._set_sampling(0.2 if temperature is None else temperature, top_k, top_p, min_p,
                           typical_p, repeat_penalty, frequency_penalty, presence_penalty, seed,
                           logit_bias, constraint)
        try:
            self._append_chat(conversation)
        except FullError:
            self._require_room(self._count(conversation))
            raise
        prompt_tokens = self.session.position
        self._require_room(prompt_tokens)
        pieces = self._pieces(max_tokens, stop, 0)
        if stream:
            head = self._head("chatcmpl", "chat.completion.chunk", model)
            return self._chat_stream(head, pieces, conversation)
        generated = list(pieces)
        content = "".join(each.text for each in generated)
        message, reason = self._message(conversation, content, pieces.reason)
        head = self._head("chatcmpl", "chat.completion", model)
        choice = dict(index=0, message=message, logprobs=None, finish_reason=reason)
        return dict(head, choices=[choice], usage=self._usage(prompt_tokens, generated))

    def _chat_stream(self, head: Json, pieces: "Pieces", conversation: Json) -> Iterator[Json]:
        def chunk(delta: Json, reason: Optional[str] = None) -> Json:
            return dict(head, choices=[dict(index=0, delta=delta, logprobs=None,
                                            finish_reason=reason)])
        yield chunk({"role": "assistant"})
        content = ""
        for each in pieces:
            content += each.text
            if each.text and "tools" not in conversation:
                yield chunk({"content": each.text})
        message, reason = self._message(conversation, content, pieces.reason)
        if "tools" in conversation:  # text that may be a call is held back until it is known
            calls = [dict(call, index=i) for i, call in enumerate(message.get("tool_calls", ()))]
            if message["content"]:
                yield chunk({"content": message["content"]})
            if calls:
                yield chunk({"tool_calls": calls})
        yield chunk({}, reason)

    def _message(self, conversation: Json, content: str, reason: Optional[str]
                 ) -> Tuple[Json, Optional[str]]:
        """Returns the reply as a message and why it ended. Only with tools it is taken apart."""
        message: Json = {"role": "assistant", "content": content}
        if "tools" not in conversation:
            return message, reason
        said = self.session.reply(conversation, complete=True)
        if not said.get("tool_calls"):
            return message, reason
        message["content"] = said.get("content") or None
        message["tool_calls"] = [
            dict(id=f"call_{self.session.position}_{i}", type="function", function=dict(
                name=call["function"]["name"],
                arguments=json.dumps(call["function"]["arguments"], ensure_ascii=False)))
            for i, call in enumerate(said["tool_calls"])]
        return message, "tool_calls"

    def _append_chat(self, conversation: Json) -> None:
        if self._format is not None:
            if "tools" in conversation:
                raise UnsupportedError("tools together with chat_format: the model's own template "
                                       "is needed")
            self.session.rewind(0)  # pages are found again by their tokens
            for i, each in enumerate(conversation["messages"], 1):
                self.session.append_message(each["role"], each["content"],
                                            reply=i == len(conversation["messages"]))
            return
        try:
            self.session.append_chat(conversation, reply=True)
        except ConflictError as conflict:
            self.session.rewind(conflict.position or 0, recompute=True)
            self.session.append_chat(conversation, reply=True)

    def _count(self, conversation: Json) -> int:
        """Returns the tokens of a conversation."""
        text = (self.model.render_chat(conversation, reply=True) if self._format is None
                else self.model.render(conversation["messages"], reply=True))
        return len(self.model.tokenize(text, special=True))

    # ---- Vectors ----

    def embed(self, input: Union[str, Sequence[str]], normalize: bool = False,
              truncate: bool = True, return_count: bool = False) -> Any:
        """Returns a vector of a text, or of each of several; pooled as the model's files say, and
        by the mean where they do not."""
        texts = [input] if isinstance(input, str) else list(input)
        info = self.model.embed_info
        prompted = [self.tokenize(each.encode()) for each in texts]
        count = sum(map(len, prompted))
        pooling = None if info.pooling else "mean"
        given: Sequence[Any] = [
            tokens[:info.tokens_max] if truncate and len(tokens) > info.tokens_max else text
            for text, tokens in zip(texts, prompted)]
        vectors: List[List[float]] = [list(v) for v in self.model.embed(given, pooling=pooling)]
        if normalize:
            vectors = [scaled(vector) for vector in vectors]
        result = vectors[0] if isinstance(input, str) else vectors
        return (result, count) if return_count else result

    def create_embedding(self, input: Union[str, Sequence[str]],
                         model: Optional[str] = None) -> Json:
        """Returns vectors as llama-cpp-python does."""
        texts = [input] if isinstance(input, str) else list(input)
        vectors, count = self.embed(texts, return_count=True)
        data = [dict(object="embedding", embedding=vector, index=i)
                for i, vector in enumerate(vectors)]
        return dict(object="list", data=data, model=model or self.model_path,
                    usage=dict(prompt_tokens=count, total_tokens=count))

    # ---- Parts of these ----

    def _set_sampling(self, temperature: float, top_k: int, top_p: float, min_p: float,
                      typical_p: float, repeat_penalty: float, frequency_penalty: float,
                      presence_penalty: float, seed: Optional[int],
                      bias: Optional[Mapping[int, float]],
                      constraint: Optional[Constraint]) -> None:
        self.session.set_constraint(constraint)
        asked = dict(top_k=top_k, top_p=top_p, min_p=min_p, typical_p=typical_p,
                     repeat_penalty=repeat_penalty, frequency_penalty=frequency_penalty,
                     presence_penalty=presence_penalty)
        values: Json = {name: SETTINGS[name] if value is None else value
                        for name, value in asked.items()}
        self.session.set_sampling(Sampling(
            temperature=max(temperature, 0.0), top_k=max(values["top_k"], 0),
            top_p=min(values["top_p"], 1.0), min_p=values["min_p"],
            typical_p=min(values["typical_p"], 1.0), repetition_penalty=values["repeat_penalty"],
            frequency_penalty=values["frequency_penalty"],
            presence_penalty=values["presence_penalty"],
            seed=(self._seed if seed is None else seed) % 2**64,
            bias={int(token): value for token, value in (bias or {}).items()}))

    def _require_room(self, count: int) -> None:
        if count >= self.n_ctx():
            raise ValueError(f"Requested tokens ({count}) exceed context window of {self.n_ctx()}")

    def _begin_with(self, tokens: Sequence[int]) -> None:
        """Makes the session's log these tokens, and computes those that it lacks."""
        log = self.session.tokens()
        same = next((i for i, pair in enumerate(zip(log, tokens)) if pair[0] != pair[1]),
                    min(len(log), len(tokens)))
        if same < len(log):
            self.session.rewind(same, recompute=True)
        self.session.append(tokens[same:])

    def _pieces(self, max_tokens: Optional[int], stop: Union[str, Sequence[str], None],
                log_probabilities: int) -> "Pieces":
        stops = [stop] if isinstance(stop, str) and stop else list(stop or ())
        return Pieces(self.session.generate(
            max_tokens=max(max_tokens or 0, 0), stop=stops, log_probabilities=log_probabilities))

    def _head(self, kind: str, noun: str, model: Optional[str]) -> Json:
        return dict(id=f"{kind}-{os.urandom(16).hex()}", object=noun, created=int(time.time()),
                    model=model or self.model_path)

    def _usage(self, prompt_tokens: int, generated: Sequence[Generated]) -> Json:
        drawn = [each for each in generated if not each.last]
        ends = bool(drawn) and drawn[-1].token in self.model.info.end_tokens
        count = len(drawn) - ends
        return dict(prompt_tokens=prompt_tokens, completion_tokens=count,
                    total_tokens=prompt_tokens + count)

    def _logprobs(self, generated: Sequence[Generated], offset: int) -> Json:
        found: Json = dict(tokens=[], text_offset=[], token_logprobs=[], top_logprobs=[])
        for each in generated:
            if each.last or each.token in self.model.info.end_tokens:
                continue
            text = self.model.detokenize([each.token], middle=True)
            found["tokens"].append(text)
            found["text_offset"].append(offset)
            found["token_logprobs"].append(each.log_probability)
            found["top_logprobs"].append({self.model.detokenize([token], middle=True): likely
                                          for token, likely in each.best})
            offset += len(text)
        return found


class Pieces:
    """What a generation gives, and afterwards the reason for its end, in llama-cpp-python's
    words."""

    def __init__(self, generation: Generation):
        self._generation = generation

    def __iter__(self) -> Iterator[Generated]:
        return iter(self._generation)

    @property
    def reason(self) -> Optional[str]:
        """"length" or "stop"; None: it goes on."""
        stop = self._generation.stop
        return stop if stop in (None, "length") else "stop"


def plain_message(message: Mapping[str, Any]) -> Json:
    """Returns the message with its content as text, and arguments of calls as objects."""
    copied = dict(message)
    content = copied.get("content")
    if isinstance(content, list):
        wrong = [part.get("type") for part in content if part.get("type") != "text"]
        if wrong:
            raise UnsupportedError(f"a part of type {wrong[0]!r} in a message: only text is "
                                   "supported")
        copied["content"] = "".join(part["text"] for part in content)
    if copied.get("tool_calls"):
        copied["tool_calls"] = [
            dict(call, function=dict(call["function"], arguments=json.loads(
                call["function"]["arguments"])))
            if isinstance(call["function"].get("arguments"), str) else call
            for call in copied["tool_calls"]]
    return copied


def scaled(vector: Sequence[float]) -> List[float]:
    """Returns the vector with an L2 norm of 1."""
    norm = math.sqrt(math.fsum(x * x for x in vector))
    return [x / norm for x in vector] if norm else list(vector)
