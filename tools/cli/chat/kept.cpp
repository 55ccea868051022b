// Keeps a conversation's messages in its session; see kept.h.
#include "tools/cli/chat/kept.h"

#include "tools/cli/generation.h"

namespace command::chat {

namespace {

constexpr char kName[] = "stasis.chat";

Json json_of(const Turn &turn) {
    return {{"begin", turn.begin},
            {"reply", turn.reply},
            {"messages", turn.messages},
            {"reply_messages", turn.reply_messages},
            {"whole", turn.whole}};
}

// Returns a turn that stands within a log and a list of messages. Throws what Json throws, or
// Failure.
Turn turn_of(const Json &json, uint64_t position, size_t messages) {
    Turn turn;
    turn.begin = json.at("begin").get<uint64_t>();
    turn.reply = json.at("reply").get<uint64_t>();
    turn.messages = json.at("messages").get<size_t>();
    turn.reply_messages = json.at("reply_messages").get<size_t>();
    turn.whole = json.at("whole").get<bool>();
    if (turn.begin > turn.reply || turn.reply > position || turn.messages > turn.reply_messages ||
        turn.reply_messages > messages) {
        throw Failure("a turn is outside the conversation");
    }
    return turn;
}

} // namespace

void keep_conversation(stasis_session *session, const Conversation &conversation,
                       const std::vector<Turn> &turns) {
    Json kept = conversation.kept();
    kept["digest"] = digest_of(session);
    kept["turns"] = Json::array();
    for (const Turn &turn : turns) {
        kept["turns"].push_back(json_of(turn));
    }
    const std::string text = kept.dump();
    stasis_error error{};
    check(stasis_session_set_data(session, kName, text.data(), text.size(), &error), error,
          "the messages");
}

std::vector<Turn> restore_conversation(const stasis_session *session, const std::string &path,
                                       Conversation &conversation) {
    if (!keeps_conversation(session)) {
        throw Failure("--session: " + path +
                      ": it has the tokens of its messages, not the messages, which tools and "
                      "switched thoughts need (--replace begins anew)");
    }
    const std::string text = fetch_text(
        [&](char *buffer, size_t capacity, size_t *size, stasis_error *failure) {
            return stasis_session_get_data(session, kName, buffer, capacity, size, failure);
        },
        path);
    std::vector<Turn> turns;
    try {
        const Json kept = Json::parse(text);
        if (kept.at("digest").get<std::string>() != digest_of(session)) {
            throw Failure("the session went on without them (--replace begins anew)");
        }
        conversation.restore(kept);
        for (const Json &turn : kept.at("turns")) {
            turns.push_back(turn_of(turn, position_of(session), conversation.size()));
        }
        if (turns.empty() && !conversation.pending_calls().empty()) {
            throw Failure("calls without a turn");
        }
    } catch (const Json::exception &fault) {
        throw Failure("--session: " + path + ": its messages cannot be read: " + fault.what());
    } catch (const Failure &fault) {
        throw Failure("--session: " + path + ": its messages cannot be taken up: " + fault.what());
    }
    return turns;
}

bool keeps_conversation(const stasis_session *session) {
    size_t length = 0;
    stasis_error error{};
    return stasis_session_get_data(session, kName, nullptr, 0, &length, &error) != STASIS_NOT_FOUND;
}

} // namespace command::chat
