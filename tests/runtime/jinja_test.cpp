// The template interpreter: language and functions, as jinja2 3.1 renders the same templates with
// transformers' settings; what it refuses; what it may cost.
#include "runtime/text/jinja/jinja.h"

#include <string>

#include "format/state/error.h"
#include "tests/data_files.h"

using namespace stasis;
using jinja::Value;

namespace {

constexpr std::time_t kNow = 1767355200; // 2026-01-02 12:00 UTC
constexpr size_t kBudget = 1'000'000;

std::string render(const std::string &source, size_t units = kBudget) {
    const jinja::Dict variables = {
        {"messages",
         jinja::make_list({jinja::make_dict({{"role", "user"}, {"content", " A\n"}}),
                           jinja::make_dict({{"role", "assistant"}, {"content", "B"}})})},
        {"n", Value(Value::Data(int64_t{7}))},
        {"word", "h\u00e9llo"},
        {"none_", Value(Value::Data(jinja::None{}))},
        {"flag", Value(Value::Data(true))}};
    jinja::Budget budget{units, false};
    return jinja::Template(source).render(variables, kNow, budget);
}

std::string error_of(const std::string &source) {
    try {
        render(source);
    } catch (const Error &error) {
        CHECK(error.status() == Status::unsupported);
        return error.what();
    }
    return "";
}

std::string repeat(const std::string &text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) {
        out += text;
    }
    return out;
}

// Template, what jinja2 3.1.6 gives with trim_blocks, lstrip_blocks and loop controls.
constexpr std::pair<const char *, const char *> kRenderings[] = {
    {"a {{ 'b' }} c", "a b c"},
    {"{{ n }}{{ flag }}{{ none_ }}{{ missing }}|{{ 1.5 }}|{{ 3.0 }}", "7TrueNone|1.5|3.0"},
    {"x\n{% if flag %}\ny\n{% endif %}\nz\n", "x\ny\nz"},
    {"x\n   {% if flag %}   \n  y\n   {% endif %}\nz", "x\n   \n  y\nz"},
    {"x {%- if flag -%} y {%- endif -%} z", "xyz"},
    {"  {%+ if flag %}a{% endif +%}\nb", "  a\nb"},
    {"{{ 'a' -}}   b   {{- 'c' }}", "abc"},
    {"a\n{# note #}\nb{#- x -#}  c", "a\nbc"},
    {"  {# c #}  x", "  x"},
    {"a{{ 1 }}\n\nb", "a1\n\nb"},
    {"tail\n\n", "tail\n"},
    {"line\r\nend\r\n", "line\nend"},
    {"{%- for i in [1,2] %}\n  - {{ i }}\n{%- endfor %}\n!", "  - 1  - 2!"},
    {"{{ 'a\\nb\\t\\'q\\'' }}{{ \"\\u00e9\\x41\" }}{{ 'one' ' two' }}",
     "a\nb\t'q'\303\251Aone two"},
    {"{{ 'a\nb' }}", "a\nb"},
    {"{{ '\\d' }}", "\\d"},
    {"{{ '}}' }}{{ '%}' }}", "}}%}"},
    {"{{ {'a': {'b': 1}}['a']['b'] }}", "1"},
    {"{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ "
     "(1 + 2) * 3 }} {{ - 2 + 5 }} {{ 2 * 1.5 }}",
     "3 3 -4 2 -2 3.5 9 3 3.0"},
    {"{{ 'a' ~ 1 ~ none_ }} {{ 'a' + 'b' * 3 }} {{ [1] + [2, 3] }}", "a1None abbb [1, 2, 3]"},
    {"{{ 'x' ~ 2 * 3 }}", "x6"},
    {"{{ 1 < 2 }}{{ 2 <= 2 }}{{ 'a' > 'b' }}{{ 1 == 1.0 }}{{ '1' != 1 }}{{ true == 1 }}{{ "
     "[1,'a'] == [1,'a'] }}{{ {'a':1} == {'a':1} }}",
     "TrueTrueFalseTrueTrueTrueTrueTrue"},
    {"{{ 1 and 'x' }}{{ 0 or 'y' }}{{ not 0 }}{{ not 1 == 2 }}{{ '' or none_ }}{{ 'a' in 'cat' "
     "}}{{ 'z' not in 'cat' }}{{ 2 in [1,2] }}{{ 'role' in messages[0] }}{{ 'x' in missing }}",
     "xyTrueTrueNoneTrueTrueTrueTrueFalse"},
    {"{{ 'yes' if n > 5 else 'no' }}{{ 'x' if false }}{{ 1 if 0 else 2 if 0 else 3 }}", "yes3"},
    {"{{ messages[0].role }}{{ messages[-1]['content'] }}{{ messages[5] }}{{ "
     "messages[0].nothing }}{{ word[1] }}{{ word[-1] }}",
     "userB\303\251o"},
    {"{{ word[1:] }}|{{ word[:2] }}|{{ word[::-1] }}|{{ word[1:4:2] }}|{{ word[-3:-1] }}|{{ "
     "[1,2,3,4][::-2] }}|{{ [1,2,3][5:] }}|{{ [1,2,3][:-1] }}|{{ messages[1:] | length }}|{{ "
     "[1,2,3][2:0:-1] }}",
     "\303\251llo|h\303\251|oll\303\251h|\303\251l|ll|[4, 2]|[]|[1, 2]|1|[3, 2]"},
    {"{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last "
     "}}{{ loop.length }}{{ loop.revindex }}{{ m.role }};{% endfor %}",
     "10TrueFalse22user;21FalseTrue21assistant;"},
    {"{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }},{% endfor %}", "a=1,b=2,"},
    {"{% for x in [] %}x{% else %}none{% endfor %}", "none"},
    {"{% for x in range(6) if x % 2 %}{{ x }}{{ loop.last }}{% endfor %}", "1False3False5True"},
    {"{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break "
     "%}{% endif %}{{ x }}{% endfor %}",
     "0134"},
    {"{% for x in 'h\303\251' %}[{{ x }}]{% endfor %}{% for k in {'p': 1} %}{{ k }}{% endfor "
     "%}",
     "[h][\303\251]p"},
    {"{% for x in [1,2,3] %}{{ loop.previtem }}<{{ x }}<{{ loop.nextitem }};{% endfor %}",
     "<1<2;1<2<3;2<3<;"},
    {"{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index "
     "}}{% endfor %}",
     "121122"},
    {"{{ range(3) | list }}{{ range(1, 8, 3) | list }}{{ range(3, 0, -1) | list }}",
     "[0, 1, 2][1, 4, 7][3, 2, 1]"},
    {"{% set x = 1 %}{% for i in range(3) %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}", "2221"},
    {"{% set ns = namespace(a=1, b='q') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% "
     "endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}",
     "4qFalse"},
    {"{% set a, b = [1, 2] %}{{ a }}{{ b }}", "12"},
    {"{% set x %}in {{ n }}\n{% endset %}[{{ x }}]", "[in 7\n]"},
    {"{% if flag %}{% set y = 3 %}{% endif %}{{ y }}", "3"},
    {"{% set m = messages[1:] %}{% set messages = m %}{{ messages | length }}", "1"},
    {"{% if n == 1 %}a{% elif n == 7 %}b{% elif n == 7 %}c{% else %}d{% endif %}", "b"},
    {"{% if none_ %}a{% elif '' %}b{% else %}d{% endif %}", "d"},
    {"{% if not missing is defined %}u{% endif %}{% if none_ is none and n is not none %}v{% "
     "endif %}",
     "uv"},
    {"{% macro m(a, b='z') %}<{{ a }}{{ b }}{{ n }}>{% endmacro %}{{ m(1) }}{{ m('p', b=2) "
     "}}{{ m() }}",
     "<1z7><p27><z7>"},
    {"{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
     "4321"},
    {"{{ '  a b ' | trim }}|{{ '\302\240x\342\200\203' | trim }}|{{ word | length }}|{{ [3,4] "
     "| first }}{{ [3,4] | last }}|{{ word | upper if false else 'aB' | upper }}{{ 'aB' | "
     "lower }}{{ 'ab cd' | title }}{{ 'aBC' | capitalize }}",
     "a b|x|5|34|ABabAb CdAbc"},
    {"{{ missing | default('d') }}{{ '' | default('e', true) }}{{ none_ | default('f') }}{{ "
     "none_ | d('g', boolean=true) }}{{ 0 | default(5) }}",
     "deNoneg0"},
    {"{{ [1, 'a', none_] | join(', ') }}{{ ['x', 'y'] | join }}{{ messages | join('+', "
     "attribute='role') }}",
     "1, a, Nonexyuser+assistant"},
    {"{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | "
     "rejectattr('role', 'equalto', 'user') | map(attribute='content') | join }}{{ [1,2,3,4] | "
     "select('odd') | list }}{{ [0, 1, ''] | reject | list }}{{ ['a', 'b'] | map('upper') | "
     "join('-') }}",
     "1B[1, 3][0, '']A-B"},
    {"{{ {'a': [1, 'x\"y', none_, true, 1.5], '\303\251': {}} | tojson }}",
     "{\"a\": [1, \"x\\\"y\", null, true, 1.5], \"\303\251\": {}}"},
    {"{{ {'a': [1, 2], 'b': {}} | tojson(indent=2) }}",
     "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}"},
    {"{{ 'a-b-c' | replace('-', '+') }}{{ '12' | int + 1 }}{{ 5 | string + '!' }}{{ 'x' | safe "
     "}}{% for k, v in {'k': 'v'} | items %}{{ k ~ v }}{% endfor %}{{ [1,2,3] | reverse | list "
     "}}{{ 'abc' | list }}{{ messages | count }}",
     "a+b+c135!xkv[3, 2, 1]['a', 'b', 'c']2"},
    {"{{ messages[0].content | trim + '!' }}{{ -n | string | length if false else n }}", "A!7"},
    {"{{ n is defined }}{{ missing is undefined }}{{ 'a' is string }}{{ n is number }}{{ n is "
     "integer }}{{ 1.0 is float }}{{ {} is mapping }}{{ [] is iterable }}{{ 'a' is sequence "
     "}}{{ n is iterable }}{{ flag is true }}{{ flag is boolean }}{{ n is odd }}{{ n is even "
     "}}{{ n is divisibleby 7 }}{{ n is divisibleby(2) }}{{ n is equalto 7 }}{{ n is eq(7) "
     "}}{{ n is ne 7 }}{{ 2 is in [1,2] }}{{ n is not none }}",
     "TrueTrueTrueTrueTrueTrueTrueTrueTrueFalseTrueTrueTrueFalseTrueFalseTrueTrueFalseTrueTru"
     "e"},
    {"{{ ' a '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxaxx'.lstrip('x') }}|{{ "
     "'xxaxx'.rstrip('x') }}|{{ 'a,b,c'.split(',') }}|{{ ' a  b '.split() }}|{{ "
     "'a,b,c'.split(',', 1)[1] }}|{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith('ab') }}|{{ "
     "'aXa'.replace('X', 'yy') }}|{{ 'h\303\251llo'.find('l') }}{{ 'a'.find('z') }}|{{ "
     "'ab'.upper() }}",
     "a|a|axx|xxa|['a', 'b', 'c']|['a', 'b']|b,c|TrueFalse|ayya|2-1|AB"},
    {"{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ {'a': "
     "1}.keys() | list }}{{ {'a': 1}.values() | list }}{{ dict(a=1, b=2) }}{{ "
     "'x'.startswith(('y', 'x')) }}",
     "1None2['a'][1]{'a': 1, 'b': 2}True"},
    {"{{ messages[0]['content'].split('\n')[0] | trim }}{{ "
     "'a</think>b'.split('</think>')[-1].lstrip('\n') }}",
     "Ab"},
    {"{{ [1, 'a', [true, none_]] }}{{ {'k': 'v'} }}{{ (1, 2) | list }}{{ [1,] }}{{ ('x') }}",
     "[1, 'a', [True, None]]{'k': 'v'}[1, 2][1]x"},
    {"{% for k, v in {'b': 1, 'A': 2, 'a': 3} | dictsort %}{{ k ~ v }}{% endfor %} {% for k, v in "
     "{'a': 2, 'b': 1} | dictsort(by='value') %}{{ k }}{% endfor %} {% for k, v in {'b': 1, 'B': "
     "2, 'a': 0} | dictsort(true) %}{{ k }}{% endfor %} {% for k, v in {'a': 1, 'b': 2} | "
     "dictsort(reverse=true) %}{{ k }}{% endfor %}",
     "A2a3b1 ba Bab ba"},
    {"{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'a'] | sort }}{{ ['b', 'A', 'a'] | "
     "sort(case_sensitive=true) }}{{ [3, 1, 2] | sort(reverse=true) }}{{ messages | "
     "sort(attribute='role') | map(attribute='role') | join(',') }}",
     "[1, 2, 3]['A', 'a', 'b']['A', 'a', 'b'][3, 2, 1]assistant,user"},
    {"{{ [3, 1, 2] | min }}{{ [3, 1, 2] | max }}{{ ['b', 'a'] | min }}{{ messages | "
     "max(attribute='role') | length }}",
     "13a2"},
    {"{{ 'a\n\nb\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(width='>', "
     "blank=true) }}|{{ '' | indent }}",
     "a\n\n    b\n    c|  a\n  b|a\n>\n>b|"},
    {"{{ {'b': [1, '\303\251\360\237\230\200'], 'a': 1.0} | tojson(ensure_ascii=true, "
     "sort_keys=true) }}{{ [1, {'a': 2}] | tojson(separators=(',', ':')) }}{{ {'a': [1]} | "
     "tojson(indent=1, separators=('; ', '=')) }}{{ [] | tojson(indent=2) }}{{ '\303\251' | "
     "tojson(true) }}",
     "{\"a\": 1.0, \"b\": [1, \"\\u00e9\\ud83d\\ude00\"]}[1,{\"a\":2}]{\n \"a\"=[\n  1\n "
     "]\n}[]\"\\u00e9\""},
    {"{{ 0.0001 }} {{ 10000000000000000.0 * 1 }} {{ 123456789.5 }} {{ 0.00001 }} {{ 1.0 / 3 }} {{ "
     "[0.5, -0.0] | tojson }}",
     "0.0001 1e+16 123456789.5 1e-05 0.3333333333333333 [0.5, -0.0]"},
    {"{{ ['it\\'s', 'a\"b', 'x\\ny\\\\', '\\'\"', '\\u00a0\303\251\\x01'] }}",
     "[\"it's\", 'a\"b', 'x\\ny\\\\', '\\'\"', '\\xa0\303\251\\x01']"},
    {"{{ [none_, n, {'k': 'v\\'s'}] | string }}", "[None, 7, {'k': \"v's\"}]"},
    {"{{ 'gen' }}", "gen"},
};

} // namespace

TEST_CASE("jinja: templates render as jinja2 renders them") {
    for (const auto &[source, expected] : kRenderings) {
        const std::string name = source; // (clang 14 captures no structured binding)
        CAPTURE(name);
        std::string text = "(failed)";
        try {
            text = render(source);
        } catch (const Error &error) {
            MESSAGE(error.what());
        }
        CHECK(text == expected);
    }
}

TEST_CASE("jinja: dates, refusals and blocks for training") {
    CHECK(render("{{ strftime_now('%d %b %Y') }}") == "02 Jan 2026");
    CHECK(render("{% if strftime_now is defined %}{{ strftime_now('%Y-%m-%d') }}{% endif %}") ==
          "2026-01-02");
    const jinja::Template dated("{{ strftime_now is defined }}");
    jinja::Budget budget{kBudget, false};
    CHECK(dated.render({}, std::nullopt, budget) == "False");
    CHECK_THROWS_AS(jinja::Template("{{ strftime_now('%Y') }}").render({}, std::nullopt, budget),
                    Error);
    CHECK(render("a{% generation %}b{% endgeneration %}c") == "abc");
    CHECK_THROWS_AS(render("{{ raise_exception('no') }}"), jinja::Refusal);
    CHECK(render("{% if false %}{{ raise_exception('no') }}{% endif %}ok") == "ok");
    CHECK(render("{% if false %}{{ n | no_such_filter }}{% endif %}ok") == "ok");
}

TEST_CASE("jinja: what cannot be read or done is an error that says where") {
    const std::pair<const char *, const char *> kCases[] = {
        {"a\nb {{ n", "line 2: a tag does not end"},
        {"{# x", "a comment does not end"},
        {"{{ 'x }}", "a string does not end"},
        {"{{ '\\u12' }}", "lacks digits"},
        {"{{ n ! }}", "no expression has"},
        {"{% if n %}", "expected 'endif'"},
        {"{% endif %}", "opens nothing"},
        {"{% for x of n %}{% endfor %}", "expected 'in'"},
        {"{% include 'x' %}", "not supported ('include')"},
        {"{{ }}", "expected an expression"},
        {"{{ 1 < 2 < 3 }}", "chained"},
        {"{{ n | }}", "expected a name"},
        {"{{ messages[1:2:3:4] }}", "colons"},
        {"{{ missing.x }}", "'x' of something undefined"},
        {"{{ missing['x'] }}", "'x' of something undefined"},
        {"{{ 'a' + 1 }}", "cannot calculate with a string"},
        {"{{ 'a' < 1 }}", "cannot be compared"},
        {"{{ 1 // 0 }}", "'//' of 1 and 0"},
        {"{{ 1 / 0 }}", "division by zero"},
        {"{{ 9000000000000000000 * 9 }}", "'*' of"},
        {"{{ -9223372036854775807 - 2 }}", "'-' of"},
        {"{{ n() }}", "what is called is an integer"},
        {"{{ n | length }}", "has no length"},
        {"{{ n is frob }}", "'frob' is not supported"},
        {"{{ 'a'.frob() }}", "no method 'frob'"},
        {"{{ {1: 2} }}", "key must be a string"},
        {"{% set n.x = 1 %}", "on a namespace only"},
        {"{% set a, b = [1] %}", "cannot be unpacked"},
        {"{{ [namespace()] }}", "namespace cannot be stored"},
        {"{{ namespace(a=namespace()) }}", "namespace cannot be stored"},
        {"{{ messages | tojson(indent=99) }}", "more than 16"},
        {"{{ [1,2][::0] }}", "step of 0"},
        {"{{ range(1, 2, 0) }}", "step of 0"},
        {"{{ raise_exception }}", "cannot be printed"}};
    for (const auto &[source, expected] : kCases) {
        const std::string name = source;
        CAPTURE(name);
        const std::string error = error_of(source);
        CAPTURE(error);
        CHECK(error.find(expected) != std::string::npos);
    }
}

TEST_CASE("jinja: hostile templates end with an error") {
    const std::string kCases[] = {
        "{% for a in range(1000000) %}{% for b in range(1000000) %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
        "{{ 'x' * 9000000000000000000 }}",
        "{% set n = namespace(s='xy') %}{% for i in range(99) %}{% set n.s = n.s ~ n.s %}"
        "{% endfor %}",
        "{% set n = namespace(s='xy') %}{% for i in range(99) %}{% set n.s = n.s.replace('x', n.s)"
        " %}{% endfor %}",
        "{% set n = namespace(l=[]) %}{% for i in range(99) %}{% set n.l = [n.l] %}{% endfor %}",
        "{% set n = namespace(l=[1]) %}{% for i in range(99) %}{% set n.l = n.l + n.l %}"
        "{% endfor %}",
        "{% set n = namespace(l=[1]) %}{% for i in range(25) %}{% set n.l = [n.l, n.l] %}"
        "{% endfor %}{{ n.l == n.l }}{{ n.l | tojson }}",
        "{% set s = 'x' * 300000 %}{% set l = [s, s] %}{% for a in range(999) %}"
        "{% for b in l %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ strftime_now('%c' * 100000) }}",
        repeat("{% if n %}", 5000),
        repeat("{% for x in [1] %}", 60) + repeat("{% endfor %}", 60) + repeat("{{ (", 1),
        "{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}",
        "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
        "{{ " + repeat("not ", 5000) + "1 }}",
        "{{ " + repeat("-", 5000) + "1 }}",
        "{{ 1" + repeat(" + 1", 5000) + " }}",
        "{{ 'a'" + repeat(" | trim", 5000) + " }}",
        "{{ n" + repeat(".a", 5000) + " }}",
        "{{ 1" + repeat(" if 1 else 1", 5000) + " }}",
        "{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% endif %}",
        std::string(300 << 10, 'x')};
    for (const std::string &source : kCases) {
        CHECK_MESSAGE(error_of(source) != "", source.substr(0, 80));
    }
    CHECK_THROWS_AS(render("abc", 2), Error);
}

TEST_CASE("jinja: every truncation and many damages of a template end") {
    const std::string source =
        "{{- bos }}{% set ns = namespace(a=1) %}{%- for m in messages[::-1] if m.role != 'x' -%}\n"
        "  {% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('r') }}"
        "{% elif m.content is string %}{{ m.content | trim ~ \"\\u00e9\" }}{% endif %}{# c #}\n"
        "{% endfor %}{% macro f(x, y=2) %}{{ {'a': [x, y]} | tojson }}{% endmacro %}{{ f(1) }}";
    const auto attempt = [](const std::string &damaged) {
        try {
            render(damaged, 10000);
        } catch (const Error &) {
        } catch (const jinja::Refusal &) {
        }
    };
    for (size_t size = 0; size <= source.size(); ++size) {
        attempt(source.substr(0, size));
    }
    for (size_t at = 0; at < source.size(); ++at) {
        for (const char c : {'{', '}', '%', '\'', '(', ']', '-', '|', '\0', '\xFF', '1', ' '}) {
            std::string damaged = source;
            damaged[at] = c;
            attempt(damaged);
        }
    }
    CHECK_NOTHROW(attempt(source));
}
