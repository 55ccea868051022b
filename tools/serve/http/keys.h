// API keys of a file, and which of them a request brings. A key is never shown: its owner is called
// by a short hash of it, the tenant.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/http/server.h"

namespace serve::http {

class Keys {
  public:
    // Reads a file of one key a line; blank lines and lines that begin with '#' do not count, and
    // neither do blanks around a key. Throws Failure: the file cannot be read, holds no key, or a
    // line that cannot be a header's value. Such a line is named by its number, never shown.
    static Keys load(const std::string &path);

    // Why the file is less secret than it should be (others may read it), or "". No failure:
    // secrets that containers are given are often readable by all inside.
    const std::string &warning() const { return warning_; }

    // Returns the tenant whose key the request brings (`Authorization: Bearer KEY` or
    // `x-api-key: KEY`), or nothing: without a key, with an unknown one, or with two that differ.
    // Takes the same time for every key. Any thread.
    std::optional<std::string> tenant(const Request &request) const;

  private:
    using Digest = std::array<uint8_t, 32>;
    std::vector<Digest> digests_;
    std::string warning_;
};

} // namespace serve::http
