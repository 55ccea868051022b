// Attention that positions receive (C10): each number as the clause says, and the same numbers
// however the tokens came in.
#include <cmath>

#include "runtime/compute/cpu/scratch.h"
#include "runtime/compute/pass.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/math.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr double kOne = 0x1p32;
using Sums = std::vector<uint64_t>;

Sums sums_of(Session &session, bool by_head = true) {
    Sums sums;
    session.received(by_head, sums);
    return sums;
}

// The sums of a plain run of those tokens.
Sums fresh(const std::shared_ptr<Model> &model, std::span<const uint32_t> tokens) {
    Session session(model, tracking());
    session.append(tokens, {});
    return sums_of(session);
}

// [heads of all layers][position] to [position].
Sums totals(const Sums &sums, size_t heads) {
    Sums result(sums.size() / heads);
    for (size_t i = 0; i < sums.size(); ++i) {
        result[i % result.size()] += sums[i];
    }
    return result;
}

size_t all_heads(const Model &model) {
    return size_t{model.config.layers} * model.config.heads;
}

// Records the results of attention_block, call by call.
struct Call {
    size_t rows;
    std::vector<uint64_t> visible;
    std::vector<uint16_t> weights;
    std::vector<float> maximum, sum;
};
std::vector<Call> recorded_calls;
const kernels::Table *recorded_table = nullptr;

void record(const kernels::AttentionBlock &task) {
    Call call{task.rows, {task.visible, task.visible + task.rows}, {}, {}, {}};
    call.weights.resize(task.rows * kPage);
    kernels::AttentionBlock own = task;
    own.weights = call.weights.data();
    recorded_table->attention_block(own);
    if (task.weights != nullptr) {
        std::copy(call.weights.begin(), call.weights.end(), task.weights);
    }
    call.maximum.assign(task.maximum, task.maximum + task.rows);
    call.sum.assign(task.sum, task.sum + task.rows);
    recorded_calls.push_back(std::move(call));
}

// Adds what one query head gives, whose row of each block is that of `of`, the first at `base`, to
// positions and to its sink (null: none).
void add_naively(std::span<const Call *const> of, size_t row, uint64_t base, const float *sink,
                 uint64_t *sums, double &given) {
    float m = 0.0F, l = 0.0F;
    const auto merge = [&](float m_b, float l_b) { // of C5
        if (l == 0.0F) {
            m = m_b, l = l_b;
            return;
        }
        const float larger = m_b > m ? m_b : m;
        l = std::fma(l_b, kernels::exp_f32(m_b - larger), l * kernels::exp_f32(m - larger));
        m = larger;
    };
    for (const Call *call : of) {
        if (call->visible[row] != 0) {
            merge(call->maximum[row], call->sum[row]);
        }
    }
    if (sink != nullptr) {
        merge(*sink, 1.0F);
        given += kernels::exp_f64(double{*sink} - double{m}) / double{l};
    }
    for (const Call *call : of) {
        for (size_t slot = 0; slot < kPage && call->visible[row] != 0; ++slot) {
            const double share =
                kernels::exp_f64(double{call->maximum[row]} - double{m}) / double{l};
            const double p = kernels::bf16_to_f32(call->weights[row * kPage + slot]);
            const double w = std::floor(p * share * kOne);
            if ((call->visible[row] >> slot & 1U) != 0) {
                sums[base + slot] += static_cast<uint64_t>(w);
                given += p * share;
            }
        }
        base += kPage;
    }
}

} // namespace

TEST_CASE("AttentionSums: every number is what the clause makes of the weights") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/gemma3-text", "zoo/mistral-window", "zoo/llama-odd-sizes-f32",
                             "zoo/gemma3-softcap-linear-rope", "quantized/llama", "zoo/gpt-oss"}) {
        CAPTURE(name);
        const auto model = open_forced(name, "", 1);
        kernels::Table table = *model->kernels;
        recorded_table = model->kernels;
        table.attention_block = record;
        model->kernels = &table;
        const Config &config = model->config;
        const size_t kv_heads = config.kv_heads, group = config.heads / kv_heads, count = 150;
        const std::vector<uint32_t> tokens = tokens_for(*model, count);
        Session session(model, tracking());
        Sums expected(all_heads(*model) * 192); // [layer, head][3 pages]
        double worst = 0.0;
        for (uint64_t position = 0; position < count; ++position) {
            recorded_calls.clear();
            session.append(std::span(tokens).subspan(position, 1), {});
            size_t next = 0;
            for (size_t layer = 0; layer < config.layers; ++layer) {
                const uint64_t first = first_visible(position, config.layer[layer].window) / kPage;
                const size_t blocks = position / kPage - first + 1;
                for (size_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
                    std::vector<const Call *> of;
                    for (size_t i = 0; i < blocks; ++i) {
                        REQUIRE(next < recorded_calls.size());
                        of.push_back(&recorded_calls[next++]);
                    }
                    for (size_t row = 0; row < group; ++row) {
                        const size_t head = kv_head * group + row;
                        const float *sinks = model->weights.layers[layer].sinks;
                        double given = 0.0;
                        add_naively(of, row, first * kPage, sinks == nullptr ? sinks : sinks + head,
                                    &expected[(layer * config.heads + head) * 192], given);
                        worst = std::max(worst, std::fabs(given - 1.0));
                    }
                }
            }
            REQUIRE(next == recorded_calls.size());
        }
        CHECK(worst < 1e-6); // L is rounded at every block; everything else of a query adds up
        const Sums sums = sums_of(session);
        for (size_t head = 0; head < all_heads(*model); ++head) {
            for (size_t position = 0; position < count; ++position) {
                REQUIRE(sums[head * count + position] == expected[head * 192 + position]);
            }
        }
        recorded_calls.clear(); // asking computed nothing
        CHECK(sums_of(session) == sums);
        CHECK(recorded_calls.empty());
    }
}

TEST_CASE("AttentionSums: every query of every head gives one") {
    const kernels::FloatEnvironment environment;
    for (const std::string &name : bundled()) {
        CAPTURE(name);
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 200);
        const Sums sums = fresh(model, tokens);
        for (size_t head = 0; head < all_heads(*model); ++head) {
            double given = 0.0;
            for (size_t position = 0; position < tokens.size(); ++position) {
                given += static_cast<double>(sums[head * tokens.size() + position]) / kOne;
            }
            CHECK(given <= 200.0 + 1e-4);
            CHECK(given >= 200.0 - 1e-4);
        }
        Session in_total(model, tracking(Tracking::total));
        in_total.append(tokens, {});
        CHECK(sums_of(in_total, false) == totals(sums, all_heads(*model)));
        Session by_head(model, tracking());
        by_head.append(tokens, {});
        CHECK(sums_of(by_head, false) == totals(sums, all_heads(*model)));
        Session untracked(model, {});
        untracked.append(tokens, {});
        CHECK(untracked.digest() == by_head.digest());
    }
}

TEST_CASE("AttentionSums: any chunk, threads and table give the same numbers") {
    const kernels::FloatEnvironment environment;
    for (const char *name :
         {"zoo/gemma3-text", "zoo/llama-odd-sizes-f32", "quantized/llama", "zoo/gpt-oss"}) {
        CAPTURE(name);
        const std::vector<uint32_t> tokens = tokens_for(*open(name), 150);
        const Sums expected = fresh(open_forced(name, "reference", 1), tokens);
        for (const char *const *table = kernels::table_names(); *table != nullptr; ++table) {
            if (kernels::find_table(*table) == nullptr) {
                std::printf("SKIPPED: attention received: this machine cannot run table '%s'\n",
                            *table);
                continue;
            }
            CAPTURE(*table);
            CHECK(fresh(open_forced(name, *table, 2), tokens) == expected);
        }
        for (const size_t threads : {1, 2, 3, 7}) {
            for (const size_t chunk : {1, 3, 5, 17, 64, 100, 0}) {
                CAPTURE(threads);
                CAPTURE(chunk);
                Session session(open(name, threads), tracking());
                AppendOptions options;
                options.chunk = chunk;
                session.append(std::span(tokens).first(70), options);
                session.append(std::span(tokens).subspan(70), options);
                CHECK(sums_of(session) == expected);
            }
        }
    }
}

TEST_CASE("AttentionSums: steps of several sessions give each its own, forks among them") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/gemma3-text", "zoo/llama-odd-sizes-f32", "zoo/qwen3_5-dense"}) {
        CAPTURE(name);
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 300);
        Session parent(model, tracking()), plain(model, {}),
            in_total(model, tracking(Tracking::total));
        for (Session *session : {&parent, &plain, &in_total}) {
            session->append(std::span(tokens).first(70), {});
        }
        const std::unique_ptr<Session> child = parent.fork();
        const Sums before = sums_of(parent);
        const std::vector<uint32_t> other(tokens.rbegin(), tokens.rbegin() + 40);
        std::vector<StepItem> items = {{&parent, std::span(tokens).subspan(70, 1), false},
                                       {&plain, std::span(tokens).subspan(70, 2), false},
                                       {child.get(), other, false},
                                       {&in_total, std::span(tokens).subspan(70, 30), false}};
        run_step(items, {});
        for (const StepItem &item : items) {
            REQUIRE(item.error == nullptr);
        }
        std::vector<uint32_t> forked(tokens.begin(), tokens.begin() + 70);
        forked.insert(forked.end(), other.begin(), other.end());
        CHECK(sums_of(parent) == fresh(model, std::span(tokens).first(71)));
        CHECK(sums_of(*child) == fresh(model, forked));
        CHECK(sums_of(in_total, false) ==
              totals(fresh(model, std::span(tokens).first(100)), all_heads(*model)));
        CHECK(before == fresh(model, std::span(tokens).first(70)));
        const auto still = parent.fork();
        for (size_t i = 71; i < 75; ++i) {
            parent.append(std::span(tokens).subspan(i, 1), {});
        }
        CHECK(sums_of(parent) == fresh(model, std::span(tokens).first(75)));
        CHECK(sums_of(*still) == fresh(model, std::span(tokens).first(71)));
        expect_error(Status::unsupported, {"track_attention"}, [&] { sums_of(plain, false); });
    }
}

TEST_CASE("AttentionSums: what lies behind a window receives nothing") {
    const kernels::FloatEnvironment environment;
    const auto model = open("zoo/gemma3-text");
    const std::vector<uint32_t> tokens = tokens_for(*model, 200);
    Session session(model, tracking());
    session.append(std::span(tokens).first(100), {});
    const Sums before = sums_of(session);
    session.append(std::span(tokens).subspan(100), {});
    const Sums after = sums_of(session);
    size_t local = 0;
    for (size_t head = 0; head < all_heads(*model); ++head) {
        const uint32_t window = model->config.layer[head / model->config.heads].window;
        local += window != 0 ? 1 : 0;
        for (size_t position = 0; position < 100; ++position) {
            const bool seen = window == 0 || position + window > 100;
            // A position that is seen gets something from a hundred queries of these models.
            CHECK((after[head * 200 + position] != before[head * 100 + position]) == seen);
        }
    }
    CHECK(local > 0);
}

TEST_CASE("AttentionSums: a rewind, a load and a last token run again leave no trace") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/gemma3-text", "zoo/llama-odd-sizes-f32", "zoo/qwen3_5-dense"}) {
        CAPTURE(name);
        const auto model = open(name);
        const std::vector<uint32_t> tokens = tokens_for(*model, 220);
        Session session(model, tracking());
        session.append(tokens, {});
        session.rewind(130, true, {});
        session.logits(); // runs the last token again
        CHECK(sums_of(session) == fresh(model, std::span(tokens).first(130)));
        const auto unasked = session.fork();
        session.rewind(129, true, {});
        CHECK(sums_of(session) == fresh(model, std::span(tokens).first(129)));
        session.logits(); // again, with sums that are known
        CHECK(sums_of(session) == fresh(model, std::span(tokens).first(129)));
        session.append(std::span(tokens).subspan(129, 50), {});
        session.rewind(150, true, {});
        session.append(std::span(tokens).subspan(150, 20), {}); // while they are not known
        CHECK(sums_of(session) == fresh(model, std::span(tokens).first(170)));
        session.rewind(165, true, {});
        std::vector<uint32_t> otherwise(tokens.begin(), tokens.begin() + 165);
        otherwise.insert(otherwise.end(), {9, 8, 7, 6, 5}); // as long as it was
        session.append(std::span(otherwise).subspan(165), {});
        CHECK(sums_of(session) == fresh(model, otherwise));
        session.rewind(3, true, {}); // below the floor, where there is one
        CHECK(sums_of(session) == fresh(model, std::span(tokens).first(3)));
        session.rewind(0, false, {});
        CHECK(sums_of(session).empty());
        session.append(std::span(tokens).first(65), {});
        CHECK(sums_of(session) == fresh(model, std::span(tokens).first(65)));

        State state = export_state(*unasked);
        CHECK(state.tracking == 2);
        const auto loaded = restore_session(model, state, nullptr);
        CHECK(sums_of(*loaded) == fresh(model, std::span(tokens).first(130)));
        loaded->append(std::span(tokens).subspan(130), {});
        CHECK(sums_of(*loaded) == fresh(model, tokens));
        const TimelineOptions in_total = tracking(Tracking::total);
        const auto other = restore_session(model, state, &in_total); // before it was ever asked
        other->append(std::span(tokens).subspan(130, 5), {});
        CHECK(sums_of(*other, false) ==
              totals(fresh(model, std::span(tokens).first(135)), all_heads(*model)));
    }
}

TEST_CASE("AttentionSums: a failed append leaves the numbers as they were") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/mistral-window", "zoo/llama-odd-sizes-f32"}) {
        CAPTURE(name);
        const auto model = open_forced(name, "", 2);
        kernels::Table table = *model->kernels;
        const std::vector<uint32_t> tokens = tokens_for(*model, 300);
        Session session(model, tracking());
        session.append(std::span(tokens).first(70), {});
        const Sums before = sums_of(session);
        const auto child = session.fork();
        for (uint64_t stop : {uint64_t{0}, uint64_t{40}, uint64_t{120}}) {
            AppendOptions options;
            options.chunk = 40;
            options.watch.user = &stop;
            options.watch.progress = [](void *user, uint64_t done, uint64_t) {
                return done < *static_cast<const uint64_t *>(user);
            };
            expect_error(Status::stopped, {}, [&] { session.append(tokens, options); });
            recorded_calls.clear(); // nothing has to be computed for that
            recorded_table = model->kernels;
            table.attention_block = record;
            model->kernels = &table;
            CHECK(sums_of(session) == before);
            CHECK(recorded_calls.empty());
            model->kernels = recorded_table;
        }
        session.append(std::span(tokens).subspan(70, 100), {});
        CHECK(sums_of(session) == fresh(model, std::span(tokens).first(170)));
        CHECK(sums_of(*child) == before);
    }
}

TEST_CASE("AttentionSums: what is evicted receives nothing from then on") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"zoo/gemma3-text", "zoo/llama-odd-sizes-f32"}) {
        CAPTURE(name);
        const auto model = open(name);
        const size_t heads = all_heads(*model);
        const std::vector<uint32_t> tokens = tokens_for(*model, 300);
        // A whole page and more, then single positions, at 150 and 200; whatever the chunk.
        const auto culled = [&](size_t chunk) {
            auto session = std::make_unique<Session>(model, tracking());
            AppendOptions options;
            options.chunk = chunk;
            session->append(std::span(tokens).first(150), options);
            session->evict(40, 130);
            session->append(std::span(tokens).subspan(150, 50), options);
            session->evict(0, 1);
            session->evict(145, 146);
            session->append(std::span(tokens).subspan(200), options);
            return session;
        };
        const auto session = culled(0);
        const Sums sums = sums_of(*session);
        const Sums before = fresh(model, std::span(tokens).first(150));
        for (size_t head = 0; head < heads; ++head) {
            double given = 0.0;
            for (size_t position = 0; position < 300; ++position) {
                given += static_cast<double>(sums[head * 300 + position]) / kOne;
                if (position >= 40 && position < 130) {
                    CHECK(sums[head * 300 + position] == before[head * 150 + position]);
                }
            }
            CHECK(given == doctest::Approx(300.0).epsilon(1e-6)); // each query still gives one
        }
        for (const size_t chunk : {1, 5, 64}) {
            CHECK(sums_of(*culled(chunk)) == sums);
        }
        const auto loaded = restore_session(model, export_state(*session), nullptr);
        CHECK(sums_of(*loaded) == sums); // computed again, evictions at their places
        const auto again = culled(0);
        again->rewind(250, true, {});
        again->append(std::span(tokens).subspan(250), {});
        CHECK(sums_of(*again) == sums);
        again->rewind(100, true, {}); // before the evictions
        CHECK(sums_of(*again) == fresh(model, std::span(tokens).first(100)));
    }
}

TEST_CASE("AttentionSums: refused unless tracked, and where a sum could overflow") {
    const kernels::FloatEnvironment environment;
    const auto model = open("zoo/llama-gqa-untied");
    Session none(model, {}), in_total(model, tracking(Tracking::total));
    CHECK(!none.tracks_attention());
    CHECK(in_total.tracks_attention());
    expect_error(Status::unsupported, {"track_attention"}, [&] { sums_of(none, false); });
    expect_error(Status::unsupported, {"STASIS_TRACK_BY_HEAD"}, [&] { sums_of(in_total); });
    CHECK(sums_of(in_total, false).empty());

    const auto huge = open_model(test_data("zoo/llama-gqa-untied"), {});
    huge->config.context = UINT32_MAX;
    huge->config.layers = 2, huge->config.heads = 4; // at 2^29 positions just too many
    const uint64_t most = (uint64_t{1} << 29) - 1;
    TimelineOptions options = tracking(Tracking::total);
    options.capacity = most + 1;
    expect_error(Status::unsupported, {std::to_string(most)}, [&] { Session(huge, options); });
    options.capacity = most;
    Session largest(huge, options);
    options.capacity = most + 1;
    options.tracking = Tracking::off;
    Session untracked(huge, options);
}

TEST_CASE("AttentionSums: a pass of sessions that do not track it keeps no weights") {
    const kernels::FloatEnvironment environment;
    const auto model = open_model(test_data("zoo/llama-gqa-untied"), {});
    const std::vector<uint32_t> tokens = tokens_for(*model, 30);
    Session tracked(model, tracking()), plain(model, {});
    for (Session *session : {&tracked, &plain, &tracked, &plain}) {
        session->append(tokens, {});
        const PassLease pass(*model); // the one that computed
        CHECK((pass->cpu->partial_weights != nullptr) == (session == &tracked));
        CHECK(pass->cpu->attention.tracked == (session == &tracked));
    }
}
