// Fuzzes what is read of conversations: the input's first byte chooses the form of a reply, the
// second how much of it has come, and the rest is the reply, and a conversation in JSON.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "format/state/error.h"
#include "runtime/host/utf8.h"
#include "runtime/text/chat_input.h"
#include "runtime/text/reply.h"
#include "tests/fuzz/watched.h"

using namespace stasis;

namespace {

constexpr CallStyle kStyles[] = {CallStyle::none,   CallStyle::json,    CallStyle::tagged,
                                 CallStyle::whole,  CallStyle::mistral, CallStyle::gemma,
                                 CallStyle::harmony};

const std::string &text_of(const jinja::Value &message, std::string_view name) {
    static const std::string none;
    const jinja::Value *value = message.dict()->find(name);
    return value != nullptr ? *value->text() : none;
}

size_t calls_of(const jinja::Value &message) {
    const jinja::Value *calls = message.dict()->find("tool_calls");
    return calls != nullptr ? calls->list()->items.size() : 0;
}

// What was shown of a reply stays when more of it has come.
void check_growth(const jinja::Value &before, const jinja::Value &after) {
    for (const std::string_view name : {"content", "reasoning_content"}) {
        fuzz::expect(text_of(after, name).starts_with(text_of(before, name)),
                     "content or thoughts that were shown are gone");
    }
    fuzz::expect(calls_of(after) >= calls_of(before), "a call that was shown is gone");
}

void read_reply(const ReplyFormat &format, const std::string &text, size_t cut) {
    const jinja::Value none;
    const std::string_view come = std::string_view(text).substr(0, cut);
    const jinja::Value part =
        parse_reply(format, "", come.substr(0, complete_utf8(come)), false, none);
    const jinja::Value open = parse_reply(format, "", text, false, none);
    check_growth(part, open);
    check_growth(open, parse_reply(format, "", text, true, none));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) {
        return 0;
    }
    const std::string text(reinterpret_cast<const char *>(data + 2), size - 2);
    ReplyFormat format{kStyles[(data[0] & 127) % std::size(kStyles)], "", ""};
    if (data[0] >= 128) {
        format.think_open = "<think>";
        format.think_close = "</think>";
    }
    const fuzz::Meter meter(fuzz::kJsonTimes * 4 * size + (256 << 10));
    const std::string reply = well_formed_utf8(text);
    read_reply(format, reply, reply.size() * data[1] / 255);
    try {
        read_chat(text);
    } catch (const Error &error) {
        fuzz::expect(error.what()[0] != '\0', "an error without a message");
        fuzz::expect(error.status() == Status::invalid_argument, error.what());
    }
    return 0;
}
