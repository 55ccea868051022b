// Failing calls on files and streams: saving, loading, looking into them, and proving them.
#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

stasis_save_options save_options(uint32_t codec, uint32_t keep, uint32_t flags = 0) {
    auto options = sized<stasis_save_options>();
    options.codec = codec;
    options.keep = keep;
    options.flags = flags;
    return options;
}

// A session of 150 tokens with a file of its own.
struct Saved {
    Folder folder;
    std::string path = folder.file("a.stasis");
    Session session;

    Saved(stasis_model *model, size_t tokens) : session(create(model)) {
        append(session.get(), some_tokens(150));
        if (tokens > 150) {
            append(session.get(), some_tokens(tokens - 150, 2));
        }
    }
    // Contents of the folder: the state that the file holds, "" for none.
    std::string file_state(stasis_model *model) const {
        for (const auto &file : std::filesystem::directory_iterator(folder.file("."))) {
            CHECK_MESSAGE(file.path().filename() == "a.stasis", file.path().string());
        }
        return access(path.c_str(), F_OK) != 0 ? "" : outcome_of(load(model, path).get());
    }
};

// A save over what is there: nothing, or a file of the first 150 tokens, or of something else.
enum class There { nothing, beginning, other };

Row saving(const char *detail, const stasis_save_options &options, There there, Needs needs,
           const char *name = kGemma) {
    return {"stasis_session_save", detail, needs, name, [=](stasis_model *model) {
                const auto saved = std::make_shared<Saved>(model, 150);
                if (there == There::beginning) {
                    const Session first = session_of(model, some_tokens(150));
                    REQUIRE(stasis_session_save(first.get(), saved->path.c_str(), &options,
                                                nullptr) == STASIS_OK);
                    append(saved->session.get(), some_tokens(70, 2));
                } else if (there == There::other) {
                    const Session other = session_of(model, some_tokens(40, 3));
                    REQUIRE(save(other.get(), saved->path) == STASIS_OK);
                }
                const std::string own = outcome_of(saved->session.get());
                const std::string before = saved->file_state(model);
                return Trial{[=](stasis_error *error) {
                                 return stasis_session_save(saved->session.get(),
                                                            saved->path.c_str(), &options, error);
                             },
                             [=] {
                                 CHECK(outcome_of(saved->session.get()) == own);
                                 const std::string now = saved->file_state(model);
                                 CHECK((now == before || now == own));
                             },
                             [=] {
                                 const std::string now = saved->file_state(model);
                                 CHECK(now == own);
                                 return now + outcome_of(saved->session.get());
                             }};
            }};
}

Row loading(const char *detail, const stasis_save_options &options, Needs needs,
            const stasis_load_options &how = sized<stasis_load_options>(),
            const char *name = kGemma) {
    return {"stasis_session_load", detail, needs, name, [=](stasis_model *model) {
                const auto saved = std::make_shared<Saved>(model, 150);
                REQUIRE(stasis_session_save(saved->session.get(), saved->path.c_str(), &options,
                                            nullptr) == STASIS_OK);
                const auto out = std::make_shared<Session>();
                return Trial{[=](stasis_error *error) {
                                 stasis_session *made = nullptr;
                                 const stasis_status status = stasis_session_load(
                                     model, saved->path.c_str(), &how, &made, error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 out->reset(made);
                                 return status;
                             },
                             [=] { CHECK(saved->file_state(model) != ""); },
                             [=] { return outcome_of(out->get()); }};
            }};
}

// A stream in memory, all of it taken before a call.
struct Stream {
    std::string bytes;
    size_t at = 0;

    Stream() { bytes.reserve(1 << 20); }

    stasis_sink sink() {
        auto result = sized<stasis_sink>();
        result.user = this;
        result.write = [](void *user, const void *data, size_t size) -> int32_t {
            static_cast<Stream *>(user)->bytes.append(static_cast<const char *>(data), size);
            return 0;
        };
        return result;
    }
    stasis_source source() {
        at = 0;
        auto result = sized<stasis_source>();
        result.user = this;
        result.read = [](void *user, void *data, size_t size) -> int64_t {
            Stream &stream = *static_cast<Stream *>(user);
            const size_t count = std::min(size, stream.bytes.size() - stream.at);
            std::memcpy(data, stream.bytes.data() + stream.at, count);
            stream.at += count;
            return static_cast<int64_t>(count);
        };
        return result;
    }
};

Row writing(Needs needs) {
    return {"stasis_session_write", "zstd", needs, kGemma, [](stasis_model *model) {
                const auto saved = std::make_shared<Saved>(model, 150);
                const auto stream = std::make_shared<Stream>();
                const std::string own = outcome_of(saved->session.get());
                return Trial{
                    [=](stasis_error *error) {
                        stream->bytes.clear();
                        const stasis_sink sink = stream->sink();
                        const auto options = save_options(STASIS_CODEC_ZSTD, STASIS_KEEP_FULL);
                        return stasis_session_write(saved->session.get(), &sink, &options, error);
                    },
                    [=] { CHECK(outcome_of(saved->session.get()) == own); },
                    [=] { return stream->bytes; }};
            }};
}

Row reading(Needs needs) {
    return {"stasis_session_read", "zstd", needs, kGemma, [](stasis_model *model) {
                const auto saved = std::make_shared<Saved>(model, 150);
                const auto stream = std::make_shared<Stream>();
                const stasis_sink sink = stream->sink();
                const auto options = save_options(STASIS_CODEC_ZSTD, STASIS_KEEP_FULL);
                REQUIRE(stasis_session_write(saved->session.get(), &sink, &options, nullptr) ==
                        STASIS_OK);
                const auto out = std::make_shared<Session>();
                return Trial{[=](stasis_error *error) {
                                 const stasis_source source = stream->source();
                                 stasis_session *made = nullptr;
                                 const stasis_status status =
                                     stasis_session_read(model, &source, nullptr, &made, error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 out->reset(made);
                                 return status;
                             },
                             [] {}, [=] { return outcome_of(out->get()); }};
            }};
}

// An opened snapshot of a compressed file with two commits.
struct Opened {
    Saved saved;
    Snapshot snapshot;

    explicit Opened(stasis_model *model) : saved(model, 150) {
        const auto options =
            save_options(STASIS_CODEC_ZSTD, STASIS_KEEP_FULL, STASIS_SAVE_FULL_LOGITS);
        for (int i = 0; i < 2; ++i) {
            REQUIRE(stasis_session_save(saved.session.get(), saved.path.c_str(), &options,
                                        nullptr) == STASIS_OK);
            append(saved.session.get(), some_tokens(70, 2));
        }
        snapshot = open_snapshot(saved.path);
    }
};

Row opening(Needs needs) {
    return {"stasis_snapshot_open", "", needs, kGemma, [](stasis_model *model) {
                const auto opened = std::make_shared<Opened>(model);
                opened->snapshot.reset();
                return Trial{[=](stasis_error *error) {
                                 stasis_snapshot *made = nullptr;
                                 const stasis_status status =
                                     stasis_snapshot_open(opened->saved.path.c_str(), &made, error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 opened->snapshot.reset(made);
                                 return status;
                             },
                             [] {},
                             [=] {
                                 auto info = sized<stasis_snapshot_info>();
                                 REQUIRE(stasis_snapshot_get_info(opened->snapshot.get(), &info,
                                                                  nullptr) == STASIS_OK);
                                 return hex(info.digest.bytes, 32);
                             }};
            }};
}

Row opening_source(Needs needs) {
    return {"stasis_snapshot_open_source", "", needs, kGemma, [](stasis_model *model) {
                const auto opened = std::make_shared<Opened>(model);
                const auto stream = std::make_shared<Stream>();
                stream->bytes = read_file(opened->saved.path);
                return Trial{[=](stasis_error *error) {
                                 const stasis_source source = stream->source();
                                 stasis_snapshot *made = nullptr;
                                 const stasis_status status =
                                     stasis_snapshot_open_source(&source, &made, error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 opened->snapshot.reset(made);
                                 return status;
                             },
                             [] {},
                             [=] {
                                 auto info = sized<stasis_snapshot_info>();
                                 REQUIRE(stasis_snapshot_get_info(opened->snapshot.get(), &info,
                                                                  nullptr) == STASIS_OK);
                                 return hex(info.digest.bytes, 32);
                             }};
            }};
}

// A call that puts what it has to say into `out`.
Row looking(
    const char *function, const char *detail, Needs needs,
    std::function<stasis_status(stasis_model *, Opened &, std::string &, stasis_error *)> call) {
    return {function, detail, needs, kGemma, [=](stasis_model *model) {
                const auto opened = std::make_shared<Opened>(model);
                const auto out = std::make_shared<std::string>();
                out->reserve(1 << 20); // taken before the call
                return Trial{[=](stasis_error *error) { return call(model, *opened, *out, error); },
                             [=] { CHECK(out->empty()); }, [=] { return *out; }};
            }};
}

stasis_status verify(stasis_model *model, Opened &opened, std::string &out, double percent,
                     stasis_error *error) {
    auto options = sized<stasis_verify_options>();
    options.audit_percent = percent;
    auto report = sized<stasis_verify_report>();
    const stasis_status status =
        stasis_snapshot_verify(opened.snapshot.get(), model, &options, &report, error);
    if (status == STASIS_OK) {
        CHECK(report.verified == 1);
        out.assign(reinterpret_cast<const char *>(&report), sizeof report);
    }
    return status;
}

std::vector<Row> looking_rows() {
    std::vector<Row> rows;
    static const std::string names[] = {"1", "2", "3", "4",  "5",  "6",
                                        "7", "8", "9", "10", "11", "12"};
    for (uint32_t element = 1; element <= 12; ++element) {
        rows.push_back(looking(
            "stasis_snapshot_element", names[element - 1].c_str(), Needs::warm_model,
            [element](stasis_model *, Opened &opened, std::string &out, stasis_error *error) {
                static char json[1 << 20];
                size_t length = 0;
                const stasis_status status = stasis_snapshot_element(
                    opened.snapshot.get(), element, json, sizeof json, &length, error);
                out.assign(json, length);
                return status;
            }));
    }
    rows.push_back(
        looking("stasis_snapshot_get_info", "", Needs::warm_model,
                [](stasis_model *, Opened &opened, std::string &out, stasis_error *error) {
                    auto info = sized<stasis_snapshot_info>();
                    const stasis_status status =
                        stasis_snapshot_get_info(opened.snapshot.get(), &info, error);
                    const auto *digest = reinterpret_cast<const char *>(info.digest.bytes);
                    out.assign(digest, status == STASIS_OK ? 32 : 0);
                    return status;
                }));
    rows.push_back(
        looking("stasis_snapshot_tokens", "", Needs::warm_model,
                [](stasis_model *, Opened &opened, std::string &out, stasis_error *error) {
                    stasis_token tokens[300];
                    size_t count = 0;
                    const stasis_status status = stasis_snapshot_tokens(
                        opened.snapshot.get(), 0, tokens, nullptr, 300, &count, error);
                    out.assign(reinterpret_cast<const char *>(tokens), count);
                    return status;
                }));
    rows.push_back(
        looking("stasis_snapshot_compare", "", Needs::warm_model,
                [](stasis_model *, Opened &opened, std::string &out, stasis_error *error) {
                    auto difference = sized<stasis_difference>();
                    const stasis_status status = stasis_snapshot_compare(
                        opened.snapshot.get(), opened.snapshot.get(), &difference, error);
                    if (status == STASIS_OK) {
                        out = difference.equal != 0 ? "equal" : difference.message;
                    }
                    return status;
                }));
    for (const double percent : {0.0, 50.0}) {
        rows.push_back(looking(
            "stasis_snapshot_verify", percent == 0 ? "whole" : "an audit", Needs::fresh_model,
            [percent](stasis_model *model, Opened &opened, std::string &out, stasis_error *error) {
                return verify(model, opened, out, percent, error);
            }));
    }
    return rows;
}

Row comparing() { // of two files that differ in a key
    return {"stasis_snapshot_compare", "other tokens", Needs::warm_model, kGemma,
            [](stasis_model *model) {
                const auto a = std::make_shared<Opened>(model);
                const auto b = std::make_shared<Saved>(model, 160);
                REQUIRE(save(b->session.get(), b->path) == STASIS_OK);
                const auto other = std::make_shared<Snapshot>(open_snapshot(b->path));
                const auto found = std::make_shared<stasis_difference>();
                return Trial{[=](stasis_error *error) {
                                 *found = sized<stasis_difference>();
                                 return stasis_snapshot_compare(a->snapshot.get(), other->get(),
                                                                found.get(), error);
                             },
                             [=] { CHECK(found->element == 0); },
                             [=] {
                                 CHECK(found->equal == 0);
                                 return std::string(found->message);
                             }};
            }};
}

Row compacting(Needs needs) {
    return {"stasis_snapshot_compact", "", needs, kGemma, [](stasis_model *model) {
                const auto opened = std::make_shared<Opened>(model);
                opened->snapshot.reset();
                const std::string before = opened->saved.file_state(model);
                return Trial{
                    [=](stasis_error *error) {
                        return stasis_snapshot_compact(opened->saved.path.c_str(), nullptr, error);
                    },
                    [=] { CHECK(opened->saved.file_state(model) == before); },
                    [=] {
                        CHECK(opened->saved.file_state(model) == before);
                        return read_file(opened->saved.path).substr(12288); // but for its roots
                    }};
            }};
}

} // namespace

std::vector<Row> snapshot_rows() {
    const auto raw = save_options(STASIS_CODEC_RAW, STASIS_KEEP_FULL);
    const auto zstd = save_options(STASIS_CODEC_ZSTD, STASIS_KEEP_FULL);
    const auto none = save_options(STASIS_CODEC_RAW, STASIS_KEEP_NONE);
    const auto replace = save_options(STASIS_CODEC_RAW, STASIS_KEEP_FULL, STASIS_SAVE_REPLACE);
    auto trusted = sized<stasis_load_options>();
    trusted.flags = STASIS_LOAD_TRUSTED;
    std::vector<Row> rows = {
        saving("raw", raw, There::nothing, Needs::fresh_model),
        saving("zstd", zstd, There::nothing, Needs::warm_model),
        saving("keeps none", none, There::nothing, Needs::warm_model),
        saving("appends, raw", raw, There::beginning, Needs::warm_model),
        saving("appends, zstd", zstd, There::beginning, Needs::warm_model),
        saving("appends, keeps none", none, There::beginning, Needs::warm_model),
        saving("replaces", replace, There::other, Needs::warm_model),
        loading("raw", raw, Needs::fresh_model),
        loading("zstd", zstd, Needs::fresh_model),
        loading("kept none", none, Needs::fresh_model),
        loading("trusted", raw, Needs::fresh_model, trusted),
        saving("hybrid, raw", raw, There::nothing, Needs::fresh_model, kRecurrent),
        saving("hybrid, appends, zstd", zstd, There::beginning, Needs::warm_model, kRecurrent),
        loading("hybrid, zstd", zstd, Needs::fresh_model, sized<stasis_load_options>(), kRecurrent),
        loading("hybrid, kept none", none, Needs::fresh_model, sized<stasis_load_options>(),
                kRecurrent),
        saving("short convolutions, raw", raw, There::nothing, Needs::fresh_model, kConvolving),
        saving("short convolutions, appends, zstd", zstd, There::beginning, Needs::warm_model,
               kConvolving),
        loading("short convolutions, raw", raw, Needs::fresh_model, sized<stasis_load_options>(),
                kConvolving),
        loading("short convolutions, kept none", none, Needs::fresh_model,
                sized<stasis_load_options>(), kConvolving),
        writing(Needs::fresh_model),
        reading(Needs::fresh_model),
        opening(Needs::warm_model),
        opening_source(Needs::warm_model),
        comparing(),
        compacting(Needs::warm_model),
    };
    for (const Row &row : looking_rows()) {
        rows.push_back(row);
    }
    return rows;
}

} // namespace failures
