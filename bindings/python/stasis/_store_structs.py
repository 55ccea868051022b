# What stasis_store.h declares, as _structs.py has the rest.
from __future__ import annotations

from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int32, c_uint32, c_uint64, c_void_p

from ._structs import Sized, stasis_digest, stasis_progress_fn

STASIS_STORE_EXISTING = 1
STASIS_STORE_OVERWRITE = 1
STASIS_STORE_FULL_LOGITS = 2

stasis_store_key_fn = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_uint64, c_uint64)


class stasis_store_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("reserved", c_uint64)]


class stasis_store_backend(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("user", c_void_p),
                ("size", c_void_p), ("read", c_void_p), ("put", c_void_p), ("get_root", c_void_p),
                ("swap", c_void_p), ("list", c_void_p), ("remove", c_void_p), ("lock", c_void_p),
                ("unlock", c_void_p), ("release", c_void_p), ("replace", c_void_p)]


class stasis_store_call_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("cancel", c_void_p),
                ("progress", stasis_progress_fn), ("progress_user", c_void_p), ("codec", c_uint32),
                ("keep", c_uint32), ("timeout_ms", c_uint64), ("grace_seconds", c_uint64)]


class stasis_store_result(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("root", stasis_digest),
                ("state", stasis_digest), ("sequence", c_uint64), ("bytes_written", c_uint64),
                ("bytes_shared", c_uint64)]


class stasis_stored_session(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("name", c_char_p),
                ("damage", c_char_p), ("root", stasis_digest), ("state", stasis_digest),
                ("model", stasis_digest), ("position", c_uint64), ("bytes", c_uint64)]


stasis_stored_session_fn = CFUNCTYPE(c_int32, c_void_p, POINTER(stasis_stored_session))


class stasis_store_collected(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("sessions", c_uint64),
                ("objects", c_uint64), ("bytes", c_uint64), ("removed_objects", c_uint64),
                ("removed_bytes", c_uint64)]
