// The Big 8 + 4, one by one (tests/INSIGHTS.md): a snapshot and a model, or two snapshots, that
// differ in one element are distinguished, and the message names what differs.
#include "tests/abi/changed_files.h"

using namespace abi_test;
using stasis::State;
using stasis::format::Bytes;
using stasis::format::Layout;

namespace {

struct Saved {
    explicit Saved(stasis_model *model = gemma(), size_t count = 100)
        : session(session_of(model, some_tokens(count))), path(folder.file("a")),
          forged(folder.file("forged")) {
        REQUIRE(save(session.get(), path) == STASIS_OK);
    }
    Folder folder;
    Session session;
    std::string path, forged;
};

void check_refused(stasis_model *model, const std::string &path, stasis_status status,
                   const std::vector<std::string> &words) {
    stasis_error error;
    CHECK_MESSAGE(try_load(model, path, error) == status, error.message);
    for (const std::string &word : words) {
        CHECK_MESSAGE(contains(error, word), word, " is not in: ", error.message);
    }
}

// Loads the snapshot into a copy of its model in whose file `name` one text was changed.
void check_edited(const std::string &model, const std::string &name, const std::string &from,
                  const std::string &to, const std::vector<std::string> &words) {
    const Saved saved(shared_model(model));
    const std::string path = copy_model(saved.folder, model);
    CHECK(position(load(open_path(path).get(), saved.path).get()) == 100); // a copy is the model
    edit(path + "/" + name, from, to);
    check_refused(open_path(path).get(), saved.path, STASIS_MODEL_MISMATCH, words);
}

// The element in which the state of `to` differs from that of `from`.
uint32_t differing_element(const std::string &from, const std::string &to) {
    auto difference = sized<stasis_difference>();
    REQUIRE(stasis_snapshot_compare(open_snapshot(from).get(), open_snapshot(to).get(), &difference,
                                    nullptr) == STASIS_OK);
    return difference.equal == 1 ? 0 : difference.element;
}

} // namespace

TEST_CASE("stasis_session_load: element 1: a page that is not what was saved is refused, group and "
          "page named") {
    const Saved saved;
    forge_bytes(saved.path, saved.forged, [](const Bytes &bytes) {
        return stasis::format::forged_run(bytes, 0, 1, // positions 64 to 99
                                          [](uint8_t *data) { data[40] ^= 1; });
    });
    check_refused(gemma(), saved.forged, STASIS_CORRUPT, {"page 1 of layer group 0", "digest"});
}

TEST_CASE("stasis_snapshot_verify: element 1, insight 47: a bit of the cache that the file vouches "
          "for is found by verify") {
    const Saved saved;
    forge_state(saved.path, saved.forged, [](State &state) {
        const size_t slot = 70 % 64; // the first key of the group's first layer at position 70
        const_cast<uint16_t *>(state.pages[0][1].data)[slot * state.head_dim] ^= 1;
    });
    CHECK(differing_element(saved.path, saved.forged) == 1);
    auto report = sized<stasis_verify_report>();
    CHECK(stasis_snapshot_verify(open_snapshot(saved.forged).get(), gemma(), nullptr, &report,
                                 nullptr) == STASIS_DIVERGED);
    CHECK(report.element == 1);
    CHECK(report.position == 70);
    CHECK(report.layer == 5); // the model's only global layer
}

TEST_CASE("stasis_session_load: element 3: positional state: another rope base is refused") {
    check_edited("zoo/gemma3-text", "config.json", "\"rope_theta\": 1000000",
                 "\"rope_theta\": 1000001",
                 {"positional state differs", "base 1e+06", "base 1000001"});
}

TEST_CASE("stasis_session_load: element 3: positional state: a log and pages that disagree on the "
          "position are refused") {
    const Saved saved;
    forge_bytes(saved.path, saved.forged, [](const Bytes &bytes) {
        return stasis::format::forged(bytes,
                                      [](State &, Layout &layout) { layout.position -= 64; });
    });
    check_refused(gemma(), saved.forged, STASIS_CORRUPT,
                  {"token log, node 0", "100 items, expected 1, 0, 0, 36"});
}

TEST_CASE("stasis_session_load: element 4: input token buffer: a log that is not the digest's is "
          "refused") {
    const Saved saved;
    forge_bytes(saved.path, saved.forged, [](const Bytes &bytes) {
        return stasis::format::forged_node(
            bytes, stasis::format::TreeKind::log, 0, 0, 0,
            [](Bytes &node) { node[stasis::format::kNodeHeaderBytes + 8 * 50] ^= 1; });
    });
    check_refused(gemma(), saved.forged, STASIS_CORRUPT, {"state digest"});
    forge_state(saved.path, saved.forged, [](State &state) { state.log[50].token ^= 1; });
    CHECK(differing_element(saved.path, saved.forged) == 4);
}

TEST_CASE("stasis_session_load: element 5: attention mask: another window is refused") {
    check_edited("zoo/gemma3-text", "config.json", "\"sliding_window\": 16",
                 "\"sliding_window\": 17", {"attention mask differs", "16 16 16", "17 17 17"});
}

TEST_CASE("stasis_session_load: element 6: model config snapshot: one other number is refused, "
          "both named") {
    check_edited("zoo/gemma3-text", "config.json", "\"max_position_embeddings\": 2048",
                 "\"max_position_embeddings\": 4096",
                 {"model config snapshot differs", "context = 2048", "4096"});
    const Saved saved;
    auto sampling = sized<stasis_sampling>();
    sampling.temperature = 0.5F;
    REQUIRE(stasis_session_set_sampling(saved.session.get(), &sampling, nullptr) == STASIS_OK);
    REQUIRE(save(saved.session.get(), saved.forged) == STASIS_OK);
    CHECK(differing_element(saved.path, saved.forged) == 6);
}

TEST_CASE("stasis_session_load: element 7: LayerNorm state: another eps is refused") {
    check_edited("zoo/gemma3-text", "config.json", "\"rms_norm_eps\": 1e-06",
                 "\"rms_norm_eps\": 1e-05", {"LayerNorm state differs", "norm_eps = 1e-05"});
}

TEST_CASE("stasis_session_load: element 9: logits: a changed output head is refused") {
    const Saved saved(llama());
    const std::string path = copy_model(saved.folder, "zoo/llama-gqa-untied");
    std::string bytes = read_file(path + "/model.safetensors");
    bytes[tensor_offset(bytes, "lm_head.weight")] ^= 1;
    write_file(path + "/model.safetensors", bytes);
    check_refused(open_path(path).get(), saved.path, STASIS_MODEL_MISMATCH, {"logits", "head"});
}

TEST_CASE("stasis_session_load: element 9: logits: those that do not follow from the hidden state "
          "are refused") {
    const Saved saved;
    forge_bytes(saved.path, saved.forged, [](const Bytes &bytes) {
        return stasis::format::forged(bytes,
                                      [](State &state, Layout &) { state.logits.bytes[0] ^= 1; });
    });
    CHECK(differing_element(saved.path, saved.forged) == 9);
    const auto check_no_logits = [&] { // what they are stored for is refused, whatever asks
        const Session loaded = load(gemma(), saved.forged);
        std::vector<float> row(192);
        stasis_token token = 0;
        size_t count = 0;
        stasis_error error;
        for (int again = 0; again < 2; ++again) {
            CHECK(stasis_session_logits(loaded.get(), row.data(), 192, &count, &error) ==
                  STASIS_DIVERGED);
            CHECK(contains(error, "logits"));
            CHECK(stasis_session_decode(loaded.get(), &token, nullptr) == STASIS_DIVERGED);
            CHECK(stasis_session_top(loaded.get(), 1, &token, nullptr, nullptr) == STASIS_DIVERGED);
            CHECK(save(loaded.get(), saved.folder.file("b")) == STASIS_DIVERGED);
        }
        CHECK(position(loaded.get()) == 100);
    };
    check_no_logits();
    forge_state(saved.path, saved.forged, [](State &state) { state.hidden[3] ^= 1; });
    check_no_logits();
}

TEST_CASE("stasis_session_load: element 10, insight 36: tokenizer state: other rules of special "
          "tokens are refused") {
    check_edited("recall-gemma3", "generation_config.json", "[\n    1,\n    5\n  ]", "[1]",
                 {"tokenizer state", "end_tokens = 1,5", "end_tokens = 1"});
}

TEST_CASE(
    "stasis_session_load: element 10, insight 37: another chat template is refused, both named") {
    const Saved saved(shared_model("recall-gemma3"));
    auto options = sized<stasis_model_options>();
    options.chat_template = "chatml";
    const Model model = open_path(test_data("recall-gemma3"), &options);
    check_refused(model.get(), saved.path, STASIS_MODEL_MISMATCH,
                  {"tokenizer state", "chat template", "gemma", "chatml"});
}

TEST_CASE("stasis_session_load: element 11, insight 10: a cache of another contract version is "
          "refused, both named") {
    const Saved saved;
    for (const size_t part : {0U, 1U, 2U}) {
        forge_state(saved.path, saved.forged, [part](State &state) {
            uint32_t *const versions[] = {&state.contract.core, &state.contract.kv,
                                          &state.contract.sampling};
            *versions[part] += 7;
        });
        CHECK(differing_element(saved.path, saved.forged) == 11);
        auto info = sized<stasis_snapshot_info>();
        REQUIRE(stasis_snapshot_get_info(open_snapshot(saved.forged).get(), &info, nullptr) ==
                STASIS_OK);
        const std::string stored = std::to_string(info.contract[0]) + "." +
                                   std::to_string(info.contract[1]) + "." +
                                   std::to_string(info.contract[2]);
        check_refused(gemma(), saved.forged, STASIS_VERSION, {"KV format version differs", stored});
        auto report = sized<stasis_verify_report>();
        CHECK(stasis_snapshot_verify(open_snapshot(saved.forged).get(), gemma(), nullptr, &report,
                                     nullptr) == STASIS_VERSION);
    }
}

TEST_CASE("stasis_session_tokens: element 12, insight 31: a drawn token and the same one given are "
          "told apart") {
    const Saved saved;
    const Session given = fork(saved.session.get());
    stasis_token token = 0;
    REQUIRE(stasis_session_decode(saved.session.get(), &token, nullptr) == STASIS_OK);
    append(given.get(), {token});
    CHECK(digest(given.get()) == digest(saved.session.get())); // the same from this position on
    REQUIRE(save(saved.session.get(), saved.path) == STASIS_OK);
    REQUIRE(save(given.get(), saved.forged) == STASIS_OK);
    CHECK(differing_element(saved.path, saved.forged) == 12);
    for (const auto &[session, source] : {std::pair(saved.session.get(), STASIS_SOURCE_SAMPLED),
                                          std::pair(given.get(), STASIS_SOURCE_PROMPT)}) {
        uint8_t found = 255;
        size_t count = 0;
        REQUIRE(stasis_session_tokens(session, 100, nullptr, &found, 1, &count, nullptr) ==
                STASIS_OK);
        CHECK(found == source);
    }
}

TEST_CASE(
    "stasis_session_load: element 12: a token whose origin was changed in the file is refused") {
    const Saved saved;
    std::string bytes = read_file(saved.path);
    size_t log = 0;
    stasis::format::forged({bytes.begin(), bytes.end()}, [&](State &, Layout &layout) {
        log = layout.log.section + stasis::format::kFrameBytes + layout.log.begin;
    });
    bytes[log + stasis::format::kNodeHeaderBytes + 8 * 50 + 6] ^=
        1; // TokenEntry::source of position 50
    write_file(saved.forged, bytes);
    check_refused(gemma(), saved.forged, STASIS_CORRUPT, {"token log: node"});
}
