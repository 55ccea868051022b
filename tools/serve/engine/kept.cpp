// Conversations in memory and in the store; see kept.h.
#include "tools/serve/engine/kept.h"

#include <random>

#include "tools/serve/api/reply.h"
#include "tools/serve/engine/stored.h"

namespace serve {

namespace {

constexpr char kKeptData[] = "serve.kept"; // the record as JSON
constexpr char kPrefix[] = "conv_";
constexpr size_t kBytesMax = size_t{64} << 20;

std::string random_digits() {
    std::random_device device;
    std::string digits;
    while (digits.size() < kRequestIdLength) {
        digits += "0123456789abcdef"[device() % 16];
    }
    return digits;
}

[[noreturn]] void refuse_missing(const std::string &id) {
    throw api::Refused{404, "conversation_not_found", "there is no conversation '" + id + "'",
                       "conversation"};
}

[[noreturn]] void refuse_conflict(const std::string &id) {
    throw api::Refused{409, "conversation_locked",
                       "another request changes the conversation '" + id +
                           "', or has changed it meanwhile: nothing of this one is in it",
                       "conversation"};
}

// Returns the key under which all know it. Throws if this can be no id.
std::string key_of(const std::string &tenant, const std::string &id) {
    const std::string digits = id.starts_with(kPrefix) ? id_in(id, kPrefix) : "";
    if (digits.size() != kRequestIdLength) {
        refuse_missing(id);
    }
    return tenant + "/" + id;
}

std::string text_of(const api::Json &record) {
    std::string text = record.dump(-1, ' ', false, api::Json::error_handler_t::replace);
    if (text.size() > STASIS_DATA_BYTES_MAX / 2) {
        throw api::Refused{413, "request_too_large",
                           "a conversation has at most " +
                               std::to_string(STASIS_DATA_BYTES_MAX / 2) + " bytes",
                           ""};
    }
    return text;
}

} // namespace

KeptConversations::KeptConversations(stasis_store *store,
                                     const std::vector<std::unique_ptr<ServedModel>> &models)
    : store_(store), models_(models) {}

Kept KeptConversations::create(const std::string &tenant, api::Json messages, api::Json metadata) {
    Kept kept;
    kept.record = {{"id", kPrefix + random_digits()},
                   {"created_at", now()},
                   {"metadata", std::move(metadata)},
                   {"messages", std::move(messages)}};
    api::give_item_ids(kept.record, api::Json());
    if (store_ != nullptr) {
        stasis_session *made = nullptr;
        stasis_error error{};
        stasis_status status = STASIS_UNSUPPORTED;
        for (size_t i = 0; i < models_.size() && status == STASIS_UNSUPPORTED; ++i) {
            // A model that makes embeddings alone has no sessions.
            status = stasis_session_create(models_[i]->model(), nullptr, &made, &error);
        }
        require(status, error);
        kept.root.reset(made);
    }
    put(tenant, kept);
    return kept;
}

Kept KeptConversations::find(const std::string &tenant, const std::string &id) {
    const std::string key = key_of(tenant, id);
    Kept kept;
    if (store_ == nullptr) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = in_memory_.find(key);
        if (found == in_memory_.end()) {
            refuse_missing(id);
        }
        found->second.used = ++clock_;
        kept.record = api::Json::parse(found->second.text);
        kept.version = found->second.version;
        return kept;
    }
    for (const std::unique_ptr<ServedModel> &model : models_) { // the one that it was made with
        stasis_session *got = nullptr;
        stasis_error error{};
        const stasis_status status =
            stasis_store_get(store_, model->model(), key.c_str(), nullptr, &got, &error);
        if (status == STASIS_NOT_FOUND || status == STASIS_MODEL_MISMATCH) {
            continue;
        }
        require(status, error);
        kept.root.reset(got);
        kept.record = api::Json::parse(data_of(got, kKeptData));
        return kept;
    }
    refuse_missing(id);
}

void KeptConversations::replace(const std::string &tenant, Kept &kept) {
    put(tenant, kept);
}

// Puts it where it was found, if that is there still; one that is made must not be there.
void KeptConversations::put(const std::string &tenant, Kept &kept) {
    const std::string id = kept.record.at("id");
    const std::string key = key_of(tenant, id);
    // Equal changes at the same time are two: no store must take one for the other.
    kept.record["change"] = random_digits();
    const std::string text = text_of(kept.record);
    if (store_ != nullptr) {
        set_data(kept.root.get(), kKeptData, text);
        stasis_error error{};
        const stasis_status status =
            stasis_store_put(store_, kept.root.get(), key.c_str(), nullptr, nullptr, &error);
        if (status == STASIS_CONFLICT) {
            refuse_conflict(id);
        }
        require(status, error);
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = in_memory_.find(key);
    if ((found == in_memory_.end() ? 0 : found->second.version) != kept.version) {
        refuse_conflict(id);
    }
    bytes_ += text.size() - (found == in_memory_.end() ? 0 : found->second.text.size());
    kept.version = ++clock_;
    in_memory_[key] = {text, kept.version, kept.version};
    drop_unused(key);
}

// With the lock held.
void KeptConversations::drop_unused(const std::string &but) {
    while (bytes_ > kBytesMax && in_memory_.size() > 1) {
        auto oldest = in_memory_.end();
        for (auto each = in_memory_.begin(); each != in_memory_.end(); ++each) {
            const bool older =
                oldest == in_memory_.end() || each->second.used < oldest->second.used;
            oldest = older && each->first != but ? each : oldest;
        }
        bytes_ -= oldest->second.text.size();
        in_memory_.erase(oldest);
    }
}

void KeptConversations::remove(const std::string &tenant, const std::string &id) {
    const std::string key = key_of(tenant, id);
    if (store_ == nullptr) {
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = in_memory_.find(key);
        if (found == in_memory_.end()) {
            refuse_missing(id);
        }
        bytes_ -= found->second.text.size();
        in_memory_.erase(found);
        return;
    }
    stasis_error error{};
    const stasis_status status = stasis_store_remove(store_, key.c_str(), nullptr, &error);
    if (status == STASIS_NOT_FOUND) {
        refuse_missing(id);
    }
    if (status == STASIS_CONFLICT) {
        refuse_conflict(id);
    }
    require(status, error);
}

KeptConversations::Claim KeptConversations::claim(const std::string &tenant,
                                                  const std::string &id) {
    const std::string key = key_of(tenant, id);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!claimed_.insert(key).second) {
        refuse_conflict(id);
    }
    return {this, [this, key](const void *) {
                const std::lock_guard<std::mutex> release(mutex_);
                claimed_.erase(key);
            }};
}

} // namespace serve
