// Sessions on a device that track attention: the numbers of the CPU, however they were made, and no
// tracking in other sessions.
#include "tests/device/under_test.h"
#include "tests/runtime/device_pair.h"

using namespace stasis;
using namespace stasis::test;

TEST_CASE("device attention received: every bundled model gives the sums that the CPU gives") {
    const kernels::DeviceTable &module = under_test::each_module();
    for (const std::string &name : sampled(bundled_on_devices())) {
        INFO("model: ", name);
        const std::shared_ptr<Model> device = open_there(name, module);
        const std::vector<uint32_t> tokens = tokens_for(*device, 70);
        DevicePair pair(open(name), device, tracking());
        pair.both([&](Session &session) {
            const size_t ends[] = {1, 4, 44, 45, 50, 67, 70}; // one row, few, many
            for (size_t i = 0, begin = 0; i < 7; begin = ends[i++]) {
                session.append(part(tokens, begin, ends[i]), {});
            }
        });
        pair.both([](Session &session) { session.decode(); });
        DevicePair totals(pair.here->model(), device, tracking(Tracking::total));
        std::vector<uint64_t> sums[2];
        for (Session *session : {totals.here.get(), totals.there.get()}) {
            session->append(part(tokens, 0, 20), {});
            session->append(part(tokens, 20, 21), {});
            session->received(false, sums[session == totals.there.get()]);
        }
        CHECK(sums[0] == sums[1]);
        CHECK(sums[0][0] > 0);
    }
}

TEST_CASE("device attention received: forks, rewinds, evictions, windows that are outrun") {
    const kernels::DeviceTable &module = under_test::each_module();
    for (const std::string &name :
         sampled({"zoo/gemma3-text", "zoo/mistral-window", "zoo/llama-odd-sizes-f32"})) {
        INFO("model: ", name);
        const std::shared_ptr<Model> device = open_there(name, module);
        const std::vector<uint32_t> tokens = tokens_for(*device, 250);
        TimelineOptions options = tracking();
        options.window_retain = 0;
        DevicePair pair(open(name), device, options);
        pair.both([&](Session &session) { session.append(part(tokens, 0, 100), {}); });
        DevicePair child(pair.here->fork(), pair.there->fork());
        child.both([&](Session &session) { session.append(part(tokens, 100, 130), {}); });
        pair.same(); // its own numbers are not the child's
        pair.both([&](Session &session) { session.append(part(tokens, 130, 150), {}); });
        pair.both([&](Session &session) { session.rewind(110, true, {}); });
        pair.both([&](Session &session) { session.append(part(tokens, 150, 152), {}); });
        pair.both([&](Session &session) { session.evict(5, 80); });
        pair.both([&](Session &session) { session.append(part(tokens, 152, 250), {}); });
        pair.both([&](Session &session) { session.append(part(tokens, 0, 1), {}); });
        child.same();
    }
}

TEST_CASE("device attention received: steps of several sessions, of which some track it") {
    const kernels::DeviceTable &module = under_test::each_module();
    const std::string name = "zoo/gemma3-text";
    const std::shared_ptr<Model> device = open_there(name, module);
    const std::vector<uint32_t> tokens = tokens_for(*device, 120);
    DevicePair by_head(open(name), device, tracking()),
        other(by_head.here->model(), device, tracking());
    DevicePair plain(by_head.here->model(), device, TimelineOptions());
    const auto rounds = [&](Session &a, Session &b, Session &c) {
        for (const size_t rows : {70, 1, 1, 30}) { // in tiles, and by blocks
            StepItem items[] = {{&a, part(tokens, 0, rows), true},
                                {&b, part(tokens, 7, 8), true},
                                {&c, part(tokens, 20, 20 + rows / 2), true}};
            run_step(items, {});
            for (const StepItem &item : items) {
                CHECK(item.error == nullptr);
            }
        }
    };
    rounds(*plain.here, *by_head.here, *other.here);
    rounds(*plain.there, *by_head.there, *other.there);
    by_head.same();
    other.same();
    CHECK(plain.here->digest() == plain.there->digest());
}

TEST_CASE("device attention received: generated tokens, and those of a session that crossed") {
    const std::string name = "zoo/mistral-window";
    const std::shared_ptr<Model> device = open_there(name), cpu = open(name);
    DevicePair pair(cpu, device, tracking());
    pair.both([&](Session &session) { session.append(tokens_for(*device, 60), {}); });
    pair.both([&](Session &session) { CHECK(generate(session, 20).count == 20); });
    const State here = export_state(*pair.here), there = export_state(*pair.there);
    DevicePair crossed(restore_session(cpu, there, nullptr),
                       restore_session(device, here, nullptr));
    CHECK(crossed.there->tracks_attention());
    crossed.same(); // computed again from the log
    CHECK(sums_by_head(*crossed.there) == sums_by_head(*pair.here));
    crossed.both([&](Session &session) { CHECK(generate(session, 10).count == 10); });
}

TEST_CASE("device attention received: a pass that fails leaves the sums as they were") {
    const std::string name = "zoo/llama-gqa-untied";
    const std::shared_ptr<Model> device = open_there(name);
    const std::vector<uint32_t> tokens = tokens_for(*device, 90);
    Session session(device, tracking()), plain(open(name), tracking());
    session.append(part(tokens, 0, 30), {});
    plain.append(part(tokens, 0, 30), {});
    const std::vector<uint64_t> before = sums_by_head(plain);
    CHECK(sums_by_head(session) == before);
    AppendOptions options;
    options.chunk = 20; // so that a pass of it succeeds
    int calls = 0;
    options.watch.progress = [](void *user, uint64_t, uint64_t) {
        return ++*static_cast<int *>(user) < 2;
    };
    options.watch.user = &calls;
    CHECK_THROWS_AS(session.append(part(tokens, 30, 90), options), Error);
    CHECK(session.position() == 30);
    CHECK(sums_by_head(session) == before);
    session.append(part(tokens, 30, 60), {});
    plain.append(part(tokens, 30, 60), {});
    CHECK(sums_by_head(session) == sums_by_head(plain));
}

// Attention that other sessions recorded adds nothing, and attention that is not recorded adds to
// no other.
TEST_CASE("device attention received: one token at a time, between sessions that do not track it") {
    const std::string name = "zoo/llama-gqa-untied";
    const std::shared_ptr<Model> device = open_there(name);
    const std::vector<uint32_t> tokens = tokens_for(*device, 20);
    DevicePair tracked(open(name), device, tracking()),
        plain(tracked.here->model(), device, TimelineOptions());
    for (size_t i = 0; i < 16; i += i == 0 ? 10 : 1) {
        for (Session *session :
             {plain.here.get(), plain.there.get(), tracked.here.get(), tracked.there.get()}) {
            session->append(part(tokens, i, i == 0 ? 10 : i + 1), {});
        }
    }
    tracked.same();
    CHECK(plain.here->digest() == plain.there->digest());
}

TEST_CASE("device attention received: sessions that do not track it launch and copy no more") {
    const std::shared_ptr<Model> device = open_there("zoo/llama-gqa-untied");
    const std::vector<uint32_t> tokens = tokens_for(*device, 60);
    struct Work {
        uint64_t launches, copies;
        bool operator==(const Work &) const = default;
    };
    const auto work = [&](const TimelineOptions &options) {
        Session session(device, options);
        session.append(part(tokens, 0, 50), {});
        const host_module::Counts before = host_module::counts();
        session.append(part(tokens, 50, 60), {});
        const host_module::Counts after = host_module::counts();
        return Work{after.launches - before.launches, after.copies - before.copies};
    };
    const Work plain = work({}), tracked = work(tracking());
    // Two kernels for each layer; the sums go there and come back.
    CHECK(tracked == Work{plain.launches + 2 * device->config.layers, plain.copies + 2});
    CHECK(work({}) == plain); // also after one that does
}
