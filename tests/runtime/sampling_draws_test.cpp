// 200 draws that must be the same on every machine, whatever compiler and instruction set: a change
// of any bit of C7 that changes a draw fails. Logits are made with integers, so they are exact.
#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "runtime/kernels/environment.h"
#include "runtime/sampling/sampling.h"

using namespace stasis;

namespace {

constexpr uint32_t kVocabulary = 3001;
constexpr size_t kDraws = 25; // a setting, each seeing those before it as its history

// Logits of a position: multiples of 1/256 between -8 and 8, by multiplicative hashing.
std::vector<float> logits_at(uint64_t position) {
    std::vector<float> logits(kVocabulary);
    for (uint32_t token = 0; token < kVocabulary; ++token) {
        const auto mixed =
            static_cast<uint32_t>((token + 1) * (position + 1) * 0x9E3779B97F4A7C15U >> 32);
        logits[token] = static_cast<float>(static_cast<int32_t>(mixed % 4096) - 2048) / 256.0F;
    }
    return logits;
}

struct Case {
    Sampling sampling;
    uint64_t position;
    uint16_t draws[kDraws];
};

std::vector<Case> cases() {
    const float infinity = std::numeric_limits<float>::infinity();
    // seed, temperature, top_k, top_p, min_p, repetition, frequency, presence, window, bias
    // clang-format off
    return {
        {{1, 0.0F, 0, 1.0F, 0.0F, 1.3F, 0.1F, 0.2F, 0, {}}, 0,
         {1771, 2991, 2824, 1495, 2182, 2640, 553, 747, 2941, 564, 543, 1144, 2905,
          2437, 1266, 373, 351, 2874, 1740, 2304, 904, 271, 1483, 2594, 1843}},
        {{2, 1.0F, 0, 1.0F, 0.0F, 1.0F, 0.0F, 0.0F, 0, {}}, 0,
         {2536, 2258, 657, 1917, 641, 1604, 2321, 718, 235, 1308, 1736, 2125, 1408,
          1380, 1223, 1223, 387, 2006, 1218, 2978, 917, 2175, 765, 1040, 1355}},
        {{3, 0.7F, 40, 0.95F, 0.0F, 1.0F, 0.0F, 0.0F, 0, {}}, 1000,
         {1874, 1673, 500, 1820, 1479, 2079, 2909, 1395, 2632, 437, 1819, 1582, 1197,
          225, 542, 540, 1802, 2040, 977, 562, 1520, 673, 2783, 552, 558}},
        {{4, 1.5F, 0, 0.9F, 0.0F, 1.1F, 0.0F, 0.0F, 0, {}}, 7,
         {1437, 869, 2246, 1192, 1144, 2318, 1981, 427, 2345, 2992, 1604, 2990, 2368,
          2270, 1771, 2441, 2805, 2222, 632, 2395, 773, 2693, 512, 2370, 1163}},
        {{5, 0.9F, 0, 1.0F, 0.05F, 1.0F, 0.3F, 0.3F, 0, {}}, 31,
         {197, 1280, 360, 32, 2298, 2322, 833, 1636, 2933, 2279, 405, 1089, 1468,
          678, 406, 370, 1305, 1396, 1509, 716, 2933, 826, 1604, 543, 1439}},
        {{0xFFFFFFFFFFFFFFFF, 2.0F, 500, 0.8F, 0.01F, 1.2F, 0.2F, -0.1F, 0, {}}, 0xFFFFFFFFFFFFFF00,
         {208, 1060, 2819, 2068, 439, 2482, 1462, 25, 2315, 1560, 2746, 739, 1351,
          2152, 664, 1777, 2323, 68, 943, 1180, 2352, 890, 1161, 2559, 1438}},
        {{7, 1e6F, 0, 0.999F, 0.0F, 1.0F, 0.0F, 0.0F, 0, {}}, 64,
         {2004, 486, 1586, 825, 426, 670, 1795, 2535, 716, 856, 1653, 2156, 1578,
          1273, 1934, 1835, 2356, 1006, 1074, 2964, 1217, 1355, 1007, 2274, 2773}},
        {{8, 1.0F, 64, 0.95F, 0.0F, 1.05F, 0.0F, 0.0F, 0,
          {{0, -infinity}, {7, 9.5F}, {3000, 10.25F}}}, 5,
         {3000, 3000, 7, 3000, 885, 613, 3000, 3000, 995, 7, 7, 7, 768,
          2313, 1816, 2122, 7, 7, 7, 7, 1857, 2473, 1107, 595, 7}},
    };
    // clang-format on
}

} // namespace

TEST_CASE("sample: 200 recorded draws come out on every machine") {
    const kernels::FloatEnvironment environment;
    SamplingScratch scratch;
    for (const Case &recorded : cases()) {
        CAPTURE(recorded.sampling.seed);
        std::vector<uint32_t> history;
        for (size_t i = 0; i < kDraws; ++i) {
            const uint64_t position = recorded.position + i;
            CAPTURE(position);
            const uint32_t token =
                sample(logits_at(position), recorded.sampling, position, history, scratch);
            CHECK(token == recorded.draws[i]);
            history.push_back(token);
        }
    }
}
