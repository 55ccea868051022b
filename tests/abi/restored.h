// Sessions that go through a file or a stream and come back: for tests of what must be the same
// then. Knows the public header, nothing below.
#pragma once

#include "tests/abi/fixture.h"

namespace abi_test {

// A stream in memory, both ends.
struct Memory {
    std::string bytes = {};
    size_t at = 0;
    int64_t end = 0; // the result of reading after the bytes

    stasis_sink sink() {
        auto made = sized<stasis_sink>();
        made.user = &bytes;
        made.write = [](void *user, const void *data, size_t size) -> int32_t {
            static_cast<std::string *>(user)->append(static_cast<const char *>(data), size);
            return 0;
        };
        return made;
    }

    stasis_source source() {
        auto made = sized<stasis_source>();
        made.user = this;
        made.read = [](void *user, void *data, size_t size) -> int64_t {
            auto &from = *static_cast<Memory *>(user);
            const size_t count = from.bytes.copy(static_cast<char *>(data), size, from.at);
            from.at += count;
            return count > 0 ? static_cast<int64_t>(count) : from.end;
        };
        return made;
    }
};

struct Form {
    const char *name;
    uint32_t codec, keep;
    bool stream;
};
inline constexpr Form kForms[] = {
    {"raw", STASIS_CODEC_RAW, STASIS_KEEP_FULL, false},
    {"zstd", STASIS_CODEC_ZSTD, STASIS_KEEP_FULL, false},
    {"none", STASIS_CODEC_RAW, STASIS_KEEP_NONE, false},
    {"stream", STASIS_CODEC_RAW, STASIS_KEEP_FULL, true},
};

// Saved in this form and loaded again.
inline Session restored(stasis_model *model, stasis_session *session, const Form &form) {
    const Folder folder;
    if (!form.stream) {
        REQUIRE(save_as(session, folder.file("a"), form.codec, form.keep) == STASIS_OK);
        return load(model, folder.file("a"));
    }
    Memory memory;
    const stasis_sink sink = memory.sink();
    REQUIRE(stasis_session_write(session, &sink, nullptr, nullptr) == STASIS_OK);
    const stasis_source source = memory.source();
    stasis_session *again = nullptr;
    REQUIRE(stasis_session_read(model, &source, nullptr, &again, nullptr) == STASIS_OK);
    return Session(again);
}

inline std::string flipped(std::string bytes, size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
}

} // namespace abi_test
