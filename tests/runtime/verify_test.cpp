// Verification finds what was changed in a stored state, at the right place: insights 8 and 19.
#include "runtime/verify.h"

#include <algorithm>
#include <cstring>

#include "runtime/session.h"
#include "tests/runtime/models.h"

using namespace stasis;

namespace {

constexpr uint64_t kPage = kernels::kPagePositions;

// A state with page data of its own, which tests change; digests follow where they are told to.
struct Stored {
    State state;
    std::vector<std::vector<std::vector<uint16_t>>> data; // [group][page], empty: released

    Stored(Model &model, Session &session) : state(session.export_state()) {
        for (size_t group = 0; group < state.pages.size(); ++group) {
            const size_t elements = model.pool->shape(static_cast<uint32_t>(group)).elements();
            std::vector<std::vector<uint16_t>> &pages = data.emplace_back();
            for (const Page &page : state.pages[group]) {
                pages.emplace_back();
                if (page.data != nullptr) {
                    pages.back().assign(page.data, page.data + elements);
                }
            }
        }
    }

    StoredPages pages() const {
        return {[this](size_t group, uint64_t index) { return !data[group][index].empty(); },
                [this](size_t group, uint64_t index, uint16_t *to) {
                    std::copy(data[group][index].begin(), data[group][index].end(), to);
                },
                nullptr};
    }

    // Flips a bit of one value (side 0: key, 1: value) and the page's digest with it.
    void flip(const Model &model, uint32_t layer, size_t side, uint64_t position) {
        const auto [group, layer_in_group] = model.layer_places[layer];
        const PageShape &shape = model.pool->shape(group);
        const uint64_t index = position / kPage;
        data[group][index][shape.offset(layer_in_group, side, shape.kv_heads - 1) +
                           position % kPage * shape.head_dim] ^= 1;
        Page &page = state.pages[group][index];
        page.digest = page_digest(group, index, data[group][index].data(), shape.rows(), kPage,
                                  page.valid, shape.head_dim);
    }
};

std::vector<uint32_t> some_tokens(size_t count) {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < count; ++i) {
        tokens.push_back(i * 37 % 191);
    }
    return tokens;
}

// 150 given tokens and 60 drawn ones.
std::unique_ptr<Session> conversation(const std::shared_ptr<Model> &model) {
    auto session = std::make_unique<Session>(model, SessionOptions());
    session->append(some_tokens(150), RunOptions());
    Sampling sampling;
    sampling.temperature = 1.5F;
    sampling.frequency_penalty = 0.5F;
    sampling.penalty_window = 7;
    session->set_sampling(sampling);
    for (int i = 0; i < 60; ++i) {
        if (i == 20) {
            sampling.seed = 99; // settings change on the way
            session->set_sampling(sampling);
        }
        session->decode();
    }
    return session;
}

VerifyReport verified(const std::shared_ptr<Model> &model, const Stored &stored) {
    const kernels::FloatEnvironment environment;
    return verify(model, stored.state, stored.pages(), VerifyOptions());
}

} // namespace

TEST_CASE("insight 19: verification names the first position and layer that diverge") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/gemma3-text");
    const std::unique_ptr<Session> session = conversation(model);
    const Stored original(*model, *session);
    const VerifyReport good = verified(model, original);
    CHECK_MESSAGE(good.verified, good.message);
    CHECK(good.positions == 210);

    SUBCASE("a key, and a value before it in another layer") {
        Stored stored = original;
        stored.flip(*model, 2, 0, 200);
        VerifyReport report = verified(model, stored);
        CHECK(!report.verified);
        CHECK(report.element == 1);
        CHECK(report.position == 200);
        CHECK(report.layer == 2);
        stored.flip(*model, 5, 1, 199);
        report = verified(model, stored);
        CHECK(report.position == 199);
        CHECK(report.layer == 5);
        stored.flip(*model, 0, 1, 199);
        CHECK(verified(model, stored).layer == 0);
        stored.flip(*model, 5, 0, 70); // an earlier page, which only the global layer still has
        report = verified(model, stored);
        CHECK(report.position == 70);
        CHECK(report.layer == 5);
    }
    SUBCASE("a page of which only the digest is left") {
        Stored stored = original;
        const uint32_t group = model->layer_places[0].group;
        REQUIRE(stored.data[group][0].empty());
        stored.state.pages[group][0].digest.bytes[0] ^= 1;
        const VerifyReport report = verified(model, stored);
        CHECK(!report.verified);
        CHECK(report.element == 1);
        CHECK(report.position == 0);
        CHECK(report.layer == VerifyReport::kNoLayer);
    }
    SUBCASE("a given token") { // what follows from it no longer fits
        Stored stored = original;
        stored.state.log[120].token = (stored.state.log[120].token + 1) % 191;
        const VerifyReport report = verified(model, stored);
        CHECK(report.element == 1);
        CHECK(report.position == 120);
        CHECK(report.layer == model->groups[0].layers[0]); // local layers have released it
    }
    SUBCASE("a drawn token") {
        for (const uint64_t position : {150U, 169U, 170U, 209U}) {
            Stored stored = original;
            stored.state.log[position].token = (stored.state.log[position].token + 1) % 191;
            const VerifyReport report = verified(model, stored);
            CHECK(!report.verified);
            CHECK(report.element == 4);
            CHECK(report.position == position);
            CHECK(report.layer == VerifyReport::kNoLayer);
        }
    }
    SUBCASE("the settings that a token was drawn with") {
        Stored stored = original;
        stored.state.samplings[1].seed = 98;
        const VerifyReport report = verified(model, stored);
        CHECK(report.element == 4);
        CHECK(report.position >= 170);
    }
    SUBCASE("a token drawn from nothing") {
        Stored stored = original;
        stored.state.log[0].source = TokenSource::sampled;
        const VerifyReport report = verified(model, stored);
        CHECK(report.element == 4);
        CHECK(report.position == 0);
    }
    SUBCASE("the final hidden state, logits, best logits, texts") {
        for (int what = 0; what < 4; ++what) {
            Stored stored = original;
            switch (what) {
            case 0:
                stored.state.hidden[3] ^= 1;
                break;
            case 1:
                stored.state.logits.bytes[31] ^= 1;
                break;
            case 2:
                stored.state.top[63].second += 1;
                break;
            default:
                stored.state.token_texts.emplace_back(7, "seven");
            }
            const VerifyReport report = verified(model, stored);
            CHECK(!report.verified);
            CHECK(report.element == (what == 3 ? 10 : 9));
            CHECK(report.position == (what == 3 ? UINT64_MAX : 209));
        }
    }
}

TEST_CASE("verification refuses what cannot be compared") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/gemma3-text");
    const std::unique_ptr<Session> session = conversation(model);
    const Stored original(*model, *session);
    const auto status = [&](const Stored &stored) {
        try {
            verified(model, stored);
        } catch (const Error &error) {
            return error.status();
        }
        return Status::ok;
    };
    CHECK(status(original) == Status::ok);
    Stored stored = original;
    stored.state.contract.kv += 1;
    CHECK(status(stored) == Status::version);
    stored = original;
    stored.state.groups[0].window += 1;
    CHECK(status(stored) == Status::model_mismatch);
    stored = original;
    stored.state.model.norms.bytes[0] ^= 1;
    CHECK(status(stored) == Status::model_mismatch);
    stored = original;
    stored.state.samplings[0].top_p = 7;
    CHECK(status(stored) == Status::corrupt);
    stored = original;
    stored.state.digest.bytes[0] ^= 1;
    CHECK(status(stored) == Status::corrupt);
    Session at_start(model, SessionOptions());
    const Stored nothing(*model, at_start);
    CHECK(verified(model, nothing).verified);
}
