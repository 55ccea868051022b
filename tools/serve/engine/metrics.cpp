// What the engine counts, for GET /metrics.
#include "tools/serve/engine/routes.h"

namespace serve {

void measure(Engine &engine, http::Metrics &metrics) {
    const auto counted = [&](const char *name, const char *help,
                             const std::atomic<uint64_t> &value) {
        metrics.measured(name, help, true, [&value] { return static_cast<double>(value.load()); });
    };
    EngineCounts &counts = engine.counts();
    counted("stasis_replies_total", "Replies that ended well", counts.replies);
    counted("stasis_replies_refused_total", "Requests refused as the client's fault, or too many",
            counts.refused);
    counted("stasis_replies_failed_total", "Replies that the server failed to give", counts.failed);
    counted("stasis_replies_left_total", "Replies whose client left", counts.left);
    counted("stasis_waits_total", "Times that a reply had to wait for memory", counts.waits);
    counted("stasis_waits_begun_total", "Of them those of replies with a token drawn",
            counts.waits_begun);
    counted(
        "stasis_slow_cut_total",
        "Verifications, imports, rewinds, exports and embeddings that were cut: the client left, "
        "or the server ended",
        counts.slow_cut);
    counted("stasis_prompt_tokens_total", "Tokens of prompts", counts.prompt_tokens);
    counted("stasis_cached_tokens_total", "Tokens of prompts that were not computed",
            counts.cached_tokens);
    counted("stasis_reply_tokens_total", "Tokens drawn", counts.reply_tokens);
    metrics.measured("stasis_sessions_kept_total", "Sessions that were kept", true,
                     [&] { return static_cast<double>(engine.sessions().puts()); });
    metrics.measured("stasis_running", "Replies that run or wait", false,
                     [&] { return static_cast<double>(engine.running()); });
    metrics.measured("stasis_sending", "Exports and reports that are sent from files", false,
                     [&] { return static_cast<double>(engine.sending()); });
    metrics.measured("stasis_stored_requests", "Requests for what is stored that run or wait",
                     false, [&] { return static_cast<double>(engine.stored()); });
    metrics.measured("stasis_sessions_live", "Sessions in memory that do not run", false,
                     [&] { return static_cast<double>(engine.sessions().live()); });
    for (const std::unique_ptr<ServedModel> &each : engine.models()) {
        const ServedModel &model = *each;
        const http::Labels labels = {{"model", model.name()}};
        metrics.measured(
            "stasis_passes_total", "Passes over the weights", true,
            [&model] { return static_cast<double>(model.stats().passes); }, labels);
        metrics.measured(
            "stasis_waiting", "Replies that wait for memory", false,
            [&model] { return static_cast<double>(model.line().waiting()); }, labels);
        metrics.measured(
            "stasis_kv_used_bytes", "Bytes of pages that sessions hold", false,
            [&model] { return static_cast<double>(model.memory().kv_used_bytes); }, labels);
    }
}

} // namespace serve
