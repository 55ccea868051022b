// Renders a chat template for probe conversations. Included by chat_probe.cpp, which fits a
// description, and chat_check.cpp, which checks it.
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

// Units of jinja::Budget; chat_probe.cpp states what published templates need.
constexpr size_t kRenderBudget = 200'000;  // for one probe
constexpr size_t kProbeBudget = 5'000'000; // for all probes of one template

struct Prober {
    const jinja::Template &jinja;
    std::string bos, eos;
    std::optional<std::time_t> date;
    jinja::Budget budget; // for all probes together
    std::string refusal;  // the reason of the last refusal

    // Returns nothing if the template refuses the conversation or fails on it.
    std::optional<std::string> render(const Conversation &messages, bool prompt);
};

// Compares the description with the template. If they differ on conversations other than user and
// assistant in turn, the description is narrowed until it refuses them. Throws Error(unsupported)
// if they differ on user and assistant in turn.
void check_format(ChatFormat &format, Prober &prober, std::string_view source);

} // namespace stasis
