// The device profile, apart from the contract and from other profiles: what is refused, what is
// taken over and marked, what can still be proven of it, and that no page passes for another's.
#include "tests/runtime/profiled.h"

using namespace stasis;
using namespace stasis::test;
using namespace stasis::test::profiled;

namespace {

// A session that `model` took over at position 232: it continues, and what can be proven of it is
// proven.
void check_taken(const std::shared_ptr<Model> &model, std::unique_ptr<Session> taken) {
    taken->append(tokens_for(*model, 90, 3), {});
    taken->decode();
    const std::unique_ptr<Session> kept = reloaded(model, *taken);
    check_same(*taken, *kept);
    CHECK(kept->info().foreign == 232);

    const StoredState marked(*model, *taken);
    const std::string why = "positions below 232 were computed under another profile";
    CHECK(refusal([&] { verify(model, marked.state, marked.pages(), {}); }, Status::unsupported)
              .starts_with(why));
    CHECK(refusal([&] { recomputed(model, *taken); }, Status::unsupported).starts_with(why));
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

} // namespace

TEST_CASE("profile: no page is taken for what its tokens give") {
    const std::shared_ptr<Model> model = open_profiled(kModels[0]), plain = open_there(kModels[0]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 130);
    TimelineOptions common;
    common.domain = 0;
    const auto reused = [&](const std::shared_ptr<Model> &of_model) {
        Session first(of_model, common), second(of_model, common);
        first.append(tokens, {});
        second.append(part(tokens, 0, 50), {});
        second.append(part(tokens, 50, 130), {});
        return second.info().tokens_reused;
    };
    CHECK(reused(model) == 0);
    CHECK(reused(plain) == 78);   // the second piece, and what was before it of a page
    TimelineOptions any = common; // nor what another profile computed, even if trusted
    any.any_profile = any.trusted = true;
    Session own(model, common);
    own.append(tokens, {});
    const std::unique_ptr<Session> taken = restore_session(plain, export_state(own), &any);
    Session exact(plain, common), alone(plain, TimelineOptions());
    exact.append(tokens, {});
    alone.append(tokens, {});
    CHECK(exact.digest() == alone.digest());
}

TEST_CASE("profile: refused under another id, or taken over and marked") {
    for (const std::string &name : sampled(kModels)) {
        INFO("model: ", name);
        const std::shared_ptr<Model> first = open_profiled(name), second = open_profiled(name, 2);
        const std::shared_ptr<Model> plain = open_there(name), cpu = open(name);
        CHECK(second->profile == "stand-in 2");
        const std::unique_ptr<Session> session = talk(first, 1000);
        const StoredState stored(*first, *session);
        TimelineOptions any;
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
                    [&] { recompute_session(model, stored.state, &any, stored.pages(), Watch()); },
                    Status::version) ==
                "the snapshot keeps no keys and values, and only a model of the profile "
                "stand-in 1 computes them again");
            std::unique_ptr<Session> taken = restore_session(model, export_state(*session), &any);
            CHECK(same_bits(taken->logits(), session->logits()));
            CHECK(export_state(*taken).profile == Profile{model->profile, {}, 232});
            CHECK(taken->info().foreign == 232);
            check_taken(model, std::move(taken));
        }
        const std::unique_ptr<Session> back = restore_session(
            first, export_state(*restore_session(cpu, export_state(*session), &any)), &any);
        CHECK(back->info().foreign == 232); // it stays marked
        back->rewind(0, false, {});
        CHECK(back->info().foreign == 0);
    }
}

TEST_CASE("profile: what the contract computed is not marked, and can be verified on") {
    const std::shared_ptr<Model> model = open_profiled(kModels[0]), plain = open(kModels[0]);
    const std::unique_ptr<Session> exact = talk(plain);
    CHECK(refusal([&] { reloaded(model, *exact); }, Status::version) != "");
    TimelineOptions any;
    any.any_profile = true;
    const std::unique_ptr<Session> taken = restore_session(model, export_state(*exact), &any);
    CHECK(taken->info().foreign == 0);
    taken->append(tokens_for(*model, 90, 3), {});
    CHECK(export_state(*taken).profile.chunks == std::vector<ProfileChunk>{{233, 90, 128}});
    const StoredState stored(*model, *taken);
    CHECK(verify(model, stored.state, stored.pages(), {}).first == std::nullopt);
    const StoredState before(*plain, *exact);
    const std::unique_ptr<Session> made =
        recompute_session(model, before.state, &any, before.pages(), Watch());
    made->append(tokens_for(*model, 90, 3), {});
    check_same(*taken, *made);
}

TEST_CASE("profile: an audit of windows says what it could not reach, and reaches the last page") {
    const std::shared_ptr<Model> model = open_profiled(kModels[1]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 610);
    const std::unique_ptr<Session> session = of(model, 200);
    session->append(part(tokens, 0, 10), {});
    session->append(part(tokens, 10, 610), {});
    StoredState stored(*model, *session);
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
    const StoredState less(*model, *released);
    const VerifyReport beginning = audit(model, less.state, less.pages(), {});
    CHECK(beginning.first == std::nullopt);
    CHECK(beginning.unreachable_begin == 64);
    CHECK(beginning.unreachable_end == 610);
    TimelineOptions any;
    any.any_profile = true;
    const std::unique_ptr<Session> taken =
        restore_session(open(kModels[1]), export_state(*session), &any);
    const StoredState marked(*taken->model(), *taken);
    CHECK(refusal([&] { audit(open(kModels[1]), marked.state, marked.pages(), {}); },
                  Status::unsupported) != "");
}

TEST_CASE("profile: marked sessions that share pages go back and on like any") {
    const std::shared_ptr<Model> model = open_profiled(kModels[0]), plain = open_there(kModels[0]);
    const std::vector<uint32_t> tokens = tokens_for(*model, 400);
    TimelineOptions any;
    any.any_profile = any.trusted = true;
    any.domain = 0;
    const std::unique_ptr<Session> own = of(model);
    own->append(part(tokens, 0, 150), {});
    const std::unique_ptr<Session> taken = restore_session(plain, export_state(*own), &any);
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
