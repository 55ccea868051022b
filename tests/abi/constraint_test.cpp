// Drawing under constraints: what is drawn is a text of the constraint, and it is the same whatever
// way the tokens are drawn; where a text begins; what a host allows for one token.
#include <thread>

#include "tests/abi/constrained.h"
#include "tests/abi/device_module.h"
#include "tests/abi/restored.h"

using namespace abi_test;

namespace {

struct ConstrainedReply {
    std::string text;
    Tokens tokens;
    uint32_t reason = 7;
};

ConstrainedReply reply_under(stasis_session *session, uint64_t most) {
    ConstrainedReply reply;
    const uint64_t begin = position(session);
    auto options = sized<stasis_generate_options>();
    options.tokens_max = most;
    const Outcome outcome = told(session, options);
    for (const PulledEvent &event : outcome.events) {
        reply.text += event.text;
    }
    reply.tokens = tokens_from(session, begin);
    reply.reason = outcome.result.stop_reason;
    return reply;
}

// Words of tokens that may be drawn.
std::vector<uint32_t> bits_with(const Tokens &tokens, size_t vocabulary = 1024) {
    std::vector<uint32_t> bits((vocabulary + 31) / 32);
    for (const stasis_token token : tokens) {
        bits[token / 32] |= 1U << token % 32;
    }
    return bits;
}

stasis_status allow(stasis_session *session, const std::vector<uint32_t> &bits,
                    stasis_error *error = nullptr) {
    return stasis_session_set_allowed(session, bits.data(), bits.size(), error);
}

} // namespace

TEST_CASE("stasis_session_set_constraint: each reply of a conversation is a text of it") {
    for (const ConstraintCase &each : constraint_cases()) {
        size_t complete = 0;
        for (uint64_t seed = 0; seed < 8; ++seed) {
            CAPTURE(each.name);
            CAPTURE(seed);
            const Session session = constrained(recall(), each, seed);
            for (const char *question : {"and you?", "What is k?", "Say it again."}) {
                const ConstrainedReply reply = reply_under(session.get(), 80);
                CAPTURE(reply.text);
                if (reply.reason == STASIS_STOP_END_TOKEN) {
                    CHECK(each.fits(reply.text));
                    ++complete;
                } else {
                    CHECK(reply.reason == STASIS_STOP_LENGTH);
                }
                say(session.get(), question);
            }
            // Without it the model goes on as it likes.
            REQUIRE(stasis_session_set_constraint(session.get(), STASIS_CONSTRAINT_NONE, nullptr, 0,
                                                  nullptr, nullptr) == STASIS_OK);
            CHECK(!each.fits(reply_under(session.get(), 80).text));
        }
        CHECK_MESSAGE(complete >= (each.kind == STASIS_CONSTRAINT_JSON ? 5 : 15), each.name);
    }
}

TEST_CASE("stasis_session_set_constraint: the same tokens in whatever way they are drawn") {
    constexpr size_t kDraws = 40;
    for (const ConstraintCase &each : constraint_cases()) {
        CAPTURE(each.name);
        const Session whole = constrained(recall(), each, 3);
        const uint64_t begin = position(whole.get());
        const Tokens tokens = draw(whole.get(), kDraws); // beyond ends, with texts that follow
        const auto same = [&](const Session &session) {
            CHECK(tokens_from(session.get(), begin) == tokens);
            CHECK(digest(session.get()) == digest(whole.get()));
        };

        { // told and pulled, with each drafter, in pieces
            for (const Drafter drafter : {Drafter::none, Drafter::lookup, Drafter::model}) {
                for (const uint64_t piece : {uint64_t{7}, uint64_t{kDraws}}) {
                    const Session one = constrained(recall(), each, 3);
                    const Session other = constrained(recall(), each, 3);
                    for (const Session *session : {&one, &other}) {
                        if (drafter == Drafter::none) {
                            continue;
                        }
                        auto options = sized<stasis_draft_options>();
                        options.tokens_min = options.tokens_max = 4;
                        stasis_model *draft = drafter == Drafter::model ? recall() : nullptr;
                        REQUIRE(stasis_session_set_draft(session->get(), draft, &options,
                                                         nullptr) == STASIS_OK);
                    }
                    for (uint64_t done = 0; done < kDraws; done += piece) {
                        const auto options = on_and_on(std::min(piece, kDraws - done));
                        CHECK(told(one.get(), options) == pulled(other.get(), options));
                    }
                    same(one);
                    same(other);
                }
            }
        }
        { // sample says what decode draws; forks, rewinds and files at every position
            const Session session = constrained(recall(), each, 3);
            for (size_t i = 0; i < kDraws; ++i) {
                stasis_token sampled = 0;
                REQUIRE(stasis_session_sample(session.get(), &sampled, nullptr) == STASIS_OK);
                REQUIRE(sampled == tokens[i]);
                const Session child = fork(session.get());
                const size_t ahead = std::min<size_t>(5, kDraws - i);
                const Tokens next(tokens.begin() + static_cast<long>(i),
                                  tokens.begin() + static_cast<long>(i + ahead));
                CHECK(draw(child.get(), ahead) == next);
                rewind(child.get(), begin + i);
                CHECK(draw(child.get(), ahead) == next);
                if (i % 9 == 4) {
                    for (const Form &form : kForms) {
                        CHECK(draw(restored(recall(), session.get(), form).get(), ahead) == next);
                    }
                }
                CHECK(draw(session.get()) == tokens[i]);
            }
            same(session);
            rewind(session.get(), begin);
            CHECK(draw(session.get(), kDraws) == tokens);
        }
    }
}

TEST_CASE("stasis_session_set_constraint: steps of many sessions, and threads") {
    constexpr size_t kDraws = 30;
    std::vector<Session> sessions, alone;
    for (uint64_t i = 0; i < 12; ++i) {
        const ConstraintCase &of = constraint_cases()[i % constraint_cases().size()];
        sessions.push_back(constrained(recall(), of, i / 3));
        alone.push_back(constrained(recall(), of, i / 3));
    }
    std::vector<Tokens> drawn(sessions.size());
    for (size_t i = 0; i < alone.size(); ++i) {
        drawn[i] = draw(alone[i].get(), kDraws);
    }
    std::vector<std::thread> threads; // of forks, which share what they find
    std::vector<Session> forks;
    std::vector<Tokens> again(sessions.size());
    for (const Session &session : sessions) {
        forks.push_back(fork(session.get()));
    }
    for (size_t i = 0; i < forks.size(); ++i) {
        threads.emplace_back([&, i] {
            for (size_t k = 0; k < kDraws; ++k) {
                stasis_token token = 0;
                stasis_session_decode(forks[i].get(), &token, nullptr);
                again[i].push_back(token);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    std::vector<Tokens> stepped(sessions.size());
    for (size_t k = 0; k < kDraws; ++k) {
        std::vector<stasis_step_item> items;
        for (const Session &session : sessions) {
            items.push_back(sized<stasis_step_item>());
            items.back().session = session.get();
            items.back().flags = STASIS_STEP_SAMPLE;
        }
        REQUIRE(stasis_sessions_step(items.data(), sizeof items[0], items.size(), nullptr, 0,
                                     nullptr, nullptr) == STASIS_OK);
        for (size_t i = 0; i < items.size(); ++i) {
            REQUIRE(items[i].status == STASIS_OK);
            stepped[i].push_back(items[i].token);
        }
    }
    CHECK(stepped == drawn);
    CHECK(again == drawn);
    for (size_t i = 0; i < sessions.size(); ++i) {
        CHECK(digest(sessions[i].get()) == digest(alone[i].get()));
        CHECK(digest(forks[i].get()) == digest(alone[i].get()));
    }
}

TEST_CASE("stasis_session_set_constraint: where a text begins") {
    const auto text_from = [](stasis_session *session, uint64_t begin) {
        char text[256];
        size_t length = 0;
        REQUIRE(stasis_session_text(session, begin, position(session), text, sizeof text, &length,
                                    nullptr) == STASIS_OK);
        return std::string(text, length);
    };
    const Session session = create(recall());
    say(session.get(), "hello");
    set_warm(session.get(), 1, 2.0F);
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "(abcabcabcabc){1,9}");
    const uint64_t begin = position(session.get());
    draw(session.get(), 4);
    const std::string first = text_from(session.get(), begin);
    CHECK(std::string("abcabcabcabc").compare(0, first.size(), first) == 0);
    // Other settings, and the same constraint once more, change nothing.
    set_warm(session.get(), 2, 1.0F);
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "(abcabcabcabc){1,9}");
    draw(session.get(), 2);
    const std::string more = text_from(session.get(), begin);
    CHECK(std::string("abcabcabcabcabcabcabcabc").compare(0, more.size(), more) == 0);
    CHECK(more.size() > first.size());
    // What is appended ends it, and is not refused.
    append(session.get(), some_tokens(2));
    const uint64_t behind = position(session.get());
    draw(session.get());
    CHECK(text_from(session.get(), behind)[0] == 'a');
    // Another constraint begins where it is set; a rewind before that draws under it too.
    draw(session.get());
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "z{1,40}");
    const uint64_t other = position(session.get());
    draw(session.get());
    CHECK(text_from(session.get(), other)[0] == 'z');
    rewind(session.get(), behind + 1);
    draw(session.get());
    CHECK(text_from(session.get(), behind + 1)[0] == 'z');
    // Cut off, then as many others as a draw has followed: these count, not what was there.
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "(xy){1,90}");
    const uint64_t start = position(session.get());
    draw(session.get(), 3);
    rewind(session.get(), start);
    append(session.get(), some_tokens(2));
    draw(session.get());
    CHECK(text_from(session.get(), start + 2)[0] == 'x');
    // The same of tokens drawn: under another seed, so that others are.
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "(ab|cde|fghi|jk){90}");
    const uint64_t here = position(session.get());
    for (uint64_t seed = 0; seed < 20; ++seed) {
        set_warm(session.get(), seed, 3.0F);
        draw(session.get(), 9);
        static const std::regex kBeginning("(ab|cde|fghi|jk)*(a|c|cd|f|fg|fgh|j)?");
        CHECK(std::regex_match(text_from(session.get(), here), kBeginning));
        rewind(session.get(), here + seed % 8);
    }
}

TEST_CASE("stasis_session_set_constraint: a scheduler draws the same") {
    stasis_scheduler *scheduler = nullptr;
    REQUIRE(stasis_scheduler_create(recall(), nullptr, &scheduler, nullptr) == STASIS_OK);
    const auto options = on_and_on(25);
    std::vector<Session> sessions, alone;
    for (uint64_t i = 0; i < 8; ++i) {
        const ConstraintCase &of = constraint_cases()[i % constraint_cases().size()];
        sessions.push_back(constrained(recall(), of, i));
        alone.push_back(constrained(recall(), of, i));
        told(alone.back().get(), options);
        REQUIRE(stasis_scheduler_submit(scheduler, sessions.back().get(), &options, nullptr,
                                        nullptr) == STASIS_OK);
    }
    for (size_t ended = 0; ended < sessions.size();) {
        stasis_scheduler_event *event = nullptr;
        REQUIRE(stasis_scheduler_next(scheduler, nullptr, STASIS_FOREVER, &event, nullptr) ==
                STASIS_OK);
        CHECK(event->status == STASIS_OK);
        ended += event->end;
        stasis_scheduler_event_free(event);
    }
    stasis_scheduler_close(scheduler);
    for (size_t i = 0; i < sessions.size(); ++i) {
        CHECK(tokens_from(sessions[i].get(), 0) == tokens_from(alone[i].get(), 0));
        CHECK(digest(sessions[i].get()) == digest(alone[i].get()));
    }
}

TEST_CASE("stasis_session_set_constraint: a device, which draws ahead, draws the same") {
    REQUIRE(device_module_loaded);
    auto options = sized<stasis_model_options>();
    options.device = "cuda";
    const Model device = open_path(test_data("recall-llama"), &options);
    for (const ConstraintCase &each : constraint_cases()) {
        const Session there = constrained(device.get(), each, 3);
        const Session here = constrained(recall(), each, 3);
        set_warm(there.get(), 0, 0); // greedy: which a device draws by itself
        set_warm(here.get(), 0, 0);
        const auto generating = on_and_on(25);
        CHECK(told(there.get(), generating).events == told(here.get(), generating).events);
        CHECK(digest(there.get()) == digest(here.get()));
    }
    const Session there = constrained(device.get(), constraint_cases()[0], 3);
    const Tokens one = {77};
    REQUIRE(stasis_session_set_constraint(there.get(), STASIS_CONSTRAINT_NONE, nullptr, 0, nullptr,
                                          nullptr) == STASIS_OK);
    REQUIRE(allow(there.get(), bits_with(one)) == STASIS_OK);
    set_warm(there.get(), 0, 0);
    CHECK(told(there.get(), on_and_on(4)).events[0].token == 77);
}

TEST_CASE("stasis_session_set_constraint: where no token is left") {
    const auto info = [] {
        auto found = sized<stasis_model_info>();
        REQUIRE(stasis_model_get_info(recall(), &found, nullptr) == STASIS_OK);
        return found;
    }();
    const Session session = create(recall());
    say(session.get(), "hello");
    auto sampling = sized<stasis_sampling>();
    const std::vector<float> bias(info.end_token_count, -INFINITY);
    sampling.bias_count = info.end_token_count;
    sampling.bias_tokens = info.end_tokens;
    sampling.bias = bias.data();
    REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "yes, no");
    for (const bool pulling : {false, true}) {
        const Session child = fork(session.get());
        const auto options = sized<stasis_generate_options>();
        const Outcome outcome = pulling ? pulled(child.get(), options) : told(child.get(), options);
        CHECK(outcome.result.stop_reason == STASIS_STOP_NO_TOKEN);
        std::string text;
        for (const PulledEvent &event : outcome.events) {
            text += event.text;
        }
        CHECK(text == "yes, no");
        // Nothing more is drawn, however it is asked for, and nothing is lost.
        const Digest before = digest(child.get());
        stasis_token token = 0;
        stasis_error error;
        CHECK(stasis_session_sample(child.get(), &token, &error) == STASIS_NO_TOKEN);
        CHECK(contains(error, "constraint"));
        CHECK(stasis_session_decode(child.get(), &token, nullptr) == STASIS_NO_TOKEN);
        auto item = sized<stasis_step_item>();
        item.session = child.get();
        item.flags = STASIS_STEP_SAMPLE;
        REQUIRE(stasis_sessions_step(&item, sizeof item, 1, nullptr, 0, nullptr, nullptr) ==
                STASIS_OK);
        CHECK(item.status == STASIS_NO_TOKEN);
        CHECK(told(child.get(), options).result.stop_reason == STASIS_STOP_NO_TOKEN);
        CHECK(digest(child.get()) == before);
        say(child.get(), "again");
        CHECK(reply_under(child.get(), 30).text == "yes, no");
    }
}

TEST_CASE("stasis_session_set_constraint: what is refused is named, and what was set stays") {
    const Session session = create(recall());
    say(session.get(), "hello");
    constrain(session.get(), STASIS_CONSTRAINT_REGEX, "stays, stays");
    struct Refusal {
        uint32_t kind;
        std::string text;
        stasis_status status;
        const char *part;
    };
    const Refusal refusals[] = {
        {STASIS_CONSTRAINT_REGEX, "ab(c", STASIS_INVALID_ARGUMENT, ""},
        {STASIS_CONSTRAINT_REGEX, "a(?=b)", STASIS_UNSUPPORTED, "look"},
        {STASIS_CONSTRAINT_GRAMMAR, "root ::= missing", STASIS_INVALID_ARGUMENT, "missing"},
        {STASIS_CONSTRAINT_JSON_SCHEMA, "{", STASIS_INVALID_ARGUMENT, ""},
        {STASIS_CONSTRAINT_JSON_SCHEMA, R"({"type":"number","multipleOf":2})", STASIS_UNSUPPORTED,
         "multipleOf"},
        {STASIS_CONSTRAINT_JSON, "{}", STASIS_INVALID_ARGUMENT, "text"},
        {STASIS_CONSTRAINT_NONE, "a", STASIS_INVALID_ARGUMENT, "kind"},
        {5, "", STASIS_INVALID_ARGUMENT, "kind 5"},
        {STASIS_CONSTRAINT_REGEX, std::string(300000, 'a'), STASIS_UNSUPPORTED, "300000"},
    };
    for (const Refusal &refusal : refusals) {
        stasis_error error;
        CHECK(try_constrain(session.get(), refusal.kind, refusal.text, error) == refusal.status);
        CHECK_MESSAGE(contains(error, refusal.part), error.message);
        MESSAGE(error.message);
    }
    const Cancel cancel = make_cancel();
    stasis_cancel_request(cancel.get());
    CHECK(stasis_session_set_constraint(session.get(), STASIS_CONSTRAINT_JSON, nullptr, 0,
                                        cancel.get(), nullptr) == STASIS_CANCELLED);
    CHECK(reply_under(session.get(), 30).text == "stays, stays");

    const Session without = create(gemma()); // has no tokenizer
    stasis_error error;
    CHECK(try_constrain(without.get(), STASIS_CONSTRAINT_JSON, "", error) == STASIS_UNSUPPORTED);
    CHECK(contains(error, "tokenizer"));
    // An open generation is of tokens that follow each other.
    const Generation open = begin(session.get(), sized<stasis_generate_options>());
    CHECK(try_constrain(session.get(), STASIS_CONSTRAINT_JSON, "", error) == STASIS_BUSY);
    CHECK(allow(session.get(), bits_with({7})) == STASIS_BUSY);
}

TEST_CASE("stasis_session_set_allowed: one token is drawn from the set, which is then forgotten") {
    const Session session = create(recall());
    say(session.get(), "hello");
    set_warm(session.get(), 5, 1.5F);
    const Session free = fork(session.get());
    for (uint32_t i = 0; i < 20; ++i) {
        const Tokens some = some_tokens(i % 5 + 1, i + 1);
        REQUIRE(allow(session.get(), bits_with(some)) == STASIS_OK);
        stasis_token sampled = 0;
        REQUIRE(stasis_session_sample(session.get(), &sampled, nullptr) == STASIS_OK);
        const Session child = fork(session.get()), told_one = fork(session.get());
        const Session stepped = fork(session.get());
        const stasis_token token = draw(session.get());
        told(told_one.get(), on_and_on(4));
        for (int step = 0; step < 4; ++step) {
            auto item = sized<stasis_step_item>();
            item.session = stepped.get();
            item.flags = STASIS_STEP_SAMPLE;
            REQUIRE(stasis_sessions_step(&item, sizeof item, 1, nullptr, 0, nullptr, nullptr) ==
                    STASIS_OK);
        }
        CHECK(token == sampled);
        CHECK(std::find(some.begin(), some.end(), token) != some.end());
        CHECK(draw(child.get()) == token);
        // Then all tokens may be drawn again, whoever drew the one.
        const Session cleared = fork(session.get());
        REQUIRE(stasis_session_set_allowed(cleared.get(), nullptr, 0, nullptr) == STASIS_OK);
        const Tokens next = draw(cleared.get(), 3);
        CHECK(draw(child.get(), 3) == next);
        CHECK(tokens_from(told_one.get(), position(told_one.get()) - 3) == next);
        CHECK(tokens_from(stepped.get(), position(stepped.get()) - 3) == next);
    }
    // All tokens are no restriction.
    REQUIRE(allow(free.get(), std::vector<uint32_t>(32, UINT32_MAX)) == STASIS_OK);
    const Session other = fork(free.get());
    REQUIRE(stasis_session_set_allowed(other.get(), nullptr, 0, nullptr) == STASIS_OK);
    CHECK(draw(free.get(), 5) == draw(other.get(), 5));

    // Beside a constraint both hold.
    constrain(free.get(), STASIS_CONSTRAINT_REGEX, "[ab]{50}");
    say(free.get(), "and now");
    const Session single = fork(free.get());
    constrain(single.get(), STASIS_CONSTRAINT_REGEX, "a");
    const stasis_token a = draw(single.get());
    stasis_token sampled = 0;
    Tokens two = {a, 9};
    REQUIRE(allow(free.get(), bits_with(two)) == STASIS_OK);
    CHECK(draw(free.get()) == a);
    REQUIRE(allow(free.get(), bits_with({9})) == STASIS_OK);
    CHECK(stasis_session_sample(free.get(), &sampled, nullptr) == STASIS_NO_TOKEN);

    stasis_error error;
    CHECK(allow(free.get(), std::vector<uint32_t>(31), &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "32"));
    CHECK(allow(free.get(), std::vector<uint32_t>(32), &error) == STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "none"));
    CHECK(stasis_session_sample(free.get(), &sampled, nullptr) == STASIS_NO_TOKEN); // stays
}
