// What xgrammar takes for the schemas of bench_constraint: reads what that wrote into a folder, and
// prints the same lines. Compares each mask with the one that bench_constraint found.
//     masks FOLDER
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <bitset>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr unsigned kRepeats = 5;

template <typename Work> double microseconds(const Work &work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
        .count();
}

void print(const char *what, std::vector<double> times) {
    std::sort(times.begin(), times.end());
    double sum = 0;
    for (const double each : times) {
        sum += each;
    }
    std::printf("%-28s median %8.1f us, mean %8.1f us, worst %8.1f us\n", what,
                times[times.size() / 2], sum / static_cast<double>(times.size()), times.back());
}

std::string read(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error(path + ": cannot be read");
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

// Strings, each behind its length, a u32 of this machine.
std::vector<std::string> read_strings(const std::string &path) {
    const std::string bytes = read(path);
    std::vector<std::string> strings;
    for (size_t at = 0; at < bytes.size();) {
        uint32_t length = 0;
        bytes.copy(reinterpret_cast<char *>(&length), sizeof length, at);
        strings.push_back(bytes.substr(at + sizeof length, length));
        at += sizeof length + length;
    }
    return strings;
}

struct Differences {
    size_t masks = 0, more = 0, fewer = 0; // tokens that xgrammar alone allows, or refuses
};

void compare(const std::vector<uint32_t> &mask, const std::string &expected, size_t index,
             Differences &found) {
    Differences here;
    for (size_t i = 0; i < mask.size(); ++i) {
        uint32_t ours = 0;
        expected.copy(reinterpret_cast<char *>(&ours), sizeof ours,
                      (index * mask.size() + i) * sizeof ours);
        here.more += std::bitset<32>(mask[i] & ~ours).count();
        here.fewer += std::bitset<32>(~mask[i] & ours).count();
    }
    found.masks += here.more + here.fewer > 0 ? 1 : 0;
    found.more += here.more;
    found.fewer += here.fewer;
}

void measure(const xgrammar::TokenizerInfo &info, const std::string &folder,
             const std::string &kind) {
    const std::string schema = read(folder + "/" + kind + ".json");
    std::vector<double> compiling;
    std::optional<xgrammar::CompiledGrammar> compiled;
    for (unsigned i = 0; i < kRepeats; ++i) {
        xgrammar::GrammarCompiler compiler(info, 2, false);
        compiling.push_back(microseconds([&] {
            compiled.emplace(
                compiler.CompileJSONSchema(schema, true, std::nullopt, std::nullopt, false));
        }));
    }
    std::printf("%s object\n", kind.c_str());
    print("compiling", compiling);
    const std::string expected = read(folder + "/" + kind + ".masks");
    const std::vector<std::string> pieces = read_strings(folder + "/tokens");
    std::vector<uint32_t> mask((static_cast<size_t>(info.GetVocabSize()) + 31) / 32);
    int64_t shape = static_cast<int64_t>(mask.size());
    DLTensor tensor{};
    tensor.data = mask.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = {kDLInt, 32, 1};
    tensor.shape = &shape;
    for (const bool again : {false, true}) {
        xgrammar::GrammarMatcher matcher(*compiled);
        Differences found;
        std::vector<double> masks;
        for (size_t i = 0; i < pieces.size(); ++i) {
            bool restricts = false;
            masks.push_back(
                microseconds([&] { restricts = matcher.FillNextTokenBitmask(&tensor); }));
            if (!restricts) {
                std::fill(mask.begin(), mask.end(), UINT32_MAX);
            }
            compare(mask, expected, i, found);
            if (!matcher.AcceptString(pieces[i])) {
                std::printf("the instance does not fit at token %zu\n", i);
                return;
            }
        }
        print(again ? "masks, found before" : "masks, first time", masks);
        if (again) {
            std::printf("%zu of %zu masks differ: %zu tokens more, %zu fewer\n", found.masks,
                        pieces.size(), found.more, found.fewer);
        }
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: masks FOLDER\n");
        return 2;
    }
    try {
        const std::string folder = argv[1];
        const std::vector<std::string> vocabulary = read_strings(folder + "/vocabulary");
        const std::string ends = read(folder + "/ends");
        std::vector<int32_t> stop(ends.size() / sizeof(int32_t));
        ends.copy(reinterpret_cast<char *>(stop.data()), ends.size());
        const double building = microseconds([&] {
            xgrammar::TokenizerInfo(vocabulary, xgrammar::VocabType::RAW, std::nullopt, stop);
        });
        const xgrammar::TokenizerInfo info(vocabulary, xgrammar::VocabType::RAW, std::nullopt,
                                           stop);
        std::printf("%d tokens, made in %.1f ms\n", info.GetVocabSize(), building / 1000);
        measure(info, folder, "closed");
        measure(info, folder, "open");
        return 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "masks: %s\n", error.what());
        return 1;
    }
}
