// Sessions whose pages are far (far_memory.h) beside those of the host, for tests: what both must
// have in common, down to the files that they are saved as.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "format/writer.h"
#include "tests/runtime/far_memory.h"
#include "tests/runtime/stored_state.h"

namespace stasis::test {

// With one group of layers, and with two.
inline const std::vector<std::string> &far_models() {
    static const std::vector<std::string> names = {"zoo/llama-gqa-untied", "zoo/gemma3-text",
                                                   "zoo/mistral-window"};
    return names;
}

// A model of its own, over far memory or, without any, over the host's.
inline std::shared_ptr<Model> open_on(const FarMemory *memory, const std::string &name,
                                      uint64_t budget_bytes = 0) {
    ModelOptions options;
    options.threads = 2;
    options.kv_budget_bytes = budget_bytes;
    options.page_memory = memory == nullptr ? nullptr : memory->functions();
    return open_model(directory(name), options);
}

// All numbers of a far page.
inline std::vector<uint16_t> fetched(const State &state, const PageShape &shape, size_t group,
                                     uint64_t index) {
    const PageName name{group, index};
    const FetchedPages pages = state.fetch({&name, 1});
    pages.wait();
    return {pages.numbers[0], pages.numbers[0] + shape.elements()};
}

inline std::vector<uint64_t> numbers_of(const SessionInfo &info) {
    return {info.position,     info.capacity,      info.rewind_floor, info.window_retain,
            info.window_begin, info.window,        info.pages_own,    info.pages_shared,
            info.kv_bytes,     info.tokens_reused, info.evicted,      info.pending_bytes};
}

inline std::vector<uint64_t> numbers_of(const PagePool &pool) {
    return {pool.used_bytes(), pool.cached_bytes(), pool.idle_bytes(), pool.room_bytes()};
}

// Keys and values of every layer, from the beginning of each page into the next; of what is
// released, only that.
inline std::vector<uint16_t> held_kv(Session &session) {
    const Config &config = session.model()->config;
    std::vector<uint16_t> all;
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
        for (uint64_t begin = 0; begin < session.position(); begin += kPage) {
            const uint64_t end = std::min(begin + kPage + 40, session.position());
            const size_t count = (end - begin) * config.kv_heads * config.head_dim;
            all.resize(all.size() + 2 * count, 0xAAAA);
            uint16_t *keys = all.data() + all.size() - 2 * count;
            try {
                session.copy_kv(layer, begin, end, keys, keys + count);
            } catch (const Error &error) {
                if (error.status() != Status::not_found) {
                    throw;
                }
            }
        }
    }
    return all;
}

inline format::Parallel parallel_on(Threads &threads) {
    return {&threads,
            [](void *context, size_t count, void (*work)(void *data, size_t i), void *data) {
                static_cast<Threads *>(context)->run(count, 1, [&](size_t begin, size_t end) {
                    for (size_t i = begin; i < end; ++i) {
                        work(data, i);
                    }
                });
            }};
}

// The snapshot that a session is saved as.
inline std::string streamed(Session &session, format::Codec codec = format::Codec::raw,
                            format::Keep keep = format::Keep::full) {
    std::string bytes;
    format::SaveOptions options;
    options.codec = codec;
    options.keep = keep;
    options.parallel = parallel_on(*session.model()->threads);
    const format::Sink sink{&bytes, [](void *user, const void *data, size_t size_bytes) {
                                static_cast<std::string *>(user)->append(
                                    static_cast<const char *>(data), size_bytes);
                            }};
    write_stream(export_state(session), sink, options);
    return bytes;
}

// Computes the last position again after a rewind.
inline void check_bits(Session &far, Session &host) {
    CHECK(far.digest() == host.digest());
    CHECK(held_kv(far) == held_kv(host));
    CHECK(streamed(far) == streamed(host));
}

// Compares two sessions that were made in the same way.
inline void check_far(Session &far, Session &host) {
    check_bits(far, host);
    CHECK(numbers_of(far.info()) == numbers_of(host.info()));
}

} // namespace stasis::test
