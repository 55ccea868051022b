// The table of kernels that a model is opened with is the one that computes.
#include <atomic>

#include "tests/kernels/entries.h"
#include "tests/runtime/models.h"
#include "tests/runtime/passes.h"

using namespace stasis;
using namespace stasis::test;
using kernels::Table;

namespace {

const Table *forwarded = nullptr; // the table that the counting table calls

// An entry of the counting table: the same entry of `forwarded`, its calls counted.
template <auto entry> struct Counted;
template <typename Result, typename... Arguments, Result (*Table::*entry)(Arguments...)>
struct Counted<entry> {
    static inline std::atomic<size_t> calls = 0;
    static Result call(Arguments... arguments) {
        ++calls;
        return (forwarded->*entry)(arguments...);
    }
};

template <typename List> struct CountedEntries;
template <auto... each> struct CountedEntries<entries::List<each...>> {
    static Table table_of(const Table &table) {
        Table counting = table;
        forwarded = &table;
        ((counting.*each = Counted<each>::call, Counted<each>::calls = 0), ...);
        return counting;
    }
    static std::vector<size_t> calls() { return {Counted<each>::calls.load()...}; }
};
using Entries = CountedEntries<entries::All>;

// Calls of products, and those of them for no outputs at all.
std::atomic<size_t> products = 0, empty_products = 0;

// An entry for products: that of `forwarded`, and counted.
template <auto entry> struct Product;
template <typename Task, void (*Table::*entry)(const Task &)> struct Product<entry> {
    static void call(const Task &task) {
        ++products;
        empty_products += task.outputs == 0 ? 1 : 0;
        (forwarded->*entry)(task);
    }
};

} // namespace

// Models that use every entry between them: soft caps, wide and narrow embeddings and such of
// integers, any gate; hybrids of either kind of recurrent layer and attention.
TEST_CASE("open_model: a model computes with the table that it was opened with, entry by entry") {
    const kernels::FloatEnvironment environment;
    for (const char *const *name = kernels::table_names(); *name != nullptr; ++name) {
        const Table *table = kernels::find_table(*name);
        if (table == nullptr) {
            std::printf("SKIPPED: forced tables: this machine cannot run table '%s'\n", *name);
            continue;
        }
        INFO("table: ", *name);
        const Table counting = Entries::table_of(*table);
        for (const char *directory : {"zoo/gemma3-softcap-linear-rope", "zoo/llama-odd-sizes-f32",
                                      "quantized/llama", "zoo/lfm2", "zoo/granite4-h"}) {
            const auto forced = open_forced(directory, *name, 2);
            CHECK(forced->kernels == table);
            CHECK(std::string(forced->kernels->name) == *name);
            const std::vector<uint32_t> tokens = tokens_for(*forced, 150);
            Session plain(forced, {});
            plain.append(tokens, {});
            const auto counted = open_forced(directory, *name, 2);
            counted->kernels = &counting;
            Session session(counted, {});
            session.append(tokens, {});
            CHECK(session.digest() == plain.digest());
            CHECK(same_bits(logits_of(session), logits_of(plain)));
            Sampling sampling;
            sampling.temperature = 1.0F;
            session.set_sampling(sampling);
            plain.set_sampling(sampling);
            CHECK(session.decode() == plain.decode());
        }
        // With experts, one of them shared; and with limited gates.
        for (const char *directory : {"zoo/qwen3_5-moe", "zoo/gpt-oss"}) {
            const auto forced = open_forced(directory, *name, 2);
            const std::vector<uint32_t> tokens = tokens_for(*forced, 70);
            const PassedLog plain = passed_log(*forced, tokens, 64);
            forced->kernels = &counting;
            CHECK(same_log(passed_log(*forced, tokens, 64), plain));
        }
        const std::vector<size_t> calls = Entries::calls();
        for (size_t i = 0; i < calls.size(); ++i) {
            CHECK_MESSAGE(calls[i] > 0, "entry ", i, " of the table was never called");
        }
    }
    CHECK(open("zoo/llama-odd-sizes-f32")->kernels == &kernels::best_table());
}

TEST_CASE("open_model: weights that are copied are coded where the table has products for them") {
    using Coded = CountedEntries<entries::List<&Table::matmul_coded>>;
    const kernels::FloatEnvironment environment;
    size_t tables = 0;
    for (const char *const *name = kernels::table_names(); *name != nullptr; ++name) {
        const Table *table = kernels::find_table(*name);
        if (table == nullptr || table->matmul_coded == nullptr) {
            continue;
        }
        INFO("table: ", *name);
        ++tables;
        ModelOptions options;
        options.threads = 2;
        options.kernels = *name;
        for (const bool copy : {false, true}) {
            options.copy_weights = copy;
            const auto model = open_model(directory("zoo/gemma3-text"), options);
            CHECK((model->weights.head.coded != nullptr) == copy);
            CHECK((model->weights.layers[0].mlp.up.coded != nullptr) == copy);
            CHECK((model->weights.layers[0].mlp.up.data == nullptr) == copy);
            CHECK(model->weights.embeddings.data != nullptr); // rows are looked up
            const Table counting = Coded::table_of(*table);
            model->kernels = &counting;
            Session session(model, {});
            session.append(tokens_for(*model, 70), {});
            CHECK((Coded::calls()[0] > 0) == copy);
        }
    }
    if (tables == 0) {
        STASIS_SKIP("no table of this machine has such products");
    }
}

TEST_CASE("multiply: no product is without outputs where threads are more than a matrix's units") {
    const kernels::FloatEnvironment environment;
    for (const bool copy : {false, true}) {
        for (const char *directory : {"zoo/gemma3-text", "quantized/llama", "zoo/qwen3_5-moe"}) {
            CAPTURE(directory);
            ModelOptions options;
            options.threads = 7;
            options.copy_weights = copy;
            const auto model = open_model(stasis::test::directory(directory), options);
            forwarded = model->kernels;
            Table counting = *forwarded;
            counting.matmul = Product<&Table::matmul>::call;
            counting.matmul_quantized = Product<&Table::matmul_quantized>::call;
            counting.matmul_coded = Product<&Table::matmul_coded>::call;
            model->kernels = &counting;
            products = empty_products = 0;
            Session session(model, {});
            session.append(tokens_for(*model, 70), {});
            session.decode();
            CHECK(products > 0);
            CHECK(empty_products == 0);
        }
    }
}

TEST_CASE(
    "open_model: a table that is unknown, or that this machine cannot run, is refused by name") {
    std::vector<std::string> refused = {"avx", "AVX2", "avx2 ", "cuda"};
    for (const char *const *name = kernels::table_names(); *name != nullptr; ++name) {
        if (kernels::find_table(*name) == nullptr) {
            refused.emplace_back(*name);
        }
    }
    for (const std::string &name : refused) {
        try {
            open_forced("zoo/llama-odd-sizes-f32", name, 1);
            FAIL_CHECK(name << " was opened");
        } catch (const Error &error) {
            CHECK(error.status() == Status::unsupported);
            CHECK(std::string(error.what()).find("\"" + name + "\"") != std::string::npos);
        }
    }
}
