// Attention received (C10) on a device: the sums of every sequence against those that the
// reference's blocks give, for rows of any number at once.
#include <cmath>

#include "tests/kernels/attention_case.h"

using namespace attention_case;

namespace {

// [block][heads][64] as the sums of two layers by head, of which these are the second's.
std::vector<uint64_t> by_head(const std::vector<uint64_t> &sums, size_t heads) {
    std::vector<uint64_t> result;
    const size_t of_block = heads * kPagePositions;
    for (size_t at = 0; at < sums.size(); at += of_block) {
        result.insert(result.end(), of_block, 0);
        result.insert(result.end(), &sums[at], &sums[at] + of_block);
    }
    return result;
}

std::vector<uint64_t> in_total(const std::vector<uint64_t> &sums, size_t heads) {
    std::vector<uint64_t> result(sums.size() / heads);
    for (size_t i = 0; i < sums.size(); ++i) {
        result[i / kPagePositions / heads * kPagePositions + i % kPagePositions] += sums[i];
    }
    return result;
}

// Returns how much was received.
uint64_t check(const under_test::Opened &on, const Case &made, size_t together) {
    const Expected expected = expected_of(made);
    const Placed placed(on, made, expected.blocks + 1);
    uint64_t all = 0;
    for (size_t s = 0; s < made.sequences.size(); ++s) {
        const std::vector<uint64_t> &right = expected.received[s];
        INFO("sequence ", s);
        CHECK(placed.received(s, together, false) == by_head(right, made.heads()));
        CHECK(placed.received(s, together, true) == in_total(right, made.heads()));
        for (const uint64_t each : right) {
            all += each;
        }
    }
    return all;
}

} // namespace

TEST_CASE("device attention received: heads of all sizes, every kind of number") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        uint64_t seed = 0;
        for (const size_t head_dim : {2, 16, 20, 34, 64, 80, 256}) {
            for (const size_t group_heads : {1, 3, 4, 16}) {
                ++seed;
                Case made = ordinary(seed, 1 + seed % 2, group_heads, head_dim);
                const Kind kind = kKinds[seed % 6];
                made.query = kind == Kind::huge ? Kind::boundary : kind; // scores stay finite
                made.keys = kind;
                made.softcap = seed % 3 == 0 ? 20.0F : 0.0F;
                made.sequences = {{100 + seed % 40, 1 + seed % 3, {}, {}}};
                INFO("head_dim ", head_dim, " group_heads ", group_heads);
                CHECK(check(on, made, 1 + seed % 3) > 0);
            }
        }
    });
}

TEST_CASE("device attention received: scores far apart, over several merges of 32 blocks") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (const uint64_t begin : {63, 64, 2047, 2048, 4200}) {
            Case made = ordinary(begin, 1, 2, 16);
            made.scale = 3.0F;
            made.sequences = {{begin, 2, {}, {}}};
            INFO("begin ", begin);
            CHECK(check(on, made, 2) > 0);
        }
    });
}

TEST_CASE("device attention received: windows, sequences of a pass, what is evicted") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (const uint32_t window : {0, 20, 64, 150}) {
            Case made = ordinary(window, 2, 2, 24);
            made.window = window;
            const uint64_t holes = 0x00FF'0F0F'3333'5555, all = ~uint64_t{0};
            made.sequences = {{200, 5, {}, {}},
                              {210, 2, {holes, holes + 1, 0, 0x7}, {0, 0}}, // sequence 0's
                              {3, 4, {0x2}, {}},
                              {330, 18, {holes, all, all, holes}, {0, -1}}, // evicted whole
                              {64, 1, {all}, {}}};
            INFO("window ", window);
            CHECK(check(on, made, 4) > 0);
        }
    });
}

// C9: what is not a number is not added; what others give stands.
TEST_CASE("device attention received: a row whose score is not finite adds no garbage") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (const uint16_t bad : {0x7F80, 0x7FC0}) {
            Case made = ordinary(1, 1, 2, 34);
            made.sequences = {{125, 6, {}, {}}};
            made.change = [=](Case &own) {
                own.query_at(5, 0)[0] = 0x3F80;
                own.key_at(0, 0, 130)[0] = bad; // which the last row alone sees
            };
            CHECK(check(on, made, 6) > 0);
        }
    });
}
