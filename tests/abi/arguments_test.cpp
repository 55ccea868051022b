// NULL and zero-length arguments of every function: a status and a message that names the argument.
#include "tests/abi/fixture.h"

using namespace abi_test;

#define REFUSED(name, call)                                                                        \
    do {                                                                                           \
        stasis_error error;                                                                        \
        std::memset(&error, 0xAB, sizeof error);                                                   \
        CHECK_MESSAGE((call) == STASIS_INVALID_ARGUMENT, #call);                                   \
        CHECK(error.status == STASIS_INVALID_ARGUMENT);                                            \
        CHECK_MESSAGE(contains(error, name), error.message);                                       \
    } while (false)

TEST_CASE("stasis_model_open: models refuse NULL") {
    stasis_model *model = nullptr;
    auto info = sized<stasis_model_info>();
    auto stats = sized<stasis_model_stats>();
    REFUSED("path", stasis_model_open(nullptr, nullptr, &model, &error));
    REFUSED("model", stasis_model_open("x", nullptr, nullptr, &error));
    REFUSED("model", stasis_model_get_info(nullptr, &info, &error));
    REFUSED("info", stasis_model_get_info(gemma(), nullptr, &error));
    auto token = sized<stasis_token_info>();
    REFUSED("model", stasis_model_get_token(nullptr, 0, &token, &error));
    REFUSED("info", stasis_model_get_token(shared_model("recall-gemma3"), 0, nullptr, &error));
    auto metadata = sized<stasis_metadata>();
    REFUSED("model", stasis_model_get_metadata(nullptr, "x", &metadata, &error));
    REFUSED("key", stasis_model_get_metadata(gemma(), nullptr, &metadata, &error));
    REFUSED("metadata", stasis_model_get_metadata(gemma(), "x", nullptr, &error));
    REFUSED("model", stasis_model_get_metadata_at(nullptr, 0, &metadata, &error));
    REFUSED("metadata", stasis_model_get_metadata_at(gemma(), 0, nullptr, &error));
    auto memory = sized<stasis_session_memory>();
    REFUSED("model", stasis_model_session_memory(nullptr, nullptr, 0, &memory, &error));
    REFUSED("memory", stasis_model_session_memory(gemma(), nullptr, 0, nullptr, &error));
    REFUSED("path", stasis_model_estimate(nullptr, nullptr, nullptr, 0, nullptr, nullptr, &error));
    REFUSED("estimate", stasis_model_estimate("x", nullptr, nullptr, 0, nullptr, nullptr, &error));
    REFUSED("model", stasis_model_get_stats(nullptr, &stats, &error));
    REFUSED("stats", stasis_model_get_stats(gemma(), nullptr, &error));
    auto sampling = sized<stasis_sampling>();
    REFUSED("model", stasis_model_recommended_sampling(nullptr, &sampling, &error));
    REFUSED("sampling", stasis_model_recommended_sampling(gemma(), nullptr, &error));
    REFUSED("cancel", stasis_cancel_create(nullptr, &error));
    stasis_model_close(nullptr);
    auto allocator = sized<stasis_allocator>();
    auto options = sized<stasis_model_options>();
    options.allocator = &allocator;
    REFUSED("allocate", stasis_model_open("x", &options, &model, &error));
    CHECK(stasis_model_open("/no/such/model", nullptr, &model, nullptr) == STASIS_NOT_FOUND);
    CHECK(model == nullptr);
}

TEST_CASE("stasis_model_open: an empty path is refused as such, and not taken for the root of the "
          "file system") {
    stasis_model *model = nullptr;
    stasis_session *session = nullptr;
    stasis_snapshot *snapshot = nullptr;
    REFUSED("path is empty", stasis_model_open("", nullptr, &model, &error));
    REFUSED("path is empty", stasis_model_quantize("", "/tmp/x", nullptr, nullptr, &error));
    REFUSED("out is empty", stasis_model_quantize(test_data("recall-gemma3").c_str(), "", nullptr,
                                                  nullptr, &error));
    REFUSED("path is empty", stasis_session_load(gemma(), "", nullptr, &session, &error));
    const Session own = create(gemma());
    REFUSED("path is empty", stasis_session_save(own.get(), "", nullptr, &error));
    REFUSED("path is empty", stasis_snapshot_open("", &snapshot, &error));
    REFUSED("path is empty", stasis_snapshot_compact("", nullptr, &error));
}

TEST_CASE("stasis_cancel_request: cancel handles ignore NULL") {
    stasis_cancel_request(nullptr);
    stasis_cancel_reset(nullptr);
    stasis_cancel_release(nullptr);
    uint64_t done = 7, total = 7;
    stasis_cancel_progress(nullptr, &done, &total);
    CHECK(done == 0);
    CHECK(total == 0);
    const Cancel cancel = make_cancel();
    stasis_cancel_progress(cancel.get(), nullptr, nullptr);
}

TEST_CASE("stasis_model_tokenize: text calls refuse a NULL model") {
    stasis_token token = 0;
    char text[8];
    size_t count = 0;
    REFUSED("model", stasis_model_tokenize(nullptr, "a", 1, 0, &token, 1, &count, &error));
    REFUSED("model", stasis_model_detokenize(nullptr, &token, 1, 0, text, 8, &count, &error));
    REFUSED("model", stasis_model_render(nullptr, nullptr, 0, 0, 0, text, 8, &count, &error));
}

TEST_CASE("stasis_model_tokenize: text calls say when there is no tokenizer") {
    stasis_token token = 0;
    char text[8];
    size_t count = 0;
    stasis_error error;
    CHECK(stasis_model_tokenize(gemma(), "a", 1, 0, &token, 1, &count, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(contains(error, "tokenizer"));
    CHECK(stasis_model_detokenize(gemma(), &token, 1, 0, text, 8, &count, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(stasis_model_render(gemma(), nullptr, 0, 0, 0, text, 8, &count, &error) ==
          STASIS_UNSUPPORTED);
    const Session session = session_of(gemma(), some_tokens(2));
    CHECK(stasis_session_text(session.get(), 0, 2, text, 8, &count, &error) == STASIS_UNSUPPORTED);
    CHECK(stasis_session_append_message(session.get(), "user", "a", 1, 0, nullptr, &error) ==
          STASIS_UNSUPPORTED);
    auto generate = sized<stasis_generate_options>();
    const char *stop = "stop";
    generate.stop_strings = &stop;
    generate.stop_string_count = 1;
    CHECK(stasis_session_generate(session.get(), &generate, nullptr, &error) == STASIS_UNSUPPORTED);
    CHECK(position(session.get()) == 2);
}

TEST_CASE("stasis_session_append: every session call refuses a NULL session") {
    stasis_session *out = nullptr;
    stasis_token token = 0;
    float logit = 0;
    double score = 0;
    uint16_t bits = 0;
    uint8_t source = 0;
    char text = 0;
    size_t count = 0;
    stasis_digest digest;
    auto info = sized<stasis_session_info>();
    REFUSED("session", stasis_session_append(nullptr, &token, 1, nullptr, &error));
    REFUSED("session", stasis_session_append_message(nullptr, "user", "a", 1, 0, nullptr, &error));
    REFUSED("session", stasis_session_logits(nullptr, &logit, 1, &count, &error));
    REFUSED("session", stasis_session_top(nullptr, 1, &token, &logit, &error));
    REFUSED("session", stasis_session_score(nullptr, &token, 1, &score, nullptr, &error));
    REFUSED("session", stasis_session_set_sampling(nullptr, nullptr, &error));
    REFUSED("session", stasis_session_set_constraint(nullptr, 2, nullptr, 0, nullptr, &error));
    REFUSED("session", stasis_session_set_allowed(nullptr, nullptr, 0, &error));
    auto entry = sized<stasis_data_entry>();
    auto turn = sized<stasis_turn>();
    REFUSED("session", stasis_session_set_data(nullptr, "a", &text, 1, &error));
    REFUSED("session", stasis_session_get_data(nullptr, "a", &text, 1, &count, &error));
    REFUSED("session", stasis_session_list_data(nullptr, &entry, sizeof entry, 1, &count, &error));
    REFUSED("session", stasis_session_turns(nullptr, 0, &turn, sizeof turn, 1, &count, &error));
    REFUSED("session", stasis_session_sample(nullptr, &token, &error));
    REFUSED("session", stasis_session_decode(nullptr, &token, &error));
    REFUSED("session", stasis_session_generate(nullptr, nullptr, nullptr, &error));
    REFUSED("session", stasis_session_fork(nullptr, &out, &error));
    REFUSED("session", stasis_session_rewind(nullptr, 0, 0, nullptr, &error));
    REFUSED("session", stasis_session_kv(nullptr, 0, 0, 0, &bits, &bits, 1, &count, &error));
    REFUSED("session", stasis_session_attention(nullptr, 0, &score, 1, &count, &error));
    REFUSED("session", stasis_session_get_info(nullptr, &info, &error));
    REFUSED("session", stasis_session_tokens(nullptr, 0, &token, &source, 1, &count, &error));
    REFUSED("session", stasis_session_text(nullptr, 0, 0, &text, 1, &count, &error));
    REFUSED("session", stasis_session_digest(nullptr, &digest, &error));
    REFUSED("session", stasis_session_save(nullptr, "x", nullptr, &error));
    stasis_session_free(nullptr);
}

TEST_CASE("stasis_session_append: session calls refuse NULL where they need something, and leave "
          "the session alone") {
    const Session own = session_of(gemma(), some_tokens(4));
    stasis_session *session = own.get();
    const Digest before = digest(session);
    stasis_session *out = nullptr;
    stasis_token token = 0;
    double score = 0;
    uint16_t bits = 0;
    size_t count = 0;
    REFUSED("model", stasis_session_create(nullptr, nullptr, &out, &error));
    REFUSED("session", stasis_session_create(gemma(), nullptr, nullptr, &error));
    REFUSED("tokens", stasis_session_append(session, nullptr, 1, nullptr, &error));
    REFUSED("role", stasis_session_append_message(session, nullptr, "a", 1, 0, nullptr, &error));
    REFUSED("text", stasis_session_append_message(session, "user", nullptr, 1, 0, nullptr, &error));
    REFUSED("count", stasis_session_logits(session, nullptr, 0, nullptr, &error));
    REFUSED("logits", stasis_session_logits(session, nullptr, 192, &count, &error));
    REFUSED("tokens", stasis_session_top(session, 1, nullptr, nullptr, &error));
    REFUSED("tokens", stasis_session_score(session, nullptr, 1, &score, nullptr, &error));
    REFUSED("log_prob", stasis_session_score(session, &token, 1, nullptr, nullptr, &error));
    REFUSED("token", stasis_session_sample(session, nullptr, &error));
    REFUSED("token", stasis_session_decode(session, nullptr, &error));
    REFUSED("child", stasis_session_fork(session, nullptr, &error));
    REFUSED("count", stasis_session_kv(session, 0, 0, 1, &bits, &bits, 1, nullptr, &error));
    REFUSED("keys", stasis_session_kv(session, 0, 0, 1, nullptr, &bits, 4096, &count, &error));
    REFUSED("values", stasis_session_kv(session, 0, 0, 1, &bits, nullptr, 4096, &count, &error));
    REFUSED("info", stasis_session_get_info(session, nullptr, &error));
    REFUSED("count", stasis_session_tokens(session, 0, nullptr, nullptr, 9, nullptr, &error));
    REFUSED("length", stasis_session_text(session, 0, 1, nullptr, 0, nullptr, &error));
    REFUSED("digest", stasis_session_digest(session, nullptr, &error));
    REFUSED("path", stasis_session_save(session, nullptr, nullptr, &error));
    auto sink = sized<stasis_sink>();
    REFUSED("sink", stasis_session_write(session, nullptr, nullptr, &error));
    REFUSED("sink.write", stasis_session_write(session, &sink, nullptr, &error));
    auto generate = sized<stasis_generate_options>();
    generate.stop_token_count = 1;
    REFUSED("stop_tokens", stasis_session_generate(session, &generate, nullptr, &error));
    const char *strings[] = {nullptr};
    generate.stop_tokens = &token;
    generate.stop_strings = strings;
    generate.stop_string_count = 1;
    REFUSED("stop_strings", stasis_session_generate(session, &generate, nullptr, &error));
    strings[0] = "";
    REFUSED("stop_strings", stasis_session_generate(session, &generate, nullptr, &error));
    auto sampling = sized<stasis_sampling>();
    sampling.bias_count = 1;
    REFUSED("bias", stasis_session_set_sampling(session, &sampling, &error));
    REFUSED("text", stasis_session_set_constraint(session, 3, nullptr, 1, nullptr, &error));
    REFUSED("bits", stasis_session_set_allowed(session, nullptr, 1, &error));
    auto entry = sized<stasis_data_entry>();
    auto turn = sized<stasis_turn>();
    REFUSED("name", stasis_session_set_data(session, nullptr, "a", 1, &error));
    REFUSED("bytes", stasis_session_set_data(session, "a", nullptr, 1, &error));
    REQUIRE(stasis_session_set_data(session, "a", "b", 1, nullptr) == STASIS_OK);
    REFUSED("name", stasis_session_get_data(session, nullptr, nullptr, 0, &count, &error));
    REFUSED("length", stasis_session_get_data(session, "a", nullptr, 1, nullptr, &error));
    REFUSED("bytes", stasis_session_get_data(session, "a", nullptr, 1, &count, &error));
    REFUSED("count", stasis_session_list_data(session, &entry, sizeof entry, 1, nullptr, &error));
    REFUSED("entries", stasis_session_list_data(session, nullptr, sizeof entry, 1, &count, &error));
    REFUSED("count", stasis_session_turns(session, 0, &turn, sizeof turn, 1, nullptr, &error));
    REFUSED("stride", stasis_session_turns(session, 0, &turn, 0, 1, &count, &error));
    REFUSED("turns", stasis_session_turns(session, 0, nullptr, sizeof turn, 1, &count, &error));
    CHECK(digest(session) == before);
}

TEST_CASE("stasis_snapshot_open: snapshot calls refuse NULL") {
    stasis_snapshot *snapshot = nullptr;
    stasis_session *session = nullptr;
    auto info = sized<stasis_snapshot_info>();
    auto difference = sized<stasis_difference>();
    auto report = sized<stasis_verify_report>();
    size_t count = 0;
    REFUSED("model", stasis_session_load(nullptr, "x", nullptr, &session, &error));
    REFUSED("path", stasis_session_load(gemma(), nullptr, nullptr, &session, &error));
    REFUSED("session", stasis_session_load(gemma(), "x", nullptr, nullptr, &error));
    auto source = sized<stasis_source>();
    REFUSED("model", stasis_session_read(nullptr, &source, nullptr, &session, &error));
    REFUSED("source", stasis_session_read(gemma(), nullptr, nullptr, &session, &error));
    REFUSED("source.read", stasis_session_read(gemma(), &source, nullptr, &session, &error));
    REFUSED("source", stasis_snapshot_open_source(nullptr, &snapshot, &error));
    REFUSED("source.read", stasis_snapshot_open_source(&source, &snapshot, &error));
    REFUSED("path", stasis_snapshot_compact(nullptr, nullptr, &error));
    REFUSED("path", stasis_snapshot_open(nullptr, &snapshot, &error));
    REFUSED("snapshot", stasis_snapshot_open("x", nullptr, &error));
    REFUSED("snapshot", stasis_snapshot_get_info(nullptr, &info, &error));
    REFUSED("snapshot", stasis_snapshot_element(nullptr, 1, nullptr, 0, &count, &error));
    REFUSED("snapshot", stasis_snapshot_tokens(nullptr, 0, nullptr, nullptr, 0, &count, &error));
    REFUSED("snapshot", stasis_snapshot_get_data(nullptr, "a", nullptr, 0, &count, &error));
    REFUSED("snapshot", stasis_snapshot_list_data(nullptr, nullptr, 8, 0, &count, &error));
    REFUSED("snapshot", stasis_snapshot_turns(nullptr, 0, nullptr, 8, 0, &count, &error));
    REFUSED("a", stasis_snapshot_compare(nullptr, nullptr, &difference, &error));
    REFUSED("snapshot", stasis_snapshot_verify(nullptr, gemma(), nullptr, &report, &error));
    stasis_snapshot_close(nullptr);

    const Folder folder;
    const Session saved = session_of(gemma(), some_tokens(4));
    REQUIRE(save(saved.get(), folder.file("a")) == STASIS_OK);
    const Snapshot opened = open_snapshot(folder.file("a"));
    snapshot = opened.get();
    REFUSED("info", stasis_snapshot_get_info(snapshot, nullptr, &error));
    REFUSED("length", stasis_snapshot_element(snapshot, 1, nullptr, 0, nullptr, &error));
    REFUSED("element", stasis_snapshot_element(snapshot, 0, nullptr, 0, &count, &error));
    REFUSED("element", stasis_snapshot_element(snapshot, 13, nullptr, 0, &count, &error));
    REFUSED("count", stasis_snapshot_tokens(snapshot, 0, nullptr, nullptr, 0, nullptr, &error));
    REFUSED("begin", stasis_snapshot_tokens(snapshot, 5, nullptr, nullptr, 0, &count, &error));
    REFUSED("name", stasis_snapshot_get_data(snapshot, nullptr, nullptr, 0, &count, &error));
    REFUSED("stride", stasis_snapshot_list_data(snapshot, nullptr, 4, 0, &count, &error));
    REFUSED("begin", stasis_snapshot_turns(snapshot, 5, nullptr, 8, 0, &count, &error));
    REFUSED("b", stasis_snapshot_compare(snapshot, nullptr, &difference, &error));
    REFUSED("difference", stasis_snapshot_compare(snapshot, snapshot, nullptr, &error));
    REFUSED("model", stasis_snapshot_verify(snapshot, nullptr, nullptr, &report, &error));
    REFUSED("report", stasis_snapshot_verify(snapshot, gemma(), nullptr, nullptr, &error));
}

TEST_CASE("stasis_session_append: zero-length arguments are fine and do nothing") {
    const Session own = session_of(gemma(), some_tokens(4));
    stasis_session *session = own.get();
    const Digest before = digest(session);
    size_t count = 9;
    stasis_error error;
    CHECK(stasis_session_append(session, nullptr, 0, nullptr, &error) == STASIS_OK);
    CHECK(error.status == STASIS_OK);
    CHECK(error.message[0] == '\0');
    CHECK(stasis_session_append(create(gemma()).get(), nullptr, 0, nullptr, nullptr) == STASIS_OK);
    CHECK(stasis_session_top(session, 0, nullptr, nullptr, nullptr) == STASIS_OK);
    CHECK(stasis_session_score(session, nullptr, 0, nullptr, nullptr, nullptr) == STASIS_OK);
    CHECK(stasis_session_kv(session, 0, 2, 2, nullptr, nullptr, 0, &count, nullptr) == STASIS_OK);
    CHECK(count == 0);
    CHECK(stasis_session_tokens(session, 4, nullptr, nullptr, 0, &count, nullptr) == STASIS_OK);
    CHECK(count == 0);
    CHECK(stasis_session_rewind(session, 4, 0, nullptr, nullptr) == STASIS_OK);
    CHECK(digest(session) == before);
}

TEST_CASE("stasis_session_logits: a buffer that is too small is not touched, and the size needed "
          "is told") {
    const Session own = session_of(gemma(), some_tokens(4));
    stasis_session *session = own.get();
    size_t count = 0;
    std::vector<float> logits(192, -1.0F);
    CHECK(stasis_session_logits(session, logits.data(), 191, &count, nullptr) ==
          STASIS_BUFFER_TOO_SMALL);
    CHECK(count == 192);
    CHECK(logits == std::vector<float>(192, -1.0F));
    CHECK(stasis_session_logits(session, nullptr, 0, &count, nullptr) == STASIS_BUFFER_TOO_SMALL);
    CHECK(stasis_session_logits(session, logits.data(), 192, &count, nullptr) == STASIS_OK);
    CHECK(logits != std::vector<float>(192, -1.0F));

    Tokens tokens(4, 777);
    std::vector<uint8_t> sources(4, 77);
    CHECK(stasis_session_tokens(session, 0, tokens.data(), sources.data(), 3, &count, nullptr) ==
          STASIS_BUFFER_TOO_SMALL);
    CHECK(count == 4);
    CHECK(tokens == Tokens(4, 777));
    CHECK(sources == std::vector<uint8_t>(4, 77));
    CHECK(stasis_session_tokens(session, 1, tokens.data(), nullptr, 3, &count, nullptr) ==
          STASIS_OK);
    CHECK(count == 3);

    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(gemma(), &info, nullptr) == STASIS_OK);
    const size_t elements = size_t{2} * info.kv_heads * info.head_dim;
    std::vector<uint16_t> keys(elements, 7), values(elements, 7);
    CHECK(stasis_session_kv(session, 0, 1, 3, keys.data(), values.data(), elements - 1, &count,
                            nullptr) == STASIS_BUFFER_TOO_SMALL);
    CHECK(count == elements);
    CHECK(keys == std::vector<uint16_t>(elements, 7));
    CHECK(values == std::vector<uint16_t>(elements, 7));
    CHECK(stasis_session_kv(session, 0, 1, 3, keys.data(), values.data(), elements, &count,
                            nullptr) == STASIS_OK);
    CHECK(keys != std::vector<uint16_t>(elements, 7));

    stasis_error error;
    CHECK(stasis_session_kv(session, 7, 0, 0, nullptr, nullptr, 0, &count, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, "layer"));
    for (const auto &[begin, end] : {std::pair<uint64_t, uint64_t>{3, 2}, {0, 5}, {5, 5}}) {
        CHECK(stasis_session_kv(session, 0, begin, end, nullptr, nullptr, 0, &count, &error) ==
              STASIS_INVALID_ARGUMENT);
    }
    CHECK(stasis_session_top(session, 193, tokens.data(), nullptr, &error) ==
          STASIS_INVALID_ARGUMENT);
}
