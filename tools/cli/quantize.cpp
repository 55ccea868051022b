// stasis quantize: writes a model directory as a GGUF file, with its weights in a chosen type.
#include <cinttypes>
#include <cstdio>
#include <memory>

#include "tools/cli/commands.h"
#include "tools/cli/options.h"
#include "tools/cli/terminal.h"

namespace command {
namespace {

struct QuantizeChoice {
    std::string model, out, type = "Q8_0";
    uint32_t threads = 0;
    bool replace = false, json = false;
};

Json as_json(const QuantizeChoice &choice, const stasis_quantize_report &report, double seconds) {
    Json json = {{"type", choice.type},
                 {"source_bytes", report.source_bytes},
                 {"file_bytes", report.file_bytes},
                 {"seconds", seconds},
                 {"tensors", Json::array()}};
    for (uint32_t i = 0; i < report.share_count; ++i) {
        const stasis_quantize_share &share = report.shares[i];
        json["tensors"].push_back({{"type", share.type},
                                   {"count", share.tensors},
                                   {"values", share.values},
                                   {"bytes", share.bytes}});
    }
    return json;
}

void print_table(const QuantizeChoice &choice, const stasis_quantize_report &report,
                 double seconds) {
    char line[200];
    print("type   tensors        values           bytes  bits each\n");
    for (uint32_t i = 0; i < report.share_count; ++i) {
        const stasis_quantize_share &share = report.shares[i];
        std::snprintf(line, sizeof line, "%-5s %8" PRIu64 " %13" PRIu64 " %15" PRIu64 " %10.2f\n",
                      share.type, share.tensors, share.values, share.bytes,
                      8.0 * static_cast<double>(share.bytes) / static_cast<double>(share.values));
        print(line);
    }
    std::snprintf(line, sizeof line, ": %" PRIu64 " bytes, %.1f %% of %" PRIu64 ", in %.1f s\n",
                  report.file_bytes,
                  100 * static_cast<double>(report.file_bytes) /
                      static_cast<double>(report.source_bytes),
                  report.source_bytes, seconds);
    print(visible(choice.out) + line);
}

int run_quantize(const QuantizeChoice &choice) {
    check_target("quantize", choice.out, Special::refused);
    Interrupt interrupt;
    stasis_quantize_options options;
    stasis_quantize_options_init(&options, sizeof options);
    options.flags = choice.replace ? STASIS_QUANTIZE_REPLACE : 0;
    options.type = choice.type.c_str();
    options.threads = choice.threads;
    options.cancel = interrupt.handle();

    stasis_error error{};
    auto report = sized<stasis_quantize_report>();
    const Stopwatch watch;
    {
        Progress progress("writing " + choice.out);
        options.progress = Progress::report;
        options.progress_user = &progress;
        check(stasis_model_quantize(choice.model.c_str(), choice.out.c_str(), &options, &report,
                                    &error),
              error, choice.model);
    }

    if (choice.json) {
        print_json(as_json(choice, report, watch.seconds()));
    } else {
        print_table(choice, report, watch.seconds());
    }
    return 0;
}

constexpr char kTypes[] =
    "Types: F16, BF16; Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 (blocks of 32 weights); Q3_K, Q4_K, Q5_K,\n"
    "Q6_K (blocks of 256); Q4_K_M and Q5_K_M: Q4_K and Q5_K, with the value and down projections\n"
    "of half of the layers in Q6_K; Q2_K, Q3_K_M, Q3_K_L: with these and the output projections\n"
    "in types of more bits; IQ4_NL (32), IQ4_XS (256): with some of these in Q5_K; MXFP4_MOE:\n"
    "experts in MXFP4 (32), the rest in Q8_0. Which matrices these are is llama.cpp's choice.\n"
    "Norms and biases are F32. Under types smaller than Q8_0 the output head, or the embeddings\n"
    "that serve as one, is Q6_K. Where rows are no whole blocks of 256, Q4_0 stands in for Q2_K\n"
    "and Q3_K, Q5_0 for Q4_K, Q5_1 for Q5_K, Q8_0 for Q6_K, IQ4_NL for IQ4_XS; where they are no\n"
    "multiple of 32, F16.\n";

} // namespace

void add_quantize(CLI::App &app, int &exit_code) {
    auto choice = std::make_shared<QuantizeChoice>();
    CLI::App *quantize_app = app.add_subcommand(
        "quantize", "write a model directory as a GGUF file, its weights in a smaller type");
    quantize_app->footer(kTypes);
    add_path(*quantize_app, "MODEL", choice->model, "a Hugging Face directory")->required();
    add_path(*quantize_app, "OUT", choice->out, "the file to write")->required();
    quantize_app->add_option("--type", choice->type, "one of those below; Q8_0 without it");
    add_count(*quantize_app, "--threads", choice->threads, "that compute; 0: one per core");
    quantize_app->add_flag("--replace", choice->replace, "a GGUF file that is there");
    quantize_app->add_flag("--json", choice->json, "one JSON object on stdout and nothing else");
    quantize_app->callback([=, &exit_code] { exit_code = run_quantize(*choice); });
}

} // namespace command
