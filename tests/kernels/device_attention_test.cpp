// The device's attention against the reference's kernels, put together block by block as
// NUMERICS.md says (C5): both ways give the bits of that.
#include "runtime/kernels/environment.h"
#include "tests/device/under_test.h"
#include "tests/kernels/attention_case.h"

using namespace attention_case;

namespace {

// Both ways, with more blocks than are needed and tiles of any size.
void check_both(const under_test::Opened &on, const Case &made, size_t tile_rows) {
    const Expected expected = expected_of(made);
    const Placed placed(on, made, expected.blocks + 2);
    placed.attend_blocks();
    CHECK(first_difference(placed.output(), expected.output) == -1);
    check_partials(placed, expected);
    placed.clear_output();
    placed.attend_tiles(tile_rows);
    CHECK(first_difference(placed.output(), expected.output) == -1);
    CHECK(placed.outside_is_untouched());
}

} // namespace

TEST_CASE("device attention: heads of all sizes and numbers equal the reference") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        uint64_t seed = 0;
        for (const size_t head_dim : {2, 16, 20, 64, 80, 96, 128, 256}) {
            for (const size_t group_heads : {1, 2, 3, 4, 8, 16}) {
                ++seed;
                if (head_dim * group_heads > 1024 && head_dim != 256) {
                    continue;
                }
                Case made = ordinary(seed, 1 + seed % 2, group_heads, head_dim);
                const Kind kind = kKinds[seed % 6];
                made.query = kind == Kind::huge ? Kind::boundary : kind; // scores stay finite
                made.keys = made.values = kind;
                made.softcap = seed % 3 == 0 ? 20.0F : 0.0F;
                made.sequences = {{100 + seed % 40, 1 + seed % 6, {}, {}}};
                INFO("head_dim ", head_dim, " group_heads ", group_heads);
                check_both(on, made, 1 + seed % kDeviceTileRows);
            }
        }
    });
}

TEST_CASE("device attention: every kind of number in queries, keys and values") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (uint64_t seed = 0; seed < 36; ++seed) {
            Case made = ordinary(seed, 1, 3, 20);
            made.query = kKinds[seed % 6], made.keys = kKinds[seed / 6];
            made.values = kKinds[(seed / 3 + seed) % 6];
            if (made.query == Kind::huge && made.keys != Kind::boundary) {
                made.query = Kind::plain;
            }
            made.sequences = {{120, 12, {}, {}}};
            INFO("seed ", seed);
            check_both(on, made, 16);
        }
    });
}

// Weights far below 1 times values far below 1: products, sums and merges around 2^-126.
TEST_CASE("device attention: scores far apart with tiny values equal the reference") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (uint64_t seed = 0; seed < 24; ++seed) {
            Case made = ordinary(seed, 1, 2, seed % 2 == 0 ? 40 : 64);
            made.scale = 8.0F + static_cast<float>(seed % 3) * 10.0F;
            made.values = Kind::boundary;
            made.values_times = std::ldexp(1.0F, -static_cast<int>(seed % 5) * 15);
            made.sequences = {{190, 3, {}, {}}};
            INFO("seed ", seed);
            check_both(on, made, 2);
        }
    });
}

TEST_CASE("device attention: windows, and positions around the edges of pages") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        uint64_t seed = 0;
        for (const uint32_t window : {0, 1, 20, 64, 100, 512}) {
            for (const uint64_t begin : {0, 1, 62, 63, 64, 65, 127, 128, 600}) {
                Case made = ordinary(++seed, 1, 2, 16);
                made.window = window;
                made.sequences = {{begin, 1 + seed % 20, {}, {}}};
                INFO("window ", window, " begin ", begin);
                check_both(on, made, 1 + seed * 7 % kDeviceTileRows);
            }
        }
    });
}

TEST_CASE("device attention: tiles of every size, of every number of queries") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (size_t rows = 1; rows <= kDeviceTileRows; ++rows) {
            Case made = ordinary(rows, 1, 1 + rows * 5 % 16, 16);
            made.sequences = {{56, 2 * rows + 1, {}, {}}};
            INFO("rows ", rows);
            check_both(on, made, rows);
        }
    });
}

TEST_CASE("device attention: sequences of a pass, pages that they share, what is evicted") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (const uint32_t window : {0, 150}) {
            for (uint64_t seed = 1; seed < 5; ++seed) {
                Case made = ordinary(seed, 2, 2, 24);
                made.window = window;
                const uint64_t holes = 0x00FF'0F0F'3333'5555 * seed, all = ~uint64_t{0};
                made.sequences = {{200, 5, {}, {}},
                                  {210, 2, {holes, holes + 1, 0, 0x7}, {0, 0}}, // sequence 0's
                                  {3, 4, {0x2}, {}},
                                  {330, 18, {holes, all, all, holes}, {0, -1}}, // evicted whole
                                  {64, 1, {all}, {}}};
                check_both(on, made, 7);
            }
        }
    });
}

// As recorded work is played: the same launch, other positions in memory.
TEST_CASE("device attention: the same task at later positions") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (const uint64_t begin : {5, 63, 64, 500, 2100, 4200}) { // some need several merges
            Case made = ordinary(begin, 1, 2, 16);
            made.sequences = {{begin, 1, {}, {}}};
            const Expected expected = expected_of(made);
            const Placed placed(on, made, 70);
            placed.attend_blocks();
            CHECK(first_difference(placed.output(), expected.output) == -1);
            check_partials(placed, expected);
        }
    });
}

// C9: what is not a finite number stays visible, in the rows that see it.
TEST_CASE("device attention: an infinite or undefined score leaves no finite number") {
    under_test::for_each_device([&](const under_test::Opened &on) {
        for (const uint16_t bad : {0x7F80, 0x7FC0}) {
            for (const uint64_t position : {0, 70, 130}) {
                Case made = ordinary(position, 1, 2, 34);
                made.sequences = {{125, 6, {}, {}}};
                made.change = [=](Case &own) {
                    own.query_at(5, 0)[0] = own.query_at(5, 1)[0] = 0x3F80;
                    own.key_at(0, 0, position)[0] = bad;
                };
                const Expected expected = expected_of(made);
                const Placed placed(on, made, expected.blocks);
                const auto no_finite = [&](const std::vector<uint16_t> &output) {
                    for (size_t i = 5 * 68; i < 6 * 68; ++i) {
                        if ((output[i] & 0x7F80) != 0x7F80) {
                            return false;
                        }
                    }
                    return true;
                };
                placed.attend_blocks();
                CHECK(no_finite(placed.output()));
                CHECK(first_difference(placed.output(), expected.output) == -1);
                placed.clear_output();
                placed.attend_tiles(16);
                CHECK(no_finite(placed.output()));
            }
        }
    });
}
