// Sampling settings of snapshots; see stored_sampling.h.
#include "tools/cli/stored_sampling.h"

#include <limits>

namespace command {

StoredSampling read_sampling(const Json &json) {
    StoredSampling stored;
    stasis_sampling &to = stored.sampling;
    stasis_sampling_init(&to, sizeof to);
    to.seed = json["seed"];
    to.temperature = json["temperature"];
    to.top_k = json["top_k"];
    to.top_p = json["top_p"];
    to.min_p = json["min_p"];
    to.repetition_penalty = json["repetition_penalty"];
    to.frequency_penalty = json["frequency_penalty"];
    to.presence_penalty = json["presence_penalty"];
    const uint32_t window = json["penalty_window"];
    to.penalty_window = window == 0 ? UINT32_MAX : window; // the file's 0 is the whole log
    to.typical_p = json["typical_p"];
    to.top_n_sigma = json["top_n_sigma"];
    to.xtc_probability = json["xtc_probability"];
    to.xtc_threshold = json["xtc_threshold"];
    to.dry_multiplier = json["dry_multiplier"];
    to.dry_base = json["dry_base"];
    to.dry_allowed_length = json["dry_allowed_length"];
    to.dry_range = json["dry_range"];
    to.min_keep = json["min_keep"];
    stored.dry_breakers = json["dry_breakers"].get<std::vector<stasis_token>>();
    for (const Json &each : json["bias"]) {
        stored.bias_tokens.push_back(each["token"]);
        stored.bias.push_back(each["bias"].is_null() ? -std::numeric_limits<float>::infinity()
                                                     : each["bias"].get<float>());
    }
    return stored;
}

StoredSampling copy_sampling(const stasis_sampling &sampling) {
    StoredSampling stored;
    stored.sampling = sampling;
    const auto copy = [](auto &list, const auto *from, uint32_t count) {
        list.assign(from, from + (from != nullptr ? count : 0));
    };
    copy(stored.bias_tokens, sampling.bias_tokens, sampling.bias_count);
    copy(stored.bias, sampling.bias, sampling.bias_count);
    copy(stored.dry_breakers, sampling.dry_breakers, sampling.dry_breaker_count);
    return stored;
}

void StoredSampling::apply(stasis_session *session) const {
    stasis_sampling all = sampling;
    all.bias_count = static_cast<uint32_t>(bias.size());
    all.bias_tokens = bias_tokens.data();
    all.bias = bias.data();
    all.dry_breaker_count = static_cast<uint32_t>(dry_breakers.size());
    all.dry_breakers = dry_breakers.data();
    stasis_error error{};
    check(stasis_session_set_sampling(session, &all, &error), error, "sampling");
}

} // namespace command
