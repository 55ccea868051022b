// Generation, replies and text streams of stasis.hpp: ranges over tokens, which say what the C
// functions say.
#include <algorithm>
#include <atomic>
#include <ranges>
#include <thread>

#include "tests/cpp/fixture.h"

using namespace cpp_test;

namespace {

static_assert(std::ranges::input_range<stasis::Generation>);
static_assert(std::ranges::input_range<stasis::Reply>);
static_assert(std::ranges::input_range<stasis::Events>);
static_assert(std::ranges::view<stasis::Generation>);
static_assert(std::ranges::view<stasis::Reply>);
static_assert(!std::ranges::forward_range<stasis::Generation>);
static_assert(std::same_as<std::ranges::range_value_t<stasis::Generation>, stasis::Generated>);
static_assert(std::same_as<std::ranges::range_value_t<stasis::Reply>, std::string>);

// What stasis_session_generate tells its callback.
std::vector<stasis::Generated> told(stasis::Session &session, stasis_generate_options options) {
    std::vector<stasis::Generated> heard;
    options.struct_size = sizeof options;
    options.callback_user = &heard;
    options.callback = [](void *user, const stasis_generated *generated) {
        auto &to = *static_cast<std::vector<stasis::Generated> *>(user);
        to.push_back({.token = generated->token,
                      .position = generated->position,
                      .text = std::string(generated->text, generated->length),
                      .last = generated->last != 0,
                      .log_probability = generated->log_probability});
        for (std::uint32_t i = 0; i < generated->log_probability_count; ++i) {
            to.back().best.push_back(
                {generated->best_tokens[i], generated->best_log_probabilities[i]});
        }
        return 0;
    };
    REQUIRE(stasis_session_generate(session.raw(), &options, nullptr, nullptr) == STASIS_OK);
    return heard;
}

bool same(const stasis::Generated &a, const stasis::Generated &b) {
    return a.token == b.token && a.position == b.position && a.text == b.text && a.last == b.last &&
           a.log_probability == b.log_probability && a.best == b.best;
}

} // namespace

TEST_CASE("Generation: gives what the C function tells its callback, bit for bit") {
    stasis::Session session = talk();
    session.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    stasis::Session other = session.fork();
    stasis_generate_options raw{};
    raw.tokens_max = 40;
    raw.log_probability_count = 3;
    const std::vector<stasis::Generated> expected = told(other, raw);
    std::vector<stasis::Generated> given;
    stasis::Generation generation = session.generate({.tokens_max = 40, .log_probabilities = 3});
    for (const stasis::Generated &generated : generation) {
        CHECK(generated.position == session.position() - 1); // in the log, and it can be read
        given.push_back(generated);
    }
    CHECK(std::ranges::equal(given, expected, same));
    CHECK(given.front().best.size() == 3);
    CHECK(given.front().best.front().token == given.front().token);
    CHECK(session.digest() == other.digest());
    CHECK(generation.stop() == stasis::Stop::EndToken);
    CHECK(generation.result().count == given.size());
    CHECK(!generation.next());               // over, and stays so
    session.append_message("user", kSecond); // the session is free
}

TEST_CASE("Generation: stop strings, stop tokens, end tokens and lengths") {
    stasis::Session session = talk();
    session.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    const auto text_of = [&](const stasis::GenerateOptions &options, stasis::Stop stop) {
        stasis::Session fork = session.fork();
        stasis::Generation generation = fork.generate(options);
        std::string text;
        bool held_back = false;
        for (const stasis::Generated &generated : generation) {
            text += generated.text;
            CHECK(!held_back); // the last one
            held_back = generated.last;
        }
        CHECK(generation.stop() == stop);
        return text;
    };
    CHECK(text_of({}, stasis::Stop::EndToken) == "m is 55.");
    CHECK(text_of({.tokens_max = 2}, stasis::Stop::Length) == "m is");
    CHECK(text_of({.stop_strings = {"no such", "55"}}, stasis::Stop::String) == "m is ");
    CHECK(text_of({.stop_strings = {"is 55.!"}}, stasis::Stop::EndToken) == "m is 55."); // held
    const stasis::Token is = recall().tokenize(" is").front();
    CHECK(text_of({.stop_tokens = {is}}, stasis::Stop::EndToken) == "m");
    CHECK(text_of({.tokens_max = 9, .ignore_end = true}, stasis::Stop::Length).size() >= 8);
}

TEST_CASE("Generation: is left, gone on with, and ended; the session is whole at any time") {
    stasis::Session session = talk();
    session.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    stasis::Session whole = session.fork();
    const std::string reply = "m is 55.";
    std::string text;
    {
        stasis::Generation generation = session.generate();
        for (const stasis::Generated &generated : generation) {
            text += generated.text;
            break;
        }
        CHECK(text == "m");
        CHECK(generation.stop() == stasis::Stop::Callback);
        CHECK(status_of([&] { session.decode(); }) == Status::Busy);
        CHECK(status_of([&] { (void)session.generate(); }) == Status::Busy);
        CHECK(session.fork().digest() == session.digest());
        for (const stasis::Generated &generated : generation) { // goes on
            text += generated.text;
        }
        CHECK(text == reply);
        (void)whole.generate().next();
    }
    std::string rest;
    stasis::Generation generation = whole.generate(); // after one that was dropped
#if !defined(__clang__) || __clang_major__ >= 16      // which compile the standard library's views
    for (const auto &piece :
         std::move(generation) | std::views::transform(&stasis::Generated::text)) {
        rest += piece;
    }
#else
    for (const stasis::Generated &generated : generation) {
        rest += generated.text;
    }
#endif
    CHECK("m" + rest == reply);
    CHECK(whole.digest() == session.digest());
}

TEST_CASE("Generation: a cancel request is an error, and the same call goes on after a reset") {
    stasis::Session session = talk();
    session.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    stasis::Cancel cancel;
    stasis::Generation generation =
        session.generate({.stop_strings = {"m is 56"}, .cancel = &cancel});
    CHECK(generation.next()->text == ""); // held back
    cancel.request();
    CHECK(status_of([&] { (void)generation.next(); }) == Status::Cancelled);
    CHECK(generation.held_back() == "m");
    CHECK(generation.stop() == stasis::Stop::Cancelled);
    cancel.reset();
    std::string text;
    for (const stasis::Generated &generated : generation) {
        text += generated.text;
    }
    CHECK(text == "m is 55.");

    std::stop_source source;
    stasis::Cancel stopped(source.get_token());
    stopped = stasis::Cancel(source.get_token()); // the first one's callback ends with it
    stasis::Session other = talk();
    CHECK(other.say(kSecond, {.cancel = &stopped}).text() == "m is 55.");
    std::thread([&] { source.request_stop(); }).join();
    const stasis::Digest before = other.digest();
    CHECK(status_of([&] { (void)other.say(kSecond, {.cancel = &stopped}).text(); }) ==
          Status::Cancelled);
    CHECK(other.digest() == before);
    CHECK(status_of([&] { (void)other.say(kSecond, {.cancel = nullptr}).generation().next(); }) ==
          Status::Ok);
}

TEST_CASE("Generation: ends with its time, as calls do, and tokens stay") {
    using namespace std::chrono_literals;
    const auto times_out = [](const auto &call) {
        try {
            call();
        } catch (const stasis::Error &error) {
            return error.status() == stasis::Status::Timeout;
        }
        return false;
    };
    stasis::Session session = talk();
    const stasis::Digest before = session.digest();
    const std::vector<stasis::Token> tokens(200, 5);
    const stasis::Progress waits = [](auto, auto) { std::this_thread::sleep_for(6ms); };
    CHECK(times_out([&] { session.append(tokens, {.timeout = 5ms, .progress = waits}); }));
    CHECK(session.digest() == before);
    session.append(tokens, {.timeout = std::chrono::milliseconds::max()});
    const std::uint64_t position = session.info().position;
    std::uint64_t drawn = 0;
    CHECK(times_out([&] {
        for (const stasis::Generated &each :
             session.generate({.ignore_end = true, .timeout = 2000ms})) {
            drawn += each.last ? 0 : 1;
            std::this_thread::sleep_for(700ms);
        }
    }));
    CHECK(drawn >= 1);
    CHECK(drawn <= 3);
    CHECK(session.info().position == position + drawn);
    stasis::Session holding = talk();
    holding.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    stasis::Generation generation =
        holding.generate({.stop_strings = {"m is 56"}, .timeout = 2000ms});
    CHECK(generation.next()->text == "");
    std::this_thread::sleep_for(2010ms);
    CHECK(times_out([&] { (void)generation.next(); }));
    CHECK(generation.held_back() == "m"); // nothing else would tell it
    CHECK(generation.stop() == stasis::Stop::Timeout);
    CHECK(times_out([&] { (void)generation.next(); })); // and so again
    CHECK(generation.held_back() == "m");
    CHECK(times_out([&] {
        for (const std::string &piece : session.say("k", {.timeout = 1ms})) {
            CHECK(!piece.empty());
            std::this_thread::sleep_for(2ms);
        }
    }));
}

TEST_CASE("Session::generate: another thread reads the session meanwhile") {
    stasis::Session session = talk();
    session.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    stasis::Session plain = session.fork();
    std::vector<stasis::Digest> after{plain.digest()};
    const std::uint64_t begin = plain.position();
    for (int i = 0; i < 20; ++i) {
        plain.decode();
        after.push_back(plain.digest());
    }
    stasis::Generation generation = session.generate({.tokens_max = 20, .ignore_end = true});
    std::atomic<bool> over{false};
    std::atomic<int> read{0}, wrong{0};
    std::thread reader([&] {
        while (!over) {
            try {
                const stasis::Digest digest = session.digest();
                wrong += std::find(after.begin(), after.end(), digest) == after.end() ? 1 : 0;
            } catch (const stasis::Error &) {
                ++wrong;
            }
            ++read;
        }
    });
    for (const stasis::Generated &generated : generation) {
        CHECK(session.digest() == after.at(generated.position + 1 - begin));
    }
    while (read == 0) {
        std::this_thread::yield();
    }
    over = true;
    reader.join();
    CHECK(wrong == 0);
    CHECK(session.digest() == after.back());
}

TEST_CASE("Session::say: pieces of text, and nothing is said where the options are refused") {
    stasis::Session session(recall());
    CHECK(status_of([&] { (void)session.say(kFirst, {.stop_strings = {""}}); }) ==
          Status::InvalidArgument);
    CHECK(status_of([&] { (void)session.say(kFirst, {.log_probabilities = 1U << 30}); }) ==
          Status::InvalidArgument);
    CHECK(session.position() == 0);
    std::string text;
    for (const std::string &piece : session.say(kFirst)) {
        CHECK(piece != "");
        text += piece;
    }
    CHECK(text == "k is 5.");
    const stasis::Digest before = session.digest();
    CHECK(status_of([&] { (void)session.say(kSecond, {.stop_strings = {""}}); }) ==
          Status::InvalidArgument);
    CHECK(session.digest() == before);
    stasis::Reply reply = session.say(kSecond);
    CHECK(session.position() > 36); // said
    CHECK(*reply.next() == "m");
    CHECK(reply.text() == " is 55.");
    CHECK(!reply.next());
    CHECK(reply.generation().result().count > 4);
    CHECK(session.text(0, session.position()).find("m is 55.") != std::string::npos);
}

TEST_CASE("TextStream: shows what a generation shows, and stops where it stops") {
    stasis::Session session = talk();
    session.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    const stasis::GenerateOptions options{.stop_strings = {" 55.!", "?"}};
    stasis::Session fork = session.fork();
    std::string expected;
    stasis::Generation generation = fork.generate(options);
    for (const stasis::Generated &generated : generation) {
        expected += generated.text;
    }
    stasis::TextStream stream(recall(), options);
    stasis::Piece piece;
    std::string text;
    while (!piece.stop) {
        piece = stream.push(session.decode());
        text += piece.text;
    }
    text += stream.finish().text;
    CHECK(text == expected);
    CHECK(*piece.stop == generation.stop());
    CHECK(session.digest() == fork.digest());
    CHECK(status_of([&] { stream.push(1U << 30); }) == Status::InvalidArgument);
    CHECK(status_of([&] { stasis::TextStream other(without_tokenizer(), options); }) ==
          Status::Unsupported);
}
