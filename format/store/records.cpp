// Records and names of a store; see records.h.
#include "format/store/records.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "format/state/error.h"

namespace stasis::format {

namespace {

static_assert(std::endian::native == std::endian::little); // records are stored as they are

constexpr uint8_t kSegmentMagic[8] = {0x89, 'S', 'T', 'S', 'E', 'G', '\r', '\n'};
constexpr uint8_t kStoredRootMagic[8] = {0x89, 'S', 'T', 'R', 'O', 'T', '\r', '\n'};
constexpr size_t kSegmentHeader = 32, kExtentBytes = 48;
constexpr size_t kStoredRootHeader = 184, kSegmentRefBytes = 56;
constexpr size_t kSealBytes = 32; // SHA-256 of all before
constexpr size_t kPlainNameMax = 160, kNamePart = 160;

template <typename T> void add_value(Bytes &to, const T &value) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(&value);
    to.insert(to.end(), bytes, bytes + sizeof value);
}

// Reads a record from the front. Throws Error(corrupt) at its end.
struct RecordCursor {
    std::span<const uint8_t> left;
    const std::string &key;

    std::span<const uint8_t> take(uint64_t count) {
        if (count > left.size()) {
            fail(Status::corrupt, "%s: it ends %llu bytes early", key.c_str(),
                 static_cast<Number>(count - left.size()));
        }
        const std::span<const uint8_t> front = left.first(static_cast<size_t>(count));
        left = left.subspan(static_cast<size_t>(count));
        return front;
    }
    template <typename T> T value() {
        T read;
        std::memcpy(&read, take(sizeof read).data(), sizeof read);
        return read;
    }
    void begin(const uint8_t (&magic)[8], const char *what) {
        const std::span<const uint8_t> found = take(sizeof magic);
        if (!std::equal(found.begin(), found.end(), magic)) {
            fail(Status::corrupt, "%s: not a %s of a store", key.c_str(), what);
        }
        const auto version = value<uint32_t>();
        if (version != kStoreVersion) {
            fail(Status::version, "%s: a %s of version %u, this build knows %u", key.c_str(), what,
                 version, kStoreVersion);
        }
    }
    [[noreturn]] void refuse(const char *what, uint64_t at) const {
        fail(Status::corrupt, "%s: %s at byte %llu", key.c_str(), what, static_cast<Number>(at));
    }
};

bool is_plain(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

constexpr char kHex[] = "0123456789abcdef";

// Names as they are but for what keys may not contain; long ones in base 64, which has no such
// marks.
std::string escaped(const std::string &name) {
    std::string plain;
    for (const char c : name) {
        const auto byte = static_cast<uint8_t>(c);
        plain +=
            is_plain(c) ? std::string(1, c) : std::string{'_', kHex[byte >> 4], kHex[byte & 15]};
    }
    if (plain.size() <= kPlainNameMax) {
        return plain;
    }
    constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string coded = "_-";
    for (size_t i = 0; i < name.size(); i += 3) {
        uint32_t word = 0;
        for (size_t j = 0; j < 3; ++j) {
            word = word << 8 | (i + j < name.size() ? static_cast<uint8_t>(name[i + j]) : 0U);
        }
        const size_t digits = std::min<size_t>(name.size() - i, 3) + 1;
        for (size_t j = 0; j < digits; ++j) {
            coded += kDigits[word >> (18 - 6 * j) & 63];
        }
    }
    return coded;
}

// Whether the text is UTF-8: no byte of the wrong kind, no form that is too long, no surrogate.
bool is_utf8(const std::string &text) {
    for (size_t i = 0; i < text.size();) {
        const auto first = static_cast<uint8_t>(text[i]);
        const size_t more = first < 0x80 ? 0 : first >> 5 == 6 ? 1 : first >> 4 == 14 ? 2 : 3;
        if (first >= 0x80 && (first < 0xC2 || first > 0xF4)) {
            return false;
        }
        uint32_t point = more == 0 ? first : first & (0x3FU >> more);
        for (size_t j = 1; j <= more; ++j) {
            const auto next = i + j < text.size() ? static_cast<uint8_t>(text[i + j]) : uint8_t{0};
            if (next >> 6 != 2) {
                return false;
            }
            point = point << 6 | (next & 0x3FU);
        }
        constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
        if (point < kLeast[more] || (point >= 0xD800 && point < 0xE000) || point > 0x10FFFF) {
            return false;
        }
        i += more + 1;
    }
    return true;
}

bool is_name(const std::string &name) {
    return !name.empty() && name.size() <= kStoredNameMax && is_utf8(name) &&
           name.find('\0') == std::string::npos;
}

// Walks over the sections of a segment and checks that its payloads are exactly theirs.
void check_layout(const Segment &segment, const RecordCursor &cursor) {
    size_t next = 0, at_inline = 0;
    uint64_t at = segment.begin;
    const auto skip = [&](uint64_t bytes) {
        if (bytes > segment.inlined.size() - at_inline) {
            cursor.refuse("a section without all of its bytes", at);
        }
        at_inline += static_cast<size_t>(bytes);
    };
    while (at < segment.end) {
        FrameBytes bytes;
        skip(bytes.size());
        std::copy_n(segment.inlined.data() + at_inline - bytes.size(), bytes.size(), bytes.begin());
        const Frame frame = decode_frame(bytes, at);
        if (frame.stored_bytes > segment.end - at ||
            section_bytes(frame.stored_bytes) > segment.end - at) {
            cursor.refuse("a section that the segment does not end with", at);
        }
        if (!has_payload(frame)) {
            skip(frame.stored_bytes);
        }
        for (uint64_t done = 0; has_payload(frame) && done < frame.stored_bytes; ++next) {
            const uint64_t piece = std::min(frame.stored_bytes - done, kPayloadMax);
            if (next == segment.payloads.size() ||
                segment.payloads[next].offset != at + kFrameBytes + done ||
                segment.payloads[next].bytes != piece) {
                cursor.refuse("a section without its payload", at);
            }
            done += piece;
        }
        skip(section_bytes(frame.stored_bytes) - kFrameBytes - frame.stored_bytes);
        at += section_bytes(frame.stored_bytes);
    }
    if (next != segment.payloads.size() || at_inline != segment.inlined.size()) {
        cursor.refuse("more than its sections", at);
    }
}

} // namespace

Digest StoredRoot::digest() const {
    Digest digest;
    std::copy_n(root.end() - digest.bytes.size(), digest.bytes.size(), digest.bytes.begin());
    return digest;
}

uint64_t StoredRoot::sequence() const {
    uint64_t sequence = 0;
    std::memcpy(&sequence, root.data(), sizeof sequence);
    return sequence;
}

bool has_payload(const Frame &frame) {
    return frame.stored_bytes >= kPayloadMin &&
           (frame.kind == SectionKind::run || frame.kind == SectionKind::recurrent ||
            frame.kind == SectionKind::host_value);
}

std::string object_key(const Digest &digest) {
    const std::string hex = to_hex(digest);
    return kObjectPrefix + hex.substr(0, 2) + "/" + hex.substr(2);
}

std::string root_key(const std::string &name) {
    if (!is_name(name)) {
        fail(Status::invalid_argument,
             "name: %zu bytes, expected 1 to %zu of UTF-8, none of them 0", name.size(),
             kStoredNameMax);
    }
    // A part of a key may become the name of a file; a name's last part never ends with a dot, so
    // that no root is where another has a folder.
    std::string key = kRootPrefix;
    std::string rest = escaped(name);
    while (rest.size() > kNamePart) {
        key += rest.substr(0, kNamePart) + "./";
        rest.erase(0, kNamePart);
    }
    return key + rest;
}

std::optional<Digest> digest_of_key(const std::string &key) {
    Digest digest;
    std::string hex = key.substr(std::min(key.size(), sizeof kObjectPrefix - 1));
    if (hex.size() != 2 * digest.bytes.size() + 1) {
        return std::nullopt;
    }
    hex.erase(2, 1);
    for (size_t i = 0; i < hex.size(); ++i) {
        const char *digit = std::strchr(kHex, hex[i]);
        if (digit == nullptr) {
            return std::nullopt;
        }
        digest.bytes[i / 2] = static_cast<uint8_t>(digest.bytes[i / 2] << 4 | (digit - kHex));
    }
    return object_key(digest) == key ? std::optional(digest) : std::nullopt;
}

Bytes encode_segment(const Segment &segment) {
    Bytes bytes(std::begin(kSegmentMagic), std::end(kSegmentMagic));
    bytes.reserve(kSegmentHeader + segment.payloads.size() * kExtentBytes + segment.inlined.size());
    add_value(bytes, kStoreVersion);
    add_value(bytes, static_cast<uint32_t>(segment.payloads.size()));
    add_value(bytes, segment.begin);
    add_value(bytes, segment.end);
    for (const Extent &extent : segment.payloads) {
        add_value(bytes, extent.offset);
        add_value(bytes, extent.bytes);
        add_value(bytes, extent.digest);
    }
    bytes.insert(bytes.end(), segment.inlined.begin(), segment.inlined.end());
    return bytes;
}

Segment decode_segment(std::span<const uint8_t> bytes, const std::string &key) {
    RecordCursor cursor{bytes, key};
    cursor.begin(kSegmentMagic, "segment");
    Segment segment;
    const auto count = cursor.value<uint32_t>();
    segment.begin = cursor.value<uint64_t>();
    segment.end = cursor.value<uint64_t>();
    if (segment.begin < kSectionsBegin || segment.begin % kAlignment != 0 ||
        segment.end <= segment.begin || segment.end % kAlignment != 0) {
        cursor.refuse("a segment of impossible bounds, that begins", segment.begin);
    }
    RecordCursor extents{cursor.take(uint64_t{count} * kExtentBytes), key};
    segment.payloads.resize(count);
    uint64_t before = 0;
    for (Extent &extent : segment.payloads) {
        extent.offset = extents.value<uint64_t>();
        extent.bytes = extents.value<uint64_t>();
        extent.digest = extents.value<Digest>();
        extent.before = before;
        before += extent.bytes;
    }
    segment.inlined.assign(cursor.left.begin(), cursor.left.end());
    try {
        check_layout(segment, cursor);
    } catch (const Error &error) {
        const std::string message = error.what();
        throw Error(error.status(), message.starts_with(key) ? message : key + ": " + message);
    }
    return segment;
}

Bytes encode_stored_root(const StoredRoot &root) {
    Bytes bytes(std::begin(kStoredRootMagic), std::end(kStoredRootMagic));
    add_value(bytes, kStoreVersion);
    add_value(bytes, static_cast<uint32_t>(root.segments.size()));
    add_value(bytes, static_cast<uint64_t>(root.name.size()));
    bytes.insert(bytes.end(), root.root.begin(), root.root.end());
    add_value(bytes, root.position);
    add_value(bytes, root.state);
    add_value(bytes, root.model);
    for (const SegmentRef &segment : root.segments) {
        add_value(bytes, segment.digest);
        add_value(bytes, segment.end);
        add_value(bytes, segment.object_bytes);
        add_value(bytes, segment.payload_bytes);
    }
    bytes.insert(bytes.end(), root.name.begin(), root.name.end());
    add_value(bytes, Sha256().bytes(bytes.data(), bytes.size()).finish());
    return bytes;
}

StoredRoot decode_stored_root(std::span<const uint8_t> bytes, const std::string &key) {
    RecordCursor cursor{bytes, key};
    cursor.begin(kStoredRootMagic, "root");
    if (bytes.size() < kStoredRootHeader + kSealBytes) {
        cursor.refuse("its end", bytes.size());
    }
    const std::span<const uint8_t> sealed = bytes.first(bytes.size() - kSealBytes);
    const Digest found = Sha256().bytes(sealed.data(), sealed.size()).finish();
    if (!std::equal(found.bytes.begin(), found.bytes.end(), bytes.end() - kSealBytes)) {
        fail(Status::corrupt, "%s: its bytes do not give its checksum", key.c_str());
    }

    StoredRoot root;
    const auto count = cursor.value<uint32_t>();
    const auto name_bytes = cursor.value<uint64_t>();
    root.root = cursor.value<RootBytes>();
    root.position = cursor.value<uint64_t>();
    root.state = cursor.value<Digest>();
    root.model = cursor.value<Digest>();
    RecordCursor segments{cursor.take(uint64_t{count} * kSegmentRefBytes), key};
    root.segments.resize(count);
    uint64_t before = kSectionsBegin;
    for (SegmentRef &segment : root.segments) {
        segment.digest = segments.value<Digest>();
        segment.end = segments.value<uint64_t>();
        segment.object_bytes = segments.value<uint64_t>();
        segment.payload_bytes = segments.value<uint64_t>();
        if (segment.end <= before || segment.end % kAlignment != 0) {
            cursor.refuse("a segment that ends where it must not,", segment.end);
        }
        before = segment.end;
    }
    const std::span<const uint8_t> name = cursor.take(name_bytes);
    root.name.assign(name.begin(), name.end());
    if (cursor.left.size() != kSealBytes || !is_name(root.name) || root_key(root.name) != key) {
        fail(Status::corrupt, "%s: the root of another name", key.c_str());
    }
    return root;
}

} // namespace stasis::format
