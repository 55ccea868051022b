// Models under the device profile of the tests' stand-in for a vendor's library, and what tests of
// them share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/compute/profile.h"
#include "runtime/snapshot/verify.h"
#include "tests/device/under_test.h"
#include "tests/runtime/device_on.h"
#include "tests/runtime/stored_state.h"

namespace stasis::test::profiled {

// Global layers alone; and two groups, of which one sees 16 positions.
inline const std::vector<std::string> kModels = {"zoo/llama-gqa-untied", "zoo/gemma3-text"};

inline std::shared_ptr<Model> open_profiled(const std::string &name, uint32_t version = 1) {
    const Behaviour behaviour;
    host_module::settings().vendor = version;
    ModelOptions options = on_device();
    options.profile = "device";
    return open_model(directory(name), options);
}

inline std::unique_ptr<Session> of(const std::shared_ptr<Model> &model, uint64_t retain = 0) {
    TimelineOptions options;
    options.window_retain = retain;
    return std::make_unique<Session>(model, options);
}

// Two chunks with tokens between and after them that the contract computes.
inline std::unique_ptr<Session> talk(const std::shared_ptr<Model> &model, uint64_t retain = 0) {
    std::unique_ptr<Session> session = of(model, retain);
    const std::vector<uint32_t> tokens = tokens_for(*model, 250);
    session->append(part(tokens, 0, 140), {});
    session->append(part(tokens, 140, 150), {});
    Sampling sampling;
    sampling.temperature = 0.9F;
    session->set_sampling(sampling);
    session->decode();
    session->decode();
    session->append(part(tokens, 150, 230), {});
    session->decode();
    return session;
}
inline const std::vector<ProfileChunk> kTalked = {{0, 140, 512}, {152, 80, 128}};

// The message of a call that must fail so, if it fails; else "".
inline std::string refusal(const std::function<void()> &work, Status status) {
    const Failure failure = failure_of(work);
    CHECK((failure.status == status || failure.status == Status::ok));
    return failure.message;
}

// The same state in a new process, as closely as a test can make it.
inline std::unique_ptr<Session> reloaded(const std::shared_ptr<Model> &model, Session &session) {
    return restore_session(model, export_state(session), nullptr);
}

// From tokens and record alone.
inline std::unique_ptr<Session> recomputed(const std::shared_ptr<Model> &model, Session &session) {
    const StoredState stored(*session.model(), session);
    return recompute_session(model, stored.state, nullptr, stored.pages(), Watch());
}

inline void check_same(Session &a, Session &b) {
    CHECK(to_hex(a.digest()) == to_hex(b.digest()));
    CHECK(same_bits(a.logits(), b.logits()));
    CHECK(export_state(a).profile == export_state(b).profile);
}

} // namespace stasis::test::profiled
