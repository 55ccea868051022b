// Model directories as GGUF files: the same logits if no type loses anything, the same bytes on any
// number of threads, the published mixtures, refusals and leftovers.
#include "runtime/quantize/quantize.h"

#include <sys/file.h>

#include <fcntl.h>

#include <nlohmann/json.hpp>

#include "runtime/model/gguf/config.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/quantize/mixture.h"
#include "runtime/quantize/new_file.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/models.h"

namespace stasis {

namespace {

QuantizeReport quantize(const std::string &model, const std::string &out, const std::string &type,
                        size_t threads = 2, bool replace = false) {
    QuantizeOptions options;
    options.type = type;
    options.threads = threads;
    options.replace = replace;
    return quantize_model(model, out, options);
}

std::vector<std::vector<float>> logits(const std::string &path, size_t tokens) {
    const kernels::FloatEnvironment environment;
    const auto model = open_model(path, {});
    Session session(model, {});
    return test::append_with_logits(session, test::tokens_for(*model, tokens));
}

std::vector<std::string> files_in(const TemporaryDirectory &directory) {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(directory.path())) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

GgufType type_in(const GgufFile &file, const std::string &name) {
    return file.tensors.at(name).type;
}

// A bundled model whose first layer's weights the test may change, as a directory.
struct Edited : EditedModel {
    using EditedModel::EditedModel;
    std::string path() const {
        write_bytes(directory.file("model.safetensors"), safetensors_bytes(tensors));
        return directory.path();
    }
};

} // namespace

TEST_CASE("quantize: a file of the stored type gives the directory's logits, bit for bit") {
    const TemporaryDirectory directory;
    for (const std::string &name : test::bundled()) {
        CAPTURE(name);
        const std::string out = directory.file("m.gguf"), source = test_data(name);
        const std::string type = name.find("f16") != std::string::npos ? "F16" : "BF16";
        quantize(source, out, type);
        const size_t tokens = 70; // beyond the windows
        const auto found = logits(out, tokens), expected = logits(source, tokens);
        double largest = 0;
        for (size_t row = 0; row < tokens; ++row) {
            for (size_t i = 0; i < expected[row].size(); ++i) {
                largest = std::max(largest, std::fabs(double{found[row][i]} - expected[row][i]));
            }
        }
        // f32 embeddings are looked up as stored; Llama 3's scaling of rope is f32 in GGUF files.
        if (name == "zoo/llama-odd-sizes-f32" || name == "zoo/llama3-tied-ropescaled") {
            std::printf("quantize %s: logits off by up to %.5f\n", name.c_str(), largest);
            CHECK(largest < 2.5 * test::golden(name).max);
        } else {
            CHECK(largest == 0);
            CHECK(found == expected);
        }
        std::filesystem::remove(out);
    }
}

TEST_CASE("quantize: matrices that are stored fused stay so, with the same logits") {
    EditedModel twin("zoo/mistral-window");
    const auto edit = [&](const std::string &from, const std::string &to) {
        std::string config = read_bytes(twin.directory.file("config.json"));
        const size_t at = config.find(from);
        REQUIRE(at != std::string::npos);
        write_bytes(twin.directory.file("config.json"), config.replace(at, from.size(), to));
    };
    edit("\"MistralForCausalLM\"", "\"Phi3ForCausalLM\"");
    edit("\"model_type\": \"mistral\"", "\"model_type\": \"phi3\"");
    const auto fuse = [&](const std::string &whole, const std::vector<std::string> &parts) {
        StoredTensor fused{"BF16", {0, 64}, ""};
        for (const std::string &part : parts) {
            const StoredTensor &stored = twin.tensors.at(part + "_proj.weight");
            fused.shape[0] += stored.shape[0];
            fused.bytes += stored.bytes;
            twin.tensors.erase(part + "_proj.weight");
        }
        twin.tensors[whole + "_proj.weight"] = fused;
    };
    for (const std::string layer : {"model.layers.0.", "model.layers.1.", "model.layers.2."}) {
        const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
        fuse(attention + "qkv", {attention + "q", attention + "k", attention + "v"});
        fuse(mlp + "gate_up", {mlp + "gate", mlp + "up"});
    }
    const std::string source = twin.directory.path(), out = twin.directory.file("m.gguf");
    write_bytes(twin.directory.file("model.safetensors"), safetensors_bytes(twin.tensors));
    quantize(source, out, "BF16");
    CHECK(open_gguf(out).tensors.count("blk.2.attn_qkv.weight") == 1);
    CHECK(logits(out, 70) == logits(source, 70));
    quantize(source, out, "Q4_K_M", 2, true);
    CHECK(type_in(open_gguf(out), "blk.2.attn_qkv.weight") == GgufType::q5_1); // rows of 64
    CHECK(logits(out, 3).size() == 3);
}

TEST_CASE("quantize: each type opens, and the smaller it is the farther off it is") {
    const TemporaryDirectory directory;
    const std::string source = test_data("recall-llama");
    const auto expected = logits(source, 40);
    const auto distance = [&](const std::string &type) {
        const std::string out = directory.file(type + ".gguf");
        quantize(source, out, type);
        const auto found = logits(out, 40);
        double off = 0, all = 0;
        for (size_t row = 0; row < expected.size(); ++row) {
            for (size_t i = 0; i < expected[row].size(); ++i) {
                const double d = double{found[row][i]} - double{expected[row][i]};
                off += d * d;
                all += double{expected[row][i]} * double{expected[row][i]};
            }
        }
        const double share = std::sqrt(off / all);
        std::printf("quantize recall-llama to %-6s: logits off by %.4f of their size\n",
                    type.c_str(), share);
        return share;
    };
    CHECK(distance("F16") < 0.001);
    CHECK(distance("Q8_0") < 0.03);
    for (const char *type : {"Q5_0", "Q5_1", "Q5_K", "Q5_K_M", "Q6_K", "Q4_K_M", "Q4_K"}) {
        CHECK(distance(type) < 0.2);
    }
    CHECK(distance("Q4_0") < 0.4);
    CHECK(distance("Q4_1") < 0.4);
    for (const char *type : {"IQ4_NL", "IQ4_XS", "Q3_K", "Q3_K_M", "Q3_K_L", "Q2_K"}) {
        CHECK(distance(type) < 0.4);
    }
}

TEST_CASE("quantize: the same bytes on any number of threads") {
    const TemporaryDirectory directory;
    for (const std::string type : {"Q8_0", "Q4_0", "Q4_K_M", "IQ4_XS", "BF16"}) {
        std::string first;
        for (const size_t threads : {1, 2, 3, 7}) {
            const std::string out = directory.file("m.gguf");
            quantize(test_data("recall-gemma3"), out, type, threads, true);
            const std::string bytes = read_bytes(out);
            first = first.empty() ? bytes : first;
            CHECK_MESSAGE(bytes == first, type);
        }
    }
}

TEST_CASE("quantize: which type each matrix gets") {
    const auto type = [](const char *mixture, const char *name, uint64_t columns,
                         uint32_t layer = 0, bool tied = false, uint32_t queries = 2) {
        const MixedMatrix matrix{name, columns, layer, 22, tied, queries};
        return gguf_type_name(matrix_type(find_mixture(mixture), matrix));
    };
    CHECK(type("Q8_0", "output.weight", 2048) == "Q8_0");
    CHECK(type("Q4_0", "output.weight", 2048) == "Q6_K");
    CHECK(type("Q4_0", "token_embd.weight", 2048) == "Q4_0");
    CHECK(type("Q4_0", "token_embd.weight", 2048, 0, true) == "Q6_K");
    CHECK(type("Q4_0", "token_embd.weight", 1152, 0, true) == "Q8_0");
    CHECK(type("BF16", "output.weight", 45) == "BF16");
    CHECK(type("Q4_K", "blk.0.attn_q.weight", 2048) == "Q4_K");
    CHECK(type("Q4_K", "blk.0.attn_q.weight", 1152) == "Q5_0");
    CHECK(type("Q5_K", "blk.0.attn_q.weight", 1152) == "Q5_1");
    CHECK(type("Q6_K", "blk.0.attn_q.weight", 1152) == "Q8_0");
    CHECK(type("Q4_K_M", "blk.0.attn_q.weight", 45) == "F16");
    CHECK(type("Q4_0", "blk.0.attn_q.weight", 45) == "F16");
    CHECK(type("Q4_K_M", "blk.0.attn_qkv.weight", 3072) == "Q5_K");
    CHECK(type("Q5_K_M", "blk.0.attn_qkv.weight", 3072) == "Q6_K");
    CHECK(type("Q4_K", "blk.0.attn_qkv.weight", 3072) == "Q4_K");
    CHECK(type("Q3_K", "blk.0.attn_q.weight", 1152) == "Q4_0");
    CHECK(type("Q2_K", "blk.0.attn_q.weight", 1152) == "Q4_0");
    CHECK(type("IQ4_XS", "blk.0.attn_q.weight", 1152) == "IQ4_NL");
    CHECK(type("IQ4_XS", "blk.0.attn_q.weight", 45) == "F16");
    CHECK(type("Q8_0", "blk.0.ffn_gate_inp.weight", 2048) == "F32");
    CHECK(type("Q4_K_M", "blk.0.ffn_gate_inp_shexp.weight", 2048) == "F32");
    CHECK(type("Q4_K_M", "blk.0.ffn_gate_exps.weight", 2048) == "Q4_K");
    CHECK(type("Q4_K_M", "blk.0.ffn_down_exps.weight", 768) == "Q6_K");
    CHECK(type("Q4_K_M", "blk.0.ffn_down_shexp.weight", 768, 3) == "Q4_K");
    // The first eighth of 22 layers, the last from 19 on, every third between: 11 of them.
    size_t more = 0;
    for (uint32_t layer = 0; layer < 22; ++layer) {
        const std::string better = type("Q4_K_M", "blk.9.ffn_down.weight", 5632, layer);
        CHECK(better == type("Q4_K_M", "blk.9.attn_v.weight", 2048, layer));
        const bool middle = layer == 4 || layer == 7 || layer == 10 || layer == 13 || layer == 16;
        CHECK((better == "Q6_K") == (layer < 2 || layer >= 19 || middle));
        more += better == "Q6_K" ? 1 : 0;
        CHECK(type("Q4_K", "blk.9.ffn_down.weight", 5632, layer) == "Q4_K");
        CHECK(type("Q5_K_M", "blk.9.ffn_up.weight", 2048, layer) == "Q5_K");
    }
    CHECK(more == 10);

    const TemporaryDirectory directory;
    const std::string out = directory.file("m.gguf");
    const QuantizeReport report = quantize(test_data("recall-gemma3"), out, "Q4_0");
    const GgufFile file = open_gguf(out);
    CHECK(type_in(file, "token_embd.weight") == GgufType::q8_0); // tied, rows of 128
    CHECK(type_in(file, "blk.0.attn_q.weight") == GgufType::q4_0);
    CHECK(type_in(file, "blk.0.attn_norm.weight") == GgufType::f32);
    uint64_t tensors = 0, bytes = 0;
    for (const QuantizedShare &share : report.shares) {
        tensors += share.tensors;
        bytes += share.bytes;
    }
    CHECK(tensors == file.tensors.size());
    CHECK(report.shares[0].type == GgufType::q4_0);
    CHECK(report.file_bytes == std::filesystem::file_size(out));
    CHECK(bytes < report.file_bytes);
    CHECK(file.integer("general.file_type") == 2);
}

TEST_CASE("quantize: mixtures of fewer bits, as llama.cpp mixes them") {
    const auto type = [](const char *mixture, const char *name, uint64_t columns,
                         uint32_t layer = 0, uint32_t queries = 2) {
        const MixedMatrix matrix{name, columns, layer, 22, false, queries};
        return gguf_type_name(matrix_type(find_mixture(mixture), matrix));
    };
    struct Row { // values: of two query heads for a key head, of four
        const char *mixture;
        uint32_t layer;
        const char *usual, *value, *shared_value, *down, *output;
    };
    constexpr Row kRows[] = {
        {"Q3_K", 0, "Q3_K", "Q3_K", "Q3_K", "Q3_K", "Q3_K"},
        {"Q2_K", 0, "Q2_K", "Q3_K", "Q4_K", "Q3_K", "Q3_K"},
        {"Q2_K", 21, "Q2_K", "Q3_K", "Q4_K", "Q3_K", "Q3_K"},
        {"Q3_K_M", 0, "Q3_K", "Q5_K", "Q5_K", "Q5_K", "Q4_K"},
        {"Q3_K_M", 1, "Q3_K", "Q5_K", "Q5_K", "Q4_K", "Q4_K"},
        {"Q3_K_M", 2, "Q3_K", "Q4_K", "Q4_K", "Q4_K", "Q4_K"},
        {"Q3_K_L", 9, "Q3_K", "Q5_K", "Q5_K", "Q5_K", "Q5_K"},
        {"IQ4_NL", 1, "IQ4_NL", "IQ4_NL", "Q5_K", "Q5_K", "IQ4_NL"},
        {"IQ4_XS", 1, "IQ4_XS", "IQ4_XS", "Q5_K", "Q5_K", "IQ4_XS"},
        {"IQ4_XS", 2, "IQ4_XS", "IQ4_XS", "Q5_K", "IQ4_XS", "IQ4_XS"},
    };
    for (const Row &row : kRows) {
        CAPTURE(row.mixture);
        const auto in_layer = [&](const char *name, uint32_t queries = 2) {
            return type(row.mixture, name, 2048, row.layer, queries);
        };
        CHECK(in_layer("blk.0.attn_q.weight", 8) == row.usual);
        CHECK(in_layer("blk.0.ffn_up.weight", 8) == row.usual);
        CHECK(in_layer("blk.0.attn_v.weight") == row.value);
        CHECK(in_layer("blk.0.attn_v.weight", 4) == row.shared_value);
        CHECK(in_layer("blk.0.attn_qkv.weight", 4) == row.shared_value);
        CHECK(in_layer("blk.0.ffn_down.weight", 8) == row.down);
        CHECK(in_layer("blk.0.ffn_down_exps.weight", 8) == row.down);
        CHECK(in_layer("blk.0.attn_output.weight", 8) == row.output);
        CHECK(in_layer("token_embd.weight") == row.usual);
        CHECK(in_layer("output.weight") == "Q6_K");
    }
    CHECK(type("MXFP4_MOE", "blk.0.ffn_up_exps.weight", 2880) == "MXFP4");
    CHECK(type("MXFP4_MOE", "blk.0.ffn_down_exps.weight", 45) == "F16");
    CHECK(type("MXFP4_MOE", "blk.0.attn_q.weight", 2880) == "Q8_0");
    CHECK(type("MXFP4_MOE", "output.weight", 2880) == "Q8_0");
}

TEST_CASE("quantize: what cannot be is named, and nothing is left") {
    const TemporaryDirectory directory;
    const std::string source = test_data("zoo/llama-gqa-untied"), out = directory.file("m.gguf");
    expect_error(Status::unsupported, {"\"IQ3_S\"", "Q4_K_M", "BF16"},
                 [&] { quantize(source, out, "IQ3_S"); });
    expect_error(Status::unsupported, {"\"q8_0\""}, [&] { quantize(source, out, "q8_0"); });
    expect_error(Status::not_found, {"nowhere"},
                 [&] { quantize(directory.file("nowhere"), out, "Q8_0"); });
    expect_error(Status::io, {"no/such"},
                 [&] { quantize(source, directory.file("no/such"), "Q8_0"); });
    CHECK(files_in(directory).empty());

    quantize(source, out, "Q8_0");
    expect_error(Status::unsupported, {"m.gguf", "not quantized again"},
                 [&] { quantize(out, directory.file("n.gguf"), "Q4_0"); });
    const std::string before = read_bytes(out);
    expect_error(Status::invalid_argument, {"m.gguf", "there already"},
                 [&] { quantize(source, out, "Q4_0"); });
    CHECK(read_bytes(out) == before);
    quantize(source, out, "Q4_0", 2, true);
    CHECK(read_bytes(out) != before);
    for (const char *text : {"a letter", "", "GG"}) {
        write_bytes(directory.file("text"), text);
        expect_error(Status::invalid_argument, {"text", "no GGUF file"},
                     [&] { quantize(source, directory.file("text"), "Q4_0", 2, true); });
        CHECK(read_bytes(directory.file("text")) == text);
    }
    CHECK(files_in(directory) == std::vector<std::string>{"m.gguf", "text"});
}

TEST_CASE("quantize: the tokenizer of the file is opened, and is the directory's") {
    const TemporaryDirectory copy, outs;
    const std::string source = copy.path(), out = outs.file("m.gguf");
    for (const char *name : {"config.json", "generation_config.json", "tokenizer.model",
                             "tokenizer_config.json", "model.safetensors"}) {
        std::filesystem::copy_file(test_data(std::string("recall-llama/") + name), copy.file(name));
    }
    write_bytes(copy.file("generation_config.json"), R"({"eos_token_id": [4, 2, 4]})");
    quantize(source, out, "Q8_0");
    const GgufFile file = open_gguf(out);
    CHECK(read_config(file).end_tokens == std::vector<uint32_t>{2, 4}); // "</s>" before
    CHECK(open_model(out, {})->tokenizer->eos_text() == "</s>");
    std::filesystem::remove(out);

    auto json = nlohmann::json::parse(read_bytes(copy.file("tokenizer_config.json")));
    const auto refused = [&](const std::vector<std::string> &parts) {
        write_bytes(copy.file("tokenizer_config.json"), json.dump());
        expect_error(Status::unsupported, parts, [&] { quantize(source, out, "Q8_0"); });
        CHECK(files_in(outs).empty());
    };
    json["eos_token"] = "<unk>";
    refused({"eos text is '<unk>'", "'<|im_end|>'"});
    json["eos_token"] = "</s>";
    json["bos_token"] = "<|im_start|>";
    refused({"bos text is '<|im_start|>'", "'<s>'"});
    json["bos_token"] = "<s>";
    json["added_tokens_decoder"] = {{"3", {{"content", "x"}, {"special", true}}}};
    refused({"cannot be opened", "single character"});
}

TEST_CASE("quantize: weights that are not finite, or not in that type, are named") {
    const TemporaryDirectory directory;
    const std::string out = directory.file("m.gguf");
    const auto with = [&](const std::string &tensor, size_t index, uint16_t bits) {
        auto edited = std::make_unique<Edited>("zoo/llama-gqa-untied");
        edited->tensors.at(tensor).bytes.replace(
            2 * index, 2, std::string(reinterpret_cast<const char *>(&bits), 2));
        return edited;
    };
    const std::string down = "model.layers.1.mlp.down_proj.weight";
    const std::string query = "model.layers.0.self_attn.q_proj.weight";
    const std::string norm = "model.norm.weight";
    for (const auto &[tensor, index] :
         {std::pair{down, size_t{777}}, {query, 65}, {norm, 3}, {down, 0}}) {
        for (const uint16_t bits : {0x7F80, 0xFF80, 0x7FC1}) {
            const auto edited = with(tensor, index, bits);
            const std::string path = edited->path();
            for (const char *type : {"Q8_0", "BF16", "Q4_K_M"}) {
                expect_error(Status::nonfinite,
                             {tensor.substr(6), "index " + std::to_string(index) + " "},
                             [&] { quantize(path, out, type); });
            }
        }
    }
    const auto large = with(down, 5, 0x4780); // 65536
    const std::string path = large->path();
    for (const char *type : {"F16", "Q8_0", "Q4_1"}) {
        expect_error(Status::nonfinite, {"index 5", "at least not as"},
                     [&] { quantize(path, out, type); });
    }
    CHECK(files_in(directory).empty());
    quantize(path, out, "BF16");
}

TEST_CASE("quantize: cancelled or stopped under way, nothing is left") {
    const TemporaryDirectory directory;
    const std::string source = test_data("recall-gemma3"), out = directory.file("m.gguf");
    std::vector<std::pair<uint64_t, uint64_t>> steps;
    QuantizeOptions options;
    options.type = "Q8_0";
    options.watch.user = &steps;
    options.watch.progress = [](void *user, uint64_t done, uint64_t total) {
        auto &seen = *static_cast<decltype(steps) *>(user);
        seen.emplace_back(done, total);
        return seen.size() < 20;
    };
    expect_error(Status::stopped, {}, [&] { quantize_model(source, out, options); });
    CHECK(files_in(directory).empty());
    std::atomic<bool> cancel{true};
    options.watch = {&cancel, nullptr, nullptr};
    expect_error(Status::cancelled, {}, [&] { quantize_model(source, out, options); });
    CHECK(files_in(directory).empty());
    steps.clear();
    options.watch = {nullptr,
                     [](void *user, uint64_t done, uint64_t total) {
                         static_cast<decltype(steps) *>(user)->emplace_back(done, total);
                         return true;
                     },
                     &steps};
    const QuantizeReport report = quantize_model(source, out, options);
    CHECK(std::is_sorted(steps.begin(), steps.end()));
    CHECK(steps.front() == std::pair<uint64_t, uint64_t>{0, report.source_bytes});
    CHECK(steps.back() == std::pair<uint64_t, uint64_t>{report.source_bytes, report.source_bytes});
}

TEST_CASE("quantize: a new file, what is in its way, and what a killed process left") {
    const TemporaryDirectory directory;
    const std::string out = directory.file("m.gguf"), temporary = out + ".writing";
    write_bytes(temporary, "GGUF and half of the rest");
    const auto nothing = [](const File &) {};
    write_new_file(out, false, [&](const File &file) {
        file.write("GGUF", 4, 0);
        expect_error(Status::busy, {"m.gguf.writing"},
                     [&] { write_new_file(out, false, nothing); });
        CHECK(!std::filesystem::exists(out));
    });
    CHECK(read_bytes(out) == "GGUF");
    CHECK(files_in(directory) == std::vector<std::string>{"m.gguf"});
    write_bytes(temporary, "somebody's notes");
    expect_error(Status::io, {"m.gguf.writing", "in the way"},
                 [&] { write_new_file(out, true, nothing); });
    CHECK(read_bytes(temporary) == "somebody's notes");
    std::filesystem::remove(temporary);
    std::filesystem::create_directory(directory.file("folder"));
    expect_error(Status::invalid_argument, {"folder"},
                 [&] { write_new_file(directory.file("folder"), true, nothing); });
    std::filesystem::create_symlink("m.gguf", directory.file("link"));
    expect_error(Status::invalid_argument, {"link"},
                 [&] { write_new_file(directory.file("link"), true, nothing); });
    const std::string late = directory.file("late.gguf"); // appears while the file is written
    expect_error(Status::invalid_argument, {"late.gguf", "there already"}, [&] {
        write_new_file(late, false, [&](const File &) { write_bytes(late, "GGUF of another"); });
    });
    CHECK(read_bytes(late) == "GGUF of another");
    CHECK(files_in(directory) == std::vector<std::string>{"folder", "late.gguf", "link", "m.gguf"});
}

TEST_CASE("quantize: failures of its file, in its words") {
    const TemporaryDirectory directory;
    const std::string out = directory.file("m.gguf"), temporary = out + ".writing";
    const auto told = [&](const std::function<void(FileOperations & files)> &fail) {
        FileOperations files = system_files();
        fail(files);
        try {
            const auto write = [](const File &file) {
                file.write("GGUF", 4, 0);
                file.set_size(8);
            };
            write_new_file(out, false, write, files);
        } catch (const Error &error) {
            CHECK(error.status() == Status::io);
            return std::string(error.what());
        }
        return std::string();
    };
    constexpr auto failed = [](auto...) {
        errno = EIO;
        return -1;
    };
    const std::string reason = ": Input/output error";
    CHECK(told([&](FileOperations &files) { files.open = failed; }) ==
          "cannot create " + temporary + reason);
    CHECK(told([&](FileOperations &files) { files.lock = failed; }) ==
          "cannot lock " + temporary + reason);
    CHECK(told([&](FileOperations &files) { files.path_status = failed; }) ==
          "cannot write " + out + reason);
    CHECK(told([&](FileOperations &files) { files.status = failed; }) ==
          "cannot examine " + temporary + reason);
    CHECK(told([&](FileOperations &files) {
              files.write_at = [](int, const void *, size_t, off_t) -> ssize_t {
                  errno = EIO;
                  return -1;
              };
          }) == "cannot write " + temporary + reason);
    CHECK(told([&](FileOperations &files) { files.set_size = failed; }) ==
          "cannot write " + temporary + reason);
    CHECK(told([&](FileOperations &files) { files.rename_new = failed; }) ==
          "cannot finish " + out + reason);
    CHECK(told([&](FileOperations &files) { files.sync = failed; }) ==
          "cannot finish " + out + reason);
    CHECK(files_in(directory).empty());
}

} // namespace stasis
