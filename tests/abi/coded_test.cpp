// Weights that are copied, and coded where the kernels have products for them: every result is that
// of mapped ones.
#include <cstdio>
#include <filesystem>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

struct Results {
    Digest prompt, reply;
    std::vector<float> logits, next;
};

// A prompt, then one token and two in turn.
Results run(const std::string &name, const char *kernels, uint32_t copy_weights) {
    auto options = sized<stasis_model_options>();
    options.kernels = kernels;
    options.threads = 2;
    options.copy_weights = copy_weights;
    const Model model = open_path(test_data(name), &options);
    const Session session = create(model.get());
    Results results;
    append(session.get(), some_tokens(70, 3));
    results.prompt = digest(session.get());
    results.logits = logits_of(session.get());
    for (uint32_t i = 0; i < 5; ++i) {
        append(session.get(), some_tokens(1 + i % 2, 100 + i));
    }
    results.reply = digest(session.get());
    results.next = logits_of(session.get());
    return results;
}

} // namespace

TEST_CASE("copy_weights: results are those of mapped weights, on every table") {
    std::vector<std::string> names{"recall-gemma3", "recall-llama"};
    for (const auto &entry : std::filesystem::directory_iterator(test_data("zoo"))) {
        // One has no sessions, the other too few tokens.
        const std::string name = entry.path().filename().string();
        if (name != "embedding-gemma" && name != "llama-odd-sizes-f32") {
            names.push_back("zoo/" + name);
        }
    }
    REQUIRE(names.size() > 20);
    for (const std::string &kernels : kernel_tables()) {
        CAPTURE(kernels);
        auto options = sized<stasis_model_options>();
        options.kernels = kernels.c_str();
        stasis_model *model = nullptr;
        const stasis_status status =
            stasis_model_open(test_data("zoo/gemma3-text").c_str(), &options, &model, nullptr);
        stasis_model_close(model);
        if (status == STASIS_UNSUPPORTED) {
            std::printf("SKIPPED: copy_weights: this machine cannot run table '%s'\n",
                        kernels.c_str());
            continue;
        }
        for (const std::string &name : names) {
            CAPTURE(name);
            const Results mapped = run(name, kernels.c_str(), 0),
                          copied = run(name, kernels.c_str(), 1);
            CHECK(mapped.prompt == copied.prompt);
            CHECK(mapped.reply == copied.reply);
            CHECK(same_bits(mapped.logits, copied.logits));
            CHECK(same_bits(mapped.next, copied.next));
        }
    }
}
