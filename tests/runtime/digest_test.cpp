// Digests of a 300-token run of each bundled model, and of those of integer weights, recorded once
// and checked in: every machine, and every later version under the same contract, must reproduce
// them.

#include "tests/runtime/json_data.h"
#include "tests/runtime/models.h"

using namespace stasis;
using namespace stasis::test;

TEST_CASE("Session::digest: 300-token runs reproduce the recorded digests") {
    kernels::FloatEnvironment environment;
    const auto recorded = read_json(test_data("digests.json"));
    std::vector<std::string> names = bundled();
    for (const auto &[name, quantized] : quantized_models()) {
        names.push_back(name);
    }
    for (const std::string &name : names) {
        const auto model = open(name);
        Session session(model, {});
        session.append(tokens_for(*model, 40), {});
        Sampling sampling;
        sampling.temperature = 1.0F;
        sampling.top_p = 0.98F;
        sampling.seed = 300;
        session.set_sampling(sampling);
        while (session.position() < 300) {
            session.decode();
        }
        const std::string digest = to_hex(session.digest());
        CHECK_MESSAGE(recorded.value(name, "") == digest, std::string(name + " gives " + digest));
    }
}
