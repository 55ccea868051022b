// Evictions: what later tokens see, on every way to the same log; pages that go; rewinds, forks,
// stored states and verification.
#include <random>

#include "tests/runtime/edited_model.h"
#include "tests/runtime/stored_state.h"

using namespace stasis;
using namespace stasis::test;

namespace {

using Ranges = std::vector<PositionRange>;

// Tokens, with evictions at some of their positions.
struct Script {
    std::vector<uint32_t> tokens;
    std::vector<Eviction> events; // hidden is not looked at
};

Script random_script(const Model &model, std::mt19937 &random, size_t count) {
    Script script{tokens_for(model, count, random()), {}};
    uint64_t position = 0;
    for (;;) {
        position += 1 + random() % 90;
        if (position > count) {
            return script;
        }
        Eviction event{position, {}, {}};
        for (size_t i = 0; i <= random() % 3; ++i) {
            const uint64_t begin = random() % position;
            event.ranges.push_back({begin, begin + 1 + random() % (position - begin)});
        }
        script.events.push_back(event);
    }
}

// Plays a script up to a position, in pieces of any size, or one token at a time (chunk 1).
void play(Session &session, const Script &script, uint64_t end, size_t chunk = 0) {
    const auto evict_here = [&] {
        for (const Eviction &event : script.events) {
            for (const PositionRange &range : event.ranges) {
                if (event.position == session.position()) {
                    session.evict(range.begin, range.end);
                }
            }
        }
    };
    while (session.position() < end) {
        uint64_t next = end;
        for (const Eviction &event : script.events) {
            if (event.position > session.position()) {
                next = std::min(next, event.position);
                break;
            }
        }
        if (chunk == 1) {
            next = session.position() + 1;
        }
        AppendOptions options;
        options.chunk = chunk;
        session.append(
            std::span(script.tokens).subspan(session.position(), next - session.position()),
            options);
        evict_here();
    }
}

std::unique_ptr<Session> played(const std::shared_ptr<Model> &model, const Script &script,
                                uint64_t end, size_t chunk = 0) {
    auto session = std::make_unique<Session>(model, TimelineOptions());
    play(*session, script, end, chunk);
    return session;
}

bool equal(Session &a, Session &b) {
    return a.position() == b.position() && a.digest() == b.digest() &&
           same_bits(logits_of(a), logits_of(b)) &&
           std::equal(a.evictions().begin(), a.evictions().end(), b.evictions().begin(),
                      b.evictions().end(), [](const auto &x, const auto &y) { return *x == *y; });
}

const char *const kEvictedModels[] = {"zoo/gemma3-text", "zoo/mistral-window",
                                      "zoo/llama-gqa-untied", "quantized/llama"};

// mistral-window with one layer, whose keys and values do not depend on attention.
struct OneLayer : EditedModel {
    explicit OneLayer(const std::string &window) : EditedModel("zoo/mistral-window") {
        std::string config = read_bytes(source + "/config.json");
        for (const auto &[from, to] :
             {std::pair<std::string, std::string>{"\"num_hidden_layers\": 3",
                                                  "\"num_hidden_layers\": 1"},
              {"\"sliding_window\": 20", "\"sliding_window\": " + window}}) {
            const size_t at = config.find(from);
            REQUIRE(at != std::string::npos);
            config.replace(at, from.size(), to);
        }
        write_bytes(directory.file("config.json"), config);
        std::erase_if(tensors, [](const auto &named) {
            return named.first.find("layers.1.") != std::string::npos ||
                   named.first.find("layers.2.") != std::string::npos;
        });
        write_bytes(directory.file("model.safetensors"), safetensors_bytes(tensors, 0));
    }
};

} // namespace

TEST_CASE("Session::evict: what is left of a prefix is what a window leaves of it") {
    const kernels::FloatEnvironment environment;
    const OneLayer global("null"), window("21");
    const auto all = open_model(global.directory.path(), {});
    const auto some = open_model(window.directory.path(), {});
    for (const uint64_t position : {21, 64, 100, 191}) {
        const std::vector<uint32_t> tokens = tokens_for(*all, position + 1);
        Session evicted(all, {}), windowed(some, {}), plain(all, {});
        for (Session *session : {&evicted, &windowed, &plain}) {
            session->append(std::span(tokens).first(position), {});
        }
        evicted.evict(0, position - 20);
        for (Session *session : {&evicted, &windowed, &plain}) {
            session->append(std::span(tokens).last(1), {});
        }
        CHECK(same_bits(logits_of(evicted), logits_of(windowed)));
        CHECK_FALSE(same_bits(logits_of(evicted), logits_of(plain)));
    }
}

TEST_CASE("Session::evict: the same bits in any pieces, by any threads and tables, and replayed") {
    const kernels::FloatEnvironment environment;
    for (const char *name : kEvictedModels) {
        CAPTURE(std::string(name));
        const auto model = open(name), one = open(name, 1);
        const auto reference = open_forced(name, "reference", 2);
        std::mt19937 random(7);
        for (int round = 0; round < 6; ++round) {
            const Script script = random_script(*model, random, 60 + random() % 300);
            const uint64_t end = script.tokens.size();
            const auto whole = played(model, script, end);
            CHECK(equal(*whole, *played(model, script, end, 1)));
            CHECK(equal(*whole, *played(one, script, end, 7)));
            const auto scalar = played(reference, script, end);
            CHECK(scalar->digest() == whole->digest());
            CHECK(same_bits(logits_of(*scalar), logits_of(*whole)));
            Session again(model, {});
            std::vector<TokenEntry> entries;
            for (uint64_t i = 0; i < end; ++i) {
                entries.push_back(whole->entry(i));
            }
            replay(again.timeline(), entries, whole->timeline().evictions, {});
            CHECK(equal(*whole, again));
            Script without = script;
            without.events.clear();
            CHECK(whole->digest() != played(model, without, end)->digest());
        }
    }
}

TEST_CASE(
    "Session::evict: logits of the next token stay, those behind it change; a fork's do not") {
    const kernels::FloatEnvironment environment;
    for (const char *name : kEvictedModels) {
        CAPTURE(std::string(name));
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 200);
        Session session(model, {});
        session.append(std::span(tokens).first(150), {});
        const std::unique_ptr<Session> fork = session.fork();
        const std::vector<float> before = logits_of(session);
        const Digest digest = session.digest();
        session.evict(130, 150);
        CHECK(same_bits(before, logits_of(session)));
        CHECK(session.digest() != digest);
        CHECK(fork->digest() == digest);
        session.append(std::span(tokens).subspan(150, 10), {});
        fork->append(std::span(tokens).subspan(150, 10), {});
        CHECK_FALSE(same_bits(logits_of(*fork), logits_of(session)));
        Session plain(model, {});
        plain.append(std::span(tokens).first(160), {});
        CHECK(plain.digest() == fork->digest());
    }
}

TEST_CASE("Session::evict: pages of which nothing is visible are released, others are not") {
    const kernels::FloatEnvironment environment;
    const auto model = open_model(directory("zoo/llama-gqa-untied"), {});
    Session session(model, {});
    session.append(tokens_for(*model, 300), {});
    const SessionInfo full = session.info();
    const uint64_t used = model->pool->used_bytes(), page = full.kv_bytes / 5;
    REQUIRE(full.pages_own == 5);
    session.evict(10, 64);
    CHECK(session.info().kv_bytes == full.kv_bytes);
    CHECK(session.info().evicted == 54);
    session.evict(0, 20); // overlaps, and completes the page
    CHECK(session.info().kv_bytes == full.kv_bytes - page);
    session.evict(64, 256);
    CHECK(session.info().kv_bytes == page);
    CHECK(session.info().evicted == 256);
    CHECK(session.info().rewind_floor == 300);
    CHECK(model->pool->used_bytes() == used - 4 * page);
    CHECK(model->held_bytes == page);
    std::vector<uint16_t> keys(128 * 16 * 8), values = keys;
    session.copy_kv(0, 256, 300, keys.data(), values.data());
    CHECK_THROWS_WITH_AS(session.copy_kv(0, 255, 256, keys.data(), values.data()),
                         "layer 0 has released position 255 (evicted; window of 0)", Error);
    REQUIRE(session.evictions().size() == 1);
    CHECK(session.evictions()[0]->ranges == Ranges{{0, 256}});
    const Digest digest = session.digest();
    session.evict(30, 200);
    session.evict(5, 5);
    CHECK(session.digest() == digest);
    for (const auto &[begin, end] : {PositionRange{5, 4}, PositionRange{0, 301}}) {
        CHECK_THROWS_AS(session.evict(begin, end), Error);
    }
    CHECK(session.digest() == digest);
}

TEST_CASE("Session::evict: a rewind to the place keeps it, one below is a run without it") {
    const kernels::FloatEnvironment environment;
    for (const char *name : kEvictedModels) {
        CAPTURE(std::string(name));
        const auto model = open(name);
        std::mt19937 random(3);
        for (int round = 0; round < 4; ++round) {
            const Script script = random_script(*model, random, 260);
            const auto session = played(model, script, 260);
            const uint64_t last = session->evictions().back()->position;
            for (const uint64_t position : {uint64_t{259}, last + 1, last, last - 1, last / 2}) {
                if (position > 260 || position == 0) {
                    continue;
                }
                const auto shorter = session->fork();
                if (position < last) {
                    CHECK_THROWS_AS(shorter->rewind(position, false, {}), Error);
                }
                shorter->rewind(position, true, {});
                const auto fresh = played(model, script, position);
                CHECK(equal(*shorter, *fresh));
                play(*shorter, script, 260);
                CHECK(equal(*shorter, *session));
            }
            const auto empty = session->fork();
            empty->rewind(0, false, {});
            CHECK(empty->evictions().empty());
            Script plain = script;
            plain.events.clear();
            play(*empty, plain, 260);
            CHECK(equal(*empty, *played(model, plain, 260)));
        }
    }
}

TEST_CASE("Session::evict: stored states, recomputed ones and verification have it at its place") {
    const kernels::FloatEnvironment environment;
    for (const char *name : kEvictedModels) {
        CAPTURE(std::string(name));
        const auto model = open(name);
        std::mt19937 random(11);
        for (int round = 0; round < 4; ++round) {
            const Script script = random_script(*model, random, 230);
            const auto session = played(model, script, 230);
            for (int i = 0; i < 20; ++i) {
                session->decode();
            }
            const StoredState stored(*model, *session);
            const auto loaded =
                restore_session(model, stored.state, nullptr, stored.pages(), Watch());
            CHECK(equal(*loaded, *session));
            const auto again =
                recompute_session(model, stored.state, nullptr, stored.pages(), Watch());
            CHECK(equal(*again, *session));
            CHECK(loaded->info().kv_bytes == session->info().kv_bytes);
            loaded->rewind(session->evictions().back()->position, true, {});
            again->rewind(session->evictions().back()->position, true, {});
            CHECK(equal(*loaded, *again));

            const VerifyReport whole = verify(model, stored.state, stored.pages(), {});
            CHECK_FALSE(whole.first);
            CHECK(whole.drawn == 20);
            AuditOptions options;
            options.percent = 100;
            CHECK_FALSE(audit(model, stored.state, stored.pages(), options).first);
        }
    }
}

TEST_CASE("Session::evict: verification finds an eviction that was not, moved, or left out") {
    const kernels::FloatEnvironment environment;
    const auto model = open("zoo/llama-gqa-untied");
    Session session(model, {});
    session.append(tokens_for(*model, 150), {});
    session.evict(70, 80);
    session.append(tokens_for(*model, 30, 2), {});
    const StoredState original(*model, session);
    REQUIRE_FALSE(verify(model, original.state, original.pages(), {}).first);
    const auto position_of = [&](auto change) {
        StoredState changed = original;
        change(changed.state);
        changed.state.digest = state_digest(changed.state);
        const VerifyReport report = verify(model, changed.state, changed.pages(), {});
        REQUIRE(report.first);
        return report.first->position;
    };
    CHECK(position_of([](State &state) { state.evictions.clear(); }) == 150);
    CHECK(position_of([](State &state) { state.evictions[0].position = 151; }) == 150);
    CHECK(position_of([](State &state) { state.evictions[0].position = 149; }) == 149);
    CHECK(position_of([](State &state) { state.evictions[0].ranges[0].end = 81; }) == 150);
    CHECK(position_of([](State &state) { state.evictions[0].hidden[5] ^= 1; }) == 149);
}
