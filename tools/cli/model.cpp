// Opening a model, and converting token ids and text; see model.h. Must not know sessions.
#include "tools/cli/model.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {

void add_model(CLI::App &app, ModelChoice &choice) {
    app.add_option("MODEL", choice.path, "a model: a Hugging Face directory, or a GGUF file")
        ->required();
}

void add_compute_options(CLI::App &app, ModelChoice &choice) {
    add_count(app, "--threads", choice.threads, "threads that compute (default: one per core)");
    app.add_option("--kernels", choice.kernels, "kernel table (default: the best here)");
    app.add_option("--device", choice.device, "cpu, cuda or cuda:N (default: cpu)");
    app.add_option("--profile", choice.profile, "contract or device (default: contract)");
    app.add_flag("--copy-weights", choice.copy_weights,
                 "map no file: the model's files may change while it is open; bf16 weights are "
                 "read in 12 bits where the kernels can, which decodes faster");
    app.add_flag("--verify-weights", choice.verify_weights,
                 "hash all weights, instead of taking digests of an earlier run");
}

void add_template_option(CLI::App &app, ModelChoice &choice) {
    app.add_option("--chat-template", choice.chat_template,
                   "gemma, chatml, zephyr, llama2, llama3, mistral or phi3");
    app.add_option("--date", choice.date,
                   "what a chat template prints as today's date, as 2026-01-02 (default: today)");
}

namespace {

std::string today() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[16];
    std::strftime(text, sizeof text, "%Y-%m-%d", &local);
    return text;
}

} // namespace

Model open_model(const ModelChoice &choice, stasis_cancel *cancel) {
    if (choice.path.empty()) {
        throw Failure("MODEL: the path is empty");
    }
    if (is_snapshot(choice.path)) {
        throw Failure(choice.path +
                      ": this is a snapshot; a model is expected here, a Hugging Face "
                      "directory or a GGUF file");
    }

    stasis_model_options options;
    stasis_model_options_init(&options, sizeof options);
    const auto given = [](const std::string &text) {
        return text.empty() ? nullptr : text.c_str();
    };
    options.threads = choice.threads;
    options.kernels = given(choice.kernels);
    options.device = given(choice.device);
    options.profile = given(choice.profile);
    options.chat_template = given(choice.chat_template);
    const std::string date = choice.date.empty() ? today() : choice.date;
    options.date = date.c_str();
    options.copy_weights = choice.copy_weights ? 1 : 0;
    options.verify_weights = choice.verify_weights ? 1 : 0;
    options.kv_budget_bytes = choice.kv_budget;
    options.cancel = cancel;

    Progress progress("loading " + choice.path);
    options.progress = Progress::report;
    options.progress_user = &progress;
    stasis_model *model = nullptr;
    stasis_error error{};
    check(stasis_model_open(choice.path.c_str(), &options, &model, &error), error, choice.path);
    return Model(model);
}

Model open_verified(ModelChoice choice, stasis_cancel *cancel) {
    choice.verify_weights = true;
    return open_model(choice, cancel);
}

stasis_model_info model_info(const stasis_model *model) {
    auto info = sized<stasis_model_info>();
    stasis_error error{};
    check(stasis_model_get_info(model, &info, &error), error, "model");
    return info;
}

std::string contract_text(const uint32_t contract[3]) {
    return std::to_string(contract[0]) + "." + std::to_string(contract[1]) + "." +
           std::to_string(contract[2]);
}

std::string detokenize(const stasis_model *model, const std::vector<stasis_token> &tokens,
                       uint32_t flags) {
    return fetch_text(
        [&](char *text, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_model_detokenize(model, tokens.data(), tokens.size(), flags, text,
                                           capacity, length, error);
        },
        "detokenizing");
}

std::vector<stasis_token> parse_tokens(const std::string &list, const std::string &origin) {
    constexpr const char *kBlank = " \t\r\n";
    std::vector<stasis_token> tokens;
    size_t at = list.find_first_not_of(kBlank);
    while (at != std::string::npos) {
        const size_t end = std::min(list.find_first_of(", \t\r\n", at), list.size());
        stasis_token token = 0;
        const auto [stop, problem] = std::from_chars(list.data() + at, list.data() + end, token);
        if (problem != std::errc() || stop != list.data() + end) {
            throw Failure(origin + ": '" + list.substr(at, end - at) + "' at item " +
                          std::to_string(tokens.size() + 1) + " is not a token id");
        }
        tokens.push_back(token);
        at = list.find_first_not_of(kBlank, end);
        if (at != std::string::npos && list[at] == ',') {
            // After a comma an item must follow; an empty one is reported as no token id.
            at = std::min(list.find_first_not_of(kBlank, at + 1), list.size());
        }
    }
    return tokens;
}

std::string join_tokens(const std::vector<stasis_token> &tokens) {
    std::string text;
    for (const stasis_token token : tokens) {
        text += (text.empty() ? "" : ",") + std::to_string(token);
    }
    return text;
}

std::string read_file(const std::string &path) {
    if (path.empty()) {
        throw Failure("the path of a file is empty");
    }
    const std::unique_ptr<std::FILE, Releaser<std::fclose>> file(std::fopen(path.c_str(), "rb"));
    if (!file) {
        throw Failure(path + ": " + std::strerror(errno));
    }
    std::string text;
    char buffer[1 << 16];
    while (const size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
        text.append(buffer, count);
    }
    if (std::ferror(file.get())) {
        throw Failure(path + ": " + std::strerror(errno));
    }
    return text;
}

std::vector<stasis_token> given_tokens(const std::string &list, const std::string &file) {
    return file.empty() ? parse_tokens(list, "--tokens") : parse_tokens(read_file(file), file);
}

} // namespace command
