// Sessions that grow in far memory, the CPU's kernels standing in for a device's: the whole life of
// a session gives the bits that it gives on the host, and is told of in the same words.
#include "runtime/snapshot/verify.h"
#include "tests/runtime/far_sessions.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// What is told while a session lives: digests, what it holds, what it answers.
struct Life {
    std::vector<Digest> digests;
    std::vector<std::vector<uint64_t>> numbers;
    std::vector<std::vector<uint16_t>> kv;
    std::vector<std::string> files;
    std::vector<std::vector<float>> rows;
    std::vector<std::vector<uint64_t>> events; // of the trace

    void note(Session &session) {
        digests.push_back(session.digest());
        numbers.push_back(numbers_of(session.info()));
        kv.push_back(held_kv(session));
        files.push_back(streamed(session));
        rows.push_back(session.logits());
    }
    static void hear(void *user, const TraceEvent &event) noexcept {
        static_cast<Life *>(user)->events.push_back({static_cast<uint64_t>(event.kind), event.group,
                                                     event.begin, event.end, event.bytes,
                                                     event.digest.bytes[0]});
    }
};

void generate(Session &session, uint64_t count, bool drafts, Life &life) {
    if (drafts) {
        session.set_draft(DraftOptions());
    }
    GenerateOptions options;
    options.tokens_max = count;
    options.ignore_end = true;
    GenerateResult result;
    session.generate(options, result);
    life.numbers.push_back({result.count, result.drafted, result.accepted, result.passes});
    session.set_draft({});
}

Life live(const std::shared_ptr<Model> &model, Tracking tracking) {
    Life life;
    TimelineOptions options;
    options.tracking = tracking;
    Session session(model, options);
    const TraceListener listener{Life::hear, &life, true};
    session.set_trace(&listener);
    session.append(some_tokens(100), {});
    life.note(session);
    Sampling greedy;
    session.set_sampling(greedy);
    generate(session, 40, false, life);
    generate(session, 60, true, life); // repeats itself, so that much is drafted
    life.note(session);
    const auto fork = session.fork();
    fork->append(tokens_for(*model, 30), {});
    session.rewind(190, false, {});
    life.note(session); // runs the last token again, on a copy of its page
    life.note(*fork);
    session.evict(10, 150);
    life.note(session);
    session.append(tokens_for(*model, 70, 3), {});
    life.note(session);
    const std::vector<uint32_t> five = some_tokens(5);
    StepItem items[] = {{&session, five}, {fork.get(), {}, true}};
    run_step(items, {});
    life.note(session);
    life.note(*fork);
    session.rewind(120, true, {}); // below what was evicted: computed anew
    life.note(session);
    if (tracking != Tracking::off) {
        std::vector<uint64_t> sums;
        session.received(false, sums);
        life.numbers.push_back(sums);
    }
    const State state = export_state(*fork);
    life.note(*restore_session(model, state, nullptr));
    return life;
}

void check_same_life(const Life &far, const Life &host) {
    CHECK(far.digests == host.digests);
    CHECK(far.numbers == host.numbers);
    CHECK(far.kv == host.kv);
    CHECK(far.files == host.files);
    CHECK(far.rows == host.rows);
    CHECK(far.events == host.events);
}

} // namespace

TEST_CASE("PageMemory: a session that grows in far memory is the host's, bit for bit") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        for (const Tracking tracking : {Tracking::off, Tracking::total}) {
            CAPTURE(name);
            FarMemory memory(FarMemory::Reach::kernels);
            check_same_life(live(open_on(&memory, name), tracking),
                            live(open_on(nullptr, name), tracking));
        }
    }
}

TEST_CASE("PageMemory: only a pass is in far memory itself: its pages are digested, known and "
          "released outside") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        FarMemory memory(FarMemory::Reach::kernels);
        const auto model = open_on(&memory, name), near = open_on(nullptr, name);
        TimelineOptions options;
        options.domain = 1;
        Session far(model, options), host(near, options);
        Life life;
        const TraceListener listener{Life::hear, &life, true};
        far.set_trace(&listener);
        struct Pass {
            FarMemory &memory;
            size_t rows;
        } pass{memory, 0};
        AppendOptions run;
        run.chunk = 100;
        run.watch.user = &pass;
        run.watch.progress = [](void *user, uint64_t, uint64_t) {
            static_cast<Pass *>(user)->memory.allow(true);
            return true;
        };
        run.logits_user = &pass;
        run.logits = [](void *user, uint64_t, const float *, size_t) {
            static_cast<Pass *>(user)->memory.allow(false); // the pass is over
            ++static_cast<Pass *>(user)->rows;
            return true;
        };
        const std::vector<uint32_t> tokens = tokens_for(*model, 450);
        far.append(tokens, run);
        CHECK(pass.rows == 450);
        memory.allow(false);
        host.append(tokens, {});
        check_bits(far, host);
        far.evict(30, 400);
        host.evict(30, 400);
        check_bits(far, host);
        const auto fork = far.fork();
        check_bits(*fork, host);
        CHECK(!life.events.empty());
    }
}

TEST_CASE("PageMemory: sessions of one domain share what they compute in far memory") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        FarMemory memory(FarMemory::Reach::kernels);
        const std::shared_ptr<Model> models[2] = {open_on(&memory, name), open_on(nullptr, name)};
        Life lives[2];
        for (int i = 0; i < 2; ++i) {
            TimelineOptions options;
            options.domain = 1;
            const std::vector<uint32_t> tokens = tokens_for(*models[i], 200);
            Session first(models[i], options);
            first.append(std::span(tokens).first(150), {});
            Session second(models[i], options);
            second.append(tokens, {});                        // two full pages are there
            first.append(std::span(tokens).subspan(150), {}); // the third is exchanged for its own
            lives[i].note(first);
            lives[i].note(second);
            lives[i].numbers.push_back(numbers_of(*models[i]->pool));
        }
        check_same_life(lives[0], lives[1]);
    }
}

TEST_CASE(
    "PageMemory: what is computed in far memory is verified on the host, and the other way round") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        FarMemory memory(FarMemory::Reach::kernels);
        const std::shared_ptr<Model> far = open_on(&memory, name), host = open_on(nullptr, name);
        for (const auto &[one, other] : {std::pair{far, host}, std::pair{host, far}}) {
            const std::shared_ptr<Model> &verifier = other;
            const State state = export_state(*conversation(one));
            std::vector<std::vector<std::vector<uint16_t>>> data; // [group][page]
            for (size_t group = 0; group < state.pages.size(); ++group) {
                data.emplace_back();
                for (uint64_t index = 0; index < state.pages[group].size(); ++index) {
                    const PageShape &shape = one->pool->shape(static_cast<uint32_t>(group));
                    std::vector<uint16_t> &page = data[group].emplace_back(shape.elements());
                    const Page &given = state.pages[group][index];
                    if (given.far) {
                        page = fetched(state, shape, group, index);
                    } else if (given.data != nullptr) {
                        std::copy_n(given.data, page.size(), page.begin());
                    }
                }
            }
            const StoredPages pages{
                [&](size_t group, uint64_t index) { return state.pages[group][index].kept(); },
                [&](std::span<const PageInto> into) {
                    for (const auto &[group, index, to] : into) {
                        std::ranges::copy(data[group][index], to);
                    }
                },
                nullptr, nullptr};
            CHECK(!verify(verifier, state, pages, VerifyOptions()).first);
            CHECK(!audit(verifier, state, pages, AuditOptions()).first);
            const auto again = recompute_session(verifier, state, nullptr, pages, Watch());
            CHECK(again->digest() == state.digest);
            // A forgery is found where it is.
            State lie = state;
            const size_t last = state.pages[0].size() - 1;
            const PageShape &shape = one->pool->shape(0);
            data[0][last][shape.offset(0, 1, 0)] ^= 1;
            lie.pages[0][last].digest =
                page_digest({0, last, data[0][last].data(), shape.rows(), kPage,
                             lie.pages[0][last].valid, shape.head_dim});
            const auto found = verify(verifier, lie, pages, VerifyOptions()).first;
            REQUIRE(found);
            CHECK(found->position == last * kPage);
            CHECK(found->layer == one->groups[0].layers[0]);
        }
    }
}
