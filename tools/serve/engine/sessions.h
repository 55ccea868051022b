// The sessions that the server has: the last ones in memory, all of them in the store, each under
// the digest of its state. A session under its name is never changed: requests go on with copies.
// Must not know requests, nor what the data in a session say.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tools/serve/engine/served_model.h"

namespace serve {

using Store = std::unique_ptr<stasis_store, command::Releaser<stasis_store_close>>;

class Sessions {
  public:
    // The last sessions, at most so many and with so many bytes of keys and values, stay in memory.
    // Without a store they are all that there is.
    Sessions(Store store, size_t live_max, uint64_t live_bytes_max);

    struct Found {
        command::Session session; // a copy
        std::string id;           // under which it was kept
    };

    // Returns a copy of the session with this id, a digest or the id of a request (kRequestName);
    // nothing: there is none, or it is another model's. Throws api::Refused if the store fails.
    std::optional<Found> find(const ServedModel &model, const std::string &tenant,
                              const std::string &id);
    // The same for another name that `keep` gave a session.
    std::optional<Found> take_named(const ServedModel &model, const std::string &tenant,
                                    const std::string &name);
    // Keeps a session under the digest of its state, which it returns in hexadecimal, and under
    // further names in place of what they named. What was kept under that digest lends the data
    // that this one lacks (stored.h); of its names those that are too many name nothing then.
    // `before`: the id of the session that it goes on from, or "". `session` must not be changed
    // after.
    std::string keep(const ServedModel &model, const std::string &tenant, command::Session session,
                     const std::string &before, const std::vector<std::string> &names);
    // Gives the kept session further names, where they name nothing yet.
    void add_names(const std::string &tenant, const std::string &id,
                   const std::vector<std::string> &names);
    // Removes it, with those of the names that name it. False: there is none.
    bool remove(const std::string &tenant, const std::string &id,
                const std::vector<std::string> &names);

    // Drops the session in memory that was used least recently; false: there is none.
    bool drop_oldest();
    size_t live() const;
    uint64_t puts() const;
    stasis_store *store() const { return store_.get(); } // nullptr: none

  private:
    struct Live {
        std::string key; // of the tenant and the id, or a further name by which it was got
        std::string id;
        const ServedModel *model;
        std::shared_ptr<stasis_session> session;
        uint64_t bytes; // of its keys and values
    };
    // What a further name names: the session as it was then, whatever data it was given later.
    struct Named {
        std::string id; // in memory
        std::shared_ptr<stasis_session> session;
        uint64_t at; // its place among all that were named
    };

    std::string key(const std::string &tenant, const std::string &id) const;
    enum class Damaged { is_an_error, is_none };
    command::Session take(const ServedModel &model, const std::string &tenant,
                          const std::string &id, Damaged damaged);
    command::Session get(const ServedModel &model, const std::string &tenant,
                         const std::string &name, Damaged damaged);
    command::Session fork_live(const ServedModel &model, const std::string &key);
    std::mutex &keeping(const std::string &key);
    bool remove_name(const std::string &key);
    void remove_names(const std::string &tenant, const std::string &id,
                      const std::vector<std::string> &names);
    void forget(std::list<Live>::iterator live);
    std::optional<Found> take_live(const ServedModel &model, const std::string &tenant,
                                   const std::string &name);
    std::string stored_id(const std::string &key);
    void hold(Live session);
    void name_live(const std::string &name, Named named);
    void put(stasis_session *session, const std::string &key, const std::string &before);

    const Store store_;
    const size_t live_max_;
    const uint64_t live_bytes_max_;
    uint64_t live_bytes_ = 0;
    mutable std::mutex mutex_;
    std::mutex keeping_[64]; // by key: who keeps, names or removes one state, one after the other
    std::list<Live> live_;   // the last used first
    std::map<std::string, std::list<Live>::iterator> by_key_;
    // Further names of sessions in memory. Without a store these are all; with one they keep a long
    // prompt from being read for each request that begins with it.
    std::map<std::string, Named> names_;
    uint64_t named_ = 0;
    uint64_t puts_ = 0;
};

std::string digest_of(const stasis_session *session);

} // namespace serve
