// Builds the nodes of a grammar; see grammar.h.
#include "runtime/constraint/grammar.h"

#include <utility>

#include "format/state/error.h"

namespace stasis::constraint {

Part Grammar::add(Node node) {
    if (nodes.size() >= kPartsMax) {
        fail(Status::unsupported, "the constraint is too large: more than %zu parts", kPartsMax);
    }
    nodes.push_back(std::move(node));
    return static_cast<Part>(nodes.size() - 1);
}

Part Grammar::bytes(uint8_t low, uint8_t high) {
    return add({.kind = Kind::bytes, .low = low, .high = high, .parts = {}});
}

Part Grammar::literal(std::string_view text) {
    std::vector<Part> parts;
    for (const char each : text) {
        parts.push_back(bytes(static_cast<uint8_t>(each), static_cast<uint8_t>(each)));
    }
    return sequence(std::move(parts));
}

Part Grammar::sequence(std::vector<Part> parts) {
    const auto count = static_cast<uint32_t>(parts.size());
    return sequence_from(std::move(parts), count);
}

Part Grammar::sequence_from(std::vector<Part> parts, uint32_t min) {
    return add({.kind = Kind::sequence, .min = min, .parts = std::move(parts)});
}

Part Grammar::choice(std::vector<Part> parts) {
    return add({.kind = Kind::choice, .parts = std::move(parts)});
}

Part Grammar::repeat(Part part, uint32_t min, uint32_t max) {
    return add({.kind = Kind::repeat, .min = min, .max = max, .parts = {part}});
}

Part Grammar::call(Rule rule) {
    return add({.kind = Kind::call, .min = rule, .parts = {}});
}

Part Grammar::members(Part separator, Part after, const std::vector<Part> &items) {
    std::vector<Part> parts = {separator, after};
    parts.insert(parts.end(), items.begin(), items.end());
    return add({.kind = Kind::members, .parts = std::move(parts)});
}

Part Grammar::both(Part left, Part right) {
    return add({.kind = Kind::both, .parts = {left, right}});
}

Part Grammar::without(Part left, Part right) {
    return add({.kind = Kind::without, .parts = {left, right}});
}

Rule Grammar::add_rule(std::string name) {
    rules.push_back({std::move(name), 0});
    return static_cast<Rule>(rules.size() - 1);
}

} // namespace stasis::constraint
