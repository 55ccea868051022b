// Sessions of stasis.hpp: what each function returns is what the C function returns.
#include <cmath>

#include "tests/cpp/fixture.h"

using namespace cpp_test;

TEST_CASE("Session: tokens, sources, text, info and digest are those of the C functions") {
    const stasis::Session session = talk();
    CHECK(session.position() == 36);
    CHECK(session.info().kv_bytes > 0);
    const std::vector<stasis::Token> tokens = session.tokens();
    REQUIRE(tokens.size() == 36);
    CHECK(session.tokens(30) == std::vector<stasis::Token>(tokens.begin() + 30, tokens.end()));
    CHECK(session.tokens(36).empty());
    CHECK(status_of([&] { session.tokens(37); }) == Status::InvalidArgument);
    const std::vector<stasis::TokenSource> sources = session.sources();
    REQUIRE(sources.size() == 36);
    CHECK(sources.front() == stasis::TokenSource::Template);
    CHECK(sources.back() == stasis::TokenSource::Sampled);
    CHECK(std::ranges::count(sources, stasis::TokenSource::Text) > 10);
    CHECK(session.text().find("k is 5.") != std::string::npos);
    CHECK(session.text().find(kFirst) != std::string::npos);
    CHECK(session.text(0, 0) == "");
    CHECK(status_of([&] { session.text(0, 37); }) == Status::InvalidArgument);
    stasis_digest digest{};
    REQUIRE(stasis_session_digest(session.raw(), &digest, nullptr) == STASIS_OK);
    CHECK(session.digest() == stasis::Digest(digest));
}

TEST_CASE("Session: logits, top, sample, decode and score agree with each other") {
    stasis::Session session = talk();
    session.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    const std::vector<float> logits = session.logits();
    REQUIRE(logits.size() == recall().info().vocabulary);
    const auto best =
        static_cast<stasis::Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const std::vector<stasis::Candidate> top = session.top(3);
    REQUIRE(top.size() == 3);
    CHECK(top[0].token == best);
    CHECK(top[0].log_probability > top[1].log_probability);
    CHECK(status_of([&] { session.top(1U << 20); }) == Status::InvalidArgument);
    const std::vector<stasis::Token> continuation{best};
    const std::vector<double> scores = session.score(continuation);
    CHECK(scores.size() == 1);
    CHECK(scores[0] == doctest::Approx(top[0].log_probability).epsilon(1e-5));
    CHECK(session.sample() == best);
    const std::uint64_t position = session.position();
    CHECK(session.decode() == best);
    CHECK(session.position() == position + 1);
    const stasis::Session empty(recall());
    CHECK(status_of([&] { empty.logits(); }) == Status::NotFound);
}

TEST_CASE("Session: appends, rewinds, evicts and forks") {
    stasis::Session session(without_tokenizer(), {.capacity = 200, .window_retain = 200});
    CHECK(session.info().capacity == 200);
    const std::vector<stasis::Token> tokens(100, 5);
    std::vector<std::uint64_t> positions;
    std::uint64_t done = 0;
    session.append(tokens, {.chunk = 7,
                            .progress =
                                [&](auto now, auto total) {
                                    done = now;
                                    CHECK(total == 100);
                                },
                            .logits = [&](auto position, auto) { positions.push_back(position); }});
    CHECK(done == 100);
    CHECK(positions.size() == 100);
    CHECK(positions.back() == 99);
    const stasis::Digest before = session.digest();
    const stasis::Session fork = session.fork();
    CHECK(status_of([&] { session.append(std::vector<stasis::Token>(101, 5)); }) == Status::Full);
    CHECK(status_of([&] { session.append(std::vector<stasis::Token>{1U << 30}); }, "index 0") ==
          Status::InvalidArgument);
    session.append(std::vector<stasis::Token>{7, 8});
    session.rewind(100);
    CHECK(session.digest() == before);
    session.evict(10, 40);
    CHECK(session.info().positions_evicted == 30);
    CHECK(session.digest() != before);
    CHECK(fork.digest() == before);
    CHECK(status_of([&] { session.evict(0, 101); }) == Status::InvalidArgument);
    CHECK(status_of([&] { stasis::Session other(recall(), {.capacity = 1U << 30}); }) ==
          Status::InvalidArgument);
}

TEST_CASE("Session: keys, values and attention") {
    stasis::Session session(without_tokenizer(), {.track_attention = stasis::Track::ByHead});
    session.append(std::vector<stasis::Token>(20, 5));
    const stasis::ModelInfo info = without_tokenizer().info();
    const stasis::KeysValues kv = session.kv(1, 4, 9);
    CHECK(kv.keys.size() == 5 * info.kv_heads * info.head_dim);
    CHECK(kv.values.size() == kv.keys.size());
    std::size_t count = 0;
    std::vector<std::uint16_t> keys(kv.keys.size()), values(kv.keys.size());
    REQUIRE(stasis_session_kv(session.raw(), 1, 4, 9, keys.data(), values.data(), keys.size(),
                              &count, nullptr) == STASIS_OK);
    CHECK(kv.keys == keys);
    CHECK(kv.values == values);
    const std::vector<double> total = session.attention();
    CHECK(total.size() == 20);
    CHECK(session.attention(true).size() == 20 * info.layers * info.heads);
    CHECK(total[0] > total[19]);
    const stasis::Session untracked = talk();
    CHECK(status_of([&] { untracked.attention(); }) == Status::Unsupported);
}

TEST_CASE("Session::set_sampling: each setting arrives") {
    stasis::Session session = talk();
    session.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    const auto reply_with = [&](const stasis::Sampling &sampling) {
        stasis::Session fork = session.fork();
        fork.set_sampling(sampling);
        return fork.generate({.tokens_max = 8}).next()->token;
    };
    const stasis::Token best = session.sample();
    CHECK(reply_with({}) == best);
    CHECK(reply_with({.bias = {{best, -INFINITY}}}) == session.top(2)[1].token);
    // What the settings are, a snapshot says by name.
    const stasis::Sampling all{.top_k = 41,
                               .temperature = 0.75F,
                               .top_p = 0.875F,
                               .min_p = 0.125F,
                               .repetition_penalty = 1.25F,
                               .frequency_penalty = 0.5F,
                               .presence_penalty = 0.25F,
                               .penalty_window = 33,
                               .bias = {{7, 1.5F}},
                               .seed = 4711,
                               .typical_p = 0.9375F,
                               .top_n_sigma = 3.5F,
                               .xtc_probability = 0.0625F,
                               .xtc_threshold = 0.3125F,
                               .dry_multiplier = 0.8125F,
                               .dry_base = 1.875F,
                               .dry_allowed_length = 3,
                               .dry_range = 77,
                               .min_keep = 5,
                               .dry_breakers = {9}};
    session.set_sampling(all);
    const std::string said = session.snapshot().element(stasis::Element::ModelConfigSnapshot);
    for (const char *part : {R"("top_k":41)",
                             R"("temperature":0.75)",
                             R"("top_p":0.875)",
                             R"("min_p":0.125)",
                             R"("repetition_penalty":1.25)",
                             R"("frequency_penalty":0.5)",
                             R"("presence_penalty":0.25)",
                             R"("penalty_window":33)",
                             R"({"token":7,"bias":1.5})",
                             R"("seed":4711)",
                             R"("typical_p":0.9375)",
                             R"("top_n_sigma":3.5)",
                             R"("xtc_probability":0.0625)",
                             R"("xtc_threshold":0.3125)",
                             R"("dry_multiplier":0.8125)",
                             R"("dry_base":1.875)",
                             R"("dry_allowed_length":3)",
                             R"("dry_range":77)",
                             R"("min_keep":5)",
                             R"("dry_breakers":[9])"}) {
        CHECK_MESSAGE(said.find(part) != std::string::npos, std::string(part), " in ", said);
    }
    CHECK(status_of([&] { session.set_sampling({.temperature = -1}); }, "temperature") ==
          Status::InvalidArgument);
    const stasis::Sampling recommended = recall().recommended_sampling();
    session.set_sampling(recommended);
    auto raw = stasis::detail::sized<stasis_sampling>();
    REQUIRE(stasis_model_recommended_sampling(recall().raw(), &raw, nullptr) == STASIS_OK);
    CHECK(recommended.temperature == raw.temperature);
    CHECK(recommended.top_k == raw.top_k);
    CHECK(recommended.bias.size() == raw.bias_count);
}

TEST_CASE("Session: constraints, and sets of tokens") {
    stasis::Session session(recall());
    session.set_constraint(stasis::Constraint::json_schema(
        R"({"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"],
            "additionalProperties": false})"));
    CHECK(session.say(kFirst).text() == "{ \"k\":0 }");
    session.set_constraint(stasis::Constraint::regex("[0-9]{2}!"));
    const std::string number = session.say(kFirst).text();
    CHECK(number.size() == 3);
    CHECK(number.back() == '!');
    session.set_constraint(stasis::Constraint::grammar("root ::= \"yes\""));
    stasis::Reply reply = session.say(kFirst);
    CHECK(reply.text() == "yes");
    session.set_constraint(stasis::Constraint::json());
    CHECK(status_of([&] { session.set_constraint(stasis::Constraint::regex("(")); }) ==
          Status::InvalidArgument);
    stasis::Cancel cancel;
    cancel.request();
    CHECK(status_of([&] {
              session.set_constraint(stasis::Constraint::regex("[a-c]{1,40}x"), &cancel);
          }) == Status::Cancelled);
    session.set_constraint(stasis::Constraint::none());
    stasis::Session other = talk();
    std::vector<std::uint32_t> bits((recall().info().vocabulary + 31) / 32);
    bits[2] = 1U << 9;
    other.set_allowed(bits);
    CHECK(other.decode() == 73);
    CHECK(other.decode() != 73); // it holds for one token
    other.set_allowed(bits);
    other.set_allowed({});
    CHECK(status_of([&] { other.set_allowed(std::span(bits).first(1)); }) ==
          Status::InvalidArgument);
}

TEST_CASE("Session: drafters change the speed and nothing else") {
    stasis::Session plain = talk();
    plain.append_message("user", kSecond, stasis::ReplyPrompt::Yes);
    stasis::Session by_lookup = plain.fork(), by_model = plain.fork();
    by_lookup.draft_by_lookup({.tokens_min = 2, .tokens_max = 4});
    by_model.draft_by_model(recall(), {.tokens_min = 3, .tokens_max = 3});
    const auto reply = [](stasis::Session &session) {
        stasis::Generation generation = session.generate();
        std::string text;
        for (const stasis::Generated &generated : generation) {
            text += generated.text;
        }
        return std::pair(text, generation.result());
    };
    CHECK(reply(plain).first == "m is 55.");
    CHECK(reply(by_lookup).first == "m is 55.");
    const auto [text, result] = reply(by_model);
    CHECK(text == "m is 55.");
    CHECK(result.accepted > 0);
    CHECK(by_model.digest() == plain.digest());
    by_model.draft_off();
    by_model.append_message("user", kFirst, stasis::ReplyPrompt::Yes);
    CHECK(reply(by_model).second.drafted == 0);
    CHECK(status_of([&] { plain.draft_by_lookup({.tokens_max = 33}); }) == Status::InvalidArgument);
    CHECK(status_of([&] { plain.draft_by_model(without_tokenizer()); }) == Status::ModelMismatch);
}

TEST_CASE("Session: conversations in JSON") {
    const stasis::Model model(test_data("recall-llama"));
    stasis::Session session(model);
    const std::string first = R"({"messages": [{"role": "user", "content": "What is k?"}]})";
    const std::string other = R"({"messages": [{"role": "user", "content": "What is m?"}]})";
    CHECK(!session.append_chat(first, stasis::ReplyPrompt::Yes));
    const stasis::Digest before = session.digest();
    const std::optional<std::uint64_t> differs =
        session.append_chat(other, stasis::ReplyPrompt::Yes);
    REQUIRE(differs);
    CHECK(*differs < session.position());
    CHECK(session.digest() == before);
    session.rewind(*differs);
    CHECK(!session.append_chat(other, stasis::ReplyPrompt::Yes));
    for (const stasis::Generated &generated : session.generate({.tokens_max = 20})) {
        (void)generated;
    }
    const std::string reply = session.reply(other, true);
    CHECK(reply.find("assistant") != std::string::npos);
    CHECK(reply == session.reply({}, true));
    CHECK(model.render_chat(first, stasis::ReplyPrompt::No).find("What is k?") !=
          std::string::npos);
    CHECK(model.render_chat(first, stasis::ReplyPrompt::Yes).size() >
          model.render_chat(first, stasis::ReplyPrompt::No).size());
    CHECK(status_of([&] { session.append_chat("[", stasis::ReplyPrompt::No); }) ==
          Status::InvalidArgument);
}

TEST_CASE("Session::chat_tokens: what append_chat appends, and nothing is appended") {
    const stasis::Model model(test_data("recall-llama"));
    const auto asking = [](const std::string &text) {
        return R"({"messages": [{"role": "user", "content": ")" + text + R"("}]})";
    };
    std::string text = "What is k?";
    for (int i = 0; i < 200; ++i) {
        text += " k is " + std::to_string(i) + ".";
    }
    const std::string first = asking(text), other = asking("What is m?");
    stasis::Session session(model);
    const stasis::ChatTokens whole = session.chat_tokens(first, stasis::ReplyPrompt::Yes);
    CHECK(whole.position == 0);
    CHECK(whole.tokens.size() > 300); // more than the first buffer holds
    CHECK(session.chat_tokens(first, stasis::ReplyPrompt::No).tokens.size() < whole.tokens.size());
    CHECK(session.position() == 0);
    CHECK(!session.append_chat(first, stasis::ReplyPrompt::Yes));
    CHECK(session.tokens() == whole.tokens);
    const stasis::ChatTokens none = session.chat_tokens(first, stasis::ReplyPrompt::Yes);
    CHECK(none.position == whole.tokens.size());
    CHECK(none.tokens.empty());

    const stasis::ChatTokens rest = session.chat_tokens(other, stasis::ReplyPrompt::Yes);
    CHECK(rest.position > 0);
    CHECK(session.append_chat(other, stasis::ReplyPrompt::Yes) == rest.position);
    session.rewind(rest.position);
    CHECK(!session.append_chat(other, stasis::ReplyPrompt::Yes));
    CHECK(session.tokens(rest.position) == rest.tokens);
    CHECK(status_of([&] { session.chat_tokens("[", stasis::ReplyPrompt::No); }) ==
          Status::InvalidArgument);
}

TEST_CASE("Session: a host's data and turns, live and from a snapshot") {
    stasis::Session session = talk();
    const stasis::Digest digest = session.digest();
    const std::vector<std::byte> bytes(70000, std::byte{7});
    session.set_data("large", bytes);
    session.set_data("title", std::as_bytes(std::span("About k", 7)));
    session.set_data("user", {});
    CHECK(session.digest() == digest);
    CHECK(session.data("large") == bytes);
    CHECK(session.data("user").empty());
    stasis::Session child = session.fork();
    child.remove_data("large");
    CHECK(status_of([&] { child.data("large"); }) == Status::NotFound);
    CHECK(status_of([&] { child.remove_data("large"); }) == Status::NotFound);
    CHECK(status_of([&] { child.set_data(std::string("a\0b", 3), {}); }) ==
          Status::InvalidArgument);
    CHECK(status_of([&] {
              child.set_data("a", std::vector<std::byte>(stasis::kDataBytesMax + 1));
          }) == Status::Unsupported);

    const stasis::Snapshot snapshot = session.snapshot();
    for (const auto &entries : {session.list_data(), snapshot.list_data()}) {
        REQUIRE(entries.size() == 3);
        CHECK(entries[0].name == std::string("large"));
        CHECK(entries[0].bytes == 70000);
        CHECK(entries[2].bytes == 0);
    }
    CHECK(snapshot.data("large") == bytes);
    CHECK(status_of([&] { snapshot.data("nothing"); }) == Status::NotFound);
    for (const auto &turns : {session.turns(), snapshot.turns()}) {
        REQUIRE(turns.size() == 2);
        CHECK(static_cast<stasis::Role>(turns[0].role) == stasis::Role::User);
        CHECK(static_cast<stasis::Role>(turns[1].role) == stasis::Role::Assistant);
        CHECK(session.text(turns[0].content_begin, turns[0].content_end) == kFirst);
        CHECK(session.text(turns[1].content_begin, turns[1].content_end) == "k is 5.");
        CHECK(turns[1].end == session.position());
    }
    CHECK(session.turns(session.position()).empty());
    CHECK(status_of([&] { session.turns(37); }) == Status::InvalidArgument);
}
