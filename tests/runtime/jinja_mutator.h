// Changes templates by their own parts: words, tags, operators, expressions. Bytes changed blindly
// almost never make the next filter, method or test out of the last; these do. For the fuzzers
// whose input is a template: each includes this once.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

namespace stasis::fuzz {

// Names that mean something to the interpreter, to it alone or to the templates it runs.
inline constexpr std::string_view kWords =
    "if elif else endif for endfor in set endset macro endmacro generation endgeneration "
    "break continue and or not is true false none True None loop index index0 revindex first "
    "last length previtem nextitem range dict namespace raise_exception strftime_now trim "
    "count tojson indent default d boolean join attribute string safe list upper lower title "
    "capitalize replace items reverse dictsort sort min max width ensure_ascii separators int "
    "select reject selectattr rejectattr map defined "
    "undefined mapping iterable sequence number integer float equalto eq ne odd even "
    "divisibleby strip lstrip rstrip split maxsplit sep startswith endswith find keys values "
    "get messages message role content user assistant system tools bos_token eos_token "
    "add_generation_prompt ns x 1 0 2 17 1.5 9223372036854775807 ";

inline constexpr std::string_view kOperators =
    "+ - * / // % ~ == != < > <= >= | . , = : ( ) [ ] { } -%} {%- {{- -}} {%+ ";

// Put between tags.
inline constexpr const char *kStatements[] = {"{% for m in messages %}",
                                              "{% for k, v in m.items() %}",
                                              "{% endfor %}",
                                              "{% else %}",
                                              "{% if m.role == 'user' %}",
                                              "{% if loop.first and m['role'] != 'system' %}",
                                              "{% endif %}",
                                              "{% elif m['role'] == 'assistant' %}",
                                              "{% if loop.last %}",
                                              "{% set x = m['content'] %}",
                                              "{% set x, y = [1, 'a'] %}",
                                              "{% set x %}",
                                              "{% endset %}",
                                              "{% set ns = namespace(x=0) %}",
                                              "{% set ns.x = ns.x + 1 %}",
                                              "{% macro f(a, b=2) %}",
                                              "{% endmacro %}",
                                              "{{ f(1, b=x) }}",
                                              "{% generation %}",
                                              "{% endgeneration %}",
                                              "{% break %}",
                                              "{% continue %}",
                                              "{{ m.content }}",
                                              "{{ m['content'] | trim }}",
                                              "{{ bos_token }}",
                                              "{{ eos_token }}",
                                              "{# x #}",
                                              "{{ x }}",
                                              "{% if add_generation_prompt %}",
                                              "{{ raise_exception('no') }}",
                                              "{{ messages[1:] }}",
                                              "{% for i in range(9999) %}",
                                              "\n",
                                              "{% if messages[0]['role'] == 'system' %}",
                                              "{% set messages = messages[1:] %}",
                                              "{{ x[::-1] }}",
                                              "<|im_start|>",
                                              "<|im_end|>\n",
                                              "<|user|>\n",
                                              "[INST] ",
                                              " [/INST]",
                                              "<start_of_turn>user\n"};

// Text put after a word. The first ones fail: everything made until then must be released again.
inline constexpr const char *kTails[] = {" // 0",
                                         " | nothing",
                                         " is nothing",
                                         ".x.y",
                                         "()",
                                         " | trim",
                                         " | tojson(indent=2)",
                                         " | join(', ', attribute='role')",
                                         " | map('upper') | list",
                                         " | map(attribute='content') | list",
                                         " | selectattr('role', 'equalto', 'user') | list",
                                         " | rejectattr('x')",
                                         " | select('string')",
                                         " | reject('in', [1])",
                                         " | default('x', true)",
                                         " | replace('a', 'b')",
                                         " | items",
                                         " | reverse | list",
                                         " | int",
                                         " | length",
                                         " is string",
                                         " is not none",
                                         " is defined",
                                         " is divisibleby 3",
                                         " is odd",
                                         " is in [1]",
                                         ".split('a', 1)",
                                         ".strip()",
                                         ".rstrip('a')",
                                         ".startswith(('a', 'b'))",
                                         ".endswith('x')",
                                         ".find('e')",
                                         ".get('x', 1)",
                                         ".items()",
                                         ".keys()",
                                         ".title()",
                                         "[0]",
                                         "[-1]",
                                         "[1:2]",
                                         "[::-1]",
                                         "['role']",
                                         ".role",
                                         ".content",
                                         " ~ 'x'",
                                         " + 1",
                                         " * 3",
                                         " // -2",
                                         " % 3",
                                         " - 1.5",
                                         " / 2",
                                         " == 'user'",
                                         " in messages",
                                         " not in 'xy'",
                                         " < 2",
                                         " >= 'a'",
                                         " and x",
                                         " or 'x'",
                                         " if x else 'y'",
                                         "(1, 2)",
                                         "({'a': [1]})",
                                         " + [1, 2]",
                                         " ~ [1, 'a', none, 1.5, {'b': true}]"};

using Random = std::minstd_rand;

inline size_t below(Random &random, size_t limit) {
    return limit == 0 ? 0 : random() % limit;
}

// One of the words in a text, each followed by a space.
inline std::string_view one_of(Random &random, std::string_view words) {
    const size_t begin = words.rfind(' ', below(random, words.size() - 1)) + 1; // none: npos + 1
    return words.substr(begin, words.find(' ', begin) - begin);
}

template <size_t count> const char *one_of(Random &random, const char *const (&choices)[count]) {
    return choices[below(random, count)];
}

// The first run of such characters from a random place on, [begin, end); empty at the end if none.
template <typename Is>
std::pair<size_t, size_t> some_run(Random &random, std::string_view text, const Is &is) {
    size_t begin = below(random, text.size());
    while (begin > 0 && begin < text.size() && is(text[begin])) {
        --begin;
    }
    while (begin < text.size() && !is(text[begin])) {
        ++begin;
    }
    size_t end = begin;
    while (end < text.size() && is(text[end])) {
        ++end;
    }
    return {begin, end};
}

// Returns a tag with its braces; empty if no tag follows a random place.
inline std::pair<size_t, size_t> some_tag(Random &random, std::string_view text) {
    const size_t begin = text.find('{', below(random, text.size()));
    const size_t end = text.find('}', begin == text.npos ? text.size() : begin + 2);
    if (begin == text.npos || end == text.npos) {
        return {text.size(), text.size()};
    }
    return {begin, std::min(end + 2, text.size())};
}

inline std::string mutate_template(std::string text, Random &random) {
    const auto word = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    };
    const auto sign = [](char c) {
        return std::ispunct(static_cast<unsigned char>(c)) && c != '_';
    };
    switch (below(random, 9)) {
    case 0: {
        const auto [begin, end] = some_run(random, text, word);
        return text.replace(begin, end - begin, one_of(random, kWords));
    }
    case 1: {
        const auto [begin, end] = some_run(random, text, sign);
        return text.replace(begin, end - begin, one_of(random, kOperators));
    }
    case 2: {
        const auto [begin, end] = some_run(random, text, word);
        const char *tail = one_of(random, kTails);
        return begin == end ? text + "{{ x" + tail + " }}" : text.insert(end, tail);
    }
    case 3:
    case 4: { // a statement in front of a tag, or instead of it
        const auto [begin, end] = some_tag(random, text);
        const bool instead = below(random, 3) == 0;
        return text.replace(begin, instead ? end - begin : 0, one_of(random, kStatements));
    }
    case 5: {
        const auto [begin, end] = some_tag(random, text);
        return text.erase(begin, end - begin);
    }
    case 6: { // a tag once more, somewhere else
        const auto [begin, end] = some_tag(random, text);
        const std::string tag = text.substr(begin, end - begin);
        return text.insert(some_tag(random, text).first, tag);
    }
    case 7: { // an end too early
        text.resize(below(random, text.size() + 1));
        return text;
    }
    default: { // a word of the template itself instead of another
        const auto [begin, end] = some_run(random, text, word);
        const std::string taken = text.substr(begin, end - begin);
        const auto [at, until] = some_run(random, text, word);
        return text.replace(at, until - at, taken);
    }
    }
}

} // namespace stasis::fuzz

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max); // libFuzzer's own

// Bytes as libFuzzer changes them, or some of a template's parts.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max,
                                          unsigned seed) {
    using namespace stasis::fuzz;
    Random random(seed);
    if (below(random, 4) == 0) {
        return LLVMFuzzerMutate(data, size, size_max);
    }
    std::string text(reinterpret_cast<const char *>(data), size);
    for (size_t more = 1 + below(random, 4); more > 0; --more) {
        text = mutate_template(std::move(text), random);
    }
    size = std::min(text.size(), size_max);
    std::memcpy(data, text.data(), size);
    return size;
}
