// The rows of "what follows" from the numerics contract, bit for bit: however tokens are cut into
// calls, however many threads run, whatever was forked, rewound or restored, the numbers are the
// same function of weights and token log.
#include <atomic>
#include <thread>

#include "tests/runtime/edited_model.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

// Everything that a session computed: digest, keys and values, logits.
struct Fingerprint {
    Digest digest;
    std::vector<uint16_t> kv; // of the positions from `begin` on
    std::vector<float> logits;
    bool operator==(const Fingerprint &other) const {
        return digest == other.digest && kv == other.kv && same_bits(logits, other.logits);
    }
};

// `begin`: first position whose keys and values are taken; every layer must hold them.
Fingerprint fingerprint(Session &session, uint64_t begin) {
    Fingerprint result;
    const Config &config = session.model()->config;
    const uint64_t end = session.position();
    const size_t size = (end - begin) * config.kv_heads * config.head_dim;
    result.kv.resize(size * 2 * config.layers);
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
        uint16_t *at = result.kv.data() + size * 2 * layer;
        if (config.layer[layer].recurrent) {
            continue; // its state is in the digest
        }
        session.copy_kv(layer, begin, end, at, at + size);
    }
    result.digest = session.digest();
    result.logits = logits_of(session);
    return result;
}

Fingerprint fingerprint(Session &session) {
    return fingerprint(session, session.info().window_begin);
}

Fingerprint straight_run(const std::shared_ptr<Model> &model, std::span<const uint32_t> tokens) {
    Session session(model, {});
    session.append(tokens, {});
    return fingerprint(session);
}

// Whether a session has the bits of a run that appended `tokens` and did nothing else.
bool equals_straight_run(Session &session, std::span<const uint32_t> tokens) {
    Session straight(session.model(), {});
    straight.append(tokens, {});
    const uint64_t begin = std::max(session.info().window_begin, straight.info().window_begin);
    return fingerprint(session, begin) == fingerprint(straight, begin);
}

// One model with windows (16) in some layers, one with one (20) in all, one with odd sizes, two of
// integer weights, one with recurrent layers, one trained with a window of 64.
std::vector<const char *> models() {
    std::vector<const char *> names = {"zoo/gemma3-text",         "zoo/mistral-window",
                                       "zoo/llama-odd-sizes-f32", "quantized/llama",
                                       "quantized/gemma3-tied",   "zoo/qwen3_5-dense"};
    if (!kSanitized) {
        names.push_back("recall-gemma3");
    }
    return names;
}
const std::vector<const char *> kContractModels = models();

} // namespace

TEST_CASE("forward: append(a + b) equals append(a), append(b) at every cut") {
    kernels::FloatEnvironment environment;
    for (const char *name : kContractModels) {
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 140);
        const Fingerprint whole = straight_run(model, tokens);
        for (size_t cut = 1 + first_case(); cut < tokens.size(); cut += stride()) {
            Session session(model, {});
            session.append(std::span(tokens).first(cut), {});
            session.append(std::span(tokens).subspan(cut), {});
            REQUIRE_MESSAGE(fingerprint(session) == whole, name << " cut at " << cut);
        }
    }
}

TEST_CASE("forward: one token at a time and every chunk size equal one call") {
    kernels::FloatEnvironment environment;
    for (const char *name : kContractModels) {
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 140);
        Session whole(model, {});
        const auto rows = append_with_logits(whole, tokens);
        Session single(model, {});
        for (size_t i = 0; i < tokens.size(); ++i) {
            single.append({&tokens[i], 1}, {});
            REQUIRE_MESSAGE(same_bits(logits_of(single), rows[i]), name << " position " << i);
        }
        REQUIRE(fingerprint(single) == fingerprint(whole));
        for (size_t chunk : {1U, 2U, 3U, 5U, 31U, 63U, 64U, 65U, 129U}) {
            Session session(model, {});
            const auto chunk_rows = append_with_logits(session, tokens, chunk);
            REQUIRE(fingerprint(session) == fingerprint(whole));
            for (size_t i = 0; i < tokens.size(); ++i) {
                REQUIRE_MESSAGE(same_bits(chunk_rows[i], rows[i]), name << " chunk " << chunk);
            }
        }
    }
}

// The last of the items that threads take of a product has what is left over.
TEST_CASE(
    "forward: products whose outputs share out unevenly compute the same bits on any threads") {
    const kernels::FloatEnvironment environment;
    const std::vector<GgufType> plain(7, GgufType::bf16);
    for (const uint64_t inner : {511, 300, 33, 7}) {
        CAPTURE(inner);
        const TemporaryDirectory folder;
        write_bytes(
            folder.file("m.gguf"),
            test::QuantizedModel{"llama", GgufType::bf16, {plain, plain}, {}, inner}.bytes());
        std::vector<Digest> digests;
        for (const size_t threads : {1, 2, 3, 5}) {
            for (const size_t chunk : {1, 70, 200}) {
                ModelOptions options;
                options.threads = threads;
                const auto model = open_model(folder.file("m.gguf"), options);
                Session session(model, {});
                const std::vector<uint32_t> tokens = test::tokens_for(*model, 200);
                for (size_t at = 0; at < tokens.size(); at += chunk) {
                    session.append(std::span(tokens).subspan(at, std::min(chunk, 200 - at)), {});
                }
                digests.push_back(session.digest());
            }
        }
        CHECK(std::count(digests.begin(), digests.end(), digests[0]) == 12);
    }
}

TEST_CASE(
    "forward: every table, with 1, 2, 3 and 7 threads and any chunk, computes the same bits") {
    kernels::FloatEnvironment environment;
    std::vector<const char *> names = kContractModels;
    if (!kSanitized) {
        names.push_back("recall-llama");
    }
    size_t count = 0;
    for (const char *name : names) {
        const auto reference = open_forced(name, "reference", 1);
        const std::vector<uint32_t> tokens = tokens_for(*reference, 100);
        Session expected(reference, {});
        const auto expected_rows = append_with_logits(expected, tokens);
        const Fingerprint expected_print = fingerprint(expected);
        for (const char *const *table = kernels::table_names(); *table != nullptr; ++table) {
            if (kernels::find_table(*table) == nullptr) {
                std::printf("SKIPPED: whole models: this machine cannot run table '%s'\n", *table);
                continue;
            }
            for (size_t threads : {1U, 2U, 3U, 7U}) {
                const auto model = open_forced(name, *table, threads);
                REQUIRE(model->threads->count() == threads);
                for (size_t chunk : {0U, 1U, 3U, 16U, 64U}) { // 0: the engine's own
                    if (!taken(count++)) {
                        continue;
                    }
                    INFO(name, ", ", *table, ", threads ", threads, ", chunk ", chunk);
                    Session session(model, {});
                    const auto rows = append_with_logits(session, tokens, chunk);
                    REQUIRE(fingerprint(session) == expected_print);
                    REQUIRE(std::equal(rows.begin(), rows.end(), expected_rows.begin(),
                                       expected_rows.end(), same_bits));
                }
            }
        }
    }
}

TEST_CASE("forward: sessions that run at the same time compute what each computes alone") {
    const auto model = open("recall-llama", 3);
    constexpr size_t kSessions = 4;
    std::vector<Digest> alone, together(kSessions);
    for (size_t i = 0; i < kSessions; ++i) {
        kernels::FloatEnvironment environment;
        alone.push_back(straight_run(model, tokens_for(*model, 60 + 17 * i, i)).digest);
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kSessions; ++i) {
        threads.emplace_back([&, i] {
            kernels::FloatEnvironment environment;
            Session session(model, {});
            for (uint32_t token : tokens_for(*model, 60 + 17 * i, i)) {
                session.append({&token, 1}, {});
            }
            together[i] = session.digest();
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    CHECK(together == alone);
}

TEST_CASE("forward: a fork and its parent go on as two separate runs") {
    kernels::FloatEnvironment environment;
    for (const char *name : kContractModels) {
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 200);
        const std::vector<uint32_t> other = tokens_for(*model, 100, 99);
        for (size_t cut : {1U, 15U, 16U, 17U, 63U, 64U, 65U, 100U, 128U}) {
            Session parent(model, {});
            parent.append(std::span(tokens).first(cut), {});
            const Digest before = parent.digest();
            const auto child = parent.fork();
            REQUIRE(child->digest() == before);
            child->append(other, {});
            REQUIRE(parent.digest() == before);
            const Digest child_digest = child->digest();
            parent.append(std::span(tokens).subspan(cut), {});
            REQUIRE(child->digest() == child_digest);
            REQUIRE(fingerprint(parent) == straight_run(model, tokens));
            std::vector<uint32_t> both(tokens.begin(), tokens.begin() + static_cast<long>(cut));
            both.insert(both.end(), other.begin(), other.end());
            REQUIRE_MESSAGE(fingerprint(*child) == straight_run(model, both), name << " " << cut);
        }
    }
}

TEST_CASE("forward: rewind(n), append(x) equals a fresh run, above and below the floor") {
    kernels::FloatEnvironment environment;
    for (const char *name : kContractModels) {
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 330);
        const std::vector<uint32_t> other = tokens_for(*model, 20, 5);
        Session source(model, {});
        source.append(tokens, {});
        const uint64_t floor = source.info().rewind_floor;
        for (uint64_t n : {330UL, 329UL, 321UL, 320UL, 319UL, 300UL, 257UL, 256UL, 255UL, 192UL,
                           128UL, 100UL, 64UL, 17UL, 1UL, 0UL}) {
            const auto session = source.fork();
            if (n < floor && n != 0) {
                const Digest before = session->digest();
                CHECK_THROWS_AS(session->rewind(n, false, {}), Error);
                REQUIRE(session->digest() == before);
                session->rewind(n, true, {});
            } else {
                session->rewind(n, false, {});
            }
            REQUIRE(session->position() == n);
            const auto kept = std::span(tokens).first(n);
            if (n > 0) {
                REQUIRE_MESSAGE(equals_straight_run(*session, kept), name << " " << n);
            }
            session->append(other, {});
            std::vector<uint32_t> both(kept.begin(), kept.end());
            both.insert(both.end(), other.begin(), other.end());
            REQUIRE_MESSAGE(equals_straight_run(*session, both), name << " " << n);
        }
    }
}

TEST_CASE("forward: a restored state continues with the bits of one that was never exported") {
    kernels::FloatEnvironment environment;
    for (const char *name : kContractModels) {
        const auto model = open(name), elsewhere = open(name, 1);
        const std::vector<uint32_t> tokens = tokens_for(*model, 150);
        const Fingerprint whole = straight_run(model, tokens);
        Session session(model, {});
        for (size_t cut = 0; cut < tokens.size(); ++cut) {
            if (!taken(cut)) {
                session.append({&tokens[cut], 1}, {});
                continue;
            }
            const State state = export_state(session);
            const auto restored = restore_session(elsewhere, state, nullptr);
            REQUIRE(restored->digest() == session.digest());
            restored->append(std::span(tokens).subspan(cut), {});
            REQUIRE_MESSAGE(fingerprint(*restored) == whole, name << " cut at " << cut);
            session.append({&tokens[cut], 1}, {});
        }
    }
}

TEST_CASE("forward: draws do not depend on how the position was reached") {
    kernels::FloatEnvironment environment;
    const auto model = open("recall-gemma3");
    Sampling sampling;
    sampling.temperature = 1.3F;
    sampling.top_k = 40;
    sampling.top_p = 0.95F;
    sampling.repetition_penalty = 1.1F;
    sampling.seed = 42;
    Session session(model, {});
    session.append(tokens_for(*model, 30), {});
    session.set_sampling(sampling);
    std::vector<uint32_t> drawn;
    for (size_t i = 0; i < 120; ++i) {
        drawn.push_back(session.decode());
    }
    const Digest digest = session.digest();

    const auto rewound = session.fork();
    rewound->rewind(130, false, {});
    const auto restored =
        restore_session(open("recall-gemma3", 1), export_state(*rewound), nullptr);
    for (Session *again : {rewound.get(), restored.get()}) {
        for (size_t i = 100; i < 120; ++i) {
            REQUIRE(again->decode() == drawn[i]);
        }
        REQUIRE(again->digest() == digest);
    }
    // Appending recorded tokens gives the digest that decoding them gave.
    Session replayed(model, {});
    replayed.append(tokens_for(*model, 30), {});
    replayed.append(drawn, {});
    CHECK(replayed.digest() == digest);
}
