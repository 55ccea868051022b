// The backend: a table of functions that computes a pass, for the CPU and for a device. The steps
// of a layer stand in the order in which forward.cpp calls them. They hand results to each other
// through the pass's scratch, which the backend owns. A network gets its backend when its model is
// opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/compute/pass.h"

namespace stasis {

// A point of a pass at which the residual stream is added to.
enum class After { embedding, attention, mlp, inputs };

inline constexpr size_t kDrawnMost = 16; // rows of draw_ahead

// For each row of draw_ahead: the token drawn after it, and the layer in which a value was not
// finite (C9): 0 if it was a logit, UINT32_MAX if none. Rows after such a row are undefined.
struct DrawnRows {
    std::vector<uint32_t> tokens, failures;
};

// Shapes: T rows of the pass, H hidden, Q = heads * head_dim, K = kv_heads * head_dim,
// I intermediate, V vocabulary.
struct Backend {
    void (*make_scratch)(Pass &pass);
    // Reserves scratch for `rows` rows. Throws Error(no_memory).
    void (*fit)(Pass &pass, size_t rows);
    // Returns the bytes of memory that the scratch takes.
    uint64_t (*size_bytes)(const Pass &pass);
    // Throws Error(device) in a process other than the one that opened the device.
    void (*check_process)(const Network &network);
    // Calls run_layers, and stores pass.hidden and the failed sequences. Throws Error(cancelled),
    // Error(device), Error(no_memory).
    void (*run)(Pass &pass, const Watch &watch, uint64_t done, uint64_t total);

    void (*embed)(Pass &pass); // tokens to the stream [T][H]
    // Of an MTP head: joins the embeddings in the stream with pass.previous, in the stream [T][H].
    void (*join)(Pass &pass);
    // Adds the last result to the stream, through a further norm where the architecture has one
    // (nothing is added after the embedding), and norms the stream for the next step [T][H]. At the
    // end of a layer the stream is multiplied by the layer's number, where it has one; after the
    // last layer the norm is the final one, whose result is the final hidden state.
    void (*residual)(Pass &pass, After after, size_t layer);
    void (*project_heads)(Pass &pass,
                          size_t layer); // q [T][Q], k and v [T][K] of the normed stream
    // Applies norms, where the architecture has them, and RoPE to q and k; stores keys and values
    // in their pages. Marks sequences with a key or value that is not finite.
    void (*finish_heads)(Pass &pass, size_t layer);
    void (*attend)(Pass &pass, size_t layer); // C5, over the pages of each sequence: [T][Q]
    // For a recurrent layer, in place of the three: its products of the normed stream; then
    // convolution, delta rule and gated norm (C11), from each sequence's state to its next state:
    // [T][value_size].
    void (*project_recurrent)(Pass &pass, size_t layer);
    void (*recur)(Pass &pass, size_t layer);
    // Makes the pass, which has been staged and has one sequence, keep the inputs of its recurrent
    // layers. Afterwards computes the sequence's next state once more, after its first rows alone.
    void (*keep_inputs)(Pass &pass); // throws Error(no_memory)
    void (*recur_again)(Pass &pass, size_t rows);
    void (*project_output)(Pass &pass, size_t layer); // [T][H]
    void (*gated_product)(Pass &pass,
                          size_t layer); // activation(gate) * up of the normed stream [T][I]
    void (*project_down)(Pass &pass, size_t layer); // [T][H]
    // In a layer with experts, in place of the two or after them: router and chosen experts (C12),
    // [T][H].
    void (*run_experts)(Pass &pass, size_t layer);
    // Of an architecture whose layers have inputs of their own: what comes of those of the rows'
    // tokens, after the MLP [T][H].
    void (*apply_inputs)(Pass &pass, size_t layer);

    // Computes logits [rows][V] of final hidden states [rows][H]; both in host memory.
    void (*logits)(Pass &pass, const uint16_t *hidden, size_t rows, float *logits);

    // Reports whether draw_ahead supports these settings.
    bool (*draws_ahead)(const Sampling &sampling);
    // Computes the rows of the pass's only sequence, up to kDrawnMost. The first token is set; the
    // device draws the others. Stores pass.hidden of every row.
    void (*draw_ahead)(Pass &pass, const Sampling &sampling, DrawnRows &drawn);

    // Prepares the products of all layers under the device profile, and returns its id. Throws
    // Error(unsupported), Error(device).
    std::string (*open_profile)(const Network &network);
};

extern const Backend kCpuBackend, kDeviceBackend;

} // namespace stasis
