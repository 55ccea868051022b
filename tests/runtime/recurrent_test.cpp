// Recurrent layers in forward passes, without sessions: golden values, and that neither cuts, other
// sequences of a pass, threads nor tables change a bit.
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/passes.h"

using namespace stasis;
using namespace stasis::test;

namespace {

const std::string kHybrid = "zoo/qwen3_5-dense";

Deviation passed_deviation(const Model &model, const std::string &name) {
    const Golden values = golden(name);
    return deviation_of(passed_log(model, values.ids, values.ids.size()).logits, values);
}

} // namespace

TEST_CASE("recur: logits of a hybrid agree with the golden values") {
    const Deviation deviation = passed_deviation(*open(kHybrid), kHybrid);
    std::printf("golden %-32s rms %.2f and max %.2f of the tolerance\n", kHybrid.c_str(),
                deviation.rms, deviation.max);
    CHECK(within(deviation));
}

TEST_CASE("recur: logits and states do not depend on cuts, threads or tables") {
    const auto model = open(kHybrid);
    const std::vector<uint32_t> tokens = tokens_for(*model, 150);
    const PassedLog whole = passed_log(*model, tokens, tokens.size());
    CHECK(whole.state.size() == model->state_size());
    for (const size_t chunk : {1, 2, 3, 4, 7, 64, 100}) {
        CAPTURE(chunk);
        CHECK(same_log(passed_log(*model, tokens, chunk), whole));
        CHECK(same_log(passed_log(*model, tokens, chunk, true), whole));
    }
    for (const size_t threads : {1, 3, 7}) {
        CAPTURE(threads);
        CHECK(same_log(passed_log(*open(kHybrid, threads), tokens, 64), whole));
    }
    for (const char *const *name = kernels::table_names(); *name != nullptr; ++name) {
        if (kernels::find_table(*name) != nullptr) {
            INFO("table: ", *name);
            const auto forced = open_forced(kHybrid, *name, 2);
            CHECK(same_log(passed_log(*forced, tokens, 29), whole));
        }
    }
}

TEST_CASE("recur: sequences of one pass do not change each other") {
    const auto model = open(kHybrid);
    const size_t sizes[] = {1, 5, 64, 33};
    std::vector<PassedLog> alone, together;
    for (uint64_t seed = 0; seed < std::size(sizes); ++seed) {
        const std::vector<uint32_t> tokens = tokens_for(*model, 3 * sizes[seed], seed + 1);
        alone.push_back(passed_log(*model, tokens, tokens.size()));
        together.push_back({*model});
    }
    for (size_t round = 0; round < 3; ++round) {
        std::vector<PassedRows> rows;
        for (size_t i = 0; i < together.size(); ++i) {
            const auto begin = alone[i].tokens.begin() + static_cast<ptrdiff_t>(round * sizes[i]);
            rows.push_back({together[i], {begin, begin + static_cast<ptrdiff_t>(sizes[i])}});
        }
        pass_together(rows);
    }
    for (size_t i = 0; i < together.size(); ++i) {
        CHECK(same_log(together[i], alone[i]));
    }
}
