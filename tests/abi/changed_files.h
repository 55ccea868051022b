// Copies of models and snapshots that tests change, and loading that may be refused.
// Knows the public header, the layout of safetensors, and the forger of the format's tests.
#pragma once

#include <functional>

#include "format/pages.h"
#include "format/reader.h"
#include "format/writer.h"
#include "tests/abi/fixture.h"
#include "tests/format/forgery.h"
#include "tests/seal.h"

namespace abi_test {

// A model's directory of its own, to be damaged.
inline std::string copy_model(const Folder &folder, const std::string &name) {
    const std::string to = folder.file("model");
    std::filesystem::copy(test_data(name), to);
    return to;
}

// Offset of a tensor's first byte in a safetensors file: after the length and the JSON header.
inline size_t tensor_offset(const std::string &bytes, const std::string &tensor) {
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t name = bytes.find('"' + tensor + '"');
    REQUIRE(name != std::string::npos);
    const size_t offsets = bytes.find("\"data_offsets\"", name);
    REQUIRE(offsets != std::string::npos);
    return sizeof header + header + std::stoull(bytes.substr(bytes.find('[', offsets) + 1, 24));
}

inline stasis_status try_load(stasis_model *model, const std::string &path, stasis_error &error) {
    stasis_session *session = nullptr;
    const stasis_status status =
        stasis_session_load(model, path.c_str(), nullptr, &session, &error);
    CHECK((session != nullptr) == (status == STASIS_OK));
    stasis_session_free(session);
    return status;
}

// Replaces the one place where `from` stands in a file.
inline void edit(const std::string &path, const std::string &from, const std::string &to) {
    std::string text = read_file(path);
    const size_t at = text.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, from);
    REQUIRE_MESSAGE(text.find(from, at + 1) == std::string::npos, from);
    write_file(path, text.replace(at, from.size(), to));
}

// Returns a snapshot with other bytes in its manifest or in one section and all checksums right, so
// that only the checks after them can refuse it.
using Forger = std::function<stasis::format::Bytes(const stasis::format::Bytes &)>;
inline void forge_bytes(const std::string &from, const std::string &to, const Forger &forger) {
    const std::string text = read_file(from);
    const stasis::format::Bytes bytes = forger({text.begin(), text.end()});
    write_file(to, {bytes.begin(), bytes.end()});
}

// A snapshot of a changed state with every digest computed anew: the file itself vouches for it.
inline void forge_state(const std::string &from, const std::string &to,
                        const std::function<void(stasis::State &)> &change,
                        stasis::format::SaveOptions options = {}) {
    stasis::State state = stasis::format::load(from, stasis::Watch());
    change(state);
    seal(state);
    options.replace = true;
    stasis::format::save(state, to, options);
}

} // namespace abi_test
