// Snapshots without keys and values: loading computes them again and must reach the stored digests.
#include "tests/abi/changed_files.h"

using namespace abi_test;
using stasis::State;

namespace {

// A copy of the model in which one bit of a tensor differs.
Model changed_model(const Folder &folder, const std::string &tensor) {
    const std::string path = copy_model(folder, "zoo/gemma3-text");
    std::string bytes = read_file(path + "/model.safetensors");
    bytes[tensor_offset(bytes, tensor) + 1] ^= 1; // of the exponent
    write_file(path + "/model.safetensors", bytes);
    return open_path(path);
}

stasis::format::SaveOptions none() {
    stasis::format::SaveOptions options;
    options.keep = stasis::format::Keep::none;
    return options;
}

void check_diverges(const std::string &path, const std::vector<std::string> &words) {
    stasis_error error;
    CHECK_MESSAGE(try_load(gemma(), path, error) == STASIS_DIVERGED, error.message);
    for (const std::string &word : words) {
        CHECK_MESSAGE(contains(error, word), word, " is not in: ", error.message);
    }
}

} // namespace

TEST_CASE("STASIS_KEEP_NONE: kept as tokens alone, a session continues with the same bits") {
    const Folder folder;
    for (const size_t count : {0U, 1U, 15U, 16U, 17U, 48U, 64U, 65U, 300U}) {
        const Session session = session_of(gemma(), some_tokens(count));
        auto sampling = sized<stasis_sampling>();
        sampling.temperature = 2;
        sampling.seed = 5;
        REQUIRE(stasis_session_set_sampling(session.get(), &sampling, nullptr) == STASIS_OK);
        for (size_t i = 0; i < 3 && count > 0; ++i) {
            stasis_token token = 0;
            REQUIRE(stasis_session_decode(session.get(), &token, nullptr) == STASIS_OK);
        }
        const std::string path = folder.file(std::to_string(count));
        REQUIRE(save_as(session.get(), path, STASIS_CODEC_RAW, STASIS_KEEP_NONE) == STASIS_OK);
        const Session loaded = load(gemma(), path);
        CHECK(digest(loaded.get()) == digest(session.get()));
        append(loaded.get(), some_tokens(30, 3));
        append(session.get(), some_tokens(30, 3));
        stasis_token a = 0, b = 1;
        REQUIRE(stasis_session_decode(loaded.get(), &a, nullptr) == STASIS_OK);
        REQUIRE(stasis_session_decode(session.get(), &b, nullptr) == STASIS_OK);
        CHECK(a == b);
        CHECK(digest(loaded.get()) == digest(session.get()));
        const stasis_snapshot_info info = snapshot_info(path);
        CHECK(info.keep == STASIS_KEEP_NONE);
        CHECK(info.kv_bytes == 0);
        CHECK(info.kv_stored_bytes == 0);
    }
}

TEST_CASE("STASIS_KEEP_NONE: a system text that waits survives without keys and values") {
    const Folder folder;
    stasis_model *model = shared_model("recall-gemma3");
    const Session session = create(model);
    REQUIRE(stasis_session_append_message(session.get(), "system", "Be brief.", 9, 0, nullptr,
                                          nullptr) == STASIS_OK);
    REQUIRE(save_as(session.get(), folder.file("a"), 0, STASIS_KEEP_NONE) == STASIS_OK);
    const Session loaded = load(model, folder.file("a"));
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(loaded.get(), &info, nullptr) == STASIS_OK);
    CHECK(info.pending_bytes == 9);
}

TEST_CASE("STASIS_KEEP_NONE: without keys and values a token takes less than 64 bytes") {
    const Folder folder;
    for (const char *name : {"recall-gemma3", "recall-llama"}) {
        const Session session = create(shared_model(name));
        uint64_t bytes[2] = {};
        for (size_t i = 0; i < 2; ++i) {
            append(session.get(), some_tokens(1000, static_cast<uint32_t>(i)));
            const std::string path = folder.file(name + std::to_string(i));
            REQUIRE(save_as(session.get(), path, 0, STASIS_KEEP_NONE) == STASIS_OK);
            bytes[i] = std::filesystem::file_size(path);
        }
        const double of_token = static_cast<double>(bytes[1] - bytes[0]) / 1000;
        MESSAGE(std::string(name) << ": " << of_token << " bytes a token, " << bytes[0]
                                  << " for the first 1000");
        CHECK(of_token < 64);
        CHECK(bytes[0] < 65536 + 64 * 1000);
    }
}

TEST_CASE(
    "STASIS_KEEP_NONE: recomputing reports positions, can be cancelled, and can be forbidden") {
    const Folder folder;
    const std::string path = folder.file("a");
    const Session session = session_of(gemma(), some_tokens(1200));
    REQUIRE(save_as(session.get(), path, 0, STASIS_KEEP_NONE) == STASIS_OK);
    auto options = sized<stasis_load_options>();
    const Cancel cancel = make_cancel();
    struct Seen {
        stasis_cancel *cancel;
        uint64_t done, total;
    } seen{nullptr, 0, 0};
    options.cancel = cancel.get();
    options.progress_user = &seen;
    options.progress = [](void *user, uint64_t done, uint64_t total) -> int32_t {
        auto &own = *static_cast<Seen *>(user);
        own.done = done;
        own.total = total;
        if (done > 0) {
            stasis_cancel_request(own.cancel);
        }
        return 0;
    };
    stasis_session *out = nullptr;
    stasis_error error;
    REQUIRE(stasis_session_load(gemma(), path.c_str(), &options, &out, &error) == STASIS_OK);
    stasis_session_free(std::exchange(out, nullptr));
    CHECK(seen.done == 1200);
    CHECK(seen.total == 1200);
    seen.cancel = cancel.get();
    CHECK(stasis_session_load(gemma(), path.c_str(), &options, &out, &error) == STASIS_CANCELLED);
    CHECK(seen.done < 1200);
    stasis_cancel_reset(cancel.get());
    options.progress = nullptr;
    options.flags = STASIS_LOAD_NO_RECOMPUTE;
    CHECK(stasis_session_load(gemma(), path.c_str(), &options, &out, &error) == STASIS_UNSUPPORTED);
    CHECK_MESSAGE(contains(error, "STASIS_LOAD_NO_RECOMPUTE"), error.message);
    CHECK(out == nullptr);
    REQUIRE(save_as(session.get(), path, 0) == STASIS_OK); // a commit may change what is kept
    REQUIRE(stasis_session_load(gemma(), path.c_str(), &options, &out, &error) == STASIS_OK);
    CHECK(digest(out) == digest(session.get()));
    stasis_session_free(out);
}

TEST_CASE("STASIS_KEEP_NONE: recomputed keys and values that are not the saved ones: position and "
          "layer named") {
    const Folder folder;
    const std::string path = folder.file("a"), forged = folder.file("forged");
    const Session session = session_of(gemma(), some_tokens(200));
    REQUIRE(save(session.get(), path) == STASIS_OK);
    const auto flip = [](State &state, size_t group, size_t layer, size_t position) {
        const size_t row = layer * 2 * state.kv_heads;
        const_cast<uint16_t *>(
            state.pages[group][position / state.page_positions]
                .data)[(row * state.page_positions + position % state.page_positions) *
                       state.head_dim] ^= 1;
    };
    SUBCASE("a value of a page of the global layer") {
        forge_state(
            path, forged, [&](State &state) { flip(state, 0, 0, 70); }, none());
        check_diverges(forged, {"position 70,", "layer 5"});
    }
    SUBCASE("a value of a local layer") {
        forge_state(
            path, forged, [&](State &state) { flip(state, 1, 3, 197); }, none());
        check_diverges(forged, {"position 197,", "layer 3"});
    }
    SUBCASE("of two, the first position and the lowest layer") {
        forge_state(
            path, forged,
            [&](State &state) {
                flip(state, 1, 3, 198);
                flip(state, 0, 0, 196);
            },
            none());
        check_diverges(forged, {"position 196,", "layer 5"});
        forge_state(
            path, forged,
            [&](State &state) {
                flip(state, 1, 5, 196);
                flip(state, 0, 0, 196);
            },
            none());
        check_diverges(forged, {"position 196,", "layer 5"});
    }
    SUBCASE("a page of which nothing but the digest is there") {
        forge_state(
            path, forged,
            [](State &state) {
                state.pages[0][1].digest.bytes[3] ^= 1;
                state.pages[0][1].data = nullptr;
            },
            none());
        check_diverges(forged, {"positions 64 to 127", "cannot tell"});
    }
    SUBCASE("the hidden state, the logits") {
        forge_state(
            path, forged, [](State &state) { state.hidden[0] ^= 1; }, none());
        check_diverges(forged, {"final hidden state", "position 199"});
        forge_state(
            path, forged, [](State &state) { state.logits.bytes[0] ^= 1; }, none());
        check_diverges(forged, {"logits"});
    }
    CHECK(digest(load(gemma(), path).get()) == digest(session.get()));
}

TEST_CASE("STASIS_KEEP_NONE: a model whose weights hide behind the identity of another diverges "
          "where they begin to matter") {
    auto report = sized<stasis_verify_report>();
    const auto identity = [](const std::string &path) {
        return stasis::format::Snapshot::open(path)->state().model;
    };
    const struct {
        const char *tensor, *place;
    } cases[] = {
        // A key's weight matters at once; what attention gives, for the next layer, and at
        // position 0 there is nothing to choose from.
        {"model.layers.3.self_attn.k_proj.weight", "position 0, layer 3"},
        {"model.layers.1.self_attn.v_proj.weight", "position 0, layer 1"},
        {"model.layers.4.mlp.down_proj.weight", "position 0, layer 5"},
        {"model.layers.2.self_attn.q_proj.weight", "position 1, layer 3"},
    };
    const Session honest = session_of(gemma(), some_tokens(50));
    for (const auto &item : cases) {
        const Folder folder;
        const std::string path = folder.file("a"), other = folder.file("b");
        const Model model = changed_model(folder, item.tensor);
        REQUIRE(save(honest.get(), path) == STASIS_OK);
        REQUIRE(save(session_of(model.get(), some_tokens(50)).get(), other) == STASIS_OK);
        stasis_error error;
        CHECK(try_load(gemma(), other, error) == STASIS_MODEL_MISMATCH);
        const std::string forged = folder.file("forged");
        forge_state(
            other, forged, [&](State &state) { state.model = identity(path); }, none());
        check_diverges(forged, {item.place});
        CHECK(stasis_snapshot_verify(open_snapshot(forged).get(), gemma(), nullptr, &report,
                                     nullptr) == STASIS_DIVERGED);
        const std::string place = "position " + std::to_string(report.position) + ", layer " +
                                  std::to_string(report.layer);
        CHECK(place == item.place);
    }
}
