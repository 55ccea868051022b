// Golden values of the bundled models.
#include "tests/runtime/models.h"
#include "tests/runtime/golden_tensors.h"

namespace stasis::test {

Golden golden(const std::string &name) {
    const GoldenTensors tensors(directory(name));
    Golden golden;
    tensors.read("ids", golden.ids);
    tensors.read("logits_bf16p", golden.logits_bf16p);
    tensors.read("argmax", golden.argmax);
    tensors.read("nll", golden.nll);
    const auto facts = read_json(directory(name) + "/golden.json");
    golden.kept = facts["kept"];
    golden.vocabulary = facts["vocab"];
    golden.rms = facts["rms_bf16p_minus_bf16in"];
    golden.max = facts["max_bf16p_minus_bf16in"];
    golden.rms_most = facts.value("tolerance_rms", 1.5 * golden.rms);
    golden.max_most = facts.value("tolerance_max", 2.5 * golden.max);
    return golden;
}

} // namespace stasis::test
