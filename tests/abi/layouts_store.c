/* The place of every field of the structs of stasis_store.h; see layouts.c. */
#include "tests/abi/layouts.h"

STRUCT(stasis_store_options, 16);
FIELD(stasis_store_options, struct_size, 0, 4);
FIELD(stasis_store_options, flags, 4, 4);
FIELD(stasis_store_options, reserved, 8, 8);

STRUCT(stasis_store_backend, 104);
FIELD(stasis_store_backend, struct_size, 0, 4);
FIELD(stasis_store_backend, reserved, 4, 4);
FIELD(stasis_store_backend, user, 8, 8);
FIELD(stasis_store_backend, size, 16, 8);
FIELD(stasis_store_backend, read, 24, 8);
FIELD(stasis_store_backend, put, 32, 8);
FIELD(stasis_store_backend, get_root, 40, 8);
FIELD(stasis_store_backend, swap, 48, 8);
FIELD(stasis_store_backend, list, 56, 8);
FIELD(stasis_store_backend, remove, 64, 8);
FIELD(stasis_store_backend, lock, 72, 8);
FIELD(stasis_store_backend, unlock, 80, 8);
FIELD(stasis_store_backend, release, 88, 8);
FIELD(stasis_store_backend, replace, 96, 8);

STRUCT(stasis_store_call_options, 56);
FIELD(stasis_store_call_options, struct_size, 0, 4);
FIELD(stasis_store_call_options, flags, 4, 4);
FIELD(stasis_store_call_options, cancel, 8, 8);
FIELD(stasis_store_call_options, progress, 16, 8);
FIELD(stasis_store_call_options, progress_user, 24, 8);
FIELD(stasis_store_call_options, codec, 32, 4);
FIELD(stasis_store_call_options, keep, 36, 4);
FIELD(stasis_store_call_options, timeout_ms, 40, 8);
FIELD(stasis_store_call_options, grace_seconds, 48, 8);

STRUCT(stasis_store_result, 96);
FIELD(stasis_store_result, struct_size, 0, 4);
FIELD(stasis_store_result, reserved, 4, 4);
FIELD(stasis_store_result, root, 8, 32);
FIELD(stasis_store_result, state, 40, 32);
FIELD(stasis_store_result, sequence, 72, 8);
FIELD(stasis_store_result, bytes_written, 80, 8);
FIELD(stasis_store_result, bytes_shared, 88, 8);

STRUCT(stasis_stored_session, 136);
FIELD(stasis_stored_session, struct_size, 0, 4);
FIELD(stasis_stored_session, reserved, 4, 4);
FIELD(stasis_stored_session, name, 8, 8);
FIELD(stasis_stored_session, damage, 16, 8);
FIELD(stasis_stored_session, root, 24, 32);
FIELD(stasis_stored_session, state, 56, 32);
FIELD(stasis_stored_session, model, 88, 32);
FIELD(stasis_stored_session, position, 120, 8);
FIELD(stasis_stored_session, bytes, 128, 8);

STRUCT(stasis_store_collected, 48);
FIELD(stasis_store_collected, struct_size, 0, 4);
FIELD(stasis_store_collected, reserved, 4, 4);
FIELD(stasis_store_collected, sessions, 8, 8);
FIELD(stasis_store_collected, objects, 16, 8);
FIELD(stasis_store_collected, bytes, 24, 8);
FIELD(stasis_store_collected, removed_objects, 32, 8);
FIELD(stasis_store_collected, removed_bytes, 40, 8);
