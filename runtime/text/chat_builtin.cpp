// The chat formats of the supported families, as in their published templates (in
// tokenizer_config.json of the models named below), and the markers by which a template's family is
// found.
#include <algorithm>
#include <string>

#include "format/state/error.h"
#include "runtime/text/chat_format.h"

namespace stasis {

namespace {

constexpr const char *kNames[] = {"gemma",  "chatml",  "zephyr", "llama2",
                                  "llama3", "mistral", "phi3"};

// Allows user and assistant in turn, beginning with the user; a system text may come first.
void alternate(ChatFormat &format) {
    follows(format, Before::start, Speaker::user) = true;
    follows(format, Before::start, Speaker::system) = format.first_system != SystemPlace::refused;
    follows(format, Before::first_system, Speaker::user) = true;
    follows(format, Before::user, Speaker::assistant) = true;
    follows(format, Before::assistant, Speaker::user) = true;
}

// Every role has the same form of turn, in any order: ChatML, Zephyr, Llama 3, Phi-3.
ChatFormat uniform(std::string opening, std::string_view before_role, std::string_view after_role,
                   std::string_view end, bool trims) {
    const auto turn = [&](std::string_view role) {
        return TurnFormat{std::string(before_role).append(role).append(after_role),
                          std::string(end), trims, trims};
    };
    ChatFormat format;
    format.opening = format.system_opening = std::move(opening);
    format.user = turn("user");
    format.assistant = turn("assistant");
    format.generation = format.assistant.prefix;
    format.first_system = format.later_system = SystemPlace::turn;
    format.system = format.system_later = turn("system");
    for (auto &row : format.follows) {
        row.fill(true);
    }
    return format;
}

// Gemma 3: the system text is folded into the first user turn.
ChatFormat gemma(const std::string &bos) {
    ChatFormat format;
    format.opening = format.system_opening = bos;
    format.user = {"<start_of_turn>user\n", "<end_of_turn>\n", true, true};
    format.assistant = {"<start_of_turn>model\n", "<end_of_turn>\n", true, true};
    format.generation = format.assistant.prefix;
    format.first_system = SystemPlace::folded;
    format.system.suffix = "\n\n";
    alternate(format);
    return format;
}

// Llama 2 chat, without Meta's default system prompt, which later revisions dropped.
ChatFormat llama2(const std::string &bos, const std::string &eos) {
    ChatFormat format;
    format.opening = format.system_opening = bos;
    format.user = {"[INST] ", " [/INST]", true, true};
    format.assistant = {" ", " " + eos, true, true};
    format.first_system = SystemPlace::folded;
    format.system = {"<<SYS>>\n", "\n<</SYS>>\n\n"};
    format.strips_folded = true;
    alternate(format);
    return format;
}

// Mistral Instruct v0.2, which refuses system texts.
ChatFormat mistral(const std::string &bos, const std::string &eos) {
    ChatFormat format;
    format.opening = bos;
    format.user = {"[INST] ", " [/INST]"};
    format.assistant = {"", eos};
    alternate(format);
    return format;
}

} // namespace

ChatFormat builtin_format(std::string_view name, std::string_view bos_text,
                          std::string_view eos_text) {
    const std::string bos(bos_text), eos(eos_text);
    ChatFormat format;
    if (name == "gemma") {
        format = gemma(bos);
    } else if (name == "chatml") {
        format = uniform("", "<|im_start|>", "\n", "<|im_end|>\n", false);
    } else if (name == "zephyr") {
        format = uniform("", "<|", "|>\n", eos + "\n", false);
    } else if (name == "llama2") {
        format = llama2(bos, eos);
    } else if (name == "llama3") { // Llama 3 Instruct
        format = uniform(bos, "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", true);
    } else if (name == "mistral") {
        format = mistral(bos, eos);
    } else if (name == "phi3") { // Phi-3.5 mini
        format = uniform("", "<|", "|>\n", "<|end|>\n", false);
        format.system_skips_empty = true;
        format.closing = eos;
    } else {
        std::string known;
        for (const char *other : kNames) {
            known += (known.empty() ? "'" : ", '") + std::string(other) + "'";
        }
        fail(Status::invalid_argument, "unknown chat template '%.40s'; known are %s",
             std::string(name).c_str(), known.c_str());
    }
    format.name = name;
    return format;
}

// The prefix of a user turn identifies the family; two pairs of families need one more marker.
std::string family_of(const ChatFormat &format) {
    const std::string &user = format.user.prefix;
    if (user == "<start_of_turn>user\n") {
        return "gemma";
    }
    if (user == "<|im_start|>user\n") {
        return "chatml";
    }
    if (user == "<|start_header_id|>user<|end_header_id|>\n\n") {
        return "llama3";
    }
    if (user == "<|user|>\n") {
        return format.user.suffix.starts_with("<|end|>") ? "phi3" : "zephyr";
    }
    if (user.starts_with("[INST]")) {
        const bool system_tags = format.system.prefix.find("<<SYS>>") != std::string::npos ||
                                 format.default_system.find("<<SYS>>") != std::string::npos;
        return system_tags ? "llama2" : "mistral";
    }
    return "";
}

} // namespace stasis
