// A host's data to sections and back; see host_data.h.
#include "format/host_data.h"

#include <cstring>

namespace stasis::format {

namespace {

constexpr size_t kRefBytes = 48; // as the manifest stores a SectionRef
constexpr size_t kEntryBytesMin = kRefBytes + sizeof(uint32_t) + 1;

void put(std::vector<uint8_t> &bytes, const void *data, size_t size_bytes) {
    const auto *from = static_cast<const uint8_t *>(data);
    bytes.insert(bytes.end(), from, from + size_bytes);
}

std::vector<uint8_t> build_index(const HostData &data, const std::vector<SectionRef> &values) {
    std::vector<uint8_t> bytes;
    const uint64_t count = data.size();
    put(bytes, &count, sizeof count);
    size_t i = 0;
    for (const auto &[name, value] : data) {
        const SectionRef &ref = values[i++];
        const auto size = static_cast<uint32_t>(name.size());
        put(bytes, &ref.offset, sizeof ref.offset);
        put(bytes, &ref.bytes, sizeof ref.bytes);
        put(bytes, ref.digest.bytes.data(), ref.digest.bytes.size());
        put(bytes, &size, sizeof size);
        put(bytes, name.data(), name.size());
    }
    return bytes;
}

// Reads the index one part after the other. Throws Error(corrupt) if it ends too early.
struct Cursor {
    std::span<const uint8_t> left;

    void take(void *data, size_t size_bytes) {
        if (size_bytes > left.size()) {
            fail(Status::corrupt, "data of hosts: %zu bytes are left, %zu are needed", left.size(),
                 size_bytes);
        }
        std::memcpy(data, left.data(), size_bytes);
        left = left.subspan(size_bytes);
    }
    template <class Number> Number number() {
        Number value = 0;
        take(&value, sizeof value);
        return value;
    }
};

struct Entry {
    std::string name;
    SectionRef value;
};

// Returns the entries of an index whose names, places and sizes are possible; values are not read
// yet. Together these are not longer than the file: a save writes no value twice.
std::vector<Entry> parse_index(std::span<const uint8_t> bytes, uint64_t file_bytes) {
    Cursor cursor{bytes};
    const auto count = cursor.number<uint64_t>();
    if (count == 0 || count > kDataEntriesMax || count > cursor.left.size() / kEntryBytesMin) {
        fail(Status::corrupt, "data of hosts: %llu entries in %zu bytes", Number{count},
             bytes.size());
    }
    std::vector<Entry> entries;
    uint64_t all = 0;
    for (uint64_t i = 0; i < count; ++i) {
        Entry entry;
        entry.value.offset = cursor.number<uint64_t>();
        entry.value.bytes = cursor.number<uint64_t>();
        cursor.take(entry.value.digest.bytes.data(), entry.value.digest.bytes.size());
        const auto size = cursor.number<uint32_t>();
        if (size > kDataNameMax) {
            fail(Status::corrupt, "data of hosts: a name of %u bytes", size);
        }
        entry.name.resize(size);
        cursor.take(entry.name.data(), size);
        check_data_name(entry.name, Status::corrupt);
        if (!entries.empty() && entry.name <= entries.back().name) {
            fail(Status::corrupt, "data of hosts: names %zu and %zu do not ascend",
                 entries.size() - 1, entries.size());
        }
        const bool empty = entry.value == SectionRef();
        if (!empty && (entry.value.bytes == 0 || entry.value.bytes > kDataBytesMax ||
                       entry.value.bytes > file_bytes - std::min(all, file_bytes))) {
            fail(Status::corrupt, "data of hosts: value %zu has %llu bytes, in a state of %llu",
                 entries.size(), Number{entry.value.bytes}, Number{file_bytes});
        }
        all += entry.value.bytes;
        entries.push_back(std::move(entry));
    }
    if (!cursor.left.empty()) {
        fail(Status::corrupt, "data of hosts: %zu bytes behind the names", cursor.left.size());
    }
    return entries;
}

// Returns the place of a value in a file that has it under this name; else none.
SectionRef known_place(const Contents *old, const std::string &name, const HostValue &value) {
    if (old == nullptr || old->state.host_data == nullptr) {
        return {};
    }
    const HostData &data = *old->state.host_data;
    const auto found = data.find(name);
    if (found == data.end() || found->second->digest != value.digest) {
        return {};
    }
    return old->host_values[static_cast<size_t>(std::distance(data.begin(), found))];
}

} // namespace

SectionRef write_host_data(Output &output, const State &state, const Contents *old,
                           std::vector<SectionRef> &values) {
    if (state.host_data == nullptr) {
        return {};
    }
    for (const auto &[name, value] : *state.host_data) {
        SectionRef place = known_place(old, name, *value);
        if (place == SectionRef() && !value->bytes.empty()) {
            const uint64_t bytes = value->bytes.size();
            place = {output.append(SectionKind::host_value, value->bytes.data(), bytes), bytes,
                     value->digest};
        }
        values.push_back(place);
    }
    const std::vector<uint8_t> index = build_index(*state.host_data, values);
    return output.put(SectionKind::host_data, index.data(), index.size(),
                      old != nullptr ? old->layout.host_data : SectionRef());
}

void read_host_data(const Committed &committed, uint64_t file_bytes, Contents &into) {
    if (into.layout.host_data == SectionRef()) {
        return;
    }
    HostData data;
    uint64_t bytes = 0;
    for (Entry &entry : parse_index(
             committed.read_section(into.layout.host_data, SectionKind::host_data), file_bytes)) {
        bytes += entry.name.size() + entry.value.bytes;
        if (bytes > kDataBytesMax) { // before more is read
            fail(Status::corrupt, "data of hosts: more than %llu bytes", Number{kDataBytesMax});
        }
        HostValue value;
        if (entry.value == SectionRef()) {
            value.digest = Sha256().finish();
        } else {
            value.bytes = committed.read_section(entry.value, SectionKind::host_value);
            value.digest = entry.value.digest;
        }
        into.host_values.push_back(entry.value);
        data.emplace(std::move(entry.name), std::make_shared<const HostValue>(std::move(value)));
    }
    into.state.host_data = std::make_shared<const HostData>(std::move(data));
}

void check_host_data(const State &state, Status status) {
    if (state.host_data == nullptr) {
        return;
    }
    if (state.host_data->empty()) {
        fail(status, "data of hosts: none, in place of no data");
    }
    for (const auto &[name, value] : *state.host_data) {
        check_data_name(name, status);
    }
    check_data_size(*state.host_data, status);
}

} // namespace stasis::format
