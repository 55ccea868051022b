// Reads the dense layers of embeddings; see embedding_dense.h.
#include "runtime/model/embedding_dense.h"

#include <cmath>
#include <cstring>

#include "format/state/error.h"
#include "runtime/kernels/bf16.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/f16.h"
#include "runtime/model/json_file.h"
#include "runtime/model/safetensors.h"

namespace stasis {

namespace {

constexpr size_t kConfigMax = 1U << 20;
constexpr char kIdentity[] = "torch.nn.modules.linear.Identity";

float load(DataType type, const uint8_t *at) {
    if (type == DataType::f32) {
        float value;
        std::memcpy(&value, at, sizeof value);
        return value;
    }
    uint16_t value;
    std::memcpy(&value, at, sizeof value);
    return type == DataType::bf16 ? kernels::bf16_to_f32(value) : f16_to_f32(value);
}

// Returns the numbers of a tensor's bytes.
std::vector<float> widened(const std::vector<uint8_t> &bytes, DataType type,
                           const std::string &path, const char *name) {
    const size_t each = type == DataType::f32 ? sizeof(float) : sizeof(uint16_t);
    std::vector<float> numbers(bytes.size() / each);
    for (size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = load(type, bytes.data() + i * each);
        if (!std::isfinite(numbers[i])) {
            fail(Status::corrupt, "%s: tensor %s has a number that is not finite", path.c_str(),
                 name);
        }
    }
    return numbers;
}

// Returns the numbers of a tensor of this shape. Checkpoint's reader has checked that its size in
// bytes is that of the shape, and that the file has them.
std::vector<float> read_numbers(const Checkpoint &checkpoint, const std::string &path,
                                const char *name, const std::vector<uint64_t> &shape) {
    const auto found = checkpoint.tensors.find(name);
    if (found == checkpoint.tensors.end()) {
        fail(Status::corrupt, "%s: tensor %s is missing, or of another type than F32, BF16, F16",
             path.c_str(), name);
    }
    const Tensor &tensor = found->second;
    if (tensor.shape != shape) {
        fail(Status::corrupt, "%s: tensor %s has another shape than config.json says", path.c_str(),
             name);
    }
    std::vector<uint8_t> bytes(tensor.size_bytes);
    tensor.read(bytes.data(), bytes.size(), 0);
    return widened(bytes, tensor.type, path, name);
}

// Returns numbers [rows][columns] as [columns][rows].
std::vector<float> transposed(const std::vector<float> &numbers, size_t rows, size_t columns) {
    std::vector<float> result(numbers.size());
    for (size_t row = 0; row < rows; ++row) {
        for (size_t column = 0; column < columns; ++column) {
            result[column * rows + row] = numbers[row * columns + column];
        }
    }
    return result;
}

} // namespace

std::vector<float> EmbeddingDense::rows() const {
    return transposed(weights, inputs, outputs);
}

EmbeddingDense read_embedding_dense(const ModelFolder &folder, const std::string &place,
                                    uint32_t inputs) {
    const std::string config_file = place + "/config.json",
                      weights_file = place + "/model.safetensors";
    const std::string path = folder.shown(config_file);
    if (!folder.has(config_file)) {
        fail(Status::corrupt, "%s: missing", path.c_str());
    }
    const Json config = parse_json(folder.text(config_file, kConfigMax), path);
    const Fields fields{config, path + ": "};
    const std::string activation = fields.text("activation_function", kIdentity);
    if (activation != kIdentity) {
        fail(Status::unsupported, "%s: activation_function \"%s\" is not supported (Identity is)",
             path.c_str(), activation.c_str());
    }
    EmbeddingDense dense;
    dense.inputs = fields.count("in_features", kWidthMax);
    dense.outputs = fields.count("out_features", kWidthMax);
    if (dense.inputs != inputs) {
        fail(Status::corrupt, "%s: in_features is %u: the vector before it has %u numbers",
             path.c_str(), dense.inputs, inputs);
    }
    if (!folder.has(weights_file)) {
        fail(Status::unsupported, "%s: weights are read from safetensors alone",
             folder.shown(weights_file).c_str());
    }
    const Checkpoint checkpoint = open_checkpoint_file(folder, weights_file);
    dense.weights = transposed(read_numbers(checkpoint, folder.shown(weights_file), "linear.weight",
                                            {dense.outputs, dense.inputs}),
                               dense.outputs, dense.inputs);
    if (fields.flag("bias", true)) {
        dense.bias =
            read_numbers(checkpoint, folder.shown(weights_file), "linear.bias", {dense.outputs});
    }
    return dense;
}

EmbeddingDense read_embedding_dense(const GgufFile &file, const std::string &name,
                                    uint32_t inputs) {
    const GgufTensor &tensor = file.tensor(name + ".weight");
    const std::string &path = file.names[tensor.file];
    if (tensor.type != GgufType::f32 && tensor.type != GgufType::bf16 &&
        tensor.type != GgufType::f16) {
        fail(Status::unsupported, "%s: tensor %s is of type %s (F32, BF16 and F16 are supported)",
             path.c_str(), tensor.name.c_str(), gguf_type_name(tensor.type).c_str());
    }
    // The file's order of dimensions is the reverse one.
    if (tensor.shape.size() != 2 || tensor.shape[0] != inputs || tensor.shape[1] > kWidthMax) {
        fail(Status::corrupt, "%s: tensor %s does not take the %u numbers before it", path.c_str(),
             tensor.name.c_str(), inputs);
    }
    EmbeddingDense dense;
    dense.inputs = inputs;
    dense.outputs = static_cast<uint32_t>(tensor.shape[1]);
    std::vector<uint8_t> bytes(tensor.size_bytes);
    file.files[tensor.file]->read(bytes.data(), bytes.size(), tensor.offset_bytes);
    const DataType type = tensor.type == GgufType::f32    ? DataType::f32
                          : tensor.type == GgufType::bf16 ? DataType::bf16
                                                          : DataType::f16;
    dense.weights =
        transposed(widened(bytes, type, path, tensor.name.c_str()), dense.outputs, dense.inputs);
    return dense;
}

} // namespace stasis
