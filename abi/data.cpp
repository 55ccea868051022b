// Data that a host keeps in a session, and the turns of its log; see stasis_data.h. Must not know
// what data means.
#include "abi/data.h"

#include "abi/handles.h"
#include "abi/trace.h"
#include "abi/turns.h"
#include "runtime/host/utf8.h"
#include "runtime/session/session.h"

namespace stasis::abi {

static_assert(STASIS_DATA_NAME_MAX == kDataNameMax);
static_assert(STASIS_DATA_ENTRIES_MAX == kDataEntriesMax);
static_assert(STASIS_DATA_BYTES_MAX == kDataBytesMax);
static_assert(sizeof(stasis_data_entry::name) == kDataNameMax + 1);
static_assert(static_cast<uint32_t>(Role::none) == STASIS_ROLE_NONE);
static_assert(static_cast<uint32_t>(Role::system) == STASIS_ROLE_SYSTEM);
static_assert(static_cast<uint32_t>(Role::user) == STASIS_ROLE_USER);
static_assert(static_cast<uint32_t>(Role::assistant) == STASIS_ROLE_ASSISTANT);
static_assert(static_cast<uint32_t>(Role::other) == STASIS_ROLE_OTHER);

void copy_value(const SharedData &data, const char *name, void *bytes, size_t capacity,
                size_t *length) {
    require(name, "name");
    require(length, "length");
    const auto found = data == nullptr ? HostData::const_iterator() : data->find(name);
    if (data == nullptr || found == data->end()) {
        fail(Status::not_found, "there is no data of the name %.255s", name);
    }
    const std::vector<uint8_t> &value = found->second->bytes;
    require_room(value.size(), capacity, length, "the buffer");
    require_array(bytes, value.size(), "bytes");
    std::copy(value.begin(), value.end(), static_cast<uint8_t *>(bytes));
}

void list_names(const SharedData &data, stasis_data_entry *entries, size_t stride, size_t capacity,
                size_t *count) {
    require(count, "count");
    require_stride<stasis_data_entry>(stride);
    require_room(data == nullptr ? 0 : data->size(), capacity, count, "the array");
    require_array(entries, *count, "entries");
    if (data == nullptr) {
        return;
    }
    size_t i = 0;
    for (const auto &[name, value] : *data) {
        stasis_data_entry entry{};
        entry.bytes = value->bytes.size();
        std::copy(name.begin(), name.end(), entry.name);
        write_element(entry, entries, stride, i++);
    }
}

namespace {

// Runs the body with the runtime's session while a call that looks at it holds it.
template <typename Body>
stasis_status reading(const stasis_session *session, stasis_error *error,
                      const Body &body) noexcept {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        const SessionUse use(*session, caller, Use::looks);
        body(*session->session);
    });
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;
using stasis::Session;

stasis_status stasis_session_set_data(stasis_session *session, const char *name, const void *bytes,
                                      size_t length, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        require(name, "name");
        require_array(bytes, length, "bytes");
        stasis::check_data_name(name, stasis::Status::invalid_argument);
        if (const size_t at = stasis::invalid_utf8(name); at < std::strlen(name)) {
            stasis::fail(stasis::Status::invalid_argument,
                         "the name of data is not UTF-8: byte %zu", at);
        }
        std::optional<std::span<const uint8_t>> value;
        if (bytes != nullptr) {
            value = {static_cast<const uint8_t *>(bytes), length};
        }
        const SessionUse use(*session, caller, Use::looks); // nothing that is drawn depends on it
        SharedData &data = session->session->settings().host_data;
        data = stasis::with_value(data, name, value);
    });
}

stasis_status stasis_session_get_data(const stasis_session *session, const char *name, void *bytes,
                                      size_t capacity, size_t *length, stasis_error *error) {
    return reading(session, error, [&](const Session &own) {
        copy_value(own.settings().host_data, name, bytes, capacity, length);
    });
}

stasis_status stasis_session_list_data(const stasis_session *session, stasis_data_entry *entries,
                                       size_t stride, size_t capacity, size_t *count,
                                       stasis_error *error) {
    return reading(session, error, [&](const Session &own) {
        list_names(own.settings().host_data, entries, stride, capacity, count);
    });
}

stasis_status stasis_session_turns(const stasis_session *session, uint64_t begin,
                                   stasis_turn *turns, size_t stride, size_t capacity,
                                   size_t *count, stasis_error *error) {
    return reading(session, error, [&](const Session &own) {
        write_turns(own.position(), begin, turns, stride, capacity, count,
                    [&](uint64_t position) { return own.entry(position); });
    });
}
