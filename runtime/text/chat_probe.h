// A chat template being tried out on conversations, for the two files that do so: chat_probe.cpp
// fits a description, chat_check.cpp checks it.
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat_format.h"
#include "runtime/text/jinja/jinja.h"

namespace stasis {

using Conversation = std::vector<Message>;

// Units of jinja::Budget; see chat_probe.cpp for what published templates need.
constexpr size_t kRenderBudget = 200'000;  // for one probe
constexpr size_t kProbeBudget = 5'000'000; // for all probes of one template

struct Prober {
    const jinja::Template &jinja;
    std::string bos, eos;
    std::time_t now;
    jinja::Budget budget; // of all probes together
    std::string refusal;  // why the last refused conversation was

    // Nothing if the template refuses the conversation, or fails on it.
    std::optional<std::string> render(const Conversation &messages, bool prompt);
};

// Holds the description against the template. Where they part on conversations beyond user and
// assistant in turn, the description is narrowed until it refuses them; where they part on those,
// throws Error(unsupported).
void check_format(ChatFormat &format, Prober &prober, std::string_view source);

} // namespace stasis
