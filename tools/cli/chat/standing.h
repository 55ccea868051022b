// How a conversation stands, in words for people: its model, memory, context and speed.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/chat/talk.h"

namespace command::chat {

// Returns "1 turn", "2 turns".
std::string turns_text(size_t count);
// Returns the line with which a conversation begins: its model, memory, context and file.
std::string greeting(const ChatChoice &choice, const stasis_model *model, const Talk &talk);
// Returns how full the context is, with advice where it is nearly full; "" up to its half.
std::string fullness(const Talk &talk);
// Returns what can be done when the next turn has no room.
std::string advice_when_full(const Talk &talk);
// Returns the lines of /stats.
std::vector<std::string> statistics(const ChatChoice &choice, const stasis_model *model,
                                    const Talk &talk);

} // namespace command::chat
