// One call of the library that is to fail in every way it can, and the table of all of them. A
// trial has objects of its own, made anew for each failure, so that nothing that an earlier call
// left warm hides an allocation or a file operation.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/abi/fixture.h"

namespace failures {

struct Trial {
    std::function<stasis_status(stasis_error *error)> call;
    std::function<void()> unharmed;       // checks, after a failure, that nothing has changed
    std::function<std::string()> outcome; // after success; the same in every trial
};

// A model of which a trial makes its sessions, and whether each trial gets one that was never used.
enum class Needs { nothing, warm_model, fresh_model };

struct Row {
    const char *function; // of the library
    const char *detail;
    Needs needs;
    const char *model; // for path_of
    std::function<Trial(stasis_model *model)> make;
};

// By what the calls are about, each in a file of its own.
std::vector<Row> model_rows();
std::vector<Row> session_rows();
std::vector<Row> generate_rows();
std::vector<Row> constraint_rows();
std::vector<Row> data_rows();
std::vector<Row> scheduler_rows();
std::vector<Row> snapshot_rows();
std::vector<Row> store_rows();
// All of them; under sanitizers one of three, unless whole sweeps are asked for.
std::vector<Row> taken_rows(const std::vector<Row> &rows);

// Small models: a name below tests/data/zoo; "chat", which has a SentencePiece tokenizer and a chat
// template; "byte-bpe"; "gguf", which is "chat" as a GGUF file; kMtp, the hybrid with an MTP head.
// The last four are made when first asked for and gone when the process ends.
std::string path_of(const std::string &model);
inline constexpr std::string_view kConversation =
    R"({"messages":[{"role":"user","content":"what is it?"}]})";
inline constexpr char kGemma[] = "gemma3-text", kChat[] = "chat", kRecurrent[] = "qwen3_5-dense",
                      kConvolving[] = "lfm2", kMtp[] = "mtp";

// Opens a model of two threads whose bulk memory comes from a host's allocator.
stasis_status open_hosted(const std::string &path, stasis_model **model, stasis_error *error);

// The state, settings and log of a session as text.
std::string outcome_of(const stasis_session *session);
std::string hex(const void *bytes, size_t count);

} // namespace failures
