// Far memory that fails, each of its functions at each call in turn, once or for good: the call
// says so and the session is as it was; once the memory works again, everything is as if nothing
// had been.
#include "format/reader.h"
#include "tests/runtime/far_sessions.h"
#include "tests/runtime/model_files.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// What a session holds, without computing anything. Which pages are its own is left out: a copy
// that was made stays.
struct Held {
    std::vector<uint64_t> numbers;
    std::vector<uint16_t> kv;
    std::vector<uint32_t> tokens;

    explicit Held(Session &session) : numbers(numbers_of(session.info())), kv(held_kv(session)) {
        CHECK(numbers[6] + numbers[7] > 0);
        numbers[6] += std::exchange(numbers[7], 0);
        for (uint64_t i = 0; i < session.position(); ++i) {
            tokens.push_back(session.entry(i).token);
        }
    }
    bool operator==(const Held &) const = default;
};

// A call that goes to the bytes of pages, what is done before, and what comes of it.
struct Row {
    const char *name;
    void (*prepare)(Session &session);
    std::string (*call)(Session &session);
};

std::string text_of(const void *data, size_t size_bytes) {
    return {static_cast<const char *>(data), size_bytes};
}

std::string logits(Session &session) {
    const std::vector<float> &row = session.logits();
    return text_of(row.data(), row.size() * sizeof(float));
}

template <size_t Count> std::string append(Session &session) {
    session.append(tokens_for(*session.model(), Count), {});
    return logits(session);
}

void nothing(Session &) {}

const Row kRows[] = {
    {"append within a page", nothing, append<7>},
    {"append over pages", nothing, append<170>},
    {"decode", nothing, [](Session &session) { return std::to_string(session.decode()); }},
    {"digest", [](Session &session) { append<3>(session); },
     [](Session &session) { return to_hex(session.digest()); }},
    {"logits after a rewind", [](Session &session) { session.rewind(200, false, {}); }, logits},
    {"evict after a rewind", [](Session &session) { session.rewind(200, false, {}); },
     [](Session &session) {
         session.evict(3, 130);
         return logits(session);
     }},
    {"rewind that computes again", [](Session &session) { session.evict(0, 30); },
     [](Session &session) {
         session.rewind(140, true, {});
         return logits(session);
     }},
    {"copies of keys and values", nothing,
     [](Session &session) {
         const std::vector<uint16_t> kv = held_kv(session);
         return text_of(kv.data(), kv.size() * sizeof(uint16_t));
     }},
    {"save", nothing, [](Session &session) { return streamed(session); }},
    {"restore", nothing,
     [](Session &session) {
         return streamed(*restore_session(session.model(), export_state(session), nullptr));
     }},
    {"a session with pages reserved", nothing,
     [](Session &session) {
         TimelineOptions options;
         options.reserve = 100;
         const Session reserved(session.model(), options);
         return std::to_string(session.model()->pool->cached_bytes() > 0);
     }},
};

constexpr FarMemory::Call kAll[] = {FarMemory::kTake, FarMemory::kClear, FarMemory::kCopy,
                                    FarMemory::kRead, FarMemory::kWrite};

// Whether the call failed, as it says it does.
template <typename Work> bool fails(FarMemory::Call call, const Work &work) {
    try {
        work();
        return false;
    } catch (const Error &error) {
        CHECK(error.status() == (call == FarMemory::kTake ? Status::no_memory : Status::device));
        CHECK(std::string(error.what()).find("far memory: ") == 0);
        return true;
    }
}

// One row with one call of the memory failing; false: there is no such call.
bool trial(const Row &row, const std::string &name, const State &state, FarMemory::Call call,
           int64_t n, bool for_good, Session &host, const std::string &answer) {
    FarMemory memory(FarMemory::Reach::kernels);
    const auto model = open_on(&memory, name); // without free pages
    auto session = restore_session(model, state, nullptr), fork = session->fork();
    row.prepare(*session);
    const Held before(*session), fork_before(*fork);
    memory.fail(call, n, for_good);
    const bool failed = fails(call, [&] { row.call(*session); });
    if (failed && for_good) {
        CHECK(fails(call, [&] { row.call(*session); }));
    }
    const bool came_to_it = memory.stop_failing();
    CHECK(failed == came_to_it);
    if (failed) {
        CHECK(Held(*session) == before);
    }
    CHECK(Held(*fork) == fork_before);
    if (failed) {
        CHECK(row.call(*session) == answer);
    }
    CHECK(session->digest() == host.digest());
    CHECK(streamed(*session) == streamed(host));
    CHECK(fork->digest() == state.digest);
    session.reset();
    fork.reset();
    CHECK(model->pool->used_bytes() == 0);
    return came_to_it;
}

} // namespace

TEST_CASE("PageMemory: far memory that fails leaves the session as it was") {
    const kernels::FloatEnvironment environment;
    uint64_t failures[FarMemory::kCalls] = {};
    for (const std::string &name : far_models()) {
        const State state = export_state(*conversation(open(name)));
        for (const Row &row : kRows) {
            const auto host = restore_session(open(name), state, nullptr);
            row.prepare(*host);
            const std::string answer = row.call(*host);
            for (const FarMemory::Call call : kAll) {
                for (const bool for_good : {false, true}) {
                    CAPTURE(name);
                    CAPTURE(std::string(row.name));
                    CAPTURE(call);
                    CAPTURE(for_good);
                    int64_t n = 0; // the first one, and a share of those behind it
                    while (trial(row, name, state, call, n, for_good, *host, answer)) {
                        n += static_cast<int64_t>(n == 0 ? 1 + first_case() : stride());
                        ++failures[call];
                    }
                }
            }
        }
    }
    for (const uint64_t count : failures) {
        CHECK(count >= 4);
    }
}

namespace {

// The numbers of a session's last pages, slots beyond its position included.
std::vector<std::vector<uint16_t>> last_pages(Session &session) {
    const State state = export_state(session);
    std::vector<std::vector<uint16_t>> all;
    for (size_t group = 0; group < state.pages.size(); ++group) {
        const PageShape &shape = session.model()->pool->shape(static_cast<uint32_t>(group));
        const size_t last = state.pages[group].size() - 1;
        all.push_back(fetched(state, shape, group, last));
    }
    return all;
}

// Whether slots beyond the position hold nothing.
bool clean(Session &session) {
    const auto pages = last_pages(session);
    bool zero = true;
    for (size_t group = 0; group < pages.size(); ++group) {
        const PageShape &shape = session.model()->pool->shape(static_cast<uint32_t>(group));
        for (size_t i = 0; i < shape.elements(); ++i) {
            const bool beyond =
                i % shape.head_elements() / shape.head_dim >= session.position() % kPage;
            zero &= !beyond || pages[group][i] == 0;
        }
    }
    return zero;
}

// An append that ends in its first pass, and cannot clear what that wrote.
void leave_unclean(FarMemory &memory, Session &session) {
    std::atomic<bool> cancel{false};
    AppendOptions run;
    run.watch = {&cancel,
                 [](void *user, uint64_t, uint64_t) {
                     *static_cast<std::atomic<bool> *>(user) = true;
                     return true;
                 },
                 &cancel};
    memory.fail(FarMemory::kClear, 0, true);
    CHECK_THROWS_AS(session.append(tokens_for(*session.model(), 5), run), Error);
    CHECK(memory.stop_failing());
    CHECK(!clean(session));
}

} // namespace

TEST_CASE(
    "PageMemory: what far memory could not clear is cleared before anybody computes with it") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        const State state = export_state(*conversation(open(name)));
        const auto host = restore_session(open(name), state, nullptr);
        FarMemory memory(FarMemory::Reach::kernels);
        const auto model = open_on(&memory, name);
        const auto session = restore_session(model, state, nullptr);
        leave_unclean(memory, *session);
        check_bits(*session, *host);
        check_bits(*restore_session(open(name), export_state(*session), nullptr), *host);
        CHECK(clean(*restore_session(model, export_state(*session), nullptr)));

        memory.fail(FarMemory::kClear, 0, true); // still not
        CHECK(fails(FarMemory::kClear, [&] { append<7>(*session); }));
        CHECK(fails(FarMemory::kClear, [&] { session->decode(); }));
        memory.stop_failing();
        check_bits(*session, *host);
        CHECK(!clean(*session));

        const auto fork = session->fork(); // its copy of the page is no cleaner
        CHECK(append<7>(*fork) == append<7>(*host));
        CHECK(clean(*fork));
        check_bits(*fork, *host);
        CHECK(append<7>(*session) == logits(*host));
        CHECK(clean(*session));
        check_bits(*session, *host);

        leave_unclean(memory, *session);
        for (Session *each : {session.get(), host.get()}) {
            each->rewind(212, false, {});
        }
        CHECK(logits(*session) == logits(*host)); // on a copy, which is compared with the page
        CHECK(append<100>(*session) == append<100>(*host));
        check_bits(*session, *host);
    }
}

TEST_CASE("PageMemory: a page that goes back unclean is clean for who takes it next") {
    const kernels::FloatEnvironment environment;
    const std::string name = "zoo/gemma3-text";
    const State state = export_state(*conversation(open(name)));
    FarMemory memory(FarMemory::Reach::kernels);
    const auto model = open_on(&memory, name);
    auto session = restore_session(model, state, nullptr);
    leave_unclean(memory, *session);
    session.reset();
    const uint64_t taken = memory.count(FarMemory::kTake);
    const auto host = restore_session(open(name), state, nullptr);
    session = restore_session(model, state, nullptr);
    const uint64_t cleared = memory.count(FarMemory::kClear);
    CHECK(append<7>(*session) == append<7>(*host));
    CHECK(memory.count(FarMemory::kClear) == cleared); // nobody remembers
    CHECK(clean(*session));
    Session fresh(model, {});
    fresh.append(some_tokens(10), {});
    CHECK(clean(fresh));
    CHECK(memory.count(FarMemory::kTake) <= taken + model->groups.size());
}

TEST_CASE("PageMemory: a generation that far memory interrupts keeps its tokens and goes on") {
    const kernels::FloatEnvironment environment;
    constexpr uint64_t kEnd = 300;
    for (const std::string name : {"zoo/llama-gqa-untied", "zoo/gemma3-text"}) {
        const auto host = conversation(open(name));
        const State state = export_state(*host);
        host->set_sampling(Sampling()); // repeats itself, so that much is drafted
        GenerateOptions options;
        options.ignore_end = true;
        options.tokens_max = kEnd - host->position();
        GenerateResult result;
        host->generate(options, result);
        for (const FarMemory::Call call : kAll) {
            bool interrupted = true;
            for (size_t n = first_case(); interrupted && n < 60; n += stride()) {
                CAPTURE(name);
                CAPTURE(call);
                CAPTURE(n);
                FarMemory memory(FarMemory::Reach::kernels);
                const auto session = restore_session(open_on(&memory, name), state, nullptr);
                session->set_sampling(Sampling());
                session->set_draft(DraftOptions());
                memory.fail(call, n);
                options.tokens_max = kEnd - session->position();
                fails(call, [&] { session->generate(options, result); });
                interrupted = memory.stop_failing();
                CHECK(session->position() == 210 + result.count);
                options.tokens_max = kEnd - session->position();
                if (options.tokens_max != 0) {
                    session->generate(options, result);
                }
                check_bits(*session, *host);
                CHECK(clean(*session));
            }
        }
    }
}

TEST_CASE("PageMemory: of a step, far memory fails those whose pages it fails") {
    const kernels::FloatEnvironment environment;
    const std::string name = "zoo/gemma3-text";
    FarMemory memory(FarMemory::Reach::kernels);
    const auto model = open_on(&memory, name);
    const State state = export_state(*conversation(open(name)));
    const auto one = restore_session(model, state, nullptr), held = one->fork(),
               other = restore_session(model, state, nullptr);
    const std::vector<uint32_t> tokens = tokens_for(*model, 9);
    StepItem items[] = {{one.get(), tokens}, {other.get(), tokens}};
    memory.fail(FarMemory::kCopy, 1); // of the first, which shares its pages
    run_step(items, {});
    CHECK(memory.stop_failing());
    REQUIRE(items[0].error);
    CHECK(fails(FarMemory::kCopy, [&] { std::rethrow_exception(items[0].error); }));
    CHECK(!items[0].ended_call);
    CHECK(!items[1].error);
    CHECK(one->digest() == state.digest);
    CHECK(held->digest() == state.digest);
    const auto host = restore_session(open(name), state, nullptr);
    host->append(tokens, {});
    check_bits(*other, *host);
    one->append(tokens, {});
    check_bits(*one, *host);
}

TEST_CASE("PageMemory: a file is as it was when far memory cannot be read for a save") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : far_models()) {
        CAPTURE(name);
        const TemporaryDirectory folder;
        const std::string paths[2] = {folder.file("far"), folder.file("host")};
        FarMemory memory(FarMemory::Reach::kernels);
        const auto model = open_on(&memory, name);
        const auto host = conversation(open(name));
        const auto session = restore_session(model, export_state(*host), nullptr);
        format::SaveOptions options;
        options.parallel = parallel_on(*model->threads);
        for (int stage = 0; stage < 2; ++stage) {
            const std::string before = stage == 0 ? "" : read_bytes(paths[0]);
            for (int64_t n = 0;; ++n) {
                const State state = export_state(*session);
                memory.fail(FarMemory::kRead, n);
                const bool failed =
                    fails(FarMemory::kRead, [&] { format::save(state, paths[0], options); });
                REQUIRE(memory.stop_failing() == failed);
                if (!failed) {
                    CHECK(n >= static_cast<int64_t>(model->groups.size()));
                    break;
                }
                CHECK(std::filesystem::exists(paths[0]) == (stage == 1));
                CHECK((stage == 0 || read_bytes(paths[0]) == before));
            }
            format::save(export_state(*host), paths[1], options);
            CHECK(read_bytes(paths[0]) == read_bytes(paths[1]));
            for (Session *each : {session.get(), host.get()}) {
                each->append(tokens_for(*model, 150), {});
            }
        }
    }
}
