// Words about a conversation; see standing.h.
#include "tools/cli/chat/standing.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "tools/cli/terminal.h"

namespace command::chat {

namespace {

stasis_session_info session_info(const Talk &talk) {
    auto info = sized<stasis_session_info>();
    stasis_error error{};
    check(stasis_session_get_info(talk.session(), &info, &error), error, "session");
    return info;
}

std::string bytes_text(uint64_t bytes) {
    static constexpr const char *kUnits[] = {"bytes", "kB", "MB", "GB", "TB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 1000 && unit + 1 < std::size(kUnits)) {
        value /= 1000;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
                  kUnits[unit]);
    return text;
}

// Returns the model's name, family and commonest type: "recall-llama (llama, BF16)".
std::string model_text(const ChatChoice &choice, const stasis_model_info &info) {
    namespace fs = std::filesystem;
    const fs::path path = fs::path(choice.model.path).lexically_normal();
    const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
    const std::string types = info.weight_types != nullptr ? info.weight_types : "";
    const std::string type = types.substr(0, types.find(':'));
    return name + " (" + info.architecture + (type.empty() ? "" : ", " + type) + ")";
}

// Memory of the model and its sessions, as the library counts it.
struct Memory {
    uint64_t weights, keys_and_values, workspace;
    uint64_t all() const { return weights + keys_and_values + workspace; }
};

Memory memory_of(const stasis_model *model) {
    auto stats = sized<stasis_model_stats>();
    stasis_error error{};
    check(stasis_model_get_stats(model, &stats, &error), error, "model");
    const stasis_model_info info = model_info(model);
    return {info.weight_bytes + info.mtp_bytes, stats.kv_used_bytes + stats.state_used_bytes,
            stats.scratch_bytes};
}

// Returns the bytes of the process that are in memory; 0 if the system does not say.
uint64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    uint64_t size = 0, resident = 0;
    file >> size >> resident;
    return file ? resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

std::string share_text(const stasis_session_info &info) {
    return std::to_string(info.position) + " of " + std::to_string(info.capacity) + " tokens, " +
           std::to_string(info.position * 100 / info.capacity) + " %";
}

std::string rate_text(const char *what, uint64_t count, double seconds) {
    char text[96];
    const double rate = seconds > 0 ? static_cast<double>(count) / seconds : 0;
    std::snprintf(text, sizeof text, "%s %llu tokens in %.2f s (%.0f a second)", what,
                  static_cast<unsigned long long>(count), seconds, rate);
    return text;
}

std::string drawing_text(const stasis_sampling &sampling) {
    char text[128];
    if (sampling.temperature == 0) {
        return "greedy";
    }
    std::snprintf(text, sizeof text, "temperature %g, top-k %u, top-p %g, min-p %g, seed %llu",
                  static_cast<double>(sampling.temperature), sampling.top_k,
                  static_cast<double>(sampling.top_p), static_cast<double>(sampling.min_p),
                  static_cast<unsigned long long>(sampling.seed));
    return text;
}

} // namespace

std::string turns_text(size_t count) {
    return std::to_string(count) + (count == 1 ? " turn" : " turns");
}

std::string greeting(const ChatChoice &choice, const stasis_model *model, const Talk &talk) {
    const stasis_session_info info = session_info(talk);
    return "[" + model_text(choice, model_info(model)) + ": " + bytes_text(memory_of(model).all()) +
           " of memory, context of " + std::to_string(info.capacity) + " tokens, " +
           (talk.path().empty() ? "not saved (/save FILE)" : "saved in " + talk.path()) +
           "; /help]";
}

std::string fullness(const Talk &talk) {
    const stasis_session_info info = session_info(talk);
    if (info.position < info.capacity / 2) {
        return "";
    }
    if (info.position == info.capacity) {
        return advice_when_full(talk);
    }
    const bool nearly = info.position >= info.capacity - info.capacity / 10;
    return "[context: " + share_text(info) +
           (nearly ? "; it is nearly full, and /undo takes back the last turn]" : "]");
}

std::string advice_when_full(const Talk &talk) {
    const stasis_session_info info = session_info(talk);
    const std::string kept = talk.path().empty() ? "/save FILE keeps this conversation"
                                                 : "this conversation stays in " + talk.path();
    return "[the context is full: " + share_text(info) +
           ". /undo takes back the last turn, a shorter message may still fit, or begin another "
           "conversation: " +
           kept + "]";
}

std::vector<std::string> statistics(const ChatChoice &choice, const stasis_model *model,
                                    const Talk &talk) {
    const stasis_session_info info = session_info(talk);
    const stasis_model_info described = model_info(model);
    const Memory memory = memory_of(model);
    const Speed &speed = talk.speed();
    return {
        "model    " + model_text(choice, described) + ", " + described.kernels + " on " +
            described.device + ", " + std::to_string(described.threads) + " threads",
        "memory   " + bytes_text(memory.weights) + " of weights, " +
            bytes_text(memory.keys_and_values) + " of keys and values, " +
            bytes_text(memory.workspace) + " of workspace; the process has " +
            bytes_text(resident_bytes()),
        "context  " + share_text(info) + "; " + turns_text(talk.turns().size()),
        "speed    " + rate_text("prompt", speed.prompt_positions, speed.prompt_seconds) + ", " +
            rate_text("reply", speed.reply_tokens, speed.reply_seconds),
        "drawing  " + drawing_text(talk.sampling()),
        "saved    " + (talk.path().empty() ? "nowhere"
                                           : talk.path() + (talk.unsaved() ? ", but not since the "
                                                                             "last change"
                                                                           : "")),
        "digest   " + digest_of(talk.session()),
    };
}

} // namespace command::chat
