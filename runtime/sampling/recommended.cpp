// Reads recommended sampling settings; see recommended.h. Keys: transformers,
// generation/configuration_utils.py (GenerationConfig); gguf-py, constants.py (Keys.General,
// "Recommended Sampler Parameters"), as llama.cpp reads them (common.cpp,
// common_init_sampler_from_model).
#include "runtime/sampling/recommended.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>
#include <set>

#include "format/state/error.h"
#include "runtime/model/config_fields.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

namespace {

constexpr uint32_t kWholeLog = 0; // for Sampling::penalty_window

// A value too large for f32 becomes an infinity, which is outside every range.
float narrow(double value) {
    return std::abs(value) <= FLT_MAX ? static_cast<float>(value) : HUGE_VALF;
}

uint32_t to_count(int64_t value) {
    return static_cast<uint32_t>(std::clamp<int64_t>(value, 0, UINT32_MAX));
}

// Returns the base for a file's settings: a setting that it omits is off, and the temperature is 1.
Sampling plain() {
    Sampling sampling;
    sampling.temperature = 1.0F;
    return sampling;
}

// Runs `read`, which fills the settings, and stores the message if they cannot be used. `file` is
// prefixed to a message about a range.
template <typename Read, typename Suppress>
RecommendedSampling checked(const std::string &file, uint32_t vocabulary, Read read,
                            Suppress suppress) {
    RecommendedSampling result;
    try {
        result.sampling = read();
        for (const uint32_t token : suppress()) {
            result.sampling.bias.emplace_back(token, -HUGE_VALF);
        }
    } catch (const Error &error) {
        result.refusal = error.what();
        return result;
    }
    try {
        check_sampling(result.sampling, vocabulary);
    } catch (const Error &error) {
        result.refusal = file + ": " + error.what();
    }
    return result;
}

// Returns a set of the ids that the vocabulary has; nothing if one of them is no id at all.
std::optional<std::set<uint32_t>> token_set(const std::vector<std::optional<uint64_t>> &ids,
                                            uint32_t vocabulary) {
    std::set<uint32_t> tokens;
    for (const std::optional<uint64_t> &id : ids) {
        if (!id) {
            return std::nullopt;
        }
        if (*id < vocabulary) {
            tokens.insert(static_cast<uint32_t>(*id));
        }
    }
    return tokens;
}

std::set<uint32_t> suppressed(const Fields &fields, uint32_t vocabulary) {
    constexpr char kKey[] = "suppress_tokens";
    if (!fields.has(kKey)) {
        return {};
    }
    const Json::Array *listed = fields.object.find(kKey)->array();
    std::vector<std::optional<uint64_t>> ids;
    for (size_t i = 0; listed != nullptr && i < listed->size(); ++i) {
        const uint64_t *id = (*listed)[i].count();
        ids.push_back(id == nullptr ? std::nullopt : std::optional(*id));
    }
    const auto tokens = token_set(ids, vocabulary);
    if (listed == nullptr || !tokens) {
        fields.refuse(kKey, "an array of token ids");
    }
    return *tokens;
}

std::set<uint32_t> suppressed(const GgufFile &file, uint32_t vocabulary) {
    constexpr char kKey[] = "tokenizer.ggml.suppress_tokens";
    if (file.metadata.count(kKey) == 0) {
        return {};
    }
    const std::optional<std::vector<int64_t>> listed = file.integers(kKey);
    std::vector<std::optional<uint64_t>> ids;
    for (const int64_t id : listed.value_or(std::vector<int64_t>{-1})) {
        ids.push_back(id < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(id)));
    }
    const auto tokens = token_set(ids, vocabulary);
    if (!tokens) {
        fail(Status::corrupt, "%s: metadata %s: expected token ids", file.names[0].c_str(), kKey);
    }
    return *tokens;
}

} // namespace

Sampling default_recommendation() {
    Sampling sampling;
    sampling.temperature = 0.6F;
    sampling.min_p = 0.1F;
    sampling.repetition_penalty = 1.1F;
    return sampling;
}

RecommendedSampling recommended_sampling(const Json &object, uint32_t vocabulary) {
    const Fields fields{object, std::string(kGenerationConfig) + ": "};
    const auto read_all = [&] {
        Sampling sampling = plain();
        bool any = false;
        // Reads one number, if the file has it.
        const auto read = [&](const char *key, float &value) {
            if (const Json *found = object.find_value(key)) {
                if (!found->number().has_value()) {
                    fields.refuse(key, "a number");
                }
                value = narrow(*found->number());
                any = true;
            }
        };
        read("temperature", sampling.temperature);
        read("top_p", sampling.top_p);
        read("min_p", sampling.min_p);
        read("typical_p", sampling.v2.typical_p);
        read("repetition_penalty", sampling.repetition_penalty);

        // A limit and a greedy switch, then the default if the file gives nothing.
        sampling.penalty_window = kWholeLog;
        if (fields.has("top_k")) {
            sampling.top_k = fields.count("top_k", UINT32_MAX, {}, 0);
            any = true;
        }
        if (!fields.flag("do_sample", true)) {
            sampling.temperature = 0.0F;
            return sampling;
        }
        return any || fields.has("do_sample") ? sampling : default_recommendation();
    };
    return checked(kGenerationConfig, vocabulary, read_all,
                   [&] { return suppressed(fields, vocabulary); });
}

RecommendedSampling recommended_sampling(const GgufFile &file, uint32_t vocabulary) {
    const auto read_all = [&] {
        Sampling sampling = plain();
        bool any = false;
        const auto key = [](const char *name) { return std::string("general.sampling.") + name; };
        const auto read = [&](const char *name, float &value) {
            if (const std::optional<double> number = file.number(key(name))) {
                value = narrow(*number);
                any = true;
            }
        };
        read("temp", sampling.temperature);
        read("top_p", sampling.top_p);
        read("min_p", sampling.min_p);
        read("xtc_probability", sampling.v2.xtc_probability);
        read("xtc_threshold", sampling.v2.xtc_threshold);
        read("penalty_repeat", sampling.repetition_penalty);
        if (const std::optional<int64_t> top_k = file.signed_integer(key("top_k"))) {
            sampling.top_k = to_count(*top_k); // 0 and less: all
            any = true;
        }
        if (const std::optional<int64_t> window = file.signed_integer(key("penalty_last_n"))) {
            sampling.penalty_window = *window < 0 ? kWholeLog : to_count(*window);
            if (*window == 0) {
                sampling.repetition_penalty = 1.0F;
            }
            any = true;
        }
        return any ? sampling : default_recommendation();
    };
    return checked(file.names[0] + ": metadata general.sampling", vocabulary, read_all,
                   [&] { return suppressed(file, vocabulary); });
}

} // namespace stasis
