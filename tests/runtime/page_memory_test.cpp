// Page memory that the host cannot touch: sessions whose pages lie there hold, share, release, tell
// and save what those of the host do, and nothing but its own functions goes to its bytes. No
// forward pass runs on it here.
#include "format/reader.h"
#include "tests/runtime/far_sessions.h"
#include "tests/runtime/model_files.h"

using namespace stasis;
using namespace stasis::test;

namespace {

TimelineOptions of_domain(bool trusted = true) {
    TimelineOptions options;
    options.domain = 7;
    options.trusted = trusted;
    return options;
}

// Appends, and is cancelled when all pages are the session's own and nothing is computed yet.
void append_cancelled(Session &session, size_t count) {
    std::atomic<bool> cancel{false};
    AppendOptions run;
    run.watch = {&cancel,
                 [](void *user, uint64_t, uint64_t) {
                     *static_cast<std::atomic<bool> *>(user) = true;
                     return true;
                 },
                 &cancel};
    try {
        session.append(tokens_for(*session.model(), count), run);
        FAIL("not cancelled");
    } catch (const Error &error) {
        CHECK(error.status() == Status::cancelled);
    }
}

} // namespace

TEST_CASE("PageMemory: a session restored into far memory is the one that was saved, whatever is "
          "asked of it") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        FarMemory memory(FarMemory::Reach::nobody);
        const auto model = open_on(&memory, name);
        const auto host = conversation(open(name));
        const State state = export_state(*host);
        const auto far = restore_session(model, state, nullptr);
        const auto pair = restore_session(open(name), state, nullptr);
        check_far(*far, *pair);
        for (const format::Codec codec : {format::Codec::raw, format::Codec::zstd}) {
            CHECK(streamed(*far, codec) == streamed(*pair, codec));
        }
        CHECK(streamed(*far, format::Codec::raw, format::Keep::none) ==
              streamed(*pair, format::Codec::raw, format::Keep::none));

        const auto fork = far->fork(), pair_fork = pair->fork();
        check_far(*fork, *pair_fork);
        CHECK(fork->info().pages_own == 0);
        far->evict(20, 150);
        pair->evict(20, 150);
        check_far(*far, *pair);
        check_far(*fork, *pair_fork);
        for (const uint64_t position : {200, 192, 190}) {
            fork->rewind(position, false, {});
            pair_fork->rewind(position, false, {});
            CHECK(held_kv(*fork) == held_kv(*pair_fork)); // to ask for more, something must run
            CHECK(numbers_of(fork->info()) == numbers_of(pair_fork->info()));
        }
        CHECK(memory.taken_bytes() == model->pool->used_bytes() + model->pool->cached_bytes());
    }
}

TEST_CASE(
    "PageMemory: an append that is undone in far memory leaves what was there, copies and all") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        FarMemory memory(FarMemory::Reach::nobody);
        const auto model = open_on(&memory, name);
        const State state = export_state(*conversation(open(name)));
        const auto far = restore_session(model, state, nullptr);
        const auto pair = restore_session(open(name), state, nullptr);
        for (Session *session : {far.get(), pair.get()}) {
            append_cancelled(*session, 70); // a page more, of which nothing is left
        }
        CHECK(memory.count(FarMemory::kCopy) == 0);
        check_far(*far, *pair);
        const auto fork = far->fork(), pair_fork = pair->fork();
        for (Session *session : {fork.get(), pair_fork.get()}) {
            append_cancelled(*session, 7);
        }
        CHECK(memory.count(FarMemory::kCopy) == model->groups.size());
        check_far(*far, *pair);
        check_far(*fork, *pair_fork);
        for (const std::vector<Page> &pages : export_state(*fork).pages) {
            CHECK(pages.back().kept());
        }
    }
}

TEST_CASE("PageMemory: states go from far memory to the host, to far memory and to files") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        FarMemory memory(FarMemory::Reach::nobody), other(FarMemory::Reach::nobody);
        const auto model = open_on(&memory, name), elsewhere = open_on(&other, name);
        const auto host = conversation(open(name));
        const auto far = restore_session(model, export_state(*host), nullptr);
        const State state = export_state(*far);
        for (const std::vector<Page> &pages : state.pages) {
            for (const Page &page : pages) {
                CHECK(page.data == nullptr);
            }
            CHECK(pages.back().far);
        }
        CHECK(state.pages.back().front().kept() == export_state(*host).pages.back().front().kept());
        check_far(*restore_session(open(name), state, nullptr), *host);
        check_far(*restore_session(elsewhere, state, nullptr), *host);
        const StoredPages pages{
            [&](size_t group, uint64_t index) { return state.pages[group][index].kept(); },
            [&](std::span<const PageInto> into) {
                for (const auto &[group, index, to] : into) {
                    const PageShape &shape = model->pool->shape(static_cast<uint32_t>(group));
                    std::ranges::copy(fetched(state, shape, group, index), to);
                }
            },
            nullptr, nullptr};
        CHECK(!verify(open(name), export_state(*host), pages, VerifyOptions()).first);
    }
}

namespace {

// What a model's pool says of itself while sessions of one domain come and go.
std::vector<std::vector<uint64_t>> shared_life(const std::shared_ptr<Model> &model,
                                               const State &state, const State &shorter) {
    std::vector<std::vector<uint64_t>> told;
    const auto note = [&](const Session *session) {
        told.push_back(numbers_of(*model->pool));
        if (session != nullptr) {
            told.push_back(numbers_of(session->info()));
        }
    };
    const TimelineOptions trusted = of_domain(), untrusted = of_domain(false);
    auto first = restore_session(model, state, &trusted);
    note(first.get());
    auto second = restore_session(model, state, &trusted); // all its full pages are known
    note(second.get());
    const auto liar = restore_session(model, shorter, &untrusted);
    note(liar.get());
    first->evict(0, 70);
    note(first.get());
    first.reset();
    second.reset(); // its pages are idle now, with their contents
    note(nullptr);
    second = restore_session(model, shorter, &trusted);
    note(second.get());
    const Session reserved(model, [] {
        TimelineOptions options;
        options.reserve = 300;
        return options;
    }());
    note(&reserved);
    return told;
}

} // namespace

TEST_CASE("PageMemory: far pages are shared, kept and counted as those of the host, and reused") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        const auto session = conversation(open(name), 250);
        const State state = export_state(*session);
        session->rewind(200, true, {});
        const State shorter = export_state(*session);
        FarMemory memory(FarMemory::Reach::nobody);
        const auto model = open_on(&memory, name);
        const auto told = shared_life(model, state, shorter);
        CHECK(told == shared_life(open_on(nullptr, name), state, shorter));
        if (model->groups.back().window == 0) {
            CHECK(told[2][0] < told[0][0] + told[0][0] / 2); // what two sessions use
            CHECK(told[3][9] == 256);                        // tokens reused
        }
        const uint64_t taken = memory.count(FarMemory::kTake),
                       written = memory.count(FarMemory::kWrite);
        const TimelineOptions trusted = of_domain();
        const auto again = restore_session(model, shorter, &trusted);
        check_bits(*again, *session);
        CHECK(memory.count(FarMemory::kTake) == taken); // free pages were there
        CHECK(memory.count(FarMemory::kWrite) == written + model->groups.size()); // the last ones
    }
}

TEST_CASE("PageMemory: a budget bounds far memory, and what is free gives way") {
    const kernels::FloatEnvironment environment;
    const std::string name = "zoo/gemma3-text";
    const auto host = conversation(open(name));
    const State state = export_state(*host);
    const uint64_t bytes = restore_session(open_on(nullptr, name), state, nullptr)->info().kv_bytes;
    FarMemory memory(FarMemory::Reach::nobody);
    const auto model = open_on(&memory, name, 2 * bytes + bytes / 2);
    const TimelineOptions trusted = of_domain();
    auto first = restore_session(model, state, nullptr);
    auto second = restore_session(model, state, &trusted);
    const std::vector<uint64_t> before = numbers_of(*model->pool);
    CHECK(before[0] == 2 * bytes);
    try {
        restore_session(model, state, nullptr);
        FAIL("taken beyond the budget");
    } catch (const Error &error) {
        CHECK(error.status() == Status::pool_exhausted);
    }
    CHECK(numbers_of(*model->pool)[0] == before[0]);
    CHECK(memory.taken_bytes() <= model->pool->budget_bytes());
    check_bits(*first, *host);
    check_bits(*second, *host);
    first.reset();
    second.reset(); // idle, until room is needed
    first = restore_session(model, state, nullptr);
    second = restore_session(model, state, nullptr);
    CHECK(memory.taken_bytes() <= model->pool->budget_bytes());
    check_bits(*first, *host);
    check_bits(*second, *host);
}

TEST_CASE("PageMemory: files of far sessions are those of the host's, and their commits") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        const TemporaryDirectory folder;
        FarMemory memory(FarMemory::Reach::nobody);
        const auto model = open_on(&memory, name);
        const auto session = conversation(open(name));
        const auto begin = session->fork();
        begin->rewind(150, true, {});
        const auto other = session->fork(); // parts from the others within a page
        other->rewind(150, true, {});
        other->append(tokens_for(*model, 90), {});
        const std::string paths[2] = {folder.file("far"), folder.file("host")};
        std::shared_ptr<const format::Contents> known[2];
        for (Session *stage : {begin.get(), session.get(), other.get(), begin.get()}) {
            for (const bool host : {false, true}) {
                const auto saved =
                    restore_session(host ? open(name) : model, export_state(*stage), nullptr);
                format::SaveOptions options;
                options.known = known[host];
                options.parallel = parallel_on(*model->threads);
                known[host] = format::save(export_state(*saved), paths[host], options);
                CHECK(known[host]->state.fetch == nullptr); // keeps no page
            }
            CHECK(read_bytes(paths[0]) == read_bytes(paths[1]));
            const auto snapshot = format::Snapshot::open(paths[0]);
            const StoredPages pages{
                [&](size_t group, uint64_t index) { return snapshot->stored(group, index); },
                [&](std::span<const PageInto> into) { snapshot->read(into); }, nullptr, nullptr};
            const auto loaded = restore_session(model, snapshot->state(), nullptr, pages, Watch());
            check_bits(*loaded, *stage);
        }
        CHECK(memory.taken_bytes() == model->pool->cached_bytes());
    }
}
