// The messages of a conversation in its session: the log has their tokens, but tools and switched
// thoughts are rendered from all messages anew each turn.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/chat/past.h"
#include "tools/cli/conversation.h"

namespace command::chat {

// Puts the messages and turns into the session's data, under "stasis.chat". Throws Failure.
void keep_conversation(stasis_session *session, const Conversation &conversation,
                       const std::vector<Turn> &turns);

// Takes the messages from the session of a file, and returns the turns. Throws Failure if it has
// none, or went on without them.
std::vector<Turn> restore_conversation(const stasis_session *session, const std::string &path,
                                       Conversation &conversation);

// Whether the session has messages.
bool keeps_conversation(const stasis_session *session);

} // namespace command::chat
