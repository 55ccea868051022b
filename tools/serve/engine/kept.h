// Conversations of /v1/conversations: what was said, and the session behind the last reply. With a
// store each is a session without tokens whose data say it, so that a change replaces exactly what
// it was made from, whichever servers use the store. Must not know requests.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tools/serve/engine/served_model.h"

namespace serve {

struct Kept {
    // {"id", "created_at", "metadata", "messages", "ids" and "messages_made" of their items, and
    // after a reply "model": its identity, "session": its id}; messages as conversation.h of the
    // API has them, ids as give_item_ids of reply.h.
    api::Json record;
    command::Session root; // with a store, and
    uint64_t version = 0;  // without: what a change replaces
};

class KeptConversations {
  public:
    // Without a store (nullptr) they are in memory, those used last, as far as 64 MiB suffice.
    KeptConversations(stasis_store *store, const std::vector<std::unique_ptr<ServedModel>> &models);

    // All throw api::Refused: 404, there is no such conversation; 409, another request changes it
    // or has changed it meanwhile, and nothing of this one is in it; or the store fails.

    // Makes one of these messages and metadata.
    Kept create(const std::string &tenant, api::Json messages, api::Json metadata);
    Kept find(const std::string &tenant, const std::string &id);
    void replace(const std::string &tenant, Kept &kept);
    void remove(const std::string &tenant, const std::string &id);

    // Refuses other requests of this server to change it until all copies are gone, so that none
    // computes a reply in vain.
    using Claim = std::shared_ptr<const void>;
    Claim claim(const std::string &tenant, const std::string &id);

  private:
    struct InMemory {
        std::string text;
        uint64_t version, used;
    };
    void put(const std::string &tenant, Kept &kept);
    void drop_unused(const std::string &but);

    stasis_store *const store_;
    const std::vector<std::unique_ptr<ServedModel>> &models_;
    std::mutex mutex_;
    std::set<std::string> claimed_;
    std::map<std::string, InMemory> in_memory_;
    size_t bytes_ = 0;   // of their texts
    uint64_t clock_ = 0; // counts uses and changes
};

} // namespace serve
