// Versioned structs: an older caller works with a newer library, and the other way round.
#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

// A caller's struct followed by fields of a future version.
template <typename Struct> struct Longer {
    Struct known;
    uint64_t future[3];
};

template <typename Struct> Longer<Struct> longer() {
    Longer<Struct> result{};
    result.known.struct_size = sizeof result;
    return result;
}

} // namespace

TEST_CASE(
    "struct_size: init states the size and zeroes everything, whatever version the caller has") {
    Longer<stasis_run_options> options;
    std::memset(&options, 0xAB, sizeof options);
    stasis_run_options_init(&options.known, sizeof options.known);
    CHECK(options.known.struct_size == sizeof options.known);
    CHECK(options.known.chunk == 0);
    CHECK(options.known.logits_user == nullptr);
    CHECK(options.future[0] == 0xABABABABABABABABU);
    stasis_run_options_init(&options.known, sizeof options); // of a newer caller
    CHECK(options.known.struct_size == sizeof options);
    CHECK(options.future[2] == 0);
    std::memset(&options, 0xAB, sizeof options);
    stasis_run_options_init(&options.known, 8); // of a very old one
    CHECK(options.known.struct_size == 8);
    CHECK(options.known.chunk == 0);
    CHECK(options.known.logits_user != nullptr);
    stasis_run_options_init(&options.known, 2);
    CHECK(options.known.struct_size == 8);
    stasis_run_options_init(nullptr, 64);

    stasis_model_options model;
    stasis_model_options_init(&model, sizeof model);
    stasis_session_options session;
    stasis_session_options_init(&session, sizeof session);
    stasis_sampling sampling;
    stasis_sampling_init(&sampling, sizeof sampling);
    stasis_generate_options generate;
    stasis_generate_options_init(&generate, sizeof generate);
    stasis_draft_options draft;
    stasis_draft_options_init(&draft, sizeof draft);
    stasis_save_options save;
    stasis_save_options_init(&save, sizeof save);
    stasis_load_options load;
    stasis_load_options_init(&load, sizeof load);
    stasis_verify_options verify;
    stasis_verify_options_init(&verify, sizeof verify);
    stasis_trace_options trace;
    stasis_trace_options_init(&trace, sizeof trace);
    stasis_embed_options embed;
    stasis_embed_options_init(&embed, sizeof embed);
    CHECK(embed.struct_size == sizeof embed);
    CHECK((embed.prompt == nullptr));
    CHECK(trace.struct_size == sizeof trace);
    CHECK((trace.callback == nullptr));
    CHECK(model.struct_size == sizeof model);
    CHECK(session.struct_size == sizeof session);
    CHECK(sampling.struct_size == sizeof sampling);
    CHECK(generate.struct_size == sizeof generate);
    CHECK(draft.struct_size == sizeof draft);
    CHECK(save.struct_size == sizeof save);
    CHECK(load.struct_size == sizeof load);
    CHECK(verify.struct_size == sizeof verify);
}

TEST_CASE("struct_size: an older caller's shorter struct leaves what it lacks at the default") {
    auto options = sized<stasis_session_options>();
    options.capacity = 10;
    options.reserve = UINT64_MAX; // beyond what the caller states: must not be read
    options.struct_size = offsetof(stasis_session_options, reserve);
    stasis_session *created = nullptr;
    REQUIRE(stasis_session_create(gemma(), &options, &created, nullptr) == STASIS_OK);
    const Session session(created);
    auto info = sized<stasis_session_info>();
    REQUIRE(stasis_session_get_info(created, &info, nullptr) == STASIS_OK);
    CHECK(info.capacity == 10);

    // Save options of the time before they had a codec.
    const Folder folder;
    auto save_options = sized<stasis_save_options>();
    save_options.codec = 77;
    save_options.keep = 77;
    save_options.struct_size = offsetof(stasis_save_options, codec);
    CHECK(stasis_session_save(created, folder.file("a").c_str(), &save_options, nullptr) ==
          STASIS_OK);
    save_options.struct_size = sizeof save_options;
    CHECK(stasis_session_save(created, folder.file("a").c_str(), &save_options, nullptr) ==
          STASIS_UNSUPPORTED);

    // Not even the pointer that a size ends in the middle of.
    auto model_options = sized<stasis_model_options>();
    model_options.device = "no such device";
    for (uint32_t size : {4U, 8U, 12U}) {
        model_options.struct_size = size;
        open_path(test_data("zoo/gemma3-text"), &model_options);
    }
}

TEST_CASE("struct_size: a newer caller's longer struct works while what is unknown is zero") {
    const Session session = create(gemma());
    auto options = longer<stasis_run_options>();
    const Tokens tokens = some_tokens(3);
    stasis_error error;
    CHECK(stasis_session_append(session.get(), tokens.data(), 3, &options.known, &error) ==
          STASIS_OK);
    options.future[1] = 1;
    CHECK(stasis_session_append(session.get(), tokens.data(), 3, &options.known, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(contains(error, "struct_size"));
    CHECK(position(session.get()) == 3);

    auto sampling = longer<stasis_sampling>();
    sampling.future[2] = 1;
    CHECK(stasis_session_set_sampling(session.get(), &sampling.known, nullptr) ==
          STASIS_UNSUPPORTED);
    auto generate = longer<stasis_generate_options>();
    generate.future[0] = 1;
    CHECK(stasis_session_generate(session.get(), &generate.known, nullptr, nullptr) ==
          STASIS_UNSUPPORTED);
    auto trace = longer<stasis_trace_options>();
    trace.known.callback = [](void *, const stasis_trace_event *) {};
    CHECK(stasis_session_set_trace(session.get(), &trace.known, nullptr) == STASIS_OK);
    trace.future[1] = 1;
    CHECK(stasis_session_set_trace(session.get(), &trace.known, nullptr) == STASIS_UNSUPPORTED);
    auto sink = longer<stasis_sink>();
    sink.known.write = [](void *, const void *, size_t) -> int32_t { return 0; };
    CHECK(stasis_session_write(session.get(), &sink.known, nullptr, nullptr) == STASIS_OK);
    sink.future[0] = 1;
    CHECK(stasis_session_write(session.get(), &sink.known, nullptr, nullptr) == STASIS_UNSUPPORTED);
    stasis_model *model = nullptr;
    auto open = longer<stasis_model_options>();
    open.future[0] = 1;
    CHECK(stasis_model_open("anywhere", &open.known, &model, nullptr) == STASIS_UNSUPPORTED);
    CHECK(model == nullptr);
}

TEST_CASE("struct_size: outputs are written as far as the caller's struct reaches") {
    const Session session = session_of(gemma(), some_tokens(5));
    stasis_session_info info;
    std::memset(&info, 0xAB, sizeof info);
    info.struct_size = offsetof(stasis_session_info, capacity);
    REQUIRE(stasis_session_get_info(session.get(), &info, nullptr) == STASIS_OK);
    CHECK(info.struct_size == offsetof(stasis_session_info, capacity));
    CHECK(info.position == 5);
    CHECK(info.capacity == 0xABABABABABABABABU);

    const Folder folder;
    REQUIRE(save(session.get(), folder.file("a")) == STASIS_OK);
    const Snapshot snapshot = open_snapshot(folder.file("a"));
    stasis_snapshot_info older;
    std::memset(&older, 0xAB, sizeof older);
    older.struct_size = offsetof(stasis_snapshot_info, flags);
    REQUIRE(stasis_snapshot_get_info(snapshot.get(), &older, nullptr) == STASIS_OK);
    CHECK(older.position == 5);
    CHECK(older.flags == 0xABABABABU);
    CHECK(older.kv_stored_bytes == 0xABABABABABABABABU);

    Longer<stasis_model_info> model;
    std::memset(&model, 0xAB, sizeof model);
    model.known.struct_size = sizeof model;
    REQUIRE(stasis_model_get_info(gemma(), &model.known, nullptr) == STASIS_OK);
    CHECK(model.known.struct_size == sizeof model);
    CHECK(model.known.layers == 7);
    CHECK(model.future[0] == 0); // not known to the library: zero
    CHECK(model.future[2] == 0);
}

TEST_CASE("struct_size: a struct_size that cannot be is refused before anything else is read") {
    const Session session = create(gemma());
    stasis_error error;
    for (uint32_t size : {0U, 3U, 4097U, UINT32_MAX}) {
        auto run = sized<stasis_run_options>();
        run.struct_size = size;
        CHECK(stasis_session_append(session.get(), nullptr, 0, &run, &error) ==
              STASIS_INVALID_ARGUMENT);
        CHECK(contains(error, "options.struct_size"));
        auto info = sized<stasis_session_info>();
        info.struct_size = size;
        CHECK(stasis_session_get_info(session.get(), &info, &error) == STASIS_INVALID_ARGUMENT);
        auto result = sized<stasis_generate_result>();
        result.struct_size = size;
        CHECK(stasis_session_generate(session.get(), nullptr, &result, &error) ==
              STASIS_INVALID_ARGUMENT);
        CHECK(contains(error, "result.struct_size"));
    }
}

TEST_CASE("struct_size: unknown flags and reserved fields are refused") {
    const Session session = session_of(gemma(), some_tokens(3));
    CHECK(stasis_session_rewind(session.get(), 0, 2, nullptr, nullptr) == STASIS_UNSUPPORTED);
    auto generate = sized<stasis_generate_options>();
    generate.flags = 0x80000000U;
    CHECK(stasis_session_generate(session.get(), &generate, nullptr, nullptr) ==
          STASIS_UNSUPPORTED);
    CHECK(save(session.get(), "/nowhere", 0x80000000U) == STASIS_UNSUPPORTED);
    auto load_options = sized<stasis_load_options>();
    load_options.flags = 32;
    stasis_session *loaded = nullptr;
    CHECK(stasis_session_load(gemma(), "/nowhere", &load_options, &loaded, nullptr) ==
          STASIS_UNSUPPORTED);
    auto source = sized<stasis_source>();
    source.reserved = 1;
    CHECK(stasis_session_read(gemma(), &source, nullptr, &loaded, nullptr) == STASIS_UNSUPPORTED);
    auto save_options = sized<stasis_save_options>();
    save_options.keep = 2;
    CHECK(stasis_session_save(session.get(), "/nowhere", &save_options, nullptr) ==
          STASIS_UNSUPPORTED);
    save_options.keep = 0;
    save_options.codec = 3;
    CHECK(stasis_session_save(session.get(), "/nowhere", &save_options, nullptr) ==
          STASIS_UNSUPPORTED);
    CHECK(stasis_snapshot_compact("/nowhere", &save_options, nullptr) == STASIS_UNSUPPORTED);
    auto options = sized<stasis_session_options>();
    options.reserved = 1;
    stasis_session *other = nullptr;
    CHECK(stasis_session_create(gemma(), &options, &other, nullptr) == STASIS_UNSUPPORTED);
    CHECK(position(session.get()) == 3);
}
