// What tests of sessions share that are read while they generate: what a session given the same
// tokens alone answers after each, and readers that compare.
#pragma once

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "tests/abi/pulled.h"

namespace abi_test {

// Waits for another thread. What never comes ends with the test's time.
template <typename Condition> void wait_until(const Condition &condition) {
    while (!condition()) {
        std::this_thread::yield();
    }
}
inline void wait_for(const std::atomic<bool> &flag) {
    wait_until([&] { return flag.load(); });
}

// Long enough for another thread to come to where it waits.
inline void a_moment() {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

// Answers of a session after each of its next tokens.
struct Answers {
    uint64_t begin = 0;
    std::vector<Digest> digests = {};
    std::vector<stasis_session_info> infos = {};
    Tokens tokens = {};

    bool has(uint64_t position) const {
        return position >= begin && position - begin < digests.size();
    }
};

// Draws the tokens of `plain`, which generates nothing else.
inline Answers answers_of(const Session &plain, uint64_t count) {
    Answers answers;
    answers.begin = position(plain.get());
    for (uint64_t i = 0; i <= count; ++i) {
        answers.digests.push_back(digest(plain.get()));
        answers.infos.push_back(info_of(plain));
        if (i < count) {
            draw(plain.get());
        }
    }
    answers.tokens.resize(answers.begin + count);
    size_t length = 0;
    REQUIRE(stasis_session_tokens(plain.get(), 0, answers.tokens.data(), nullptr,
                                  answers.tokens.size(), &length, nullptr) == STASIS_OK);
    return answers;
}

// A session that other threads read while it generates.
struct Watched {
    const Session &session;
    const Answers answers;
    std::atomic<uint64_t> delivered{answers.begin}; // the position after the last token told of
    std::atomic<bool> over{false};
    std::atomic<uint64_t> read{0}, wrong{0}, busy{0};

    // Whether a position is that of the last token that was delivered when the call was made, or of
    // one that was delivered during it, or is being delivered.
    bool settled(uint64_t position, uint64_t before) const {
        return position >= before && position <= delivered + 1 && answers.has(position);
    }

    // Returns whether it got an answer, and the right one.
    bool look(uint32_t choice) {
        const uint64_t before = delivered;
        const stasis_session *const own = session.get();
        stasis_status status = STASIS_OK;
        bool right = true;
        if (choice % 4 == 0) {
            auto info = sized<stasis_session_info>();
            status = stasis_session_get_info(own, &info, nullptr);
            right = status != STASIS_OK || is_answer(info, before);
        } else if (choice % 4 == 1) {
            Tokens tokens(answers.tokens.size());
            size_t count = 0;
            status = stasis_session_tokens(own, 0, tokens.data(), nullptr, tokens.size(), &count,
                                           nullptr);
            right = status != STASIS_OK ||
                    (settled(count, before) &&
                     std::equal(tokens.begin(), tokens.begin() + static_cast<long>(count),
                                answers.tokens.begin()));
        } else {
            stasis_digest value;
            status = stasis_session_digest(own, &value, nullptr);
            right = status != STASIS_OK || is_answer(value, before);
        }
        ++read;
        busy += status == STASIS_BUSY ? 1 : 0;
        wrong += right && (status == STASIS_OK || status == STASIS_BUSY) ? 0 : 1;
        return right && status == STASIS_OK;
    }

    // Reads until it is over, with pauses of up to so many microseconds.
    void watch(uint32_t seed, uint32_t pause_us) {
        std::mt19937 random(seed);
        while (!over) {
            look(random());
            std::this_thread::sleep_for(std::chrono::microseconds(random() % (pause_us + 1)));
        }
    }

  private:
    bool is_answer(const stasis_session_info &info, uint64_t before) const {
        if (!settled(info.position, before)) {
            return false;
        }
        const stasis_session_info &expected = answers.infos[info.position - answers.begin];
        return info.kv_bytes == expected.kv_bytes && info.states == expected.states &&
               info.rewind_floor == expected.rewind_floor &&
               info.window_begin == expected.window_begin;
    }
    bool is_answer(const stasis_digest &value, uint64_t before) const {
        for (uint64_t at = before; at <= delivered + 1; ++at) {
            if (answers.has(at) && std::memcmp(answers.digests[at - answers.begin].data(),
                                               value.bytes, sizeof value.bytes) == 0) {
                return true;
            }
        }
        return false;
    }
};

} // namespace abi_test
