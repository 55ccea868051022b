// Fixtures for tests of speculative decoding: pairs of sessions of which one drafts, drafters that
// are right or wrong on demand, and the comparison of a pair, down to slots beyond the position.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "runtime/session/generate.h"
#include "tests/runtime/models.h"

namespace stasis::test {

// Knows what is going to be drawn, and proposes it, or something else, as `right` says for each
// position.
class ScriptedDrafter final : public Drafter {
  public:
    ScriptedDrafter(std::vector<uint32_t> log, uint32_t vocabulary,
                    std::function<bool(uint64_t)> right)
        : log_(std::move(log)), vocabulary_(vocabulary), right_(std::move(right)) {}

    void propose(const DraftPlace &place, size_t most, std::vector<uint32_t> &tokens) override {
        for (uint64_t at = place.log.size() + 1; tokens.size() < most; ++at) {
            const uint32_t token = at < log_.size() ? log_[at] : 0;
            tokens.push_back(right_(at) ? token : (token + 1) % vocabulary_);
        }
    }
    void rewound(uint64_t) noexcept override {}
    double cost() const override { return 0; }
    bool release() noexcept override { return false; }

  private:
    std::vector<uint32_t> log_;
    uint32_t vocabulary_;
    std::function<bool(uint64_t)> right_;
};

inline std::vector<uint32_t> log_of(const Session &session) {
    std::vector<uint32_t> log;
    for (uint64_t i = 0; i < session.position(); ++i) {
        log.push_back(session.entry(i).token);
    }
    return log;
}

// Events of a generation, and its outcome.
struct Told {
    struct Event {
        uint32_t token;
        uint64_t position;
        std::string text;
        bool last;
        bool operator==(const Event &) const = default;
    };
    std::vector<Event> events;
    GenerateResult result;
    std::string error; // "": none
    size_t stop_after = SIZE_MAX, cancel_after = SIZE_MAX;
    std::atomic<bool> cancel{false};

    static bool hear(void *user, const Generated &generated) {
        Told &told = *static_cast<Told *>(user);
        told.events.push_back(
            {generated.token, generated.position, std::string(generated.text), generated.last});
        told.cancel = told.cancel || told.events.size() == told.cancel_after;
        return told.events.size() != told.stop_after;
    }
    void run(Session &session, GenerateOptions options) {
        options.callback = hear;
        options.callback_user = this;
        options.watch.cancel = &cancel;
        try {
            session.generate(options, result);
        } catch (const Error &failure) {
            error = failure.what();
        }
    }
    // Asks for the tokens instead, and expects a session that is whole after each.
    void pull(Session &session, const GenerateOptions &options) {
        Generation generation(session, options);
        Generated event{};
        while (generation.next({&cancel}, event)) {
            hear(this, event);
            CHECK(session.position() == event.position + 1);
        }
        if (!event.text.empty()) {
            hear(this, event);
        }
        result = generation.result();
    }
    bool same(const Told &other) const {
        return events == other.events && error == other.error &&
               result.reason == other.result.reason && result.begin == other.result.begin &&
               result.count == other.result.count;
    }
};

// Whether `a` holds the keys and values that `b` holds, and beyond its position nothing, or what a
// rewind left there in both.
inline bool same_pages(Session &a, Session &b) {
    const State left = export_state(a), right = export_state(b);
    const Model &model = *a.model();
    for (size_t group = 0; group < left.pages.size(); ++group) {
        const PageShape &shape = model.pool->shape(static_cast<uint32_t>(group));
        if (left.pages[group].size() != right.pages[group].size()) {
            return false;
        }
        for (size_t i = 0; i < left.pages[group].size(); ++i) {
            const Page &one = left.pages[group][i], &two = right.pages[group][i];
            if ((one.data == nullptr) != (two.data == nullptr) || one.valid != two.valid ||
                one.digest != two.digest) {
                return false;
            }
            for (size_t at = 0; one.data != nullptr && at < shape.elements(); ++at) {
                const bool beyond = at % shape.head_elements() / shape.head_dim >= one.valid;
                if (one.data[at] != two.data[at] && !(beyond && one.data[at] == 0)) {
                    return false;
                }
            }
        }
    }
    return left.log == right.log && left.samplings == right.samplings;
}

// A session that drafts and its twin that does not.
struct DraftPair {
    std::unique_ptr<Session> ahead, plain;

    // Checks all that can be asked of a session, and its memory.
    void check_same() {
        const SessionInfo a = ahead->info(), b = plain->info();
        REQUIRE(a.position == b.position);
        REQUIRE(log_of(*ahead) == log_of(*plain));
        CHECK(a.rewind_floor == b.rewind_floor);
        CHECK(a.window_begin == b.window_begin);
        CHECK(a.kv_bytes == b.kv_bytes);
        CHECK(a.pages_own + a.pages_shared == b.pages_own + b.pages_shared);
        REQUIRE(ahead->digest() == plain->digest());
        REQUIRE((a.position == 0 || same_bits(ahead->logits(), plain->logits())));
        REQUIRE((a.position == 0 || same_pages(*ahead, *plain)));
    }
};

inline DraftPair pair_of(const std::shared_ptr<Model> &model, const TimelineOptions &options = {}) {
    return {std::make_unique<Session>(model, options), std::make_unique<Session>(model, options)};
}

} // namespace stasis::test
