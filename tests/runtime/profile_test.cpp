// The device profile: what a device's own library computes is a matter of record, and comes out
// again from that record alone. The library is a stand-in (tests/device/host_module.h) that adds up
// in another order than the contract.
#include <cmath>

#include "runtime/profile.h"
#include "runtime/verify.h"
#include "tests/device/under_test.h"
#include "tests/runtime/device_on.h"
#include "tests/runtime/stored_state.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// Global layers alone; and two groups, of which one sees 16 positions.
const std::vector<std::string> kModels = {"zoo/llama-gqa-untied", "zoo/gemma3-text"};

std::shared_ptr<Model> open_profiled(const std::string &name, uint32_t version = 1) {
    host_module::settings().vendor = version;
    ModelOptions options = on_device();
    options.profile = "device";
    const std::shared_ptr<Model> model = open_model(directory(name), options);
    host_module::settings().vendor = 1;
    return model;
}

std::unique_ptr<Session> of(const std::shared_ptr<Model> &model, uint64_t retain = 0) {
    SessionOptions options;
    options.window_retain = retain;
    return std::make_unique<Session>(model, options);
}

// Two chunks with tokens between and behind them that the contract computes.
std::unique_ptr<Session> talk(const std::shared_ptr<Model> &model, uint64_t retain = 0) {
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
const std::vector<ProfileChunk> kTalked = {{0, 140, 512}, {152, 80, 128}};

std::string refusal(const std::function<void()> &work, Status status) {
    try {
        work();
    } catch (const Error &error) {
        CHECK(error.status() == status);
        return error.what();
    }
    return "";
}

// The same state in a new process, as far as a test can tell.
std::unique_ptr<Session> reloaded(const std::shared_ptr<Model> &model, Session &session) {
    return Session::restore(model, session.export_state(), nullptr);
}

// From tokens and record alone.
std::unique_ptr<Session> recomputed(const std::shared_ptr<Model> &model, Session &session) {
    const Stored stored(*session.model(), session);
    return Session::recompute(model, stored.state, nullptr, stored.pages(), Watch());
}

void check_same(Session &a, Session &b) {
    CHECK(to_hex(a.digest()) == to_hex(b.digest()));
    CHECK(same_bits(a.logits(), b.logits()));
    CHECK(a.export_state().profile == b.export_state().profile);
}

} // namespace

TEST_CASE("profile: long appends are computed outside the contract, and that is on record") {
    for (const std::string &name : kModels) {
        INFO("model: ", name);
        const std::shared_ptr<Model> model = open_profiled(name);
        CHECK(model->profile == "stand-in 1");
        const std::unique_ptr<Session> session = talk(model), again = talk(open_profiled(name));
        CHECK(session->export_state().profile == Profile{"stand-in 1", kTalked, 0});
        check_same(*session, *again);

        const std::shared_ptr<Model> plain = open_there(name);
        CHECK(plain->profile == "");
        const std::unique_ptr<Session> exact = talk(plain);
        CHECK(exact->export_state().profile == Profile());
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
        RunOptions run;
        run.chunk = chunk;
        session->append(part(tokens, 0, count), run);
        return session;
    };
    const auto chunks = [&](size_t count) {
        return appended(count, 0)->export_state().profile.chunks;
    };
    CHECK(chunks(63).empty());
    CHECK(chunks(64) == std::vector<ProfileChunk>{{0, 64, 128}});
    CHECK(chunks(128) == std::vector<ProfileChunk>{{0, 128, 128}});
    CHECK(chunks(129) == std::vector<ProfileChunk>{{0, 129, 512}});
    const std::unique_ptr<Session> large = appended(576, 0), pieces = appended(576, 50);
    CHECK(large->export_state().profile.chunks ==
          std::vector<ProfileChunk>{{0, 512, 512}, {512, 64, 128}});
    check_same(*large, *pieces);
    large->rewind(0, false, {});
    large->append(part(tokens, 0, 575), {});
    CHECK(large->export_state().profile.chunks == std::vector<ProfileChunk>{{0, 512, 512}});
}

TEST_CASE("profile: no page is taken for what its tokens give") {
    const std::shared_ptr<Model> model = open_profiled(kModels[0]), plain = open_there(kModels[0]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 130);
    SessionOptions common;
    common.domain = 0;
    const auto reused = [&](const std::shared_ptr<Model> &of_model) {
        Session first(of_model, common), second(of_model, common);
        first.append(tokens, {});
        second.append(part(tokens, 0, 50), {});
        second.append(part(tokens, 50, 130), {});
        return second.info().tokens_reused;
    };
    CHECK(reused(model) == 0);
    CHECK(reused(plain) == 78);  // the second piece, and what was before it of a page
    SessionOptions any = common; // nor what another profile computed, whoever vouches for it
    any.any_profile = any.trusted = true;
    Session own(model, common);
    own.append(tokens, {});
    const std::unique_ptr<Session> taken = Session::restore(plain, own.export_state(), &any);
    Session exact(plain, common), alone(plain, SessionOptions());
    exact.append(tokens, {});
    alone.append(tokens, {});
    CHECK(exact.digest() == alone.digest());
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
            Session::step(std::span(items).subspan(i, together ? items.size() : 1), {});
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
    for (const std::string &name : kModels) {
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

        Stored stored(*model, *session);
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
            CHECK(found.first->position >= position); // or so little behind it
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
    for (const std::string &name : kModels) {
        INFO("model: ", name);
        const std::shared_ptr<Model> model = open_profiled(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 260);
        const std::unique_ptr<Session> session = of(model, 1000);
        session->append(part(tokens, 0, 10), {});
        std::map<uint64_t, std::vector<float>> rows; // by the position behind them
        RunOptions run;
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
        CHECK(session->export_state().profile.chunks ==
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
    CHECK(session->info().rewind_floor == 301); // behind the chunk
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
    CHECK(session->export_state().profile.chunks == std::vector<ProfileChunk>{{0, 290, 512}});
}

TEST_CASE("profile: refused under another id, or taken over and marked") {
    for (const std::string &name : kModels) {
        INFO("model: ", name);
        const std::shared_ptr<Model> first = open_profiled(name), second = open_profiled(name, 2);
        const std::shared_ptr<Model> plain = open_there(name), cpu = open(name);
        CHECK(second->profile == "stand-in 2");
        const std::unique_ptr<Session> session = talk(first, 1000);
        const Stored stored(*first, *session);
        SessionOptions any;
        any.any_profile = true;
        any.window_retain = 1000;
        for (const auto &model : {second, plain, cpu}) {
            INFO("under: ", model->profile);
            const std::string wanted = "computed under stand-in 1, this model computes under " +
                                       (model->profile.empty() ? "the contract" : model->profile);
            CHECK(refusal([&] { reloaded(model, *session); }, Status::version).find(wanted) !=
                  std::string::npos);
            CHECK(refusal([&] { recomputed(model, *session); }, Status::version) != "");
            CHECK(refusal([&] { verify(model, stored.state, stored.pages(), {}); },
                          Status::version) != "");
            CHECK(
                refusal(
                    [&] { Session::recompute(model, stored.state, &any, stored.pages(), Watch()); },
                    Status::version) ==
                "the snapshot keeps no keys and values, and only a model of the profile "
                "stand-in 1 computes them again");
            const std::unique_ptr<Session> taken =
                Session::restore(model, session->export_state(), &any);
            CHECK(same_bits(taken->logits(), session->logits()));
            CHECK(taken->export_state().profile == Profile{model->profile, {}, 232});
            CHECK(taken->info().foreign == 232);
            taken->append(tokens_for(*model, 90, 3), {});
            taken->decode();
            const std::unique_ptr<Session> kept = reloaded(model, *taken);
            check_same(*taken, *kept);
            CHECK(kept->info().foreign == 232);

            const Stored marked(*model, *taken);
            const std::string why = "positions below 232 were computed under another profile";
            CHECK(refusal([&] { verify(model, marked.state, marked.pages(), {}); },
                          Status::unsupported)
                      .starts_with(why));
            CHECK(
                refusal([&] { recomputed(model, *taken); }, Status::unsupported).starts_with(why));
            const VerifyReport report = audit(model, marked.state, marked.pages(), {});
            CHECK(report.first == std::nullopt);
            CHECK(report.unreachable_begin == 0);
            CHECK(report.unreachable_end == 232);
            CHECK(report.positions > 80);

            for (const uint64_t position : {129, 128, 10}) { // the last token runs once more
                taken->rewind(position, false, {});
                CHECK(taken->info().foreign == position);
                const std::unique_ptr<Session> asked = taken->fork(), silent = taken->fork();
                asked->logits(); // which changes nothing of what follows
                for (Session *each : {asked.get(), silent.get()}) {
                    each->append(part(tokens_for(*model, 10), 0, 10), {});
                    each->decode();
                }
                check_same(*asked, *silent);
                check_same(*asked, *reloaded(model, *asked));
                taken->logits();
                CHECK(taken->info().foreign == position);
            }
        }
        const std::unique_ptr<Session> back = Session::restore(
            first, Session::restore(cpu, session->export_state(), &any)->export_state(), &any);
        CHECK(back->info().foreign == 232); // it stays marked
        back->rewind(0, false, {});
        CHECK(back->info().foreign == 0);
    }
}

TEST_CASE("profile: what the contract computed is not marked, and can be verified on") {
    const std::shared_ptr<Model> model = open_profiled(kModels[0]), plain = open(kModels[0]);
    const std::unique_ptr<Session> exact = talk(plain);
    CHECK(refusal([&] { reloaded(model, *exact); }, Status::version) != "");
    SessionOptions any;
    any.any_profile = true;
    const std::unique_ptr<Session> taken = Session::restore(model, exact->export_state(), &any);
    CHECK(taken->info().foreign == 0);
    taken->append(tokens_for(*model, 90, 3), {});
    CHECK(taken->export_state().profile.chunks == std::vector<ProfileChunk>{{233, 90, 128}});
    const Stored stored(*model, *taken);
    CHECK(verify(model, stored.state, stored.pages(), {}).first == std::nullopt);
    const Stored before(*plain, *exact);
    const std::unique_ptr<Session> made =
        Session::recompute(model, before.state, &any, before.pages(), Watch());
    made->append(tokens_for(*model, 90, 3), {});
    check_same(*taken, *made);
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
    const Stored stored(*model, *session);
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
    RunOptions run;
    run.logits_wanted = [](void *, uint64_t position) { return position == 800; };
    run.logits = [](void *, uint64_t, const float *, size_t) { return false; }; // second chunk
    CHECK(refusal([&] { session->append(tokens, run); }, Status::stopped) != "");
    check_same(*session, *same);
    session->append(part(tokens, 0, 70), {});
    same->append(part(tokens, 0, 70), {});
    check_same(*session, *same);
}

TEST_CASE("profile: free pages give way to all that a padded pass takes, the library's share too") {
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

TEST_CASE("profile: an audit of windows says what it could not reach, and reaches the last page") {
    const std::shared_ptr<Model> model = open_profiled(kModels[1]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 610);
    const std::unique_ptr<Session> session = of(model, 200);
    session->append(part(tokens, 0, 10), {});
    session->append(part(tokens, 10, 610), {});
    Stored stored(*model, *session);
    const VerifyReport report = audit(model, stored.state, stored.pages(), {});
    CHECK(report.first == std::nullopt);
    CHECK(report.unreachable_begin == 64);
    CHECK(report.unreachable_end == 522); // where the second chunk begins
    CHECK(report.positions >= 64 + 88);
    stored.change_end(0);
    const VerifyReport forged = audit(model, stored.state, stored.pages(), {});
    REQUIRE(forged.first.has_value());
    CHECK(forged.first->element == 9);

    const std::unique_ptr<Session> released = of(model, 64); // less than the chunk is there
    released->append(part(tokens, 0, 10), {});
    released->append(part(tokens, 10, 610), {});
    const Stored less(*model, *released);
    const VerifyReport beginning = audit(model, less.state, less.pages(), {});
    CHECK(beginning.first == std::nullopt);
    CHECK(beginning.unreachable_begin == 64);
    CHECK(beginning.unreachable_end == 610);
    SessionOptions any;
    any.any_profile = true;
    const std::unique_ptr<Session> taken =
        Session::restore(open(kModels[1]), session->export_state(), &any);
    const Stored marked(*taken->model(), *taken);
    CHECK(refusal([&] { audit(open(kModels[1]), marked.state, marked.pages(), {}); },
                  Status::unsupported) != "");
}

TEST_CASE("profile: marked sessions that share pages go back and on like any") {
    const std::shared_ptr<Model> model = open_profiled(kModels[0]), plain = open_there(kModels[0]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 400);
    SessionOptions any;
    any.any_profile = any.trusted = true;
    any.domain = 0;
    const std::unique_ptr<Session> own = of(model);
    own->append(part(tokens, 0, 150), {});
    const std::unique_ptr<Session> taken = Session::restore(plain, own->export_state(), &any);
    const auto go_back_and_on = [&](bool ask, size_t from) {
        taken->rewind(128, false, {});
        if (ask) {
            taken->digest();
        }
        taken->append(part(tokens, from, from + 64), {});
        return taken->digest();
    };
    const Digest plainly = go_back_and_on(false, 300);
    CHECK(go_back_and_on(true, 200) != plainly);
    taken->append(part(tokens, 300, 364), {});
    CHECK(go_back_and_on(false, 300) == plainly);
    CHECK(go_back_and_on(true, 300) == plainly);
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
    host_module::settings().vendor = 0;
    CHECK(opening(on_device(), "device", Status::device, model) ==
          "device \"cuda:0\", opening its profile: the stand-in's library is missing, as a test "
          "asked");
    host_module::settings().vendor = 1;
}
