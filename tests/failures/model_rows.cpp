// Failing calls on models: opening them, text, quantizing, and what needs no session.
#include <utility>

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

stasis_status quantize(const std::string &from, const std::string &to, bool replace,
                       stasis_error *error) {
    auto options = sized<stasis_quantize_options>();
    options.type = "Q4_0";
    options.threads = 2;
    options.flags = replace ? STASIS_QUANTIZE_REPLACE : 0;
    return stasis_model_quantize(from.c_str(), to.c_str(), &options, nullptr, error);
}

// A model's facts, and what a token is to it.
std::string facts(stasis_model *model) {
    auto info = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &info, nullptr) == STASIS_OK);
    return hex(info.model.bytes, 32) + hex(info.tokenizer.bytes, 32) + info.chat_template +
           info.weight_types;
}

Row opening(const char *detail, const char *name) {
    return {"stasis_model_open", detail, Needs::nothing, "", [=](stasis_model *) {
                const auto out = std::make_shared<Model>();
                const std::string given = path_of(name);
                return Trial{[=](stasis_error *error) {
                                 stasis_model *opened = nullptr;
                                 const stasis_status status = open_hosted(given, &opened, error);
                                 CHECK((status == STASIS_OK) == (opened != nullptr));
                                 out->reset(opened);
                                 return status;
                             },
                             [] {}, [=] { return facts(out->get()); }};
            }};
}

// With `leftover`, a process that was killed has left the beginning of the same file.
Row quantizing(const char *detail, const char *name, bool leftover = false) {
    return {"stasis_model_quantize", detail, Needs::nothing, "", [=](stasis_model *) {
                const auto folder = std::make_shared<Folder>();
                const std::string from = path_of(name), to = folder->file("a.gguf");
                const std::string begun = leftover ? "GGUF" : "";
                if (leftover) {
                    write_file(to + ".writing", begun);
                }
                const auto again =
                    std::make_shared<bool>(false); // it may have failed after its rename
                return Trial{[=](stasis_error *error) {
                                 return quantize(from, to, std::exchange(*again, true), error);
                             },
                             [=] { // nothing, or all of it, or what was there
                                 for (const auto &file :
                                      std::filesystem::directory_iterator(folder->file("."))) {
                                     if (file.path().filename() == "a.gguf.writing") {
                                         CHECK(leftover);
                                         CHECK(read_file(file.path()) == begun);
                                         continue;
                                     }
                                     CHECK(file.path().filename() == "a.gguf");
                                     CHECK(open_path(to) != nullptr);
                                 }
                             },
                             [=] {
                                 const std::string bytes = read_file(to);
                                 return std::to_string(bytes.size()) + " " +
                                        std::to_string(std::hash<std::string>()(bytes));
                             }};
            }};
}

// Returns all bytes of the file, the old one or the new one.
Row replacing(const char *name) {
    return {"stasis_model_quantize", "in the place of another", Needs::nothing, "",
            [=](stasis_model *) {
                const auto folder = std::make_shared<Folder>();
                const std::string from = path_of(name), old = path_of("gguf");
                const std::string to = folder->file("a.gguf");
                std::filesystem::copy_file(old, to);
                return Trial{[=](stasis_error *error) { return quantize(from, to, true, error); },
                             [=] {
                                 for (const auto &file :
                                      std::filesystem::directory_iterator(folder->file("."))) {
                                     CHECK(file.path().filename() == "a.gguf");
                                 }
                                 CHECK(
                                     (read_file(to) == read_file(old) || open_path(to) != nullptr));
                             },
                             [=] { return hex(read_file(to).data(), 2000); }};
            }};
}

// A call that puts what it has to say into `out`, whose memory is taken before.
Row asking(const char *function, const char *detail,
           std::function<stasis_status(stasis_model *, std::string &, stasis_error *)> call) {
    return {function, detail, Needs::fresh_model, kChat, [=](stasis_model *model) {
                const auto out = std::make_shared<std::string>();
                out->reserve(100000);
                return Trial{[=](stasis_error *error) { return call(model, *out, error); },
                             [=] { CHECK(out->empty()); }, [=] { return *out; }};
            }};
}

// Two texts, of one page and of two.
auto embedding(uint32_t pooling) {
    return [=](stasis_model *model, std::string &out, stasis_error *error) {
        static const std::string text(90, 'x');
        stasis_embed_input inputs[2] = {sized<stasis_embed_input>(), sized<stasis_embed_input>()};
        for (size_t i = 0; i < 2; ++i) {
            inputs[i].text = text.data();
            inputs[i].length = i == 0 ? 5 : text.size();
        }
        auto options = sized<stasis_embed_options>();
        options.pooling = pooling;
        float vectors[2 * 1024];
        size_t count = 0;
        const stasis_status status =
            stasis_model_embed(model, inputs, sizeof inputs[0], 2, &options, vectors,
                               std::size(vectors), &count, error);
        if (status == STASIS_OK) {
            out.assign(reinterpret_cast<const char *>(vectors), count * sizeof vectors[0]);
        }
        return status;
    };
}

std::vector<Row> embed_rows() {
    const auto info = [](stasis_model *model, std::string &, stasis_error *error) {
        auto told = sized<stasis_embed_info>();
        return stasis_model_get_embed_info(model, &told, error);
    };
    return {asking("stasis_model_embed", "the last token", embedding(STASIS_POOLING_LAST)),
            asking("stasis_model_embed", "the mean", embedding(STASIS_POOLING_MEAN)),
            asking("stasis_model_get_embed_info", "", info)};
}

stasis_status render_chat(stasis_model *model, std::string &out, stasis_error *error) {
    static const std::string conversation =
        R"({"messages":[{"role":"user","content":"what is it?"}]})";
    char text[1000];
    size_t length = 0;
    const stasis_status status =
        stasis_model_render_chat(model, conversation.data(), conversation.size(), STASIS_CHAT_REPLY,
                                 text, 1000, &length, error);
    if (status == STASIS_OK) {
        out.assign(text, length);
    }
    return status;
}

stasis_status describe_token(stasis_model *model, std::string &out, stasis_error *error) {
    auto told = sized<stasis_token_info>();
    const stasis_status status = stasis_model_get_token(model, 7, &told, error);
    if (status == STASIS_OK) {
        out.assign(told.piece, told.length);
    }
    return status;
}

// Estimates of memory, whose files may fail to be read.
std::vector<Row> memory_rows() {
    const auto estimate = [](const char *name) {
        return [=, path = path_of(name)](stasis_model *, std::string &out, stasis_error *error) {
            auto told = sized<stasis_estimate>();
            auto session = sized<stasis_session_memory>();
            const stasis_status status =
                stasis_model_estimate(path.c_str(), nullptr, nullptr, 100, &told, &session, error);
            if (status == STASIS_OK) {
                out.assign(reinterpret_cast<const char *>(&told), sizeof told);
                out.append(reinterpret_cast<const char *>(&session), sizeof session);
            }
            return status;
        };
    };
    const auto session = [](stasis_model *model, std::string &out, stasis_error *error) {
        auto told = sized<stasis_session_memory>();
        const stasis_status status = stasis_model_session_memory(model, nullptr, 500, &told, error);
        out = status == STASIS_OK ? std::to_string(told.kv_bytes) : "";
        return status;
    };
    return {asking("stasis_model_estimate", "a directory", estimate(kChat)),
            asking("stasis_model_estimate", "shards", estimate("llama-mha-bias-f16-sharded")),
            asking("stasis_model_estimate", "GGUF", estimate("gguf")),
            asking("stasis_model_session_memory", "", session)};
}

stasis_status find_metadata(stasis_model *model, std::string &out, stasis_error *error) {
    auto told = sized<stasis_metadata>();
    const stasis_status status =
        stasis_model_get_metadata(model, "tokenizer_config.chat_template", &told, error);
    if (status == STASIS_OK) {
        out.assign(told.value, told.length);
    }
    return status;
}

stasis_status first_metadata(stasis_model *model, std::string &out, stasis_error *error) {
    auto told = sized<stasis_metadata>();
    const stasis_status status = stasis_model_get_metadata_at(model, 0, &told, error);
    if (status == STASIS_OK) {
        out = told.key;
    }
    return status;
}

std::vector<Row> text_rows() {
    const auto tokenize = [](stasis_model *model, std::string &out, stasis_error *error) {
        static const std::string text = "what is it? <end_of_turn> \xC3\xA9t\xC3\xA9\n\n  x";
        stasis_token tokens[100];
        size_t count = 0;
        const stasis_status status = stasis_model_tokenize(
            model, text.data(), text.size(), STASIS_TOKENIZE_BOS | STASIS_TOKENIZE_SPECIAL, tokens,
            100, &count, error);
        if (status == STASIS_OK) {
            out.assign(reinterpret_cast<const char *>(tokens), count * sizeof tokens[0]);
        }
        return status;
    };
    const auto detokenize = [](stasis_model *model, std::string &out, stasis_error *error) {
        static const Tokens tokens = some_tokens(100);
        char text[1000];
        size_t length = 0;
        const stasis_status status = stasis_model_detokenize(
            model, tokens.data(), 100, STASIS_DETOKENIZE_SPECIAL, text, 1000, &length, error);
        if (status == STASIS_OK) {
            out.assign(text, length);
        }
        return status;
    };
    const auto render = [](stasis_model *model, std::string &out, stasis_error *error) {
        stasis_message messages[3] = {sized<stasis_message>(), sized<stasis_message>(),
                                      sized<stasis_message>()};
        const char *roles[] = {"system", "user", "assistant"};
        for (size_t i = 0; i < 3; ++i) {
            messages[i].role = roles[i];
            messages[i].text = "a text of some length, more than a string holds in itself";
            messages[i].length = std::strlen(messages[i].text);
        }
        char text[1000];
        size_t length = 0;
        const stasis_status status = stasis_model_render(model, messages, sizeof messages[0], 3, 0,
                                                         text, 1000, &length, error);
        if (status == STASIS_OK) {
            out.assign(text, length);
        }
        return status;
    };
    const auto info = [](stasis_model *model, std::string &out, stasis_error *error) {
        auto told = sized<stasis_model_info>();
        const stasis_status status = stasis_model_get_info(model, &told, error);
        out = told.architecture;
        return status;
    };
    const auto stats = [](stasis_model *model, std::string &, stasis_error *error) {
        auto told = sized<stasis_model_stats>();
        return stasis_model_get_stats(model, &told, error);
    };
    const auto recommended = [](stasis_model *model, std::string &out, stasis_error *error) {
        auto sampling = sized<stasis_sampling>();
        const stasis_status status = stasis_model_recommended_sampling(model, &sampling, error);
        out = status == STASIS_OK ? std::to_string(sampling.temperature) : "";
        return status;
    };
    return {asking("stasis_model_tokenize", "", tokenize),
            asking("stasis_model_get_token", "", describe_token),
            asking("stasis_model_get_metadata", "", find_metadata),
            asking("stasis_model_get_metadata_at", "", first_metadata),
            asking("stasis_model_detokenize", "", detokenize),
            asking("stasis_model_render", "", render),
            asking("stasis_model_render_chat", "", render_chat),
            asking("stasis_model_get_info", "", info),
            asking("stasis_model_get_stats", "", stats),
            asking("stasis_model_recommended_sampling", "", recommended)};
}

// A pool with a name and a place, and a model that has it.
Row pooling() {
    return {"stasis_threads_create", "", Needs::nothing, "", [](stasis_model *) {
                using Pool = std::unique_ptr<stasis_threads, Releaser<stasis_threads_free>>;
                const auto out = std::make_shared<Pool>();
                return Trial{[=](stasis_error *error) {
                                 const auto cpu = static_cast<uint32_t>(sched_getcpu());
                                 auto options = sized<stasis_threads_options>();
                                 options.count = 3;
                                 options.cpus = &cpu;
                                 options.cpu_count = 1;
                                 options.name = "failing";
                                 stasis_threads *made = nullptr;
                                 const stasis_status status =
                                     stasis_threads_create(&options, &made, error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 out->reset(made);
                                 return status;
                             },
                             [] {},
                             [=] {
                                 auto options = sized<stasis_model_options>();
                                 options.thread_pool = out->get();
                                 return facts(open_path(path_of(kGemma), &options).get());
                             }};
            }};
}

// A trial that opens a model by `open`.
Trial opening_by(std::function<stasis_status(stasis_model **, stasis_error *)> open) {
    const auto out = std::make_shared<Model>();
    return {[=](stasis_error *error) {
                stasis_model *opened = nullptr;
                const stasis_status status = open(&opened, error);
                CHECK((status == STASIS_OK) == (opened != nullptr));
                out->reset(opened);
                return status;
            },
            [] {}, [=] { return facts(out->get()); }};
}

// Files in memory, so that the functions of the source neither allocate nor read.
using InMemory = std::vector<std::pair<std::string, std::string>>;

const std::string *file_in(void *files, const char *name) {
    for (const auto &[known, bytes] : *static_cast<InMemory *>(files)) {
        if (known == name) {
            return &bytes;
        }
    }
    return nullptr;
}

Row by_source() {
    return {"stasis_model_open_source", "", Needs::nothing, "", [](stasis_model *) {
                const auto files = std::make_shared<InMemory>();
                for (const auto &file : std::filesystem::directory_iterator(path_of(kChat))) {
                    files->emplace_back(file.path().filename().string(),
                                        read_file(file.path().string()));
                }
                return opening_by([=](stasis_model **model, stasis_error *error) {
                    auto source = sized<stasis_model_source>();
                    source.user = files.get();
                    source.size = [](void *user, const char *name) -> int64_t {
                        const std::string *bytes = file_in(user, name);
                        return bytes == nullptr ? -1 : static_cast<int64_t>(bytes->size());
                    };
                    source.read = [](void *user, const char *name, uint64_t offset, void *data,
                                     size_t size_bytes) -> int64_t {
                        const std::string *bytes = file_in(user, name);
                        return static_cast<int64_t>(
                            bytes->copy(static_cast<char *>(data), size_bytes, offset));
                    };
                    return stasis_model_open_source(&source, nullptr, nullptr, model, error);
                });
            }};
}

Row by_descriptor() {
    return {"stasis_model_open_descriptor", "", Needs::nothing, "", [](stasis_model *) {
                const std::shared_ptr<int> file(
                    new int(::open(path_of("gguf").c_str(), O_RDONLY | O_CLOEXEC)), [](int *open) {
                        close(*open);
                        delete open;
                    });
                return opening_by([=](stasis_model **model, stasis_error *error) {
                    return stasis_model_open_descriptor(*file, nullptr, model, error);
                });
            }};
}

} // namespace

std::vector<Row> model_rows() {
    std::vector<Row> rows = {
        opening("a directory, bf16", "gemma3-text"),
        opening("shards of f16", "llama-mha-bias-f16-sharded"),
        opening("SentencePiece, a template", kChat),
        opening("byte-level BPE", "byte-bpe"),
        opening("GGUF", "gguf"),
        opening("short convolutions", kConvolving),
        quantizing("SentencePiece", kChat),
        quantizing("byte-level BPE", "byte-bpe"),
        quantizing("after one that was killed", kChat, true),
        replacing(kChat),
        pooling(),
        by_source(),
        by_descriptor(),
        {"stasis_cancel_create", "", Needs::nothing, "", [](stasis_model *) {
             const auto out = std::make_shared<Cancel>();
             return Trial{[=](stasis_error *error) {
                              stasis_cancel *created = nullptr;
                              const stasis_status status = stasis_cancel_create(&created, error);
                              CHECK((status == STASIS_OK) == (created != nullptr));
                              out->reset(created);
                              return status;
                          },
                          [] {}, [] { return std::string(); }};
         }}};
    for (const auto &more : {text_rows(), embed_rows(), memory_rows()}) {
        rows.insert(rows.end(), more.begin(), more.end());
    }
    return rows;
}

} // namespace failures
