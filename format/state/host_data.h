// What a host keeps in a session under names of its own: bytes that are saved with the session and
// mean nothing to it (FORMAT.md, "Data of hosts").
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/state/digest.h"
#include "format/state/error.h"

namespace stasis {

struct HostValue {
    std::vector<uint8_t> bytes;
    Digest digest; // SHA-256 of the bytes, which a save compares with the file's
};

// By name, ascending by the names' bytes. Values are not changed, so that copies share them.
using HostData = std::map<std::string, std::shared_ptr<const HostValue>, std::less<>>;

inline constexpr size_t kDataNameMax = 255; // bytes
inline constexpr size_t kDataEntriesMax = 1024;
inline constexpr uint64_t kDataBytesMax = 16U << 20; // of all names and values

// Throws Error(status) unless the name has 1 to kDataNameMax bytes, none of them zero.
void check_data_name(std::string_view name, Status status);
// Throws Error(status) if there are too many entries or bytes.
void check_data_size(const HostData &data, Status status);

// Returns the data with these bytes under the name, or without the name. Null: no data, which is
// never an empty map. Throws Error(unsupported) where the result would be too large,
// Error(not_found) if a name that is to go is not there.
std::shared_ptr<const HostData> with_value(const std::shared_ptr<const HostData> &data,
                                           std::string_view name,
                                           std::optional<std::span<const uint8_t>> bytes);

} // namespace stasis
