// Limits and changes of a host's data; see host_data.h.
#include "format/state/host_data.h"

namespace stasis {

void check_data_name(std::string_view name, Status status) {
    if (name.empty() || name.size() > kDataNameMax || name.find('\0') != std::string_view::npos) {
        fail(status, "a name of data of %zu bytes%s: expected 1 to %zu, none of them zero",
             name.size(), name.find('\0') != std::string_view::npos ? ", one of them zero" : "",
             kDataNameMax);
    }
}

void check_data_size(const HostData &data, Status status) {
    if (data.size() > kDataEntriesMax) {
        fail(status, "data under %zu names: at most %zu", data.size(), kDataEntriesMax);
    }
    uint64_t bytes = 0;
    for (const auto &[name, value] : data) {
        bytes += name.size() + value->bytes.size();
    }
    if (bytes > kDataBytesMax) {
        fail(status, "names and values of data have %llu bytes together: at most %llu",
             Number{bytes}, Number{kDataBytesMax});
    }
}

std::shared_ptr<const HostData> with_value(const std::shared_ptr<const HostData> &data,
                                           std::string_view name,
                                           std::optional<std::span<const uint8_t>> bytes) {
    auto changed =
        data == nullptr ? std::make_shared<HostData>() : std::make_shared<HostData>(*data);
    if (!bytes) {
        const auto found = changed->find(name);
        if (found == changed->end()) {
            fail(Status::not_found, "there is no data of the name %.*s",
                 static_cast<int>(name.size()), name.data());
        }
        changed->erase(found);
        return changed->empty() ? nullptr : changed;
    }
    if (bytes->size() > kDataBytesMax) { // before they are copied
        fail(Status::unsupported, "a value of %zu bytes: at most %llu with all others",
             bytes->size(), Number{kDataBytesMax});
    }
    changed->insert_or_assign(
        std::string(name), std::make_shared<const HostValue>(
                               HostValue{{bytes->begin(), bytes->end()},
                                         Sha256().bytes(bytes->data(), bytes->size()).finish()}));
    check_data_size(*changed, Status::unsupported);
    return changed;
}

} // namespace stasis
