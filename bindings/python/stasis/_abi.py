# The library, and the prototype of every function that it exports. A test compares them with the
# headers (tests/test_abi.py).
from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import (POINTER, c_char_p, c_double, c_int32, c_size_t, c_uint8, c_uint16, c_uint32,
                    c_uint64, c_void_p)
from typing import Any, Dict, Tuple

from . import _store_structs as st
from . import _structs as s
from ._structs import floats_p, tokens_p

# Objects are addresses: which kind is meant is the business of the classes that hold them.
model = session = snapshot = cancel = generation = stream = scheduler = threads = store = c_void_p
new = POINTER(c_void_p)
error = POINTER(s.stasis_error)
# Text is the address of bytes with their length beside it; a buffer for text is an address too.
text = name = path = c_char_p
buffer = c_void_p
size, count = c_size_t, POINTER(c_size_t)
status, flags, position = c_int32, c_uint32, c_uint64
run_options = POINTER(s.stasis_run_options)
save_options = POINTER(s.stasis_save_options)
load_options = POINTER(s.stasis_load_options)
call = POINTER(st.stasis_store_call_options)
event = POINTER(POINTER(s.stasis_scheduler_event))


def _init(struct: Any) -> Tuple[None, Tuple[Any, ...]]:
    return None, (POINTER(struct), size)


PROTOTYPES: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {
    "stasis_version": (c_uint32, ()),
    "stasis_build": (c_char_p, ()),
    "stasis_status_name": (c_char_p, (status,)),
    "stasis_cancel_create": (status, (new, error)),
    "stasis_cancel_request": (None, (cancel,)),
    "stasis_cancel_reset": (None, (cancel,)),
    "stasis_cancel_progress": (None, (cancel, POINTER(c_uint64), POINTER(c_uint64))),
    "stasis_cancel_release": (None, (cancel,)),

    "stasis_model_options_init": _init(s.stasis_model_options),
    "stasis_model_open": (status, (path, POINTER(s.stasis_model_options), new, error)),
    "stasis_model_open_source": (status, (POINTER(s.stasis_model_source), name,
                                          POINTER(s.stasis_model_options), new, error)),
    "stasis_model_open_descriptor": (
        status, (c_int32, POINTER(s.stasis_model_options), new, error)),
    "stasis_model_close": (None, (model,)),
    "stasis_model_get_info": (status, (model, POINTER(s.stasis_model_info), error)),
    "stasis_model_get_stats": (status, (model, POINTER(s.stasis_model_stats), error)),
    "stasis_model_get_metadata": (
        status, (model, c_char_p, POINTER(s.stasis_metadata), error)),
    "stasis_model_get_metadata_at": (
        status, (model, size, POINTER(s.stasis_metadata), error)),
    "stasis_model_session_memory": (
        status, (model, POINTER(s.stasis_session_options), c_uint64,
                 POINTER(s.stasis_session_memory), error)),
    "stasis_model_estimate": (
        status, (path, POINTER(s.stasis_model_options), POINTER(s.stasis_session_options),
                 c_uint64, POINTER(s.stasis_estimate), POINTER(s.stasis_session_memory), error)),
    "stasis_model_get_token": (
        status, (model, c_uint32, POINTER(s.stasis_token_info), error)),
    "stasis_model_tokenize": (
        status, (model, text, size, flags, tokens_p, size, count, error)),
    "stasis_model_detokenize": (
        status, (model, tokens_p, size, flags, buffer, size, count, error)),
    "stasis_model_render": (
        status, (model, POINTER(s.stasis_message), size, size, flags, buffer, size, count, error)),
    "stasis_model_render_chat": (status, (model, text, size, flags, buffer, size, count, error)),
    "stasis_model_recommended_sampling": (status, (model, POINTER(s.stasis_sampling), error)),
    "stasis_model_quantize": (status, (path, path, POINTER(s.stasis_quantize_options),
                                       POINTER(s.stasis_quantize_report), error)),
    "stasis_quantize_options_init": _init(s.stasis_quantize_options),
    "stasis_embed_options_init": _init(s.stasis_embed_options),
    "stasis_model_get_embed_info": (status, (model, POINTER(s.stasis_embed_info), error)),
    "stasis_model_embed": (
        status, (model, POINTER(s.stasis_embed_input), size, size, POINTER(s.stasis_embed_options),
                 floats_p, size, count, error)),

    "stasis_session_options_init": _init(s.stasis_session_options),
    "stasis_run_options_init": _init(s.stasis_run_options),
    "stasis_session_create": (status, (model, POINTER(s.stasis_session_options), new, error)),
    "stasis_session_free": (None, (session,)),
    "stasis_session_append": (status, (session, tokens_p, size, run_options, error)),
    "stasis_session_append_message": (
        status, (session, name, text, size, flags, run_options, error)),
    "stasis_session_append_chat": (
        status, (session, text, size, flags, POINTER(c_uint64), run_options, error)),
    "stasis_session_chat_tokens": (
        status, (session, text, size, flags, POINTER(c_uint64), tokens_p, size, count, error)),
    "stasis_session_reply": (
        status, (session, text, size, flags, buffer, size, count, error)),
    "stasis_session_fork": (status, (session, new, error)),
    "stasis_session_rewind": (status, (session, position, flags, run_options, error)),
    "stasis_session_evict": (status, (session, position, position, error)),
    "stasis_session_kv": (
        status, (session, c_uint32, position, position, POINTER(c_uint16), POINTER(c_uint16), size,
                 count, error)),
    "stasis_session_attention": (
        status, (session, flags, POINTER(c_double), size, count, error)),
    "stasis_session_get_info": (status, (session, POINTER(s.stasis_session_info), error)),
    "stasis_session_tokens": (
        status, (session, position, tokens_p, POINTER(c_uint8), size, count, error)),
    "stasis_session_text": (
        status, (session, position, position, buffer, size, count, error)),
    "stasis_session_digest": (status, (session, POINTER(s.stasis_digest), error)),
    "stasis_session_set_data": (status, (session, name, text, size, error)),
    "stasis_session_get_data": (status, (session, name, buffer, size, count, error)),
    "stasis_session_list_data": (
        status, (session, POINTER(s.stasis_data_entry), size, size, count, error)),
    "stasis_session_turns": (
        status, (session, position, POINTER(s.stasis_turn), size, size, count, error)),

    "stasis_sampling_init": _init(s.stasis_sampling),
    "stasis_session_logits": (status, (session, floats_p, size, count, error)),
    "stasis_session_top": (status, (session, size, tokens_p, floats_p, error)),
    "stasis_session_score": (
        status, (session, tokens_p, size, POINTER(c_double), run_options, error)),
    "stasis_session_set_sampling": (status, (session, POINTER(s.stasis_sampling), error)),
    "stasis_session_sample": (status, (session, tokens_p, error)),
    "stasis_session_decode": (status, (session, tokens_p, error)),
    "stasis_generate_options_init": _init(s.stasis_generate_options),
    "stasis_session_generate": (
        status, (session, POINTER(s.stasis_generate_options), POINTER(s.stasis_generate_result),
                 error)),
    "stasis_generation_begin": (
        status, (session, POINTER(s.stasis_generate_options), new, error)),
    "stasis_generation_next": (status, (generation, POINTER(s.stasis_generated), error)),
    "stasis_generation_get_result": (
        status, (generation, POINTER(s.stasis_generate_result), error)),
    "stasis_generation_end": (None, (generation,)),
    "stasis_text_stream_create": (
        status, (model, POINTER(s.stasis_generate_options), new, error)),
    "stasis_text_stream_push": (
        status, (stream, c_uint32, POINTER(s.stasis_text_piece), error)),
    "stasis_text_stream_finish": (status, (stream, POINTER(s.stasis_text_piece), error)),
    "stasis_text_stream_free": (None, (stream,)),
    "stasis_draft_options_init": _init(s.stasis_draft_options),
    "stasis_session_set_draft": (
        status, (session, model, POINTER(s.stasis_draft_options), error)),
    "stasis_session_set_constraint": (status, (session, flags, text, size, cancel, error)),
    "stasis_session_set_allowed": (status, (session, POINTER(c_uint32), size, error)),
    "stasis_sessions_step": (
        status, (POINTER(s.stasis_step_item), size, size, tokens_p, size, run_options, error)),

    "stasis_scheduler_options_init": _init(s.stasis_scheduler_options),
    "stasis_prompt_init": _init(s.stasis_prompt),
    "stasis_scheduler_create": (status, (model, POINTER(s.stasis_scheduler_options), new, error)),
    "stasis_scheduler_submit": (
        status, (scheduler, session, POINTER(s.stasis_generate_options), POINTER(s.stasis_prompt),
                 error)),
    "stasis_scheduler_next": (status, (scheduler, session, c_uint64, event, error)),
    "stasis_scheduler_event_free": (None, (POINTER(s.stasis_scheduler_event),)),
    "stasis_scheduler_cancel": (status, (scheduler, session, error)),
    "stasis_scheduler_get_stats": (
        status, (scheduler, POINTER(s.stasis_scheduler_stats), error)),
    "stasis_scheduler_stop": (None, (scheduler,)),
    "stasis_scheduler_close": (None, (scheduler,)),

    "stasis_threads_options_init": _init(s.stasis_threads_options),
    "stasis_threads_create": (status, (POINTER(s.stasis_threads_options), new, error)),
    "stasis_threads_free": (None, (threads,)),

    "stasis_save_options_init": _init(s.stasis_save_options),
    "stasis_load_options_init": _init(s.stasis_load_options),
    "stasis_session_save": (status, (session, path, save_options, error)),
    "stasis_session_write": (
        status, (session, POINTER(s.stasis_sink), save_options, error)),
    "stasis_session_load": (status, (model, path, load_options, new, error)),
    "stasis_session_read": (
        status, (model, POINTER(s.stasis_source), load_options, new, error)),
    "stasis_snapshot_open": (status, (path, new, error)),
    "stasis_snapshot_open_source": (status, (POINTER(s.stasis_source), new, error)),
    "stasis_snapshot_close": (None, (snapshot,)),
    "stasis_snapshot_get_info": (status, (snapshot, POINTER(s.stasis_snapshot_info), error)),
    "stasis_snapshot_element": (status, (snapshot, c_uint32, buffer, size, count, error)),
    "stasis_snapshot_tokens": (
        status, (snapshot, position, tokens_p, POINTER(c_uint8), size, count, error)),
    "stasis_snapshot_get_data": (status, (snapshot, name, buffer, size, count, error)),
    "stasis_snapshot_list_data": (
        status, (snapshot, POINTER(s.stasis_data_entry), size, size, count, error)),
    "stasis_snapshot_turns": (
        status, (snapshot, position, POINTER(s.stasis_turn), size, size, count, error)),
    "stasis_snapshot_compare": (
        status, (snapshot, snapshot, POINTER(s.stasis_difference), error)),
    "stasis_snapshot_compact": (status, (path, save_options, error)),
    "stasis_verify_options_init": _init(s.stasis_verify_options),
    "stasis_snapshot_verify": (
        status, (snapshot, model, POINTER(s.stasis_verify_options),
                 POINTER(s.stasis_verify_report), error)),

    "stasis_trace_options_init": _init(s.stasis_trace_options),
    "stasis_session_set_trace": (status, (session, POINTER(s.stasis_trace_options), error)),
    "stasis_session_take_trace": (
        status, (session, POINTER(s.stasis_trace_event), size, size, count, POINTER(c_uint64),
                 error)),

    "stasis_store_options_init": _init(st.stasis_store_options),
    "stasis_store_open": (status, (path, POINTER(st.stasis_store_options), new, error)),
    "stasis_store_close": (None, (store,)),
    "stasis_store_open_backend": (
        status, (POINTER(st.stasis_store_backend), name,
                 POINTER(st.stasis_store_options), new, error)),
    "stasis_store_call_options_init": _init(st.stasis_store_call_options),
    "stasis_store_put": (
        status, (store, session, name, call, POINTER(st.stasis_store_result), error)),
    "stasis_store_get": (status, (store, model, name, load_options, new, error)),
    "stasis_store_snapshot": (status, (store, name, call, new, error)),
    "stasis_store_list": (status, (store, call, st.stasis_stored_session_fn, c_void_p, error)),
    "stasis_store_remove": (status, (store, name, call, error)),
    "stasis_store_fork": (status, (store, name, name, call, error)),
    "stasis_store_collect": (status, (store, call, POINTER(st.stasis_store_collected), error)),
    "stasis_store_import": (
        status, (store, path, name, call, POINTER(st.stasis_store_result), error)),
    "stasis_store_export": (status, (store, name, path, call, error)),
}

PACKAGE = pathlib.Path(__file__).resolve().parent
SONAME = "libstasis.so.0"


def places() -> list[str]:
    """Returns where the library may be, in the order in which it is looked for: where the
    environment says, inside this package (as a wheel brings it), in the build of the clone that
    this file is in, and where the system looks."""
    if "STASIS_LIBRARY" in os.environ:
        return [os.environ["STASIS_LIBRARY"]]
    inside = [PACKAGE / "lib" / SONAME, PACKAGE.parents[2] / "build/release/abi" / SONAME]
    return [str(place) for place in inside if place.exists()] + [SONAME]


def _open() -> ctypes.CDLL:
    loaded = ctypes.CDLL(places()[0])
    for function, (result, arguments) in PROTOTYPES.items():
        prototype = getattr(loaded, function)
        prototype.restype, prototype.argtypes = result, arguments
    return loaded


try:
    library = _open()
except OSError as problem:
    raise ImportError(f"the library of Stasis cannot be opened: {problem}; STASIS_LIBRARY may name "
                      f"its file ({SONAME})") from problem
