// Schedulers and steps of stasis.hpp: each session gets the bits that it gets alone.
#include <map>
#include <thread>

#include "tests/cpp/fixture.h"

using namespace cpp_test;

namespace {

constexpr const char *kThird = "If we increment k by 1, what is the new value of m?";

// What a session says alone, with its digest after it.
std::pair<std::string, stasis::Digest> alone(const stasis::Session &from, const char *text) {
    stasis::Session session = from.fork();
    std::string reply = session.say(text, {.tokens_max = 12}).text();
    return {std::move(reply), session.digest()};
}

} // namespace

TEST_CASE("Scheduler: events of all sessions, with the texts and bits that each has alone") {
    const stasis::Session start = talk();
    std::vector<stasis::Session> sessions;
    std::map<const stasis_session *, std::string> texts;
    stasis::Scheduler scheduler(recall(), {.sessions_max = 2, .events_max = 4});
    const char *said[] = {kSecond, kThird, kFirst};
    int marks[3] = {};
    for (std::size_t i = 0; i < 3; ++i) {
        sessions.push_back(start.fork());
        scheduler.submit(sessions[i], stasis::Prompt::message(said[i]), {.tokens_max = 12},
                         &marks[i]);
    }
    CHECK(status_of([&] { sessions[0].decode(); }) == Status::Busy);
    CHECK(status_of([&] { scheduler.submit(sessions[0]); }) == Status::Busy);
    std::size_t ends = 0;
    for (const stasis::SchedulerEvent &event : scheduler.events()) {
        texts[event.session] += event.generated.text;
        CHECK(event.pass > 0);
        if (event.end) {
            ++ends;
            CHECK(!event.end->error);
            CHECK(event.generated.last);
            CHECK(event.end->count > 0);
        }
        for (std::size_t i = 0; i < 3; ++i) {
            CHECK(event.of(sessions[i]) == (event.user == &marks[i]));
        }
    }
    CHECK(ends == 3);
    for (std::size_t i = 0; i < 3; ++i) {
        const auto [text, digest] = alone(start, said[i]);
        CHECK(texts[sessions[i].raw()] == text);
        CHECK(sessions[i].digest() == digest);
    }
    const stasis::SchedulerStats stats = scheduler.stats();
    CHECK(stats.most_together == 3);
    CHECK(stats.sessions == 0);
    CHECK(status_of([&] { scheduler.next(sessions[0]); }) == Status::NotFound);
    CHECK(!scheduler.next(std::chrono::milliseconds(0)));
    CHECK(!scheduler.next(std::chrono::milliseconds(-1)));
}

TEST_CASE("Scheduler: threads that each read one session's events") {
    const stasis::Session start = talk();
    stasis::Scheduler scheduler(recall());
    std::vector<stasis::Session> sessions;
    std::vector<std::string> texts(4);
    for (std::size_t i = 0; i < 4; ++i) {
        sessions.push_back(start.fork());
        scheduler.submit(sessions[i], stasis::Prompt::message(kSecond), {.tokens_max = 12});
    }
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
            for (const stasis::SchedulerEvent &event : scheduler.events(sessions[i])) {
                texts[i] += event.generated.text;
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    const auto [text, digest] = alone(start, kSecond);
    for (std::size_t i = 0; i < 4; ++i) {
        CHECK(texts[i] == text);
        CHECK(sessions[i].digest() == digest);
    }
}

TEST_CASE("Scheduler: sessions that are cancelled, moved, freed; tokens as a prompt; stop") {
    const stasis::Session start = talk();
    stasis::Session first = start.fork(), second = start.fork(), third = start.fork();
    stasis::Scheduler scheduler(recall());
    const std::vector<stasis::Token> tokens = recall().tokenize(kThird);
    scheduler.submit(first, {.tokens = tokens},
                     {.tokens_max = 3, .ignore_end = true, .log_probabilities = 2});
    scheduler.submit(second, stasis::Prompt::message(kSecond, "user"));
    scheduler.submit(third, {});
    scheduler.cancel(second);
    stasis::Session moved = std::move(first); // its events are its
    { const stasis::Session freed = std::move(third); }
    std::size_t drawn = 0;
    for (const stasis::SchedulerEvent &event : scheduler.events()) {
        if (event.of(moved)) {
            drawn += !event.end;
            CHECK(event.generated.best.size() == (event.end ? 0 : 2));
        } else {
            CHECK(event.of(second));
            REQUIRE(event.end);
            REQUIRE(event.end->error);
            CHECK(event.end->error->status() == Status::Cancelled);
        }
    }
    CHECK(drawn == 3);
    CHECK(moved.position() == 36 + tokens.size() + 3);
    CHECK(second.digest() == start.digest());
    CHECK(status_of([&] { scheduler.cancel(second); }) == Status::NotFound);
    CHECK(status_of([&] { scheduler.submit(second, {}, {.stop_strings = {""}}); }) ==
          Status::InvalidArgument);
    scheduler.submit(second);
    scheduler.stop();
    CHECK(status_of([&] { scheduler.events().next(); }) == Status::Cancelled);
    CHECK(second.digest() == start.digest());
    CHECK(second.say(kSecond).text() == "m is 55."); // it was let go of
}

TEST_CASE("Scheduler: conversations as prompts, and one that the log differs from") {
    const std::string first = R"({"messages": [{"role": "user", "content": "What is k?"}]})";
    const std::string other = R"({"messages": [{"role": "user", "content": "What is m?"}]})";
    const auto begin = [] { return stasis::Session(recall(), {.domain = STASIS_DOMAIN_PRIVATE}); };
    const auto digest_alone = [&](const std::string &conversation) {
        stasis::Session session = begin();
        CHECK(!session.append_chat(conversation, stasis::ReplyPrompt::Yes));
        for (const stasis::Generated &generated : session.generate({.tokens_max = 12})) {
            (void)generated;
        }
        return session.digest();
    };
    stasis::Scheduler scheduler(recall(), {.slice = 16});
    stasis::Session session = begin();
    const auto run = [&](const std::string &conversation) {
        scheduler.submit(session, {.conversation = conversation}, {.tokens_max = 12});
        for (const stasis::SchedulerEvent &event : scheduler.events()) {
            CHECK(!(event.end && event.end->error));
        }
        return session.digest();
    };
    const stasis::Digest digest = run(first);
    CHECK(digest == digest_alone(first));
    CHECK(status_of([&] { run(other); }) == Status::Conflict);
    CHECK(session.digest() == digest);
    session.rewind(session.chat_tokens(other, stasis::ReplyPrompt::Yes).position);
    CHECK(run(other) == digest_alone(other));
    CHECK(status_of([&] { run("["); }, "conversation") == Status::InvalidArgument);
    CHECK(status_of([&] { scheduler.submit(session, {.tokens = {1}, .conversation = other}); }) ==
          Status::InvalidArgument);
}

TEST_CASE("step: sessions append and draw together as they would alone, and fail alone") {
    const stasis::Session start = talk();
    stasis::Session first = start.fork(), second = start.fork(), alone_first = start.fork();
    stasis::Session small(recall(), {.capacity = 2});
    const std::vector<stasis::Token> tokens = recall().tokenize(kThird);
    std::vector<stasis::StepItem> items{{.session = &first, .tokens = tokens, .sample = true},
                                        {.session = &second, .sample = true},
                                        {.session = &small, .tokens = tokens}};
    stasis::step(items, {.chunk = 8});
    alone_first.append(tokens);
    CHECK(*items[0].token == alone_first.decode());
    CHECK(first.digest() == alone_first.digest());
    CHECK(second.position() == 37);
    CHECK(items[1].token);
    CHECK(!items[1].error);
    CHECK(!items[2].token);
    REQUIRE(items[2].error);
    CHECK(items[2].error->status() == Status::Full);
    CHECK(small.position() == 0);
    std::vector<stasis::StepItem> twice{{.session = &first, .sample = true},
                                        {.session = &first, .sample = true}};
    CHECK(status_of([&] { stasis::step(twice); }) == Status::InvalidArgument);
    CHECK(!twice[0].token);
    CHECK(status_of([&] {
              std::vector<stasis::StepItem> none(1);
              stasis::step(none);
          }) == Status::InvalidArgument);
    CHECK(thrown_by([&] {
              stasis::step(items, {.progress = [](auto, auto) { throw Thrown{3}; }});
          }) == 3);
    stasis::step({});
}
