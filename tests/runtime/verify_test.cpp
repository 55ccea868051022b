// Verification finds changes to a stored state, at the right place: insights 8 and 19 of
// tests/INSIGHTS.md.
#include "tests/runtime/model_files.h"
#include "tests/runtime/stored_state.h"

using namespace stasis;
using test::conversation;
using test::StoredState;
using test::verified;

namespace {

Divergence found(const std::shared_ptr<Model> &model, const StoredState &stored) {
    const VerifyReport report = verified(model, stored);
    REQUIRE(report.first);
    return *report.first;
}

} // namespace

TEST_CASE("verify: insight 19: verification names the first position and layer that diverge") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/gemma3-text");
    const std::unique_ptr<Session> session = conversation(model);
    const StoredState original(*model, *session);
    const VerifyReport good = verified(model, original);
    REQUIRE(!good.first);
    CHECK(good.drawn == 60);
    CHECK(good.drawn_otherwise == 0);
    CHECK(good.positions == 210);

    SUBCASE("a key, and a value before it in another layer") {
        StoredState stored = original;
        stored.flip(*model, 2, 0, 200);
        Divergence report = found(model, stored);
        CHECK(report.element == 1);
        CHECK(report.position == 200);
        CHECK(report.layer == 2);
        CHECK(report.head == model->config.kv_heads - 1);
        CHECK(report.part == 0);
        stored.flip(*model, 5, 1, 199);
        report = found(model, stored);
        CHECK(report.position == 199);
        CHECK(report.layer == 5);
        CHECK(report.part == 1);
        CHECK(report.message.find("values of layer 5, head 0 at position 199 differ: ") !=
              std::string::npos);
        CHECK(report.message.find(") in the file, ") != std::string::npos);
        stored.flip(*model, 0, 1, 199);
        CHECK(found(model, stored).layer == 0);
        stored.flip(*model, 5, 0, 70); // an earlier page, which only the global layer still has
        report = found(model, stored);
        CHECK(report.position == 70);
        CHECK(report.layer == 5);
    }
    SUBCASE("a page of which only the digest is left") {
        StoredState stored = original;
        const uint32_t group = model->layer_places[0].group;
        REQUIRE(stored.data[group][0].empty());
        stored.state.pages[group][0].digest.bytes[0] ^= 1;
        const Divergence report = found(model, stored);
        CHECK(report.element == 1);
        CHECK(report.position == 0);
        CHECK(report.layer == Divergence::kNowhere);
    }
    SUBCASE("a given token") { // what follows from it no longer fits
        StoredState stored = original;
        stored.state.log[120].token = (stored.state.log[120].token + 1) % 191;
        const Divergence report = found(model, stored);
        CHECK(report.element == 1);
        CHECK(report.position == 120);
        CHECK(report.layer == model->groups[0].layers[0]); // local layers have released it
    }
    SUBCASE("a drawn token") {
        for (const uint64_t position : {150U, 169U, 170U, 209U}) {
            StoredState stored = original;
            stored.state.log[position].token = (stored.state.log[position].token + 1) % 191;
            const Divergence report = found(model, stored);
            CHECK(report.element == 4);
            CHECK(report.position == position);
            CHECK(report.layer == Divergence::kNowhere);
        }
    }
    SUBCASE("the settings that a token was drawn with") {
        StoredState stored = original;
        stored.state.samplings[1].seed = 98;
        const Divergence report = found(model, stored);
        CHECK(report.element == 4);
        CHECK(report.position >= 170);
    }
    SUBCASE("a token drawn from nothing") {
        StoredState stored = original;
        stored.state.log[0].source = TokenSource::sampled;
        const Divergence report = found(model, stored);
        CHECK(report.element == 4);
        CHECK(report.position == 0);
    }
    SUBCASE("the final hidden state, logits, best logits, texts") {
        for (int what = 0; what < 4; ++what) {
            StoredState stored = original;
            const uint32_t changed = stored.change_end(what);
            const Divergence report = found(model, stored);
            CHECK(report.element == changed);
            CHECK(report.position == (what == 3 ? UINT64_MAX : 209));
        }
    }
}

TEST_CASE(
    "verify: verification where every layer has a window: of released pages the digests speak") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/mistral-window");
    const std::unique_ptr<Session> session = conversation(model);
    const StoredState original(*model, *session);
    REQUIRE(original.data.size() == 1);
    REQUIRE(original.data[0][1].empty());
    REQUIRE(!original.data[0][2].empty());
    CHECK(!verified(model, original).first);

    StoredState stored = original;
    stored.flip(*model, 2, 1, 200);
    Divergence report = found(model, stored);
    CHECK(report.element == 1);
    CHECK(report.position == 200);
    CHECK(report.layer == 2);
    stored = original; // a given token in a page that no session has any more
    stored.state.log[120].token = (stored.state.log[120].token + 1) % 191;
    report = found(model, stored);
    CHECK(report.element == 1);
    CHECK(report.position == 64);
    CHECK(report.layer == Divergence::kNowhere);
}

TEST_CASE("verify: verification refuses what cannot be compared") {
    const kernels::FloatEnvironment environment;
    const std::shared_ptr<Model> model = test::open("zoo/gemma3-text");
    const std::unique_ptr<Session> session = conversation(model);
    const StoredState original(*model, *session);
    const auto status = [&](const StoredState &stored) {
        try {
            verified(model, stored);
        } catch (const Error &error) {
            return error.status();
        }
        return Status::ok;
    };
    CHECK(status(original) == Status::ok);
    StoredState stored = original;
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
    Session at_start(model, TimelineOptions());
    const StoredState nothing(*model, at_start);
    CHECK(!verified(model, nothing).first);
}

TEST_CASE("verify: verification recomputes integer weights too") {
    const kernels::FloatEnvironment environment;
    for (const char *name : {"quantized/llama", "quantized/gemma3-tied"}) {
        const std::shared_ptr<Model> model = test::open(name);
        const std::unique_ptr<Session> session = conversation(model);
        const StoredState original(*model, *session);
        const VerifyReport good = verified(test::open(name, 1), original);
        REQUIRE(!good.first);
        CHECK(good.positions == 210);
        CHECK(good.drawn_otherwise == 0);
        StoredState stored = original;
        stored.flip(*model, 1, 1, 207);
        const Divergence report = found(model, stored);
        CHECK(report.element == 1);
        CHECK(report.position == 207);
        CHECK(report.layer == 1);
        // Another model's: the same but for one bit of one integer.
        test::QuantizedModel parts = test::quantized_models().at(name);
        std::string bytes = parts.bytes();
        bytes[bytes.size() / 2] ^= 16;
        const TemporaryDirectory folder;
        write_bytes(folder.file("other.gguf"), bytes);
        const auto other = open_model(folder.file("other.gguf"), {});
        CHECK(other->identity.model != model->identity.model);
    }
}
