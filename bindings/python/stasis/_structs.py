# What the headers declare, for ctypes: constants and structs, under the headers' names. A test
# compares every value, offset and size with what a C compiler says (tests/test_abi.py).
from __future__ import annotations

from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32,
                    c_int64, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p, sizeof)
from typing import Any

STASIS_OK = 0
STASIS_INVALID_ARGUMENT = 1
STASIS_NOT_FOUND = 2
STASIS_IO = 3
STASIS_NO_MEMORY = 4
STASIS_UNSUPPORTED = 5
STASIS_CORRUPT = 6
STASIS_VERSION = 7
STASIS_MODEL_MISMATCH = 8
STASIS_FULL = 9
STASIS_BUSY = 10
STASIS_CANCELLED = 11
STASIS_DIVERGED = 12
STASIS_DEVICE = 13
STASIS_STOPPED = 14
STASIS_INTERNAL = 15
STASIS_NONFINITE = 16
STASIS_POOL_EXHAUSTED = 17
STASIS_BUFFER_TOO_SMALL = 18
STASIS_CONFLICT = 19
STASIS_NO_TOKEN = 20
STASIS_TIMEOUT = 21
STASIS_MODEL_CONVERTED = 1
STASIS_MODEL_TOKENIZER = 2
STASIS_TOKENIZE_BOS = 1
STASIS_TOKENIZE_SPECIAL = 2
STASIS_DETOKENIZE_SPECIAL = 1
STASIS_DETOKENIZE_MIDDLE = 2
STASIS_DETOKENIZE_PIECE = 4
STASIS_RENDER_REPLY = 1
STASIS_WINDOW_RETAIN_NONE = 2**64 - 1
STASIS_TRACK_TOTAL = 1
STASIS_TRACK_BY_HEAD = 2
STASIS_DOMAIN_COMMON = 0
STASIS_DOMAIN_PRIVATE = 2**64 - 1
STASIS_SOURCE_PROMPT = 0
STASIS_SOURCE_TEMPLATE = 1
STASIS_SOURCE_TEXT = 2
STASIS_SOURCE_SAMPLED = 3
STASIS_MESSAGE_REPLY = 1
STASIS_REWIND_RECOMPUTE = 1
STASIS_ATTENTION_BY_HEAD = 1
STASIS_CHAT_REPLY = 1
STASIS_REPLY_COMPLETE = 1
STASIS_CONSTRAINT_NONE = 0
STASIS_CONSTRAINT_JSON_SCHEMA = 1
STASIS_CONSTRAINT_JSON = 2
STASIS_CONSTRAINT_REGEX = 3
STASIS_CONSTRAINT_GRAMMAR = 4
STASIS_TOKEN_NORMAL = 1
STASIS_TOKEN_UNKNOWN = 2
STASIS_TOKEN_SPECIAL = 3
STASIS_TOKEN_UNUSED = 5
STASIS_TOKEN_BYTE = 6
STASIS_TOKEN_ENDS = 1
STASIS_TOKEN_SCORED = 2
STASIS_DATA_NAME_MAX = 255
STASIS_DATA_ENTRIES_MAX = 1024
STASIS_DATA_BYTES_MAX = 16777216
STASIS_ROLE_NONE = 0
STASIS_ROLE_SYSTEM = 1
STASIS_ROLE_USER = 2
STASIS_ROLE_ASSISTANT = 3
STASIS_ROLE_OTHER = 4
STASIS_METADATA_TEXT = 1
STASIS_METADATA_JSON = 2
STASIS_METADATA_LEFT_OUT = 3
STASIS_POOLING_LAST = 1
STASIS_POOLING_MEAN = 2
STASIS_GENERATE_IGNORE_END = 1
STASIS_STOP_LENGTH = 0
STASIS_STOP_END_TOKEN = 1
STASIS_STOP_STRING = 2
STASIS_STOP_CALLBACK = 3
STASIS_STOP_CANCELLED = 4
STASIS_STOP_NO_TOKEN = 5
STASIS_STOP_TIMEOUT = 6
STASIS_STEP_SAMPLE = 1
STASIS_QUANTIZE_REPLACE = 1
STASIS_QUANTIZE_TYPES_MAX = 16
STASIS_FOREVER = 2**64 - 1
STASIS_SAVE_REPLACE = 1
STASIS_SAVE_FULL_LOGITS = 2
STASIS_SAVE_IF_MATCH = 4
STASIS_CODEC_DEFAULT = 0
STASIS_CODEC_RAW = 1
STASIS_CODEC_ZSTD = 2
STASIS_KEEP_FULL = 0
STASIS_KEEP_NONE = 1
STASIS_LOAD_NO_RECOMPUTE = 1
STASIS_LOAD_TRUSTED = 2
STASIS_LOAD_ANY_PROFILE = 4
STASIS_LOAD_ACCEPT_OLDER = 8
STASIS_LOAD_SKIP_KNOWN = 16
STASIS_SNAPSHOT_DAMAGED_ROOT = 1
STASIS_NOWHERE = 2**32 - 1
STASIS_VERIFY_STRICT = 1
STASIS_KEYS = 0
STASIS_VALUES = 1
STASIS_TRACE_HELD = 1
STASIS_TRACE_TAKEN = 2
STASIS_TRACE_SHARED = 3
STASIS_TRACE_COPIED = 4
STASIS_TRACE_FILLED = 5
STASIS_TRACE_RELEASED = 6
STASIS_TRACE_READ = 7
STASIS_TRACE_APPEND = 8
STASIS_TRACE_UNDONE = 9
STASIS_TRACE_REWIND = 10
STASIS_TRACE_EVICT = 11
STASIS_TRACE_FORK = 12
STASIS_TRACE_SAVE = 13
STASIS_TRACE_LOAD = 14
STASIS_TRACE_ALL_GROUPS = 2**32 - 1
STASIS_TRACE_READS = 1
STASIS_TRACE_QUEUE_MAX = 16777216

tokens_p = POINTER(c_uint32)
floats_p = POINTER(c_float)
stasis_progress_fn = CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64)
stasis_logits_fn = CFUNCTYPE(c_int32, c_void_p, c_uint64, floats_p, c_size_t)


class Sized(Structure):
    """A struct that begins with its size, which is set when it is made; the rest is 0."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_size=sizeof(type(self)), **fields)


class stasis_error(Structure):
    _fields_ = [("status", c_int32), ("message", c_char * 508)]


class stasis_digest(Structure):
    _fields_ = [("bytes", c_uint8 * 32)]


class stasis_allocator(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("user", c_void_p),
                ("allocate", c_void_p), ("deallocate", c_void_p), ("release", c_void_p)]


stasis_file_size_fn = CFUNCTYPE(c_int64, c_void_p, c_char_p)
stasis_file_read_fn = CFUNCTYPE(c_int64, c_void_p, c_char_p, c_uint64, c_void_p, c_size_t)


class stasis_model_source(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("size", stasis_file_size_fn),
                ("read", stasis_file_read_fn), ("user", c_void_p)]


class stasis_threads_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("count", c_uint32), ("cpus", POINTER(c_uint32)),
                ("cpu_count", c_size_t), ("name", c_char_p)]


class stasis_model_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("threads", c_uint32), ("device", c_char_p),
                ("kernels", c_char_p), ("kv_budget_bytes", c_uint64), ("chat_template", c_char_p),
                ("allocator", POINTER(stasis_allocator)), ("cancel", c_void_p),
                ("progress", stasis_progress_fn), ("progress_user", c_void_p),
                ("profile", c_char_p), ("copy_weights", c_uint32), ("verify_weights", c_uint32),
                ("state_budget_bytes", c_uint64), ("date", c_char_p),
                ("thread_pool", c_void_p),
                ("timeout_ms", c_uint64)]


class stasis_model_info(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("architecture", c_char * 32),
                ("layers", c_uint32), ("hidden", c_uint32), ("heads", c_uint32),
                ("kv_heads", c_uint32), ("head_dim", c_uint32), ("vocabulary", c_uint32),
                ("context", c_uint64), ("page_positions", c_uint32), ("threads", c_uint32),
                ("contract", c_uint32 * 3), ("end_token_count", c_uint32), ("end_tokens", tokens_p),
                ("layer_windows", POINTER(c_uint32)), ("bos", c_int64), ("kernels", c_char * 32),
                ("device", c_char * 32), ("chat_template", c_char * 32), ("model", stasis_digest),
                ("embeddings", stasis_digest), ("norms", stasis_digest), ("head", stasis_digest),
                ("tokenizer", stasis_digest), ("attention", POINTER(stasis_digest)),
                ("mlp", POINTER(stasis_digest)), ("weight_types", c_char_p),
                ("weight_bytes", c_uint64), ("profile", c_char * 192),
                ("layer_recurrent", POINTER(c_uint8)), ("state_bytes", c_uint64),
                ("experts", c_uint32), ("experts_chosen", c_uint32),
                ("contract_recurrent", c_uint32), ("contract_experts", c_uint32),
                ("ignored", c_char_p), ("mtp_bytes", c_uint64), ("global_kv_heads", c_uint32),
                ("global_head_dim", c_uint32), ("layer_keys", POINTER(c_uint32))]


class stasis_model_stats(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("kv_budget_bytes", c_uint64),
                ("kv_used_bytes", c_uint64), ("kv_cached_bytes", c_uint64),
                ("kv_shared_bytes", c_uint64), ("scratch_bytes", c_uint64),
                ("kv_known_bytes", c_uint64), ("kv_free_bytes", c_uint64),
                ("state_budget_bytes", c_uint64), ("state_used_bytes", c_uint64),
                ("state_cached_bytes", c_uint64)]


class stasis_message(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("role", c_char_p),
                ("text", c_char_p), ("length", c_size_t)]


class stasis_session_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("capacity", c_uint64),
                ("reserve", c_uint64), ("window_retain", c_uint64), ("track_attention", c_uint32),
                ("reserved_1", c_uint32), ("domain", c_uint64)]


class stasis_run_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("chunk", c_uint32), ("cancel", c_void_p),
                ("progress", stasis_progress_fn), ("progress_user", c_void_p),
                ("logits", stasis_logits_fn), ("logits_user", c_void_p),
                ("timeout_ms", c_uint64)]


class stasis_session_info(Sized):
    _fields_ = [("struct_size", c_uint32), ("window", c_uint32), ("position", c_uint64),
                ("capacity", c_uint64), ("rewind_floor", c_uint64), ("window_retain", c_uint64),
                ("window_begin", c_uint64), ("pages_own", c_uint64), ("pages_shared", c_uint64),
                ("kv_bytes", c_uint64), ("pending_bytes", c_uint64),
                ("positions_evicted", c_uint64), ("tokens_reused", c_uint64),
                ("positions_foreign", c_uint64), ("older", c_uint32), ("reserved", c_uint32),
                ("states", c_uint64)]


class stasis_token_info(Sized):
    _fields_ = [("struct_size", c_uint32), ("kind", c_uint32), ("flags", c_uint32),
                ("score", c_float), ("piece", c_void_p), ("length", c_size_t)]


class stasis_metadata(Sized):
    _fields_ = [("struct_size", c_uint32), ("kind", c_uint32), ("key", c_char_p),
                ("value", c_void_p), ("length", c_size_t)]


class stasis_session_memory(Sized):
    _fields_ = [("struct_size", c_uint32), ("page_positions", c_uint32), ("kv_bytes", c_uint64),
                ("kv_most_bytes", c_uint64), ("position_bytes", c_uint64),
                ("global_position_bytes", c_uint64), ("states", c_uint64),
                ("state_bytes", c_uint64), ("log_bytes", c_uint64),
                ("tracking_bytes", c_uint64), ("fixed_bytes", c_uint64)]


class stasis_estimate(Sized):
    _fields_ = [("struct_size", c_uint32), ("layers", c_uint32), ("architecture", c_char * 32),
                ("hidden", c_uint32), ("vocabulary", c_uint32), ("context", c_uint64),
                ("parameters", c_uint64), ("weight_bytes", c_uint64), ("mtp_bytes", c_uint64),
                ("file_bytes", c_uint64), ("mapped_bytes", c_uint64),
                ("allocated_bytes", c_uint64), ("heap_bytes", c_uint64),
                ("workspace_bytes", c_uint64), ("weight_types", c_char * 256)]


class stasis_embed_info(Sized):
    _fields_ = [("struct_size", c_uint32), ("pooling", c_uint32), ("dimension", c_uint32),
                ("normalised", c_uint32), ("tokens_max", c_uint64), ("contract", c_uint32),
                ("prompt_count", c_uint32), ("prompt_names", POINTER(c_char_p)),
                ("prompts", POINTER(c_char_p)), ("default_prompt", c_char_p),
                ("refusal", c_char_p)]


class stasis_embed_input(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("text", c_char_p),
                ("length", c_size_t), ("tokens", tokens_p), ("token_count", c_size_t)]


class stasis_embed_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("pooling", c_uint32), ("prompt", c_char_p),
                ("chunk", c_uint32), ("reserved", c_uint32), ("cancel", c_void_p),
                ("progress", stasis_progress_fn), ("progress_user", c_void_p),
                ("timeout_ms", c_uint64)]


class stasis_sampling(Sized):
    _fields_ = [("struct_size", c_uint32), ("top_k", c_uint32), ("temperature", c_float),
                ("top_p", c_float), ("min_p", c_float), ("repetition_penalty", c_float),
                ("frequency_penalty", c_float), ("presence_penalty", c_float),
                ("penalty_window", c_uint32), ("bias_count", c_uint32), ("bias_tokens", tokens_p),
                ("bias", floats_p), ("seed", c_uint64), ("typical_p", c_float),
                ("top_n_sigma", c_float), ("xtc_probability", c_float),
                ("xtc_threshold", c_float), ("dry_multiplier", c_float), ("dry_base", c_float),
                ("dry_allowed_length", c_uint32), ("dry_range", c_uint32), ("min_keep", c_uint32),
                ("dry_breaker_count", c_uint32), ("dry_breakers", tokens_p)]


class stasis_generated(Sized):
    _fields_ = [("struct_size", c_uint32), ("token", c_uint32), ("position", c_uint64),
                ("text", c_void_p), ("length", c_size_t), ("last", c_uint32),
                ("reserved", c_uint32), ("log_probability", c_float),
                ("log_probability_count", c_uint32), ("best_tokens", tokens_p),
                ("best_log_probabilities", floats_p)]


stasis_generate_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(stasis_generated))


class stasis_generate_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("tokens_max", c_uint64),
                ("stop_tokens", tokens_p), ("stop_token_count", c_size_t),
                ("stop_strings", POINTER(c_char_p)), ("stop_string_count", c_size_t),
                ("callback", stasis_generate_fn), ("callback_user", c_void_p),
                ("cancel", c_void_p), ("log_probability_count", c_uint32), ("reserved", c_uint32),
                ("timeout_ms", c_uint64)]


class stasis_generate_result(Sized):
    _fields_ = [("struct_size", c_uint32), ("stop_reason", c_uint32), ("begin", c_uint64),
                ("count", c_uint64), ("drafted", c_uint64), ("accepted", c_uint64),
                ("passes", c_uint64), ("draft_failures", c_uint64)]


class stasis_text_piece(Sized):
    _fields_ = [("struct_size", c_uint32), ("stopped", c_uint32), ("stop_reason", c_uint32),
                ("reserved", c_uint32), ("text", c_void_p), ("length", c_size_t)]


class stasis_draft_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("tokens_min", c_uint64),
                ("tokens_max", c_uint64)]


class stasis_step_item(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("session", c_void_p),
                ("begin", c_size_t), ("count", c_size_t), ("token", c_uint32),
                ("status", c_int32), ("error", POINTER(stasis_error))]


class stasis_quantize_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("type", c_char_p),
                ("threads", c_uint32), ("reserved", c_uint32), ("cancel", c_void_p),
                ("progress", stasis_progress_fn), ("progress_user", c_void_p),
                ("timeout_ms", c_uint64)]


class stasis_quantize_share(Structure):
    _fields_ = [("type", c_char * 8), ("tensors", c_uint64), ("values", c_uint64),
                ("bytes", c_uint64)]


class stasis_quantize_report(Sized):
    _fields_ = [("struct_size", c_uint32), ("share_count", c_uint32), ("source_bytes", c_uint64),
                ("file_bytes", c_uint64),
                ("shares", stasis_quantize_share * STASIS_QUANTIZE_TYPES_MAX)]


class stasis_scheduler_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("sessions_max", c_uint32), ("stall_ms", c_uint32),
                ("slice", c_uint32), ("events_max", c_uint64)]


class stasis_prompt(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("tokens", tokens_p),
                ("token_count", c_size_t), ("role", c_char_p), ("text", c_char_p),
                ("length", c_size_t), ("conversation", c_char_p),
                ("conversation_length", c_size_t)]


class stasis_scheduler_event(Sized):
    _fields_ = [("struct_size", c_uint32), ("end", c_uint32), ("session", c_void_p),
                ("user", c_void_p), ("pass", c_uint64), ("position", c_uint64),
                ("token", c_uint32), ("log_probability", c_float), ("text", c_void_p),
                ("length", c_size_t), ("best_tokens", tokens_p),
                ("best_log_probabilities", floats_p), ("log_probability_count", c_uint32),
                ("stop_reason", c_uint32), ("begin", c_uint64), ("count", c_uint64),
                ("status", c_int32), ("reserved", c_uint32), ("message", c_char_p)]


class stasis_scheduler_stats(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("sessions", c_uint64),
                ("events", c_uint64), ("passes", c_uint64), ("tokens", c_uint64),
                ("prompt_positions", c_uint64), ("most_together", c_uint64), ("slice", c_uint64),
                ("pass_us_max", c_uint64)]


class stasis_save_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("cancel", c_void_p),
                ("progress", stasis_progress_fn), ("progress_user", c_void_p),
                ("codec", c_uint32), ("keep", c_uint32),
                ("timeout_ms", c_uint64)]


class stasis_load_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32),
                ("session", POINTER(stasis_session_options)), ("cancel", c_void_p),
                ("progress", stasis_progress_fn), ("progress_user", c_void_p),
                ("trace", c_void_p),
                ("timeout_ms", c_uint64)]


stasis_write_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)
stasis_read_fn = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_size_t)


class stasis_sink(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("write", stasis_write_fn),
                ("user", c_void_p)]


class stasis_source(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("read", stasis_read_fn),
                ("user", c_void_p)]


class stasis_snapshot_info(Sized):
    _fields_ = [("struct_size", c_uint32), ("format", c_uint32), ("contract", c_uint32 * 3),
                ("page_positions", c_uint32), ("position", c_uint64), ("file_bytes", c_uint64),
                ("digest", stasis_digest), ("root", stasis_digest), ("model", stasis_digest),
                ("flags", c_uint32), ("keep", c_uint32), ("codec", c_uint32),
                ("reserved", c_uint32), ("commits", c_uint64), ("kv_bytes", c_uint64),
                ("kv_stored_bytes", c_uint64), ("positions_foreign", c_uint64),
                ("profile", c_char * 192), ("dead_bytes", c_uint64), ("older", c_uint32),
                ("reserved_1", c_uint32)]


class stasis_data_entry(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("bytes", c_uint64),
                ("name", c_char * 256)]


class stasis_turn(Sized):
    _fields_ = [("struct_size", c_uint32), ("role", c_uint32), ("begin", c_uint64),
                ("end", c_uint64), ("content_begin", c_uint64), ("content_end", c_uint64),
                ("source", c_uint32), ("reserved", c_uint32)]


class stasis_difference(Sized):
    _fields_ = [("struct_size", c_uint32), ("equal", c_uint32), ("element", c_uint32),
                ("layer", c_uint32), ("head", c_uint32), ("reserved", c_uint32),
                ("position", c_uint64), ("message", c_char * 256)]


class stasis_verify_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("chunk", c_uint32), ("cancel", c_void_p),
                ("progress", stasis_progress_fn), ("progress_user", c_void_p),
                ("audit_percent", c_double), ("audit_seed", c_uint64), ("flags", c_uint32),
                ("reserved", c_uint32),
                ("timeout_ms", c_uint64)]


class stasis_verify_report(Sized):
    _fields_ = [("struct_size", c_uint32), ("verified", c_uint32), ("positions", c_uint64),
                ("position", c_uint64), ("layer", c_uint32), ("element", c_uint32),
                ("message", c_char * 256), ("head", c_uint32), ("part", c_uint32),
                ("drawn", c_uint64), ("drawn_otherwise", c_uint64), ("audit_pages", c_uint64),
                ("audit_drawn", c_uint64), ("unreachable_begin", c_uint64),
                ("unreachable_end", c_uint64), ("sections", c_uint64), ("older", c_uint32),
                ("reserved", c_uint32)]


class stasis_trace_event(Sized):
    _fields_ = [("struct_size", c_uint32), ("kind", c_uint32), ("group", c_uint32),
                ("window", c_uint32), ("begin", c_uint64), ("end", c_uint64),
                ("bytes", c_uint64), ("digest", stasis_digest)]


class stasis_trace_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("callback", c_void_p),
                ("user", c_void_p), ("release", c_void_p), ("queue_events", c_uint64)]
