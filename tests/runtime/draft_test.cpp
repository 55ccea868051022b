// Speculative decoding leaves the same state and reports the same tokens as plain decoding,
// whatever is proposed; and drafters propose the expected tokens.
#include "tests/runtime/speculative.h"

#include "tests/runtime/model_files.h"

using namespace stasis;
using namespace stasis::test;

namespace {

Sampling some_sampling(std::mt19937 &random) {
    Sampling sampling;
    sampling.seed = random();
    sampling.temperature = std::vector{0.0F, 0.0F, 0.7F, 1.5F}[random() % 4];
    sampling.top_k = random() % 3 == 0 ? 20 : 0;
    sampling.top_p = random() % 3 == 0 ? 0.9F : 1.0F;
    sampling.repetition_penalty = random() % 3 == 0 ? 1.2F : 1.0F;
    sampling.frequency_penalty = random() % 4 == 0 ? 0.3F : 0.0F;
    sampling.penalty_window = random() % 2 == 0 ? 5 : 0;
    return sampling;
}

// A draft model that is the model itself, or near it: a final norm that others have changed.
std::shared_ptr<Model> near_model(const std::string &name, float by) {
    static auto &norms = *new std::vector<std::vector<float>>();
    const auto model = open_model(directory(name), {});
    std::vector<float> &norm = norms.emplace_back(model->weights.final_norm,
                                                  model->weights.final_norm + model->config.hidden);
    std::mt19937 random(5);
    for (float &weight : norm) {
        weight *= 1 + by * (static_cast<float>(random() % 1000) / 500.0F - 1);
    }
    model->weights.final_norm = norm.data();
    return model;
}

enum class Kind { lookup, itself, near, right, wrong, mixed };

// One generation of both, the plain one first, so that a script can know what comes.
void generate(DraftPair &pair, Kind kind, std::mt19937 &random) {
    const Model &model = *pair.plain->model();
    GenerateOptions options;
    options.tokens_max = 1 + random() % 45;
    options.ignore_end = random() % 2 == 0;
    if (random() % 3 == 0) {
        options.stop_tokens = {static_cast<uint32_t>(random() % model.config.vocabulary),
                               pair.plain->entry(random() % pair.plain->position()).token};
    }
    if (model.tokenizer != nullptr && random() % 3 == 0) {
        Told preview;
        preview.run(*pair.plain->fork(), options);
        std::string text;
        for (const Told::Event &event : preview.events) {
            text += event.text;
        }
        if (text.size() > 4) {
            options.stop_strings = {text.substr(random() % (text.size() - 3), 1 + random() % 3)};
        }
    }
    Told plain, ahead;
    plain.stop_after = ahead.stop_after = random() % 4 == 0 ? 1 + random() % 20 : SIZE_MAX;
    plain.cancel_after = ahead.cancel_after = random() % 5 == 0 ? 1 + random() % 20 : SIZE_MAX;
    plain.run(*pair.plain, options);
    if (kind >= Kind::right) {
        const uint32_t luck = random();
        DraftOptions draft;
        draft.tokens_min = 1 + luck % 3;
        draft.tokens_max = draft.tokens_min + luck % 8;
        pair.ahead->set_drafter(std::make_unique<ScriptedDrafter>(
                                    log_of(*pair.plain), model.config.vocabulary,
                                    [=](uint64_t at) {
                                        return kind == Kind::right ||
                                               (kind == Kind::mixed && at * luck % 10 < 7);
                                    }),
                                draft);
    }
    ahead.run(*pair.ahead, options);
    INFO("plain: ", plain.error, " ahead: ", ahead.error);
    CHECK(ahead.same(plain));
    CHECK(pair.ahead->timeline().states.holds(pair.ahead->position())); // not computed again
    CHECK(ahead.result.accepted <= ahead.result.drafted);
    CHECK(ahead.result.passes <= ahead.result.count);
    CHECK(ahead.result.count <= ahead.result.passes + ahead.result.accepted);
    CHECK(ahead.result.draft_failures == 0);
    CHECK(plain.result.passes == plain.result.count);
}

// Something else that both do.
void change(DraftPair &pair, std::mt19937 &random) {
    Session &ahead = *pair.ahead, &plain = *pair.plain;
    const uint64_t position = plain.position();
    const auto choice = random() % 6;
    if (choice == 0) {
        const Sampling sampling = some_sampling(random);
        ahead.set_sampling(sampling);
        plain.set_sampling(sampling);
    } else if (choice == 1 || (choice == 2 && position < 8)) {
        const auto tokens = tokens_for(*plain.model(), 1 + random() % 30, random());
        if (position + tokens.size() < plain.info().capacity) {
            ahead.append(tokens, {});
            plain.append(tokens, {});
        }
    } else if (choice == 2) {
        const uint64_t to = 1 + random() % position;
        ahead.rewind(to, true, {});
        plain.rewind(to, true, {});
    } else if (choice == 3) { // to a little before
        const uint64_t to = position - std::min<uint64_t>(position - 1, random() % 10);
        ahead.rewind(to, true, {});
        plain.rewind(to, true, {});
    } else if (choice == 4) {
        DraftPair child{ahead.fork(), plain.fork()};
        std::swap(pair, child);
        if (position + 2 <=
            plain.info().capacity) { // the parents continue a little, then are freed
            child.ahead->append(std::vector<uint32_t>{1, 2}, {});
            child.plain->append(std::vector<uint32_t>{1, 2}, {});
        }
    } else { // what follows repeats what was
        const uint64_t from = position / 2;
        std::vector<uint32_t> tokens = log_of(plain);
        tokens.erase(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(from));
        if (position + tokens.size() < plain.info().capacity) {
            ahead.append(tokens, {});
            plain.append(tokens, {});
        }
    }
}

void walk(const std::string &name, Kind kind, uint32_t seed) {
    CAPTURE(name);
    CAPTURE(static_cast<int>(kind));
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto model = open(name, 1 + seed % 3);
    TimelineOptions options;
    options.capacity = std::min<uint64_t>(model->config.context, 100 + random() % 300);
    options.window_retain = random() % 2 == 0 ? 0 : TimelineOptions::kDefaultRetain;
    DraftPair pair = pair_of(model, options);
    if (kind < Kind::right) {
        DraftOptions draft;
        draft.model = kind == Kind::lookup   ? nullptr
                      : kind == Kind::itself ? model
                                             : near_model(name, 0.2F);
        draft.tokens_min = 1 + random() % 4;
        draft.tokens_max = draft.tokens_min + (random() % 2 == 0 ? 0 : 5);
        pair.ahead->set_draft(draft);
    }
    const auto prompt = tokens_for(*model, 1 + random() % 80, seed);
    pair.ahead->append(prompt, {});
    pair.plain->append(prompt, {});
    for (int step = 0; step < 12; ++step) {
        CAPTURE(step);
        generate(pair, kind, random);
        pair.check_same();
        change(pair, random);
        if (step % 3 == 0) {
            pair.check_same();
        }
    }
}

} // namespace

TEST_CASE("Drafting: speculative generation equals plain generation, whatever comes between") {
    const kernels::FloatEnvironment environment;
    const std::string names[] = {
        "zoo/gemma3-text",   "zoo/mistral-window",    "zoo/llama-gqa-untied",
        "quantized/llama",   "quantized/gemma3-tied", "recall-gemma3",
        "zoo/qwen3_5-dense", "zoo/qwen3_5-moe",       "zoo/lfm2",
        "zoo/granite4-h"};
    uint32_t seed = 100;
    for (const std::string &name : names) {
        for (const Kind kind :
             {Kind::lookup, Kind::itself, Kind::near, Kind::right, Kind::wrong, Kind::mixed}) {
            for (int i = 0; i < 3; ++i) {
                walk(name, kind, ++seed);
            }
        }
    }
}

TEST_CASE("Drafting: a drafter that is always right saves passes, one that never is costs none") {
    const kernels::FloatEnvironment environment;
    const auto model = open("zoo/llama-gqa-untied");
    const auto prompt = tokens_for(*model, 20);
    for (const bool right : {true, false}) {
        DraftPair pair = pair_of(model);
        pair.ahead->append(prompt, {});
        pair.plain->append(prompt, {});
        GenerateOptions options;
        options.tokens_max = 90;
        options.ignore_end = true;
        Told plain, ahead;
        plain.run(*pair.plain, options);
        pair.ahead->set_drafter(std::make_unique<ScriptedDrafter>(log_of(*pair.plain),
                                                                  model->config.vocabulary,
                                                                  [=](uint64_t) { return right; }),
                                {});
        ahead.run(*pair.ahead, options);
        CHECK(ahead.same(plain));
        pair.check_same();
        const GenerateResult &result = ahead.result;
        if (right) {
            CHECK(result.passes <= 15);
            CHECK(result.accepted == result.drafted);
            CHECK(result.passes + result.accepted == 90);
        } else {
            CHECK(result.passes == 90);
            CHECK(result.accepted == 0);
            CHECK(result.drafted <= 30); // it gives up, and tries again now and then
            CHECK(result.drafted >= 10);
        }
    }
}

TEST_CASE("Drafting: between any two tokens a hybrid's session is what plain decoding leaves") {
    const kernels::FloatEnvironment environment;
    const auto model = open("zoo/qwen3_5-dense");
    const auto prompt = tokens_for(*model, 230); // a checkpoint is crossed
    DraftPair pair = pair_of(model);
    pair.ahead->append(prompt, {});
    pair.plain->append(prompt, {});
    std::vector<Digest> digests;
    for (int i = 0; i < 60; ++i) {
        pair.plain->decode();
        digests.push_back(pair.plain->digest());
    }
    DraftOptions draft;
    draft.tokens_min = draft.tokens_max = 5;
    pair.ahead->set_drafter(
        std::make_unique<ScriptedDrafter>(log_of(*pair.plain), model->config.vocabulary,
                                          [](uint64_t at) { return at % 7 != 0; }),
        draft);
    struct Compared {
        Session &session;
        const std::vector<Digest> &digests;
        size_t count = 0, equal = 0;
    } compared{*pair.ahead, digests};
    GenerateOptions options;
    options.tokens_max = 60;
    options.ignore_end = true;
    options.callback_user = &compared;
    options.callback = [](void *user, const Generated &) {
        Compared &each = *static_cast<Compared *>(user);
        each.equal += each.session.digest() == each.digests[each.count] ? 1 : 0;
        return ++each.count < each.digests.size();
    };
    GenerateResult result;
    pair.ahead->generate(options, result);
    CHECK(compared.equal == 60);
    CHECK(result.accepted > 30);
    CHECK(result.accepted < result.drafted);
    pair.check_same();
}

namespace {

// Generates with a drafter that is always right, and plainly, on models that have so many bytes of
// pages each.
void generate_within(uint64_t budget_bytes, bool own_pages, GenerateResult &result) {
    ModelOptions options;
    options.kv_budget_bytes = budget_bytes;
    const std::string path = directory("zoo/llama-gqa-untied");
    const auto one = open_model(path, options), two = open_model(path, options);
    DraftPair pair{std::make_unique<Session>(one, TimelineOptions()),
                   std::make_unique<Session>(two, TimelineOptions())};
    const auto prompt = tokens_for(*one, 20);
    pair.ahead->append(prompt, {});
    pair.plain->append(prompt, {});
    GenerateOptions generate;
    generate.ignore_end = true;
    Told plain, ahead;
    plain.run(*pair.plain, generate);
    CHECK(plain.error.find("pool exhausted") != std::string::npos);
    DraftOptions draft;
    draft.tokens_min = draft.tokens_max = 7;
    if (own_pages) {
        draft.model = one;
        pair.ahead->set_draft(draft);
    } else {
        pair.ahead->set_drafter(std::make_unique<ScriptedDrafter>(log_of(*pair.plain),
                                                                  one->config.vocabulary,
                                                                  [](uint64_t) { return true; }),
                                draft);
    }
    ahead.run(*pair.ahead, generate);
    CHECK(ahead.result.count == plain.result.count);
    CHECK(ahead.error == plain.error);
    pair.check_same();
    CHECK(one->pool->used_bytes() == two->pool->used_bytes());
    CHECK(one->held_bytes.load() == two->held_bytes.load());
    result = ahead.result;
}

} // namespace

TEST_CASE("Drafting: pages that only proposals would need are done without") {
    const kernels::FloatEnvironment environment;
    const uint64_t page = open("zoo/llama-gqa-untied")->pool->shape(0).bytes();
    for (const uint64_t pages : {1, 2, 3}) {
        GenerateResult result;
        generate_within(pages * page, false, result);
        CHECK(result.accepted > 10);
        CHECK(result.draft_failures == 0);
    }
    for (const uint64_t pages : {1, 2, 3}) { // a draft model that takes its pages from the same
        GenerateResult result;
        generate_within(pages * page, true, result);
        CHECK(result.draft_failures == 1);
        CHECK((result.accepted > 10) == (pages > 1));
    }
}

TEST_CASE("Drafting: numbers of rejected rows that are not finite fail nothing") {
    const kernels::FloatEnvironment environment;
    const auto model = open_model(test_data("zoo/llama-gqa-untied"), {});
    std::vector<float> norm(model->weights.final_norm,
                            model->weights.final_norm + model->config.hidden);
    model->weights.final_norm = norm.data();
    const auto prompt = tokens_for(*model, 12);
    size_t met = 0;
    for (const float weight : {1e37F, 5e37F, 1e38F, 1.5e38F, 2e38F}) {
        norm[0] = weight;
        DraftPair pair = pair_of(model);
        Told plain, ahead;
        GenerateOptions options;
        options.tokens_max = 30;
        options.ignore_end = true;
        try {
            pair.ahead->append(prompt, {});
            pair.plain->append(prompt, {});
        } catch (const Error &) {
            continue;
        }
        plain.run(*pair.plain, options);
        // A token that fails after the first of those drawn, if there is one.
        uint32_t bad = 0;
        for (; bad < model->config.vocabulary; ++bad) {
            Session again(model, {});
            again.append(prompt, {});
            try {
                again.append(
                    std::vector<uint32_t>{plain.events.empty() ? 0 : plain.events[0].token, bad},
                    {});
            } catch (const Error &) {
                break;
            }
        }
        std::vector<uint32_t> script(prompt.size() + 100, bad);
        DraftOptions draft;
        draft.tokens_min = draft.tokens_max = 3;
        pair.ahead->set_drafter(std::make_unique<ScriptedDrafter>(script, model->config.vocabulary,
                                                                  [](uint64_t) { return true; }),
                                draft);
        ahead.run(*pair.ahead, options);
        CHECK(ahead.same(plain));
        pair.check_same();
        met += bad < model->config.vocabulary && plain.result.count > 0 ? 1 : 0;
    }
    CHECK(met > 0);
}

TEST_CASE(
    "LookupDrafter: the lookup proposes what followed the longest suffix that occurred before") {
    const auto model = open("zoo/llama-gqa-untied");
    LookupDrafter drafter;
    const Sampling sampling;
    TokenLog log(*model->log_nodes);
    const auto propose = [&](std::vector<uint32_t> tokens, size_t most) {
        log.truncate(0);
        for (size_t i = 0; i + 1 < tokens.size(); ++i) {
            log.push_back({tokens[i]});
        }
        drafter.rewound(0);
        std::vector<uint32_t> proposals;
        drafter.propose({log, tokens.back(), sampling}, most, proposals);
        return proposals;
    };
    using TokenList = std::vector<uint32_t>;
    CHECK(propose({1, 2, 3}, 4) == TokenList{});
    CHECK(propose({1, 2, 3, 4, 9, 2, 3}, 4) == TokenList{}); // two are too few
    CHECK(propose({1, 2, 3, 4, 5, 1, 2, 3}, 2) == TokenList{4, 5});
    CHECK(propose({1, 2, 3, 4, 5, 1, 2, 3}, 7) == TokenList{4, 5, 1, 2, 3, 4, 5}); // and continues
    // The longest, not the latest; of equal ones the latest.
    CHECK(propose({7, 1, 2, 3, 4, 8, 1, 2, 3, 5, 7, 1, 2, 3}, 1) == TokenList{4});
    CHECK(propose({7, 1, 2, 3, 4, 8, 1, 2, 3, 5, 9, 1, 2, 3}, 1) == TokenList{5});
    CHECK(propose({6, 6, 6, 6}, 3) == TokenList{6, 6, 6});

    // Against a search through the whole log, the log cut and grown at random.
    std::mt19937 random(3);
    TokenList tokens;
    log.truncate(0);
    drafter.rewound(0);
    for (int step = 0; step < 4000; ++step) {
        if (random() % 50 == 0 && !tokens.empty()) {
            tokens.resize(tokens.size() - random() % std::min<size_t>(tokens.size(), 40));
            log.truncate(tokens.size());
            drafter.rewound(tokens.size());
        }
        const auto next = static_cast<uint32_t>(random() % 2 + (step % 500 < 250 ? 0 : 40));
        TokenList proposals;
        drafter.propose({log, next, sampling}, 1, proposals);
        TokenList all = tokens;
        all.push_back(next);
        // The latest kCandidates places that share the last three tokens.
        size_t longest = 2, seen = 0;
        TokenList expected;
        for (size_t end = all.size() - 1; end >= 3 && seen < LookupDrafter::kCandidates; --end) {
            if (!std::equal(all.end() - 3, all.end(),
                            all.begin() + static_cast<ptrdiff_t>(end) - 3)) {
                continue;
            }
            ++seen;
            size_t length = 0;
            while (length < std::min(end, LookupDrafter::kLongest) &&
                   all[end - 1 - length] == all[all.size() - 1 - length]) {
                ++length;
            }
            if (length > longest) {
                longest = length;
                expected = {all[end]};
            }
        }
        REQUIRE(proposals == expected);
        tokens.push_back(next);
        log.push_back({next});
    }
}

TEST_CASE("DraftLength: the draft's length follows what came of it") {
    const auto passes = [](DraftLength &length, double right, int count, size_t *proposed) {
        std::mt19937 random(1);
        for (int i = 0; i < count; ++i) {
            const size_t wanted = length.wanted();
            length.began(wanted);
            proposed[i] = wanted;
            for (size_t k = 0; k < wanted; ++k) {
                const bool hit = static_cast<double>(random() % 1000) < right * 1000;
                length.note(hit);
                if (!hit) {
                    break;
                }
            }
        }
    };
    size_t proposed[200];
    DraftLength free({}, 0);
    passes(free, 1, 40, proposed);
    CHECK(proposed[39] == 8);
    passes(free, 0.5, 60, proposed);
    CHECK(*std::max_element(proposed + 30, proposed + 60) <= 5);
    passes(free, 0, 200, proposed);
    CHECK(std::count(proposed + 40, proposed + 200, size_t{0}) >= 150);
    CHECK(std::accumulate(proposed + 72, proposed + 200, size_t{0}) >= 2); // it still tries
    passes(free, 1, 200, proposed);                                        // and comes back
    CHECK(proposed[199] == 8);
    DraftLength dear({}, 1); // a model of the same size: nothing to be had
    passes(dear, 1, 200, proposed);
    CHECK(std::count(proposed, proposed + 200, size_t{0}) == 200);
    DraftLength fixed({nullptr, 5, 5}, 1);
    passes(fixed, 0, 50, proposed);
    CHECK(std::count(proposed, proposed + 50, size_t{5}) == 50);
}

TEST_CASE("Drafting: a draft model that does not fit is refused, and names what differs") {
    const auto model = open("recall-llama");
    Session session(model, {});
    DraftOptions draft;
    draft.model = open("zoo/gemma3-text");
    expect_error(Status::model_mismatch, {"vocabulary"}, [&] { session.set_draft(draft); });
    draft.model = open("recall-gemma3");
    expect_error(Status::model_mismatch, {"token ", "is '"}, [&] { session.set_draft(draft); });
    draft.model = nullptr;
    draft.tokens_min = 0;
    expect_error(Status::invalid_argument, {"min"}, [&] { session.set_draft(draft); });
    draft.tokens_min = 9;
    expect_error(Status::invalid_argument, {"9"}, [&] { session.set_draft(draft); });
    draft.tokens_max = 33;
    expect_error(Status::invalid_argument, {"33"}, [&] { session.set_draft(draft); });
}
