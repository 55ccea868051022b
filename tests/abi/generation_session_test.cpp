// A generation and its session: what else may use the session between two tokens, and meanwhile,
// and how either ends.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/abi/pulled.h"

using namespace abi_test;

TEST_CASE("stasis_generation_next: between two calls the session has what was delivered and can be "
          "read, whatever was computed ahead") {
    const Folder folder;
    for (const Drafter drafter : {Drafter::none, Drafter::lookup, Drafter::model}) {
        const Session session = prepared(gemma(), drafter, 2.0F);
        const Session plain = fork(session.get());
        REQUIRE(stasis_session_set_draft(plain.get(), nullptr, nullptr, nullptr) == STASIS_OK);
        const Generation generation = begin(session.get(), on_and_on(30));
        for (uint64_t i = 0; i < 30; ++i) {
            const PulledEvent event = next(generation.get());
            CHECK(event.token == draw(plain.get()));
            CHECK(event.position == 40 + i);
            if (i % 3 == 1) { // with rows ahead, across a page, and after reads
                continue;
            }
            CHECK(digest(session.get()) == digest(plain.get()));
            CHECK(same_bits(logits_of(session), logits_of(plain)));
            CHECK(info_of(session).kv_bytes == info_of(plain).kv_bytes);
            CHECK(info_of(session).position == 41 + i);
            const Session child = fork(session.get());
            const Session other = fork(plain.get());
            CHECK(draw(child.get(), 3) == draw(other.get(), 3)); // goes its own way
            CHECK(digest(child.get()) == digest(other.get()));
            const std::string path = folder.file("saved" + std::to_string(i));
            REQUIRE(save(session.get(), path) == STASIS_OK);
            CHECK(digest(load(gemma(), path).get()) == digest(plain.get()));
            const Tokens more = some_tokens(3, 7);
            double a[3], b[3];
            REQUIRE(stasis_session_score(session.get(), more.data(), 3, a, nullptr, nullptr) ==
                    STASIS_OK);
            REQUIRE(stasis_session_score(plain.get(), more.data(), 3, b, nullptr, nullptr) ==
                    STASIS_OK);
            CHECK(std::equal(a, a + 3, b));
        }
        CHECK(next(generation.get()).last == 1);
        CHECK(digest(session.get()) == digest(plain.get()));
    }
}

TEST_CASE("stasis_generation_begin: until the generation is over, calls that change the session "
          "are BUSY and change nothing") {
    const Session session = prepared(gemma(), Drafter::model, 0);
    const Session before = fork(session.get());
    stasis_session *const own = session.get();
    Generation generation = begin(own, on_and_on(4));
    const stasis_token drawn = next(generation.get()).token;
    stasis_generation *second = nullptr;
    stasis_token token = 0;
    stasis_error error;
    CHECK(stasis_session_append(own, &drawn, 1, nullptr, &error) == STASIS_BUSY);
    CHECK_MESSAGE(contains(error, "generation"), error.message);
    CHECK(stasis_session_append_message(own, "user", "a", 1, 0, nullptr, nullptr) == STASIS_BUSY);
    CHECK(stasis_session_append_chat(own, "[]", 2, 0, nullptr, nullptr, nullptr) == STASIS_BUSY);
    CHECK(stasis_session_rewind(own, 3, 0, nullptr, nullptr) == STASIS_BUSY);
    CHECK(stasis_session_evict(own, 3, 5, nullptr) == STASIS_BUSY);
    CHECK(stasis_session_decode(own, &token, nullptr) == STASIS_BUSY);
    CHECK(stasis_session_generate(own, nullptr, nullptr, nullptr) == STASIS_BUSY);
    CHECK(stasis_session_set_sampling(own, nullptr, nullptr) == STASIS_BUSY);
    CHECK(stasis_session_set_draft(own, nullptr, nullptr, nullptr) == STASIS_BUSY);
    CHECK(stasis_generation_begin(own, nullptr, &second, nullptr) == STASIS_BUSY);
    CHECK(second == nullptr);
    stasis_step_item items[2] = {sized<stasis_step_item>(), sized<stasis_step_item>()};
    const Session other = fork(before.get());
    items[0].session = other.get();
    items[1].session = own;
    items[0].flags = items[1].flags = STASIS_STEP_SAMPLE;
    CHECK(stasis_sessions_step(items, sizeof items[0], 2, nullptr, 0, nullptr, nullptr) ==
          STASIS_BUSY);
    CHECK(position(other.get()) == 40);
    CHECK(draw(other.get()) == drawn); // not busy
    CHECK(digest(own) == digest(other.get()));
    for (int i = 0; i < 3; ++i) {
        CHECK(next(generation.get()).token == draw(other.get()));
    }
    // Over: free for every call, and the generation has nothing more to say.
    CHECK(next(generation.get()).last == 1);
    CHECK(draw(own) == draw(other.get()));
    const PulledEvent again = next(generation.get());
    CHECK((again.last == 1 && again.text.empty() && again.position == 43));
    generation = begin(own, on_and_on(2));
    CHECK(next(generation.get()).token == draw(other.get()));
}

TEST_CASE("stasis_generation_end: early, it leaves the session that a callback leaves which stops "
          "there") {
    uint64_t released = 0; // pages that were taken ahead; a trace is told while the end holds
    Acting acting{STASIS_TRACE_RELEASED, [&] { ++released; }};
    for (const Drafter drafter : {Drafter::none, Drafter::lookup, Drafter::model}) {
        for (const uint64_t count : {0U, 1U, 2U, 3U, 4U, 5U, 20U, 21U, 22U, 23U, 24U}) {
            const Session start = prepared(gemma(), drafter, 0);
            const Session a = fork(start.get()), b = fork(start.get());
            acting.listen(a.get());
            Generation generation = begin(a.get(), on_and_on(30));
            for (uint64_t i = 0; i < count; ++i) {
                next(generation.get());
            }
            CHECK(result_of(generation.get()).stop_reason == STASIS_STOP_CALLBACK);
            CHECK(result_of(generation.get()).count == count);
            generation.reset();
            if (count > 0) {
                const Outcome stopped = told(b.get(), on_and_on(30), count);
                CHECK(stopped.result.stop_reason == STASIS_STOP_CALLBACK);
                CHECK(stopped.events.size() == count);
            }
            CHECK(position(a.get()) == 40 + count);
            CHECK(digest(a.get()) == digest(b.get()));
            CHECK(info_of(a).kv_bytes == info_of(b).kv_bytes);
            CHECK(told(a.get(), on_and_on(9)).events == told(b.get(), on_and_on(9)).events);
            CHECK(digest(a.get()) == digest(b.get()));
        }
    }
    CHECK(released > 0);
    stasis_generation_end(nullptr);
}

TEST_CASE(
    "stasis_generation_end: before or after its session is freed, and while a call holds it") {
    Session session = prepared(gemma(), Drafter::model, 0);
    const Generation left = begin(session.get(), on_and_on(30));
    next(left.get());
    session.reset();
    PulledEvent event;
    CHECK(try_next(left.get(), event) == STASIS_NOT_FOUND);
    CHECK(result_of(left.get()).count == 1);

    session = prepared(gemma(), Drafter::model, 0);
    Generation over = begin(session.get(), on_and_on(1));
    next(over.get());
    CHECK(next(over.get()).last == 1);
    session.reset();
    CHECK(next(over.get()).last == 1);

    // A save that is running when it ends; the next call finds the session free, and so does free.
    for (const bool uses_again : {true, false}) {
        const Folder folder;
        session = prepared(gemma(), Drafter::model, 0);
        Generation ended = begin(session.get(), on_and_on(30));
        next(ended.get());
        auto options = sized<stasis_save_options>();
        options.progress_user = &ended;
        options.progress = [](void *user, uint64_t, uint64_t) -> int32_t {
            static_cast<Generation *>(user)->reset();
            return 0;
        };
        REQUIRE(stasis_session_save(session.get(), folder.file("a").c_str(), &options, nullptr) ==
                STASIS_OK);
        CHECK(ended == nullptr);
        if (uses_again) {
            draw(session.get());
            CHECK(position(session.get()) == 42);
        }
    }
}

TEST_CASE("stasis_generation_next: inside a call, the session and the generation are BUSY to "
          "others") {
    const Session session = prepared(gemma(), Drafter::none, 0);
    Generation generation;
    uint64_t asked = 0;
    Acting acting{STASIS_TRACE_APPEND, [&] {
                      ++asked;
                      PulledEvent event;
                      CHECK(try_next(generation.get(), event) == STASIS_BUSY);
                      auto result = sized<stasis_generate_result>();
                      CHECK(stasis_generation_get_result(generation.get(), &result, nullptr) ==
                            STASIS_BUSY);
                      auto info = sized<stasis_session_info>();
                      CHECK(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_BUSY);
                  }};
    acting.listen(session.get());
    generation = begin(session.get(), on_and_on(3));
    for (uint64_t i = 0; i < 3; ++i) {
        next(generation.get());
    }
    CHECK(asked == 3);
    generation.reset();
    REQUIRE(stasis_session_set_trace(session.get(), nullptr, nullptr) == STASIS_OK);
}

TEST_CASE("stasis_generation_next: other threads read the session meanwhile, or get BUSY, and see "
          "it whole") {
    const Session session = prepared(gemma(), Drafter::model, 2.0F);
    const Session plain = fork(session.get());
    std::vector<Digest> digests{digest(plain.get())}; // after each token
    for (uint64_t i = 0; i < 40; ++i) {
        draw(plain.get());
        digests.push_back(digest(plain.get()));
    }
    const Generation generation = begin(session.get(), on_and_on(40));
    std::atomic<bool> over{false};
    std::atomic<uint64_t> read{0}, wrong{0};
    const auto reader = [&] {
        while (!over) {
            stasis_session *child = nullptr;
            const stasis_status status = stasis_session_fork(session.get(), &child, nullptr);
            if (status == STASIS_OK) {
                ++read;
                const Session own(child);
                wrong += digest(child) == digests.at(position(child) - 40) ? 0 : 1;
            } else {
                wrong += status == STASIS_BUSY ? 0 : 1;
            }
        }
    };
    std::thread one(reader), other(reader);
    for (uint64_t i = 0; i < 40;) {
        PulledEvent event;
        const stasis_status status = try_next(generation.get(), event);
        wrong += status == STASIS_OK || status == STASIS_BUSY ? 0 : 1;
        if (status == STASIS_OK) {
            ++i;
            std::this_thread::yield();
        }
    }
    while (read == 0) {
        std::this_thread::yield();
    }
    over = true;
    one.join();
    other.join();
    CHECK(wrong == 0);
    CHECK(digest(session.get()) == digests.back());
}

TEST_CASE("stasis_generation_end: from one thread while others read, and the session may be "
          "changed after") {
    for (int round = 0; round < 20; ++round) {
        const Session session = prepared(gemma(), Drafter::model, 0);
        Generation generation = begin(session.get(), on_and_on(40));
        next(generation.get());
        const Digest before = digest(session.get());
        std::atomic<bool> over{false};
        std::thread reader([&] {
            while (!over) {
                stasis_digest now;
                if (stasis_session_digest(session.get(), &now, nullptr) == STASIS_OK &&
                    std::memcmp(now.bytes, before.data(), before.size()) != 0) {
                    over = true; // and the check below fails
                    return;
                }
            }
        });
        generation.reset();
        CHECK(!over.exchange(true));
        reader.join();
        draw(session.get());
        CHECK(position(session.get()) == 42);
    }
}
