// Turns of a snapshot, from the spans that it gives; see past.h.
#include "tools/cli/chat/past.h"

#include <utility>

#include "tools/cli/snapshot.h"

namespace command::chat {

namespace {

constexpr uint32_t kConfig = 6, kMeta = 12; // elements

bool is(const Json &span, const char *member, const char *value) {
    return span[member].is_string() && span[member].get<std::string>() == value;
}

uint64_t number(const Json &span, const char *member) {
    return span[member].get<uint64_t>();
}

// Returns the turns that spans of a log describe; none if it is not one of turns from its
// beginning.
std::vector<Turn> turns_of(const Json &spans) {
    std::vector<Turn> turns;
    uint64_t end = 0; // of the reply before: what closes a reply that was cut is the next turn's
    for (const Json &span : spans) {
        const bool starts = span["turn_start"].get<bool>();
        if (starts && is(span, "role", "user")) {
            turns.push_back({turns.empty() ? number(span, "begin") : end});
        }
        const bool prompts = starts && is(span, "role", "assistant");
        if (!prompts && !is(span, "source", "sampled")) {
            continue;
        }
        if (turns.empty()) {
            return {};
        }
        end = number(span, "end");
        turns.back().reply = prompts ? end : turns.back().reply;
    }
    return turns;
}

// Returns the system text in front of `end`: that of its own turn, or what the first user's turn
// has before the user's text.
std::string system_text(const Json &spans, uint64_t end) {
    std::string system, last;
    for (const Json &span : spans) {
        if (number(span, "begin") >= end || !is(span, "source", "text")) {
            continue;
        }
        system += std::exchange(last, span["text"].get<std::string>());
        if (is(span, "role", "system")) {
            system += std::exchange(last, "");
        }
    }
    return system;
}

} // namespace

Past read_past(const std::string &path) {
    const Snapshot snapshot = open_snapshot(path);
    const Json config = snapshot_element(snapshot.get(), kConfig);
    const Json meta = snapshot_element(snapshot.get(), kMeta);
    const Json &spans = meta["spans"];
    Past past;
    past.sampling = read_sampling(config["samplings"].at(config["sampling"].get<size_t>()));
    past.turns = turns_of(spans);
    past.system = meta["pending_system"].get<std::string>();
    if (!past.turns.empty()) {
        past.beginning = past.turns[0].begin;
        past.system = system_text(spans, past.turns[0].reply);
    } else if (!spans.empty() && is(spans.back(), "role", "system")) { // nothing was said yet
        past.beginning = number(spans.back(), "end");
        past.system = system_text(spans, past.beginning);
    }
    return past;
}

} // namespace command::chat
