// Sessions of a model on the CPU and on the device of the tests, to which the same is done.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "tests/runtime/device_on.h"

namespace stasis::test {

inline std::vector<uint64_t> sums_by_head(Session &session) {
    std::vector<uint64_t> sums;
    session.received(true, sums);
    return sums;
}

// They always have the same bits, and the same accumulated attention if they track it by head.
struct DevicePair {
    std::unique_ptr<Session> here, there;

    DevicePair(const std::shared_ptr<Model> &cpu, const std::shared_ptr<Model> &device)
        : here(session_of(cpu)), there(session_of(device)) {}
    DevicePair(const std::shared_ptr<Model> &cpu, const std::shared_ptr<Model> &device,
               const TimelineOptions &options)
        : here(std::make_unique<Session>(cpu, options)),
          there(std::make_unique<Session>(device, options)) {}
    DevicePair(std::unique_ptr<Session> here_, std::unique_ptr<Session> there_)
        : here(std::move(here_)), there(std::move(there_)) {}

    template <typename Work> void both(const Work &work) {
        work(*here);
        work(*there);
        same();
    }
    void same() {
        CHECK(same_bits(here->logits(), there->logits()));
        CHECK(to_hex(here->digest()) == to_hex(there->digest()));
        REQUIRE(here->tracks_attention() == there->tracks_attention());
        if (here->tracks_attention()) {
            CHECK(sums_by_head(*here) == sums_by_head(*there));
        }
    }
    void decode(size_t count) {
        for (size_t i = 0; i < count; ++i) {
            const uint32_t token = here->decode();
            REQUIRE(there->decode() == token);
        }
        same();
    }
};

inline GenerateResult generate(Session &session, uint64_t count, std::vector<uint32_t> stops = {}) {
    GenerateOptions options;
    options.tokens_max = count;
    options.ignore_end = true;
    options.stop_tokens = std::move(stops);
    GenerateResult result;
    session.generate(options, result);
    return result;
}

} // namespace stasis::test
