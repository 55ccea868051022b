// Fixtures of the ABI tests: handles that release themselves, and short forms of the calls. Knows
// the public header and the paths of the bundled models; must not know the layers below.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "abi/stasis.h"
#include "tests/data_files.h"

namespace abi_test {

template <auto Release> struct Releaser {
    template <typename Handle> void operator()(Handle *handle) const { Release(handle); }
};
using Model = std::unique_ptr<stasis_model, Releaser<stasis_model_close>>;
using Session = std::unique_ptr<stasis_session, Releaser<stasis_session_free>>;
using Snapshot = std::unique_ptr<stasis_snapshot, Releaser<stasis_snapshot_close>>;
using Cancel = std::unique_ptr<stasis_cancel, Releaser<stasis_cancel_release>>;
using Digest = std::array<uint8_t, 32>;
using Tokens = std::vector<stasis_token>;

// A struct with its size stated and the rest zero.
template <typename Struct> Struct sized() {
    Struct result{};
    result.struct_size = sizeof result;
    return result;
}

inline bool contains(const stasis_error &error, const std::string &text) {
    return std::string(error.message).find(text) != std::string::npos;
}

inline Model open_path(const std::string &path, const stasis_model_options *options = nullptr) {
    stasis_model *model = nullptr;
    stasis_error error;
    const stasis_status status = stasis_model_open(path.c_str(), options, &model, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Model(model);
}

// A bundled model, opened once and shared by all tests of the process.
inline stasis_model *shared_model(const std::string &name) {
    // Never destroyed: at exit libcrypto is gone before threads of a static could let go of it.
    static auto &opened = *new std::vector<std::pair<std::string, Model>>();
    for (const auto &[known, model] : opened) {
        if (known == name) {
            return model.get();
        }
    }
    opened.emplace_back(name, open_path(test_data(name)));
    return opened.back().second.get();
}
inline stasis_model *gemma() {
    return shared_model("zoo/gemma3-text");
}
inline stasis_model *llama() {
    return shared_model("zoo/llama-gqa-untied");
}

// Alone in its domain by default, so that each side of a comparison has computed its own pages.
inline Session create(stasis_model *model, uint64_t capacity = 0, uint64_t window_retain = 0,
                      uint64_t domain = STASIS_DOMAIN_PRIVATE) {
    auto options = sized<stasis_session_options>();
    options.capacity = capacity;
    options.window_retain = window_retain;
    options.domain = domain;
    stasis_session *session = nullptr;
    stasis_error error;
    const stasis_status status = stasis_session_create(model, &options, &session, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Session(session);
}

// Tokens that look like nothing in particular, within a vocabulary of 192 or more.
inline Tokens some_tokens(size_t count, uint32_t seed = 1) {
    Tokens tokens;
    uint32_t state = seed;
    for (size_t i = 0; i < count; ++i) {
        state = state * 1664525U + 1013904223U; // Numerical Recipes' generator
        tokens.push_back((state >> 16) % 192U);
    }
    return tokens;
}

inline Tokens joined(Tokens first, const Tokens &second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
}

inline void append(stasis_session *session, const Tokens &tokens) {
    stasis_error error;
    const stasis_status status =
        stasis_session_append(session, tokens.data(), tokens.size(), nullptr, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
}

inline Session session_of(stasis_model *model, const Tokens &tokens, uint64_t window_retain = 0) {
    Session session = create(model, 0, window_retain);
    append(session.get(), tokens);
    return session;
}

inline Digest digest(const stasis_session *session) {
    stasis_digest value;
    stasis_error error;
    const stasis_status status = stasis_session_digest(session, &value, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    Digest result;
    std::memcpy(result.data(), value.bytes, result.size());
    return result;
}

inline stasis_session_info info_of(const stasis_session *session) {
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(session, &info, nullptr) == STASIS_OK);
    return info;
}

inline stasis_session_info info_of(const Session &session) {
    return info_of(session.get());
}

inline uint64_t position(const stasis_session *session) {
    return info_of(session).position;
}

inline stasis_model_stats stats_of(const stasis_model *model) {
    auto stats = sized<stasis_model_stats>();
    REQUIRE(stasis_model_get_stats(model, &stats, nullptr) == STASIS_OK);
    return stats;
}

inline stasis_model_stats stats_of(const Model &model) {
    return stats_of(model.get());
}

// Returns the logits of the next token.
inline std::vector<float> logits_of(const stasis_session *session) {
    size_t count = 0;
    stasis_session_logits(session, nullptr, 0, &count, nullptr);
    std::vector<float> logits(count);
    REQUIRE(stasis_session_logits(session, logits.data(), count, &count, nullptr) == STASIS_OK);
    return logits;
}

inline std::vector<float> logits_of(const Session &session) {
    return logits_of(session.get());
}

inline bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline stasis_token draw(stasis_session *session) {
    stasis_token token = 0;
    stasis_error error;
    const stasis_status status = stasis_session_decode(session, &token, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return token;
}

inline Tokens draw(stasis_session *session, size_t count) {
    Tokens tokens(count);
    for (stasis_token &token : tokens) {
        token = draw(session);
    }
    return tokens;
}

// Computes anew what the session no longer has.
inline void rewind(stasis_session *session, uint64_t to) {
    stasis_error error;
    const stasis_status status =
        stasis_session_rewind(session, to, STASIS_REWIND_RECOMPUTE, nullptr, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
}

inline Session fork(const stasis_session *session) {
    stasis_session *child = nullptr;
    REQUIRE(stasis_session_fork(session, &child, nullptr) == STASIS_OK);
    return Session(child);
}

inline Cancel make_cancel() {
    stasis_cancel *cancel = nullptr;
    REQUIRE(stasis_cancel_create(&cancel, nullptr) == STASIS_OK);
    return Cancel(cancel);
}

inline std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file.good());
    std::ostringstream bytes; // in blocks, where an iterator takes a character at a time
    bytes << file.rdbuf();
    return std::move(bytes).str();
}

inline void write_file(const std::string &path, const std::string &bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    REQUIRE(file.good());
}

// Returns the names of the kernel tables that this build has, the fastest first, as the public
// header lists them.
inline std::vector<std::string> kernel_tables() {
    const std::string header = read_file(source_folder() + "/abi/stasis.h");
    const size_t begin = header.find("const char *kernels;");
    const std::string field = header.substr(begin, header.find("*/", begin) - begin);
    std::vector<std::string> names;
    for (size_t at = field.find('"'); at != std::string::npos; at = field.find('"', at + 1)) {
        const size_t end = field.find('"', at + 1);
        names.push_back(field.substr(at + 1, end - at - 1));
        at = end;
    }
#ifndef STASIS_AVX512_TABLES
    names.erase(names.begin(), std::find(names.begin(), names.end(), "avx2"));
#endif
    return names;
}

// A directory of its own for one test, gone afterwards.
class Folder {
  public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "stasis-abi-XXXXXX").string();
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::string file(const std::string &name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

inline stasis_status save(stasis_session *session, const std::string &path, uint32_t flags = 0,
                          stasis_error *error = nullptr) {
    auto options = sized<stasis_save_options>();
    options.flags = flags;
    return stasis_session_save(session, path.c_str(), &options, error);
}

inline stasis_status save_as(stasis_session *session, const std::string &path, uint32_t codec,
                             uint32_t keep = STASIS_KEEP_FULL) {
    auto options = sized<stasis_save_options>();
    options.codec = codec;
    options.keep = keep;
    return stasis_session_save(session, path.c_str(), &options, nullptr);
}

inline Session load(stasis_model *model, const std::string &path, uint32_t flags = 0) {
    auto options = sized<stasis_load_options>();
    options.flags = flags;
    stasis_session *session = nullptr;
    stasis_error error;
    const stasis_status status =
        stasis_session_load(model, path.c_str(), &options, &session, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Session(session);
}

inline Snapshot open_snapshot(const std::string &path) {
    stasis_snapshot *snapshot = nullptr;
    stasis_error error;
    const stasis_status status = stasis_snapshot_open(path.c_str(), &snapshot, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Snapshot(snapshot);
}

inline stasis_snapshot_info snapshot_info(const std::string &path) {
    auto info = sized<stasis_snapshot_info>();
    REQUIRE(stasis_snapshot_get_info(open_snapshot(path).get(), &info, nullptr) == STASIS_OK);
    return info;
}

} // namespace abi_test
