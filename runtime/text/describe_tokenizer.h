// Converts a model directory's tokenizer and chat template to the metadata of a GGUF file, from
// which tokenizer_gguf.h makes a tokenizer that gives the same ids.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/model/config.h"
#include "runtime/model/gguf/writer.h"

namespace stasis {

// Writes the metadata. Throws the errors of Tokenizer::open, and Error(unsupported) naming a
// property that GGUF cannot express (a unigram vocabulary, normalization rules, an unknown
// pre-tokenizer, more than three end tokens, escape_whitespaces false, ordinary pieces that are
// special).
void describe_tokenizer(const std::string &directory, const Config &config, GgufMetadata &metadata);

// Throws Error(unsupported) with the reason unless a file with that metadata, which `given` was
// read from, gives the directory's tokenizer: type, bos, texts of bos and eos, every token's bytes,
// and whether it is special.
void check_described_tokenizer(const std::string &directory, const Config &config,
                               const GgufFile &file, const Config &given);

} // namespace stasis
