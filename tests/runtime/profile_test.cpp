// The device profile: what a device's own library computes is recorded, and is reproduced from that
// record alone. The library is a stand-in (tests/device/host_module.h) that adds up in another
// order than the contract.
#include <cmath>
#include <map>

#include "tests/runtime/profiled.h"

using namespace stasis;
using namespace stasis::test;
using namespace stasis::test::profiled;

TEST_CASE("profile: long appends are computed outside the contract, and that is on record") {
    for (const std::string &name : sampled(kModels)) {
        INFO("model: ", name);
        const std::shared_ptr<Model> model = open_profiled(name);
        CHECK(model->profile == "stand-in 1");
        const std::unique_ptr<Session> session = talk(model), again = talk(open_profiled(name));
        CHECK(export_state(*session).profile == Profile{"stand-in 1", kTalked, 0});
        check_same(*session, *again);

        const std::shared_ptr<Model> plain = open_there(name);
        CHECK(plain->profile == "");
        const std::unique_ptr<Session> exact = talk(plain);
        CHECK(export_state(*exact).profile == Profile());
        CHECK(exact->digest() != session->digest());
        std::vector<float> rows[2];
        for (const auto &each : {model, plain}) {
            const std::unique_ptr<Session> prompt = of(each);
            prompt->append(tokens_for(*each, 140), {});
            rows[each == plain] = prompt->logits();
        }
        CHECK_FALSE(same_bits(rows[0], rows[1]));
        for (size_t i = 0; i < rows[0].size(); ++i) { // though near
            REQUIRE(std::abs(rows[0][i] - rows[1][i]) < 0.25F);
        }
    }
}

TEST_CASE("profile: appends are cut by their own length alone") {
    const std::shared_ptr<Model> model = open_profiled(kModels[0]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 576);
    const auto appended = [&](size_t count, size_t chunk) {
        std::unique_ptr<Session> session = of(model);
        AppendOptions run;
        run.chunk = chunk;
        session->append(part(tokens, 0, count), run);
        return session;
    };
    const auto chunks = [&](size_t count) {
        return export_state(*appended(count, 0)).profile.chunks;
    };
    CHECK(chunks(63).empty());
    CHECK(chunks(64) == std::vector<ProfileChunk>{{0, 64, 128}});
    CHECK(chunks(128) == std::vector<ProfileChunk>{{0, 128, 128}});
    CHECK(chunks(129) == std::vector<ProfileChunk>{{0, 129, 512}});
    const std::unique_ptr<Session> large = appended(576, 0), pieces = appended(576, 50);
    CHECK(export_state(*large).profile.chunks ==
          std::vector<ProfileChunk>{{0, 512, 512}, {512, 64, 128}});
    check_same(*large, *pieces);
    large->rewind(0, false, {});
    large->append(part(tokens, 0, 575), {});
    CHECK(export_state(*large).profile.chunks == std::vector<ProfileChunk>{{0, 512, 512}});
}

TEST_CASE("profile: in steps of several each gives what it gives alone") {
    const std::shared_ptr<Model> model = open_profiled(kModels[1]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 400);
    const auto run = [&](bool together) {
        std::vector<std::unique_ptr<Session>> sessions;
        std::vector<StepItem> items;
        for (const size_t length : {3, 200, 30, 70}) {
            sessions.push_back(of(model));
            items.push_back({sessions.back().get(), part(tokens, length, 2 * length), true});
        }
        for (size_t i = 0; i < items.size(); i += together ? items.size() : 1) {
            run_step(std::span(items).subspan(i, together ? items.size() : 1), {});
        }
        for (const StepItem &item : items) {
            CHECK(item.error == nullptr);
        }
        return sessions;
    };
    const auto together = run(true), alone = run(false);
    for (size_t i = 0; i < together.size(); ++i) {
        check_same(*together[i], *alone[i]);
    }
}

TEST_CASE("profile: saved, recomputed, verified, audited under the same id") {
    for (const std::string &name : sampled(kModels)) {
        INFO("model: ", name);
        const std::shared_ptr<Model> model = open_profiled(name), other = open_profiled(name);
        const std::unique_ptr<Session> session = talk(model);
        const std::unique_ptr<Session> loaded = reloaded(other, *session),
                                       made = recomputed(other, *session);
        check_same(*session, *loaded);
        check_same(*session, *made);
        const std::vector<uint32_t> more = tokens_for(*model, 100, 5);
        for (Session *each : {session.get(), loaded.get(), made.get()}) {
            each->append(more, {});
        }
        check_same(*session, *loaded);
        check_same(*session, *made);

        StoredState stored(*model, *session);
        const VerifyReport report = verify(other, stored.state, stored.pages(), {});
        CHECK(report.first == std::nullopt);
        CHECK(report.drawn == 3);
        AuditOptions all;
        CHECK(audit(other, stored.state, stored.pages(), all).first == std::nullopt);
        if (name != kModels[0]) {
            continue;
        }
        const Profile right = stored.state.profile;
        const auto diverges = [&](const std::function<void(Profile &)> &change, uint64_t position) {
            stored.state.profile = right;
            change(stored.state.profile);
            const VerifyReport found = verify(other, stored.state, stored.pages(), {});
            REQUIRE(found.first.has_value());
            CHECK(found.first->position >= position); // or so little after it
            CHECK(found.first->position < position + 8);
        };
        diverges([](Profile &p) { p.chunks[1].padded = 512; }, 152);
        diverges([](Profile &p) { p.chunks.erase(p.chunks.begin() + 1); }, 152);
        diverges([](Profile &p) { p.chunks[1].begin = 153, p.chunks[1].rows = 79; }, 152);
        diverges([](Profile &p) { p.chunks[0].rows = 139; }, 139);
    }
}

static const std::vector<uint64_t> kCuts = {64, 109, 110, 111, 259};

TEST_CASE("profile: a rewind into a chunk goes on from the bits that it had there") {
    for (const std::string &name : sampled(kModels)) {
        INFO("model: ", name);
        const std::shared_ptr<Model> model = open_profiled(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 260);
        const std::unique_ptr<Session> session = of(model, 1000);
        session->append(part(tokens, 0, 10), {});
        std::map<uint64_t, std::vector<float>> rows; // by the position after them
        AppendOptions run;
        run.logits_user = &rows;
        run.logits_wanted = [](void *, uint64_t position) {
            return std::find(kCuts.begin(), kCuts.end(), position + 1) != kCuts.end();
        };
        run.logits = [](void *user, uint64_t position, const float *logits, size_t count) {
            auto &kept = *static_cast<std::map<uint64_t, std::vector<float>> *>(user);
            kept[position + 1].assign(logits, logits + count);
            return true;
        };
        session->append(part(tokens, 10, 110), run);
        session->append(part(tokens, 110, 260), run);
        CHECK(export_state(*session).profile.chunks ==
              std::vector<ProfileChunk>{{10, 100, 128}, {110, 150, 512}});
        for (const uint64_t position : kCuts) {
            INFO("position: ", position);
            const std::unique_ptr<Session> cut = session->fork();
            cut->rewind(position, false, {});
            CHECK(same_bits(cut->logits(), rows[position]));
            const std::unique_ptr<Session> loaded = reloaded(model, *cut),
                                           made = recomputed(model, *cut);
            check_same(*cut, *loaded);
            check_same(*cut, *made);
        }
    }
}

TEST_CASE("profile: rewinds stop where the beginning of a chunk has lost what it saw") {
    const std::shared_ptr<Model> model = open_profiled(kModels[1]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 600);
    const std::unique_ptr<Session> session = of(model, 64);
    session->append(part(tokens, 0, 300), {});
    session->append(part(tokens, 300, 310), {});
    CHECK(session->info().rewind_floor == 301); // after the chunk
    CHECK(refusal([&] { session->rewind(300, false, {}); }, Status::unsupported)
              .find("below the floor 301") != std::string::npos);
    const std::unique_ptr<Session> again = of(model, 64);
    again->append(part(tokens, 0, 300), {});
    const Digest whole = again->digest();
    session->rewind(301, false, {});
    session->logits();
    session->rewind(300, true, {});
    CHECK(session->digest() == whole);
    const std::unique_ptr<Session> shorter = recomputed(model, *session);
    session->rewind(290, true, {});
    shorter->rewind(290, true, {});
    check_same(*session, *shorter);
    CHECK(export_state(*session).profile.chunks == std::vector<ProfileChunk>{{0, 290, 512}});
}

TEST_CASE("profile: evictions, drafts and generated tokens go on as without one") {
    const std::shared_ptr<Model> model = open_profiled(kModels[1]);
    const std::unique_ptr<Session> session = talk(model, 1000);
    session->evict(20, 150);
    session->append(tokens_for(*model, 100, 9), {});
    const std::unique_ptr<Session> loaded = reloaded(model, *session),
                                   made = recomputed(model, *session);
    check_same(*session, *loaded);
    check_same(*session, *made);
    const StoredState stored(*model, *session);
    CHECK(verify(model, stored.state, stored.pages(), {}).first == std::nullopt);

    GenerateOptions options;
    options.tokens_max = 40;
    options.ignore_end = true;
    GenerateResult result;
    DraftOptions draft;
    loaded->set_draft(draft);
    for (Session *each : {session.get(), loaded.get()}) {
        each->generate(options, result);
        CHECK(result.count == 40);
    }
    for (int i = 0; i < 40; ++i) {
        made->decode();
    }
    check_same(*session, *loaded);
    check_same(*session, *made);
}

TEST_CASE("profile: a failure in the middle of an append leaves the session and its record") {
    const std::shared_ptr<Model> model = open_profiled(kModels[1]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 600);
    const std::unique_ptr<Session> session = talk(model), same = session->fork();
    AppendOptions run;
    run.logits_wanted = [](void *, uint64_t position) { return position == 800; };
    run.logits = [](void *, uint64_t, const float *, size_t) { return false; }; // second chunk
    CHECK(refusal([&] { session->append(tokens, run); }, Status::stopped) != "");
    check_same(*session, *same);
    session->append(part(tokens, 0, 70), {});
    same->append(part(tokens, 0, 70), {});
    check_same(*session, *same);
}

TEST_CASE("profile: free pages give way to all that a padded pass takes, the library's share too") {
    const Behaviour behaviour;
    int64_t met = 0;
    for (bool all = false; !all; ++met) {
        const std::shared_ptr<Model> model = open_profiled(kModels[0]);
        const std::vector<uint32_t> tokens = tokens_for(*model, 130);
        std::unique_ptr<Session> before = of(model);
        for (int i = 0; i < 3; ++i) {
            before->append(part(tokens, 0, 63), {});
        }
        before.reset(); // leaves free pages
        const std::unique_ptr<Session> session = of(model);
        host_module::settings().fail_allocation = met;
        try {
            session->append(part(tokens, 0, 64), {});
        } catch (const Error &error) { // of the host there is no more
            INFO("message: ", std::string(error.what()));
            CHECK(std::string(error.what()).find("pinned memory") != std::string::npos);
        }
        all = host_module::settings().fail_allocation >= 0; // none was left to fail
        host_module::settings().fail_allocation = -1;
    }
    CHECK(met > 3);
}

TEST_CASE("profile: asked for where there is none") {
    const std::string model = directory(kModels[0]);
    const auto opening = [&](ModelOptions options, const char *profile, Status status,
                             const std::string &path) {
        options.profile = profile;
        return refusal([&] { open_model(path, options); }, status);
    };
    CHECK(opening({}, "device", Status::unsupported, model) ==
          "profile \"device\": device \"cpu\" has none");
    CHECK(opening({}, "fast", Status::unsupported, model) ==
          "profile \"fast\": profiles are \"contract\" and \"device\"");
    CHECK(opening(on_device(), "contract", Status::ok, model) == "");
    const Behaviour behaviour;
    host_module::settings().vendor = 0;
    CHECK(opening(on_device(), "device", Status::device, model) ==
          "device \"cuda:0\", opening its profile: the stand-in's library is missing, as a test "
          "asked");
}
