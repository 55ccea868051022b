// Drafting by a model's MTP head: what the head computes, what it is shown, and that no reply
// differs.
#include <cmath>

#include "runtime/compute/forward.h"
#include "runtime/compute/profile.h"
#include "runtime/kernels/bf16.h"
#include "runtime/session/mtp_drafter.h"
#include "runtime/timeline/append.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/mtp_head.h"
#include "tests/runtime/speculative.h"
#include "tests/share.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// A hybrid with a head, opened once for each number of threads.
std::shared_ptr<Model> with_head(const std::string &name, size_t threads = 2) {
    static auto &directories = *new std::map<std::string, std::unique_ptr<EditedModel>>();
    static auto &models = *new std::map<std::pair<std::string, size_t>, std::shared_ptr<Model>>();
    std::unique_ptr<EditedModel> &edited = directories[name];
    if (edited == nullptr) {
        edited = std::make_unique<EditedModel>(name);
        add_mtp_head(edited->tensors);
        edited->load();
    }
    std::shared_ptr<Model> &model = models[{name, threads}];
    if (model == nullptr) {
        ModelOptions options;
        options.threads = threads;
        model = open_model(edited->directory.path(), options);
        REQUIRE(model->mtp != nullptr);
    }
    return model;
}

// The final hidden states of tokens.
std::vector<uint16_t> hidden_of(const std::shared_ptr<Model> &model,
                                std::span<const uint32_t> tokens) {
    Session session(model, {});
    std::vector<uint16_t> all;
    struct Into {
        std::vector<uint16_t> &all;
        size_t width;
    } into{all, model->config.hidden};
    AppendOptions options;
    options.hidden_user = &into;
    options.hidden = [](void *user, const Timeline &, uint64_t begin, const uint16_t *hidden,
                        size_t rows) noexcept {
        const Into &to = *static_cast<Into *>(user);
        if (begin * to.width == to.all.size()) {
            to.all.insert(to.all.end(), hidden, hidden + rows * to.width);
        }
    };
    session.append(tokens, options);
    REQUIRE(all.size() == tokens.size() * model->config.hidden);
    return all;
}

using Numbers = std::vector<double>;

Numbers norm(const Numbers &x, const float *weights, double eps) {
    double squares = 0;
    for (const double value : x) {
        squares += value * value;
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
    Numbers out;
    for (size_t i = 0; i < x.size(); ++i) {
        out.push_back(x[i] * factor * double{weights[i]});
    }
    return out;
}

Numbers times(const Matrix &w, const Numbers &x) {
    REQUIRE(w.columns == x.size());
    Numbers out(w.rows);
    for (size_t row = 0; row < w.rows; ++row) {
        for (size_t i = 0; i < w.columns; ++i) {
            out[row] += double{kernels::bf16_to_f32(w.data[row * w.columns + i])} * x[i];
        }
    }
    return out;
}

double sigmoid(double x) {
    return 1 / (1 + std::exp(-x));
}

void add(Numbers &to, const Numbers &more) {
    for (size_t i = 0; i < to.size(); ++i) {
        to[i] += more[i];
    }
}

// What a head gives for its first row, whose attention is the value of that row. Written from
// vLLM's Qwen3NextMultiTokenPredictor.forward, and transformers' Qwen3_5Attention and Qwen3_5MLP.
Numbers first_row(const Model &model, uint32_t token, std::span<const uint16_t> hidden,
                  bool swapped) {
    const MtpWeights &mtp = model.weights.mtp;
    const Config &config = model.config;
    const double eps = config.norm_eps;
    Numbers embedding, state;
    for (size_t i = 0; i < config.hidden; ++i) {
        embedding.push_back(
            kernels::bf16_to_f32(model.weights.embeddings.data[size_t{token} * config.hidden + i]));
        state.push_back(kernels::bf16_to_f32(hidden[i]));
    }
    Numbers both = norm(embedding, mtp.embedding_norm, eps);
    const Numbers other = norm(state, mtp.hidden_norm, eps);
    both.insert(swapped ? both.begin() : both.end(), other.begin(), other.end());
    Numbers x = times(mtp.join, both);

    // Attention: each query head's gate, and the value of its KV head.
    const Numbers normed = norm(x, mtp.layer.attention_norm, eps);
    const Numbers queries = times(mtp.layer.query, normed), values = times(mtp.layer.value, normed);
    Numbers attended;
    for (size_t head = 0; head < config.heads; ++head) {
        const size_t kv_head = head / (config.heads / config.kv_heads);
        for (size_t i = 0; i < config.head_dim; ++i) {
            attended.push_back(values[kv_head * config.head_dim + i] *
                               sigmoid(queries[(2 * head + 1) * config.head_dim + i]));
        }
    }
    add(x, times(mtp.layer.output, attended));

    const Numbers again = norm(x, mtp.layer.mlp_norm, eps);
    Numbers gate = times(mtp.layer.mlp.gate, again);
    const Numbers up = times(mtp.layer.mlp.up, again);
    for (size_t i = 0; i < gate.size(); ++i) {
        gate[i] *= sigmoid(gate[i]) * up[i];
    }
    add(x, times(mtp.layer.mlp.down, gate));
    return norm(x, mtp.final_norm, eps);
}

double distance(const Numbers &expected, std::span<const uint16_t> found) {
    double squares = 0, all = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double off = double{kernels::bf16_to_f32(found[i])} - expected[i];
        squares += off * off;
        all += expected[i] * expected[i];
    }
    return std::sqrt(squares / all);
}

std::vector<uint32_t> repeating(const Model &model, size_t count, uint64_t seed) {
    const std::vector<uint32_t> period = tokens_for(model, 5 + seed % 7, seed);
    std::vector<uint32_t> tokens;
    while (tokens.size() < count) {
        tokens.push_back(period[tokens.size() % period.size()]);
    }
    return tokens;
}

// Lets a session with the head and one without generate the same reply, and one with the head that
// is asked for each token.
GenerateResult reply(const std::shared_ptr<Model> &model, std::span<const uint32_t> prompt,
                     const Sampling &sampling, DraftOptions draft, uint64_t count,
                     const Constraint &constraint = {}) {
    DraftPair pair = pair_of(model);
    Session asked(model, {}); // for one token at a time
    draft.model = model;
    pair.ahead->set_draft(draft);
    asked.set_draft(draft);
    for (Session *session : {pair.ahead.get(), pair.plain.get(), &asked}) {
        session->set_sampling(sampling);
        session->append(prompt, {});
        session->set_constraint(constraint, {});
    }
    GenerateOptions options;
    options.tokens_max = count;
    options.ignore_end = true;
    Told plain, ahead, pulled;
    plain.run(*pair.plain, options);
    ahead.run(*pair.ahead, options);
    pulled.pull(asked, options);
    REQUIRE(ahead.same(plain));
    REQUIRE(pulled.same(plain));
    CHECK(pulled.result.accepted == ahead.result.accepted);
    REQUIRE(pair.ahead->digest() == pair.plain->digest());
    REQUIRE(asked.digest() == pair.plain->digest());
    CHECK(ahead.result.draft_failures == 0);
    return ahead.result;
}

} // namespace

TEST_CASE("MTP: the head computes what its published form says") {
    const kernels::FloatEnvironment environment;
    const auto model = with_head("zoo/qwen3_5-dense");
    const std::vector<uint32_t> tokens = tokens_for(*model, 12, 3);
    const std::vector<uint16_t> hidden = hidden_of(model, tokens);
    const size_t width = model->config.hidden;
    for (size_t at = 0; at + 1 < tokens.size(); ++at) {
        const std::span<const uint16_t> before{hidden.data() + at * width, width};
        Timeline timeline(*model->mtp, {});
        const TokenEntry entry{tokens[at + 1]};
        Append append{&timeline, {&entry, 1}};
        PassLease pass(*model->mtp);
        uint64_t promised = 0;
        append.reserve(false, promised);
        pass->fit(1);
        pass->clear();
        append.stage({1, 0}, *pass);
        pass->previous = before.data();
        forward(*pass);
        append.accept(*pass, {});
        append.commit(pass->hidden);
        CHECK(distance(first_row(*model, entry.token, before, false), timeline.hidden.numbers) <
              0.01);
        CHECK(distance(first_row(*model, entry.token, before, true), timeline.hidden.numbers) >
              0.1);
        CHECK(distance(first_row(*model, tokens[at], before, false), timeline.hidden.numbers) >
              0.1);
    }
}

TEST_CASE("MTP: proposals do not depend on how the head's rows came") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/qwen3_5-dense", "zoo/qwen3_5-moe"}) {
        const auto model = with_head(name);
        const std::vector<uint32_t> tokens = repeating(*model, 700, 2);
        const std::vector<uint16_t> hidden = hidden_of(model, tokens);
        const size_t width = model->config.hidden;
        TokenLog log(*model->log_nodes);
        Sampling sampling;
        sampling.temperature = 0.8F;
        sampling.repetition_penalty = 1.1F;
        sampling.penalty_window = 20;
        std::mt19937 random(7);
        MtpDrafter drafter(model);
        for (size_t done = 0; done < tokens.size();) {
            if (done > 40 && random() % 4 == 0) {
                done -= random() % 40;
                log.truncate(done);
                drafter.rewound(done);
            } else {
                const size_t count = std::min<size_t>(1 + random() % 90, tokens.size() - done);
                for (size_t i = 0; i < count; ++i) {
                    log.push_back({tokens[done + i]});
                }
                drafter.computed(log, done, {hidden.data() + done * width, count * width});
                done += count;
            }
            const auto propose = [&](MtpDrafter &by) {
                std::vector<uint32_t> proposals;
                by.propose({log, 3, sampling, {}, {&hidden[(done - 1) * width], width}}, 4,
                           proposals);
                return proposals;
            };
            MtpDrafter fresh(model);
            fresh.computed(log, 0, {hidden.data(), done * width});
            const std::vector<uint32_t> proposals = propose(drafter);
            REQUIRE(proposals.size() == 4);
            REQUIRE(proposals == propose(fresh));
            REQUIRE(proposals == propose(drafter)); // once more
        }
    }
}

TEST_CASE("MTP: no reply differs, greedy or sampled, at any width") {
    const kernels::FloatEnvironment environment;
    size_t replies = 0, drafted = 0;
    for (size_t i = 0; i < 1000; ++i) {
        if (!taken(i)) {
            continue;
        }
        ++replies;
        std::mt19937 random(static_cast<uint32_t>(i));
        const char *name = i % 2 == 0 ? "zoo/qwen3_5-dense" : "zoo/qwen3_5-moe";
        const auto model = with_head(name, 1 + i % 3);
        Sampling sampling;
        sampling.seed = random();
        sampling.temperature = i % 4 < 2 ? 0.0F : 0.9F;
        sampling.repetition_penalty = random() % 3 == 0 ? 1.2F : 1.0F;
        sampling.top_k = random() % 2 == 0 ? 4 : 0;
        DraftOptions draft;
        draft.tokens_min = 1 + random() % 8;
        draft.tokens_max = draft.tokens_min + random() % 3;
        CAPTURE(i);
        const GenerateResult result =
            reply(model, repeating(*model, 1 + random() % 300, random()), sampling, draft, 24);
        drafted += result.drafted;
    }
    CHECK(drafted > 5 * replies);
}

TEST_CASE("MTP: right proposals save passes") {
    const kernels::FloatEnvironment environment;
    const auto model = with_head("zoo/qwen3_5-dense");
    Sampling sampling;
    sampling.temperature = 0;
    sampling.bias = {{7, 1000.0F}}; // the same token always, for the head as well
    DraftOptions draft;
    draft.tokens_min = draft.tokens_max = 4;
    const GenerateResult result = reply(model, tokens_for(*model, 30), sampling, draft, 50);
    CHECK(result.accepted == result.drafted);
    CHECK(result.passes == 10);
}

TEST_CASE("MTP: under a constraint the head drafts what it allows") {
    const kernels::FloatEnvironment environment;
    EditedModel edited("zoo/qwen3_5-dense");
    add_mtp_head(edited.tensors);
    edited.load();
    const auto model = open_model(edited.directory.path(), {});
    // The model has no tokenizer: any will do, as far as its vocabulary reaches.
    model->tokenizer = std::move(open_model(directory("recall-llama"), {})->tokenizer);
    DraftOptions draft;
    draft.tokens_min = draft.tokens_max = 4;
    for (const float temperature : {0.0F, 0.9F}) {
        CAPTURE(temperature);
        Sampling sampling;
        sampling.temperature = temperature;
        sampling.seed = 3;
        // One text alone: whatever the head computes, what it draws is right.
        const GenerateResult forced = reply(model, tokens_for(*model, 30), sampling, draft, 50,
                                            {Constraint::kRegex, "(xyzw){100}"});
        CHECK(forced.drafted == 40);
        CHECK(forced.accepted == 40);
        CHECK(forced.passes == 10);
        // One of two now and then: most of what it draws.
        const GenerateResult either = reply(model, tokens_for(*model, 30), sampling, draft, 50,
                                            {Constraint::kRegex, "(ab[xy]cd){100}"});
        CHECK(2 * either.accepted > either.drafted);
        const GenerateResult any = reply(model, tokens_for(*model, 30), sampling, draft, 50);
        CHECK(4 * any.accepted < any.drafted);
    }
}

TEST_CASE("MTP: a session that is loaded, rewound or forked drafts on") {
    const kernels::FloatEnvironment environment;
    const auto model = with_head("zoo/qwen3_5-dense");
    Sampling sampling;
    sampling.temperature = 0;
    sampling.bias = {{7, 1000.0F}};
    DraftOptions draft;
    draft.model = model;
    draft.tokens_min = draft.tokens_max = 4;
    Session session(model, {});
    session.set_sampling(sampling);
    session.append(tokens_for(*model, 300), {}); // before the head is chosen: it saw nothing
    session.set_draft(draft);
    GenerateOptions options;
    options.tokens_max = 20;
    options.ignore_end = true;
    GenerateResult result;
    session.generate(options, result);
    CHECK(result.accepted == 16);
    session.rewind(290, false, {});
    session.append(tokens_for(*model, 9, 5), {});
    session.generate(options, result);
    CHECK(result.accepted == 16);
    session.rewind(299, false, {}); // to where the head's first row was
    session.generate(options, result);
    CHECK(result.accepted == 16);
    const auto child = session.fork();
    child->generate(options, result);
    CHECK(result.accepted == 16);
    CHECK(result.draft_failures == 0);
}

TEST_CASE("MTP: a session that is settled between two tokens has the digest that they have alone") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/qwen3_5-dense", "zoo/qwen3_5-moe"}) {
        const auto model = with_head(name);
        for (const bool right : {true, false}) { // whether proposals are what is drawn
            Sampling sampling;
            sampling.temperature = right ? 0 : 2.0F;
            if (right) {
                sampling.bias = {{7, 1000.0F}};
            }
            Session session(model, {}), plain(model, {});
            for (Session *each : {&session, &plain}) {
                each->set_sampling(sampling);
                each->append(tokens_for(*model, 40), {});
            }
            DraftOptions draft;
            draft.model = model;
            draft.tokens_min = draft.tokens_max = 4;
            session.set_draft(draft);
            GenerateOptions options;
            options.tokens_max = 24;
            options.ignore_end = true;
            Generation generation(session, options);
            Generated event{};
            for (uint64_t i = 0; generation.next({}, event); ++i) {
                CHECK(event.token == plain.decode());
                if (i % 4 != 1) { // with rows ahead, and without
                    generation.settle();
                    CHECK(session.digest() == plain.digest());
                    CHECK(session.info().kv_bytes == plain.info().kv_bytes);
                }
            }
            CHECK((generation.result().accepted > 0 || !right));
        }
    }
}
