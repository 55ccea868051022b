/* The place of every field of the structs of stasis_describe.h; see layouts.c. */
#include "tests/abi/layouts.h"

STRUCT(stasis_token_info, 32);
FIELD(stasis_token_info, struct_size, 0, 4);
FIELD(stasis_token_info, kind, 4, 4);
FIELD(stasis_token_info, flags, 8, 4);
FIELD(stasis_token_info, score, 12, 4);
FIELD(stasis_token_info, piece, 16, 8);
FIELD(stasis_token_info, length, 24, 8);

STRUCT(stasis_session_memory, 80);
FIELD(stasis_session_memory, struct_size, 0, 4);
FIELD(stasis_session_memory, page_positions, 4, 4);
FIELD(stasis_session_memory, kv_bytes, 8, 8);
FIELD(stasis_session_memory, kv_most_bytes, 16, 8);
FIELD(stasis_session_memory, position_bytes, 24, 8);
FIELD(stasis_session_memory, global_position_bytes, 32, 8);
FIELD(stasis_session_memory, states, 40, 8);
FIELD(stasis_session_memory, state_bytes, 48, 8);
FIELD(stasis_session_memory, log_bytes, 56, 8);
FIELD(stasis_session_memory, tracking_bytes, 64, 8);
FIELD(stasis_session_memory, fixed_bytes, 72, 8);

STRUCT(stasis_estimate, 376);
FIELD(stasis_estimate, struct_size, 0, 4);
FIELD(stasis_estimate, layers, 4, 4);
FIELD(stasis_estimate, architecture, 8, 32);
FIELD(stasis_estimate, hidden, 40, 4);
FIELD(stasis_estimate, vocabulary, 44, 4);
FIELD(stasis_estimate, context, 48, 8);
FIELD(stasis_estimate, parameters, 56, 8);
FIELD(stasis_estimate, weight_bytes, 64, 8);
FIELD(stasis_estimate, mtp_bytes, 72, 8);
FIELD(stasis_estimate, file_bytes, 80, 8);
FIELD(stasis_estimate, mapped_bytes, 88, 8);
FIELD(stasis_estimate, allocated_bytes, 96, 8);
FIELD(stasis_estimate, heap_bytes, 104, 8);
FIELD(stasis_estimate, workspace_bytes, 112, 8);
FIELD(stasis_estimate, weight_types, 120, 256);

STRUCT(stasis_metadata, 32);
FIELD(stasis_metadata, struct_size, 0, 4);
FIELD(stasis_metadata, kind, 4, 4);
FIELD(stasis_metadata, key, 8, 8);
FIELD(stasis_metadata, value, 16, 8);
FIELD(stasis_metadata, length, 24, 8);
