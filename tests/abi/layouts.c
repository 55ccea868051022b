/* The place of every field of every public struct: final once released. A new field is added at the
 * end of its struct and gets a line in this file; no other line ever changes. Layouts of 64-bit
 * machines. tests/tools/test_abi.py checks that no struct and no field is missing. */
#include <stddef.h>

#include "abi/stasis.h"

#define FIELD(type, field, offset, size)                                                           \
    _Static_assert(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (size),      \
                   #type "." #field " has moved")
#define STRUCT(type, size)                                                                         \
    _Static_assert(sizeof(type) == (size), #type " has a field that is not listed here")

STRUCT(stasis_error, 512);
FIELD(stasis_error, status, 0, 4);
FIELD(stasis_error, message, 4, 508);

STRUCT(stasis_digest, 32);
FIELD(stasis_digest, bytes, 0, 32);

STRUCT(stasis_allocator, 40);
FIELD(stasis_allocator, struct_size, 0, 4);
FIELD(stasis_allocator, reserved, 4, 4);
FIELD(stasis_allocator, user, 8, 8);
FIELD(stasis_allocator, allocate, 16, 8);
FIELD(stasis_allocator, deallocate, 24, 8);
FIELD(stasis_allocator, release, 32, 8);

STRUCT(stasis_model_options, 120);
FIELD(stasis_model_options, struct_size, 0, 4);
FIELD(stasis_model_options, threads, 4, 4);
FIELD(stasis_model_options, device, 8, 8);
FIELD(stasis_model_options, kernels, 16, 8);
FIELD(stasis_model_options, kv_budget_bytes, 24, 8);
FIELD(stasis_model_options, chat_template, 32, 8);
FIELD(stasis_model_options, allocator, 40, 8);
FIELD(stasis_model_options, cancel, 48, 8);
FIELD(stasis_model_options, progress, 56, 8);
FIELD(stasis_model_options, progress_user, 64, 8);
FIELD(stasis_model_options, profile, 72, 8);
FIELD(stasis_model_options, copy_weights, 80, 4);
FIELD(stasis_model_options, verify_weights, 84, 4);
FIELD(stasis_model_options, state_budget_bytes, 88, 8);
FIELD(stasis_model_options, date, 96, 8);
FIELD(stasis_model_options, thread_pool, 104, 8);
FIELD(stasis_model_options, timeout_ms, 112, 8);

STRUCT(stasis_model_info, 664);
FIELD(stasis_model_info, struct_size, 0, 4);
FIELD(stasis_model_info, flags, 4, 4);
FIELD(stasis_model_info, architecture, 8, 32);
FIELD(stasis_model_info, layers, 40, 4);
FIELD(stasis_model_info, hidden, 44, 4);
FIELD(stasis_model_info, heads, 48, 4);
FIELD(stasis_model_info, kv_heads, 52, 4);
FIELD(stasis_model_info, head_dim, 56, 4);
FIELD(stasis_model_info, vocabulary, 60, 4);
FIELD(stasis_model_info, context, 64, 8);
FIELD(stasis_model_info, page_positions, 72, 4);
FIELD(stasis_model_info, threads, 76, 4);
FIELD(stasis_model_info, contract, 80, 12);
FIELD(stasis_model_info, end_token_count, 92, 4);
FIELD(stasis_model_info, end_tokens, 96, 8);
FIELD(stasis_model_info, layer_windows, 104, 8);
FIELD(stasis_model_info, bos, 112, 8);
FIELD(stasis_model_info, kernels, 120, 32);
FIELD(stasis_model_info, device, 152, 32);
FIELD(stasis_model_info, chat_template, 184, 32);
FIELD(stasis_model_info, model, 216, 32);
FIELD(stasis_model_info, embeddings, 248, 32);
FIELD(stasis_model_info, norms, 280, 32);
FIELD(stasis_model_info, head, 312, 32);
FIELD(stasis_model_info, tokenizer, 344, 32);
FIELD(stasis_model_info, attention, 376, 8);
FIELD(stasis_model_info, mlp, 384, 8);
FIELD(stasis_model_info, weight_types, 392, 8);
FIELD(stasis_model_info, weight_bytes, 400, 8);
FIELD(stasis_model_info, profile, 408, 192);
FIELD(stasis_model_info, layer_recurrent, 600, 8);
FIELD(stasis_model_info, state_bytes, 608, 8);
FIELD(stasis_model_info, experts, 616, 4);
FIELD(stasis_model_info, experts_chosen, 620, 4);
FIELD(stasis_model_info, contract_recurrent, 624, 4);
FIELD(stasis_model_info, contract_experts, 628, 4);
FIELD(stasis_model_info, ignored, 632, 8);
FIELD(stasis_model_info, mtp_bytes, 640, 8);
FIELD(stasis_model_info, global_kv_heads, 648, 4);
FIELD(stasis_model_info, global_head_dim, 652, 4);
FIELD(stasis_model_info, layer_keys, 656, 8);

STRUCT(stasis_model_stats, 88);
FIELD(stasis_model_stats, struct_size, 0, 4);
FIELD(stasis_model_stats, reserved, 4, 4);
FIELD(stasis_model_stats, kv_budget_bytes, 8, 8);
FIELD(stasis_model_stats, kv_used_bytes, 16, 8);
FIELD(stasis_model_stats, kv_cached_bytes, 24, 8);
FIELD(stasis_model_stats, kv_shared_bytes, 32, 8);
FIELD(stasis_model_stats, scratch_bytes, 40, 8);
FIELD(stasis_model_stats, kv_known_bytes, 48, 8);
FIELD(stasis_model_stats, kv_free_bytes, 56, 8);
FIELD(stasis_model_stats, state_budget_bytes, 64, 8);
FIELD(stasis_model_stats, state_used_bytes, 72, 8);
FIELD(stasis_model_stats, state_cached_bytes, 80, 8);

STRUCT(stasis_message, 32);
FIELD(stasis_message, struct_size, 0, 4);
FIELD(stasis_message, reserved, 4, 4);
FIELD(stasis_message, role, 8, 8);
FIELD(stasis_message, text, 16, 8);
FIELD(stasis_message, length, 24, 8);

STRUCT(stasis_session_options, 48);
FIELD(stasis_session_options, struct_size, 0, 4);
FIELD(stasis_session_options, reserved, 4, 4);
FIELD(stasis_session_options, capacity, 8, 8);
FIELD(stasis_session_options, reserve, 16, 8);
FIELD(stasis_session_options, window_retain, 24, 8);
FIELD(stasis_session_options, track_attention, 32, 4);
FIELD(stasis_session_options, reserved_1, 36, 4);
FIELD(stasis_session_options, domain, 40, 8);

STRUCT(stasis_run_options, 56);
FIELD(stasis_run_options, struct_size, 0, 4);
FIELD(stasis_run_options, chunk, 4, 4);
FIELD(stasis_run_options, cancel, 8, 8);
FIELD(stasis_run_options, progress, 16, 8);
FIELD(stasis_run_options, progress_user, 24, 8);
FIELD(stasis_run_options, logits, 32, 8);
FIELD(stasis_run_options, logits_user, 40, 8);
FIELD(stasis_run_options, timeout_ms, 48, 8);

STRUCT(stasis_session_info, 120);
FIELD(stasis_session_info, struct_size, 0, 4);
FIELD(stasis_session_info, window, 4, 4);
FIELD(stasis_session_info, position, 8, 8);
FIELD(stasis_session_info, capacity, 16, 8);
FIELD(stasis_session_info, rewind_floor, 24, 8);
FIELD(stasis_session_info, window_retain, 32, 8);
FIELD(stasis_session_info, window_begin, 40, 8);
FIELD(stasis_session_info, pages_own, 48, 8);
FIELD(stasis_session_info, pages_shared, 56, 8);
FIELD(stasis_session_info, kv_bytes, 64, 8);
FIELD(stasis_session_info, pending_bytes, 72, 8);
FIELD(stasis_session_info, positions_evicted, 80, 8);
FIELD(stasis_session_info, tokens_reused, 88, 8);
FIELD(stasis_session_info, positions_foreign, 96, 8);
FIELD(stasis_session_info, older, 104, 4);
FIELD(stasis_session_info, reserved, 108, 4);
FIELD(stasis_session_info, states, 112, 8);

STRUCT(stasis_sampling, 112);
FIELD(stasis_sampling, struct_size, 0, 4);
FIELD(stasis_sampling, top_k, 4, 4);
FIELD(stasis_sampling, temperature, 8, 4);
FIELD(stasis_sampling, top_p, 12, 4);
FIELD(stasis_sampling, min_p, 16, 4);
FIELD(stasis_sampling, repetition_penalty, 20, 4);
FIELD(stasis_sampling, frequency_penalty, 24, 4);
FIELD(stasis_sampling, presence_penalty, 28, 4);
FIELD(stasis_sampling, penalty_window, 32, 4);
FIELD(stasis_sampling, bias_count, 36, 4);
FIELD(stasis_sampling, bias_tokens, 40, 8);
FIELD(stasis_sampling, bias, 48, 8);
FIELD(stasis_sampling, seed, 56, 8);
FIELD(stasis_sampling, typical_p, 64, 4);
FIELD(stasis_sampling, top_n_sigma, 68, 4);
FIELD(stasis_sampling, xtc_probability, 72, 4);
FIELD(stasis_sampling, xtc_threshold, 76, 4);
FIELD(stasis_sampling, dry_multiplier, 80, 4);
FIELD(stasis_sampling, dry_base, 84, 4);
FIELD(stasis_sampling, dry_allowed_length, 88, 4);
FIELD(stasis_sampling, dry_range, 92, 4);
FIELD(stasis_sampling, min_keep, 96, 4);
FIELD(stasis_sampling, dry_breaker_count, 100, 4);
FIELD(stasis_sampling, dry_breakers, 104, 8);

STRUCT(stasis_generated, 64);
FIELD(stasis_generated, struct_size, 0, 4);
FIELD(stasis_generated, token, 4, 4);
FIELD(stasis_generated, position, 8, 8);
FIELD(stasis_generated, text, 16, 8);
FIELD(stasis_generated, length, 24, 8);
FIELD(stasis_generated, last, 32, 4);
FIELD(stasis_generated, reserved, 36, 4);
FIELD(stasis_generated, log_probability, 40, 4);
FIELD(stasis_generated, log_probability_count, 44, 4);
FIELD(stasis_generated, best_tokens, 48, 8);
FIELD(stasis_generated, best_log_probabilities, 56, 8);

STRUCT(stasis_generate_options, 88);
FIELD(stasis_generate_options, struct_size, 0, 4);
FIELD(stasis_generate_options, flags, 4, 4);
FIELD(stasis_generate_options, tokens_max, 8, 8);
FIELD(stasis_generate_options, stop_tokens, 16, 8);
FIELD(stasis_generate_options, stop_token_count, 24, 8);
FIELD(stasis_generate_options, stop_strings, 32, 8);
FIELD(stasis_generate_options, stop_string_count, 40, 8);
FIELD(stasis_generate_options, callback, 48, 8);
FIELD(stasis_generate_options, callback_user, 56, 8);
FIELD(stasis_generate_options, cancel, 64, 8);
FIELD(stasis_generate_options, log_probability_count, 72, 4);
FIELD(stasis_generate_options, reserved, 76, 4);
FIELD(stasis_generate_options, timeout_ms, 80, 8);

STRUCT(stasis_text_piece, 32);
FIELD(stasis_text_piece, struct_size, 0, 4);
FIELD(stasis_text_piece, stopped, 4, 4);
FIELD(stasis_text_piece, stop_reason, 8, 4);
FIELD(stasis_text_piece, reserved, 12, 4);
FIELD(stasis_text_piece, text, 16, 8);
FIELD(stasis_text_piece, length, 24, 8);

STRUCT(stasis_generate_result, 56);
FIELD(stasis_generate_result, struct_size, 0, 4);
FIELD(stasis_generate_result, stop_reason, 4, 4);
FIELD(stasis_generate_result, begin, 8, 8);
FIELD(stasis_generate_result, count, 16, 8);
FIELD(stasis_generate_result, drafted, 24, 8);
FIELD(stasis_generate_result, accepted, 32, 8);
FIELD(stasis_generate_result, passes, 40, 8);
FIELD(stasis_generate_result, draft_failures, 48, 8);

STRUCT(stasis_draft_options, 24);
FIELD(stasis_draft_options, struct_size, 0, 4);
FIELD(stasis_draft_options, reserved, 4, 4);
FIELD(stasis_draft_options, tokens_min, 8, 8);
FIELD(stasis_draft_options, tokens_max, 16, 8);

STRUCT(stasis_step_item, 48);
FIELD(stasis_step_item, struct_size, 0, 4);
FIELD(stasis_step_item, flags, 4, 4);
FIELD(stasis_step_item, session, 8, 8);
FIELD(stasis_step_item, begin, 16, 8);
FIELD(stasis_step_item, count, 24, 8);
FIELD(stasis_step_item, token, 32, 4);
FIELD(stasis_step_item, status, 36, 4);
FIELD(stasis_step_item, error, 40, 8);

STRUCT(stasis_save_options, 48);
FIELD(stasis_save_options, struct_size, 0, 4);
FIELD(stasis_save_options, flags, 4, 4);
FIELD(stasis_save_options, cancel, 8, 8);
FIELD(stasis_save_options, progress, 16, 8);
FIELD(stasis_save_options, progress_user, 24, 8);
FIELD(stasis_save_options, codec, 32, 4);
FIELD(stasis_save_options, keep, 36, 4);
FIELD(stasis_save_options, timeout_ms, 40, 8);

STRUCT(stasis_load_options, 56);
FIELD(stasis_load_options, struct_size, 0, 4);
FIELD(stasis_load_options, flags, 4, 4);
FIELD(stasis_load_options, session, 8, 8);
FIELD(stasis_load_options, cancel, 16, 8);
FIELD(stasis_load_options, progress, 24, 8);
FIELD(stasis_load_options, progress_user, 32, 8);
FIELD(stasis_load_options, trace, 40, 8);
FIELD(stasis_load_options, timeout_ms, 48, 8);

STRUCT(stasis_sink, 24);
FIELD(stasis_sink, struct_size, 0, 4);
FIELD(stasis_sink, reserved, 4, 4);
FIELD(stasis_sink, write, 8, 8);
FIELD(stasis_sink, user, 16, 8);

STRUCT(stasis_source, 24);
FIELD(stasis_source, struct_size, 0, 4);
FIELD(stasis_source, reserved, 4, 4);
FIELD(stasis_source, read, 8, 8);
FIELD(stasis_source, user, 16, 8);

STRUCT(stasis_snapshot_info, 392);
FIELD(stasis_snapshot_info, struct_size, 0, 4);
FIELD(stasis_snapshot_info, format, 4, 4);
FIELD(stasis_snapshot_info, contract, 8, 12);
FIELD(stasis_snapshot_info, page_positions, 20, 4);
FIELD(stasis_snapshot_info, position, 24, 8);
FIELD(stasis_snapshot_info, file_bytes, 32, 8);
FIELD(stasis_snapshot_info, digest, 40, 32);
FIELD(stasis_snapshot_info, root, 72, 32);
FIELD(stasis_snapshot_info, model, 104, 32);
FIELD(stasis_snapshot_info, flags, 136, 4);
FIELD(stasis_snapshot_info, keep, 140, 4);
FIELD(stasis_snapshot_info, codec, 144, 4);
FIELD(stasis_snapshot_info, reserved, 148, 4);
FIELD(stasis_snapshot_info, commits, 152, 8);
FIELD(stasis_snapshot_info, kv_bytes, 160, 8);
FIELD(stasis_snapshot_info, kv_stored_bytes, 168, 8);
FIELD(stasis_snapshot_info, positions_foreign, 176, 8);
FIELD(stasis_snapshot_info, profile, 184, 192);
FIELD(stasis_snapshot_info, dead_bytes, 376, 8);
FIELD(stasis_snapshot_info, older, 384, 4);
FIELD(stasis_snapshot_info, reserved_1, 388, 4);

STRUCT(stasis_difference, 288);
FIELD(stasis_difference, struct_size, 0, 4);
FIELD(stasis_difference, equal, 4, 4);
FIELD(stasis_difference, element, 8, 4);
FIELD(stasis_difference, layer, 12, 4);
FIELD(stasis_difference, head, 16, 4);
FIELD(stasis_difference, reserved, 20, 4);
FIELD(stasis_difference, position, 24, 8);
FIELD(stasis_difference, message, 32, 256);

STRUCT(stasis_verify_options, 64);
FIELD(stasis_verify_options, struct_size, 0, 4);
FIELD(stasis_verify_options, chunk, 4, 4);
FIELD(stasis_verify_options, cancel, 8, 8);
FIELD(stasis_verify_options, progress, 16, 8);
FIELD(stasis_verify_options, progress_user, 24, 8);
FIELD(stasis_verify_options, audit_percent, 32, 8);
FIELD(stasis_verify_options, audit_seed, 40, 8);
FIELD(stasis_verify_options, flags, 48, 4);
FIELD(stasis_verify_options, reserved, 52, 4);
FIELD(stasis_verify_options, timeout_ms, 56, 8);

STRUCT(stasis_verify_report, 360);
FIELD(stasis_verify_report, struct_size, 0, 4);
FIELD(stasis_verify_report, verified, 4, 4);
FIELD(stasis_verify_report, positions, 8, 8);
FIELD(stasis_verify_report, position, 16, 8);
FIELD(stasis_verify_report, layer, 24, 4);
FIELD(stasis_verify_report, element, 28, 4);
FIELD(stasis_verify_report, message, 32, 256);
FIELD(stasis_verify_report, head, 288, 4);
FIELD(stasis_verify_report, part, 292, 4);
FIELD(stasis_verify_report, drawn, 296, 8);
FIELD(stasis_verify_report, drawn_otherwise, 304, 8);
FIELD(stasis_verify_report, audit_pages, 312, 8);
FIELD(stasis_verify_report, audit_drawn, 320, 8);
FIELD(stasis_verify_report, unreachable_begin, 328, 8);
FIELD(stasis_verify_report, unreachable_end, 336, 8);
FIELD(stasis_verify_report, sections, 344, 8);
FIELD(stasis_verify_report, older, 352, 4);
FIELD(stasis_verify_report, reserved, 356, 4);

STRUCT(stasis_trace_event, 72);
FIELD(stasis_trace_event, struct_size, 0, 4);
FIELD(stasis_trace_event, kind, 4, 4);
FIELD(stasis_trace_event, group, 8, 4);
FIELD(stasis_trace_event, window, 12, 4);
FIELD(stasis_trace_event, begin, 16, 8);
FIELD(stasis_trace_event, end, 24, 8);
FIELD(stasis_trace_event, bytes, 32, 8);
FIELD(stasis_trace_event, digest, 40, 32);

STRUCT(stasis_trace_options, 40);
FIELD(stasis_trace_options, struct_size, 0, 4);
FIELD(stasis_trace_options, flags, 4, 4);
FIELD(stasis_trace_options, callback, 8, 8);
FIELD(stasis_trace_options, user, 16, 8);
FIELD(stasis_trace_options, release, 24, 8);
FIELD(stasis_trace_options, queue_events, 32, 8);

STRUCT(stasis_token_info, 32);
FIELD(stasis_token_info, struct_size, 0, 4);
FIELD(stasis_token_info, kind, 4, 4);
FIELD(stasis_token_info, flags, 8, 4);
FIELD(stasis_token_info, score, 12, 4);
FIELD(stasis_token_info, piece, 16, 8);
FIELD(stasis_token_info, length, 24, 8);

STRUCT(stasis_embed_info, 64);
FIELD(stasis_embed_info, struct_size, 0, 4);
FIELD(stasis_embed_info, pooling, 4, 4);
FIELD(stasis_embed_info, dimension, 8, 4);
FIELD(stasis_embed_info, normalised, 12, 4);
FIELD(stasis_embed_info, tokens_max, 16, 8);
FIELD(stasis_embed_info, contract, 24, 4);
FIELD(stasis_embed_info, prompt_count, 28, 4);
FIELD(stasis_embed_info, prompt_names, 32, 8);
FIELD(stasis_embed_info, prompts, 40, 8);
FIELD(stasis_embed_info, default_prompt, 48, 8);
FIELD(stasis_embed_info, refusal, 56, 8);

STRUCT(stasis_embed_input, 40);
FIELD(stasis_embed_input, struct_size, 0, 4);
FIELD(stasis_embed_input, reserved, 4, 4);
FIELD(stasis_embed_input, text, 8, 8);
FIELD(stasis_embed_input, length, 16, 8);
FIELD(stasis_embed_input, tokens, 24, 8);
FIELD(stasis_embed_input, token_count, 32, 8);

STRUCT(stasis_embed_options, 56);
FIELD(stasis_embed_options, struct_size, 0, 4);
FIELD(stasis_embed_options, pooling, 4, 4);
FIELD(stasis_embed_options, prompt, 8, 8);
FIELD(stasis_embed_options, chunk, 16, 4);
FIELD(stasis_embed_options, reserved, 20, 4);
FIELD(stasis_embed_options, cancel, 24, 8);
FIELD(stasis_embed_options, progress, 32, 8);
FIELD(stasis_embed_options, progress_user, 40, 8);
FIELD(stasis_embed_options, timeout_ms, 48, 8);

STRUCT(stasis_quantize_options, 56);
FIELD(stasis_quantize_options, struct_size, 0, 4);
FIELD(stasis_quantize_options, flags, 4, 4);
FIELD(stasis_quantize_options, type, 8, 8);
FIELD(stasis_quantize_options, threads, 16, 4);
FIELD(stasis_quantize_options, reserved, 20, 4);
FIELD(stasis_quantize_options, cancel, 24, 8);
FIELD(stasis_quantize_options, progress, 32, 8);
FIELD(stasis_quantize_options, progress_user, 40, 8);
FIELD(stasis_quantize_options, timeout_ms, 48, 8);

STRUCT(stasis_quantize_share, 32);
FIELD(stasis_quantize_share, type, 0, 8);
FIELD(stasis_quantize_share, tensors, 8, 8);
FIELD(stasis_quantize_share, values, 16, 8);
FIELD(stasis_quantize_share, bytes, 24, 8);

STRUCT(stasis_quantize_report, 536);
FIELD(stasis_quantize_report, struct_size, 0, 4);
FIELD(stasis_quantize_report, share_count, 4, 4);
FIELD(stasis_quantize_report, source_bytes, 8, 8);
FIELD(stasis_quantize_report, file_bytes, 16, 8);
FIELD(stasis_quantize_report, shares, 24, 512);

STRUCT(stasis_scheduler_options, 24);
FIELD(stasis_scheduler_options, struct_size, 0, 4);
FIELD(stasis_scheduler_options, sessions_max, 4, 4);
FIELD(stasis_scheduler_options, stall_ms, 8, 4);
FIELD(stasis_scheduler_options, slice, 12, 4);
FIELD(stasis_scheduler_options, events_max, 16, 8);

STRUCT(stasis_prompt, 48);
FIELD(stasis_prompt, struct_size, 0, 4);
FIELD(stasis_prompt, reserved, 4, 4);
FIELD(stasis_prompt, tokens, 8, 8);
FIELD(stasis_prompt, token_count, 16, 8);
FIELD(stasis_prompt, role, 24, 8);
FIELD(stasis_prompt, text, 32, 8);
FIELD(stasis_prompt, length, 40, 8);

STRUCT(stasis_scheduler_event, 120);
FIELD(stasis_scheduler_event, struct_size, 0, 4);
FIELD(stasis_scheduler_event, end, 4, 4);
FIELD(stasis_scheduler_event, session, 8, 8);
FIELD(stasis_scheduler_event, user, 16, 8);
FIELD(stasis_scheduler_event, pass, 24, 8);
FIELD(stasis_scheduler_event, position, 32, 8);
FIELD(stasis_scheduler_event, token, 40, 4);
FIELD(stasis_scheduler_event, log_probability, 44, 4);
FIELD(stasis_scheduler_event, text, 48, 8);
FIELD(stasis_scheduler_event, length, 56, 8);
FIELD(stasis_scheduler_event, best_tokens, 64, 8);
FIELD(stasis_scheduler_event, best_log_probabilities, 72, 8);
FIELD(stasis_scheduler_event, log_probability_count, 80, 4);
FIELD(stasis_scheduler_event, stop_reason, 84, 4);
FIELD(stasis_scheduler_event, begin, 88, 8);
FIELD(stasis_scheduler_event, count, 96, 8);
FIELD(stasis_scheduler_event, status, 104, 4);
FIELD(stasis_scheduler_event, reserved, 108, 4);
FIELD(stasis_scheduler_event, message, 112, 8);

STRUCT(stasis_scheduler_stats, 72);
FIELD(stasis_scheduler_stats, struct_size, 0, 4);
FIELD(stasis_scheduler_stats, reserved, 4, 4);
FIELD(stasis_scheduler_stats, sessions, 8, 8);
FIELD(stasis_scheduler_stats, events, 16, 8);
FIELD(stasis_scheduler_stats, passes, 24, 8);
FIELD(stasis_scheduler_stats, tokens, 32, 8);
FIELD(stasis_scheduler_stats, prompt_positions, 40, 8);
FIELD(stasis_scheduler_stats, most_together, 48, 8);
FIELD(stasis_scheduler_stats, slice, 56, 8);
FIELD(stasis_scheduler_stats, pass_us_max, 64, 8);

STRUCT(stasis_threads_options, 32);
FIELD(stasis_threads_options, struct_size, 0, 4);
FIELD(stasis_threads_options, count, 4, 4);
FIELD(stasis_threads_options, cpus, 8, 8);
FIELD(stasis_threads_options, cpu_count, 16, 8);
FIELD(stasis_threads_options, name, 24, 8);

STRUCT(stasis_data_entry, 272);
FIELD(stasis_data_entry, struct_size, 0, 4);
FIELD(stasis_data_entry, reserved, 4, 4);
FIELD(stasis_data_entry, bytes, 8, 8);
FIELD(stasis_data_entry, name, 16, 256);

STRUCT(stasis_turn, 48);
FIELD(stasis_turn, struct_size, 0, 4);
FIELD(stasis_turn, role, 4, 4);
FIELD(stasis_turn, begin, 8, 8);
FIELD(stasis_turn, end, 16, 8);
FIELD(stasis_turn, content_begin, 24, 8);
FIELD(stasis_turn, content_end, 32, 8);
FIELD(stasis_turn, source, 40, 4);
FIELD(stasis_turn, reserved, 44, 4);

int stasis_layouts_hold; /* a C file holds something */
