// Snapshots of a model whose layers have heads of two sizes and share keys: what is exported, that
// it is restored, and that a state of other sizes is refused.
#include <functional>

#include "tests/runtime/model_files.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

TEST_CASE("export_state: sizes of groups and layers that share keys, which restore takes") {
    const auto model = open("zoo/gemma4-e");
    Session session(model, {});
    session.append(tokens_for(*model, 200), {});
    const State state = export_state(session);
    REQUIRE(state.groups.size() == 2); // global layers first
    CHECK(state.groups[0].layers == std::vector<uint32_t>{3});
    CHECK(state.head_dim_of(0) == 48);
    CHECK(state.groups[1].layers == std::vector<uint32_t>{0, 1, 2});
    CHECK(state.groups[1].head_dim == 0); // the state's
    CHECK(state.head_dim == 32);
    CHECK(state.sharing == std::vector<uint32_t>{4, 5, 6, 7});

    const auto restored = restore_session(model, state, nullptr);
    CHECK(restored->digest() == session.digest());
    CHECK(same_bits(restored->logits(), session.logits()));
    // It goes on as the session does, within a window and beyond it.
    const std::vector<uint32_t> more = tokens_for(*model, 100, 2);
    restored->append(more, {});
    session.append(more, {});
    CHECK(same_bits(restored->logits(), session.logits()));
}

TEST_CASE("restore_session: layers of other sizes than the model's are refused") {
    const auto model = open("zoo/gemma4-e");
    Session session(model, {});
    session.append(tokens_for(*model, 70), {});
    const State whole = export_state(session);
    const std::function<void(State &)> changes[] = {
        // The same bytes as 3 heads of 16, which page digests cannot tell apart.
        [](State &s) { s.groups[0].kv_heads = 3, s.groups[0].head_dim = 16; },
        [](State &s) { s.groups[0].kv_heads = s.groups[0].head_dim = 0; },
        [](State &s) { s.groups[1].kv_heads = 2, s.groups[1].head_dim = 16; },
        [](State &s) { s.sharing.pop_back(); },
        [](State &s) { s.sharing.clear(); },
    };
    for (const auto &change : changes) {
        State state = whole;
        change(state);
        expect_error(Status::model_mismatch, {"layer groups"},
                     [&] { restore_session(model, state, nullptr); });
    }
}
