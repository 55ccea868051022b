// Handles of stasis.hpp: what can be copied, moves, use after a move, lifetimes, errors.
#include <type_traits>

#include "tests/cpp/fixture.h"

using namespace cpp_test;

namespace {

template <typename Handle>
constexpr bool kMovedAlone =
    std::is_nothrow_move_constructible_v<Handle> &&std::is_nothrow_move_assignable_v<Handle> &&
    !std::is_copy_constructible_v<Handle> && !std::is_copy_assignable_v<Handle>;

static_assert(kMovedAlone<stasis::Model>);
static_assert(kMovedAlone<stasis::Session>);
static_assert(kMovedAlone<stasis::Snapshot>);
static_assert(kMovedAlone<stasis::Scheduler>);
static_assert(kMovedAlone<stasis::Cancel>);
static_assert(kMovedAlone<stasis::TextStream>);
static_assert(std::is_move_constructible_v<stasis::Generation>);
static_assert(!std::is_copy_constructible_v<stasis::Generation>);
static_assert(!std::is_copy_constructible_v<stasis::Reply>);
static_assert(!std::is_default_constructible_v<stasis::Session>);
static_assert(std::is_base_of_v<std::runtime_error, stasis::Error>);

// An object moved to itself, which a compiler would warn of.
template <typename Handle> void move_to_itself(Handle &handle) {
    Handle &same = handle;
    handle = std::move(same);
}

} // namespace

TEST_CASE("Session: moves take the state along, to itself too") {
    stasis::Session session = talk();
    const stasis::Digest before = session.digest();
    stasis::Session other = std::move(session);
    CHECK(other.digest() == before);
    move_to_itself(other);
    CHECK(other.digest() == before);
    session = std::move(other); // to one that was moved from
    CHECK(session.digest() == before);
    other = stasis::Session(recall());
    CHECK(other.position() == 0);
    other = session.fork(); // the one before is freed
    CHECK(other.digest() == before);
    std::swap(session, other);
    CHECK(session.digest() == before);
}

TEST_CASE("Session: after a move every call is an error, and nothing crashes") {
    stasis::Session session = talk();
    stasis::Session moved = std::move(session);
    const auto refused = [](const auto &function) {
        return status_of(function, "session") == Status::InvalidArgument;
    };
    const std::vector<stasis::Token> tokens{5, 6};
    const std::vector<std::uint32_t> bits{1};
    std::ostringstream out;
    CHECK(session.raw() == nullptr);
    CHECK(refused([&] { session.position(); }));
    CHECK(refused([&] { session.digest(); }));
    CHECK(refused([&] { session.tokens(); }));
    CHECK(refused([&] { session.sources(); }));
    CHECK(refused([&] { session.text(0, 0); }));
    CHECK(refused([&] { session.kv(0, 0, 0); }));
    CHECK(refused([&] { session.attention(); }));
    CHECK(refused([&] { session.fork(); }));
    CHECK(refused([&] { session.append(tokens); }));
    CHECK(refused([&] { session.append_message("user", "x"); }));
    CHECK(refused([&] { session.append_chat("{}", stasis::ReplyPrompt::No); }));
    CHECK(refused([&] { session.chat_tokens("{}", stasis::ReplyPrompt::No); }));
    CHECK(refused([&] { session.reply(); }));
    CHECK(refused([&] { session.say("x").text(); }));
    CHECK(refused([&] { session.generate().next(); }));
    CHECK(refused([&] { session.decode(); }));
    CHECK(refused([&] { session.logits(); }));
    CHECK(refused([&] { session.top(1); }));
    CHECK(refused([&] { session.score(tokens); }));
    CHECK(refused([&] { session.sample(); }));
    CHECK(refused([&] { session.set_sampling({}); }));
    CHECK(refused([&] { session.set_constraint(stasis::Constraint::json()); }));
    CHECK(refused([&] { session.set_allowed(bits); }));
    CHECK(refused([&] { session.draft_by_lookup(); }));
    CHECK(refused([&] { session.draft_off(); }));
    CHECK(refused([&] { session.rewind(0); }));
    CHECK(refused([&] { session.evict(0, 0); }));
    CHECK(refused([&] { session.save("nowhere"); }));
    CHECK(refused([&] { session.write(out); }));
    CHECK(refused([&] { session.snapshot(); }));
    CHECK(refused([&] { session.set_trace(std::nullopt); }));
    CHECK(refused([&] { session.take_trace(1); }));
    CHECK(out.str() == "");
}

TEST_CASE("Handles: after a move every call is an error, and nothing crashes") {
    const auto refused = [](const auto &function) {
        return status_of(function) == Status::InvalidArgument;
    };
    stasis::Model model(test_data("zoo/llama-gqa-untied"));
    stasis::Session session(model);
    stasis::Model taken = std::move(model);
    move_to_itself(taken);
    CHECK(taken.info().vocabulary > 0);
    CHECK(refused([&] { model.info(); }));
    CHECK(refused([&] { model.stats(); }));
    CHECK(refused([&] { model.tokenize("x"); }));
    CHECK(refused([&] { model.embed({}); }));
    CHECK(refused([&] { stasis::Session other(model); }));
    CHECK(refused([&] { stasis::Session::load(model, "nowhere"); }));
    CHECK(refused([&] { stasis::Scheduler other(model); }));
    CHECK(refused([&] { stasis::TextStream other(model); }));
    CHECK(refused([&] { session.draft_by_model(model); })); // which as NULL would mean a search

    stasis::Snapshot snapshot = session.snapshot();
    stasis::Snapshot snapshot_taken = std::move(snapshot);
    move_to_itself(snapshot_taken);
    CHECK(snapshot_taken.info().position == 0);
    CHECK(refused([&] { snapshot.info(); }));
    CHECK(refused([&] { snapshot.tokens(); }));
    CHECK(refused([&] { snapshot.element(stasis::Element::Logits); }));
    CHECK(refused([&] { snapshot.compare(snapshot_taken); }));
    CHECK(refused([&] { snapshot_taken.compare(snapshot); }));
    CHECK(refused([&] { snapshot.verify(taken); }));

    stasis::Scheduler scheduler(taken);
    stasis::Scheduler scheduler_taken = std::move(scheduler);
    CHECK(refused([&] { scheduler.stats(); }));
    CHECK(refused([&] { scheduler.next(std::chrono::milliseconds(0)); }));
    CHECK(refused([&] { scheduler.submit(session); }));
    CHECK(refused([&] { scheduler.events().next(); }));
    scheduler.stop(); // ignores it, as the library does
    stasis::Session moved = std::move(session);
    CHECK(refused([&] { scheduler_taken.next(session); })); // which as NULL would mean any
    CHECK(refused([&] { scheduler_taken.submit(session); }));

    stasis::TextStream stream(taken);
    stasis::TextStream stream_taken = std::move(stream);
    CHECK(refused([&] { stream.push(1); }));
    CHECK(stream_taken.push(1).text == "");

    stasis::Cancel cancel;
    stasis::Cancel cancel_taken = std::move(cancel);
    move_to_itself(cancel_taken);
    cancel.request();
    CHECK(cancel.progress().total == 0);
    const std::vector<stasis::Token> tokens{5, 6};
    CHECK(refused([&] { moved.append(tokens, {.cancel = &cancel}); }));
    CHECK(moved.position() == 0);
    moved.append(tokens, {.cancel = &cancel_taken});
    CHECK(moved.position() == 2);

    stasis::Generation generation = moved.generate({.tokens_max = 2});
    stasis::Generation generation_taken = std::move(generation);
    move_to_itself(generation_taken);
    CHECK(refused([&] { (void)generation.next(); }));
    CHECK(refused([&] { (void)generation.result(); }));
    CHECK(generation_taken.next()->position == 2);
}

TEST_CASE("Handles: a session outlives its model, and a generation its session") {
    std::optional<stasis::Model> model(std::in_place, test_data("zoo/llama-gqa-untied"));
    std::optional<stasis::Session> session(std::in_place, *model);
    model.reset();
    const std::vector<stasis::Token> tokens{5, 6, 7};
    session->append(tokens);
    stasis::Generation generation = session->generate({.tokens_max = 4});
    CHECK(generation.next()->position == 3);
    session.reset();
    CHECK(status_of([&] { (void)generation.next(); }) == Status::NotFound);
}

TEST_CASE("Error: status and message of the library, and statuses have names") {
    try {
        stasis::Model model("nowhere/at all");
        FAIL("it is not there");
    } catch (const stasis::Error &error) {
        CHECK(error.status() == Status::NotFound);
        CHECK(std::string(error.what()).find("nowhere/at all") != std::string::npos);
    }
    CHECK(std::string(name_of(Status::PoolExhausted)) == "POOL_EXHAUSTED");
    for (stasis_status status = STASIS_OK; status <= STASIS_TIMEOUT; ++status) {
        CHECK(std::string(name_of(static_cast<Status>(status))) != "UNKNOWN");
    }
    CHECK(std::string(name_of(static_cast<Status>(STASIS_TIMEOUT + 1))) == "UNKNOWN");
    CHECK(stasis::version() == STASIS_HEADER_VERSION);
    CHECK(stasis::build() == stasis_build());
    // What C would cut at its first zero is refused instead.
    stasis::Session session(recall());
    using namespace std::string_literals;
    const auto refused = [](const auto &function) {
        return status_of(function, "zero byte") == Status::InvalidArgument;
    };
    CHECK(refused([&] { session.append_message("user\0x"s, "x"); }));
    CHECK(refused([&] { (void)session.say("x", {.stop_strings = {"a\0b"s}}); }));
    CHECK(refused([&] { session.save("a\0b"s); }));
    CHECK(refused([&] { stasis::Snapshot snapshot("a\0b"s); }));
    CHECK(refused([&] { stasis::Model model(test_data("recall-gemma3"), {.date = "2\0"s}); }));
    CHECK(session.position() == 0);
}

TEST_CASE("Digest: compares, and is written in hexadecimal") {
    stasis_digest raw{};
    raw.bytes[0] = 0x0a;
    raw.bytes[31] = 0xf9;
    const stasis::Digest digest = raw;
    CHECK(digest.hex() == "0a" + std::string(60, '0') + "f9");
    CHECK(digest != stasis::Digest());
    CHECK(digest > stasis::Digest());
    const stasis::Session session = talk();
    CHECK(session.digest().hex() ==
          "60a1157e41d795dd7dafee5c4ed90d555c40ce4f95c73ac73c9e546d171bb913");
}
