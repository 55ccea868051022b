// The text for Prometheus, read back by a parser of its own, which refuses all that the format
// 0.0.4 does not have.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tools/serve/http/metrics.h"

namespace {

using serve::http::Histogram;
using serve::http::Metrics;

struct Exposed {
    std::map<std::string, std::string> types, helps;
    std::map<std::string, double> samples; // by name and labels, as {name|label=value|...}
};

void require_that(bool holds, const std::string &line) {
    if (!holds) {
        throw std::runtime_error("not in the format: " + line);
    }
}

// Reads a name at `at`, and moves it behind.
std::string read_name(const std::string &line, size_t &at) {
    const size_t start = at;
    while (at < line.size() && (std::isalnum(static_cast<unsigned char>(line[at])) != 0 ||
                                line[at] == '_' || line[at] == ':')) {
        ++at;
    }
    require_that(at > start && std::isdigit(static_cast<unsigned char>(line[start])) == 0, line);
    return line.substr(start, at - start);
}

std::string read_quoted(const std::string &line, size_t &at) {
    std::string value;
    require_that(line[at++] == '"', line);
    for (; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\') {
            const char next = line.at(++at);
            require_that(next == 'n' || next == '\\' || next == '"', line);
            value += next == 'n' ? '\n' : next;
        } else {
            value += line[at];
        }
    }
    require_that(at < line.size(), line);
    ++at;
    return value;
}

void read_sample(const std::string &line, Exposed &exposed) {
    size_t at = 0;
    const std::string name = read_name(line, at);
    std::string base = name, key = name;
    for (const char *suffix : {"_bucket", "_sum", "_count"}) {
        const size_t cut = name.size() - std::min(name.size(), std::string(suffix).size());
        if (name.substr(cut) == suffix && exposed.types.count(name.substr(0, cut)) != 0) {
            base = name.substr(0, cut);
            require_that(exposed.types[base] == "histogram", line);
        }
    }
    require_that(exposed.types.count(base) != 0, line); // the type stands before
    require_that((exposed.types[base] == "histogram") == (base != name), line);
    if (line.at(at) == '{') {
        do {
            ++at;
            key += "|" + read_name(line, at);
            require_that(line.at(at++) == '=', line);
            key += "=" + read_quoted(line, at);
        } while (line.at(at) == ',');
        require_that(line.at(at++) == '}', line);
    }
    require_that(line.at(at++) == ' ', line);
    size_t used = 0;
    const double value = std::stod(line.substr(at), &used);
    require_that(at + used == line.size(), line);
    require_that(exposed.samples.emplace(key, value).second, line); // each once
}

Exposed parsed(const std::string &text) {
    Exposed exposed;
    require_that(text.empty() || text.back() == '\n', text);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (line.rfind("# HELP ", 0) == 0 || line.rfind("# TYPE ", 0) == 0) {
            size_t at = 7;
            const std::string name = read_name(line, at);
            require_that(line.at(at) == ' ', line);
            auto &kind = line[2] == 'H' ? exposed.helps : exposed.types;
            require_that(kind.emplace(name, line.substr(at + 1)).second, line);
        } else {
            read_sample(line, exposed);
        }
    }
    for (const auto &[name, type] : exposed.types) {
        require_that(type == "counter" || type == "gauge" || type == "histogram", name);
    }
    return exposed;
}

} // namespace

TEST_CASE("Metrics: counters, gauges and measured values, with labels of any text") {
    Metrics metrics;
    metrics.counter("requests_total", "Requests.\nOf \\all\\ \"kinds\".", {{"path", "/a"}}).add();
    metrics.counter("requests_total", "Requests.\nOf \\all\\ \"kinds\".", {{"path", "/a"}}).add(2);
    metrics
        .counter("requests_total", "Requests.\nOf \\all\\ \"kinds\".",
                 {{"path", "x\"y\\z\n"}, {"b", ""}})
        .add(0.1);
    metrics.gauge("open", "Open now.").set(-2.5);
    metrics.gauge("open", "Open now.").add(1);
    metrics.gauge("odd", "Odd.").set(std::nan(""));
    metrics.gauge("large", "Large.").set(HUGE_VAL);
    double elsewhere = 5;
    metrics.measured("kept", "Kept elsewhere.", true, [&] { return elsewhere; });
    elsewhere = 12345678901234;
    const Exposed exposed = parsed(metrics.render());
    CHECK(exposed.types == std::map<std::string, std::string>{{"requests_total", "counter"},
                                                              {"open", "gauge"},
                                                              {"odd", "gauge"},
                                                              {"large", "gauge"},
                                                              {"kept", "counter"}});
    CHECK(exposed.helps.at("requests_total") == "Requests.\\nOf \\\\all\\\\ \"kinds\".");
    CHECK(exposed.samples.at("requests_total|path=/a") == 3);
    CHECK(exposed.samples.at("requests_total|path=x\"y\\z\n|b=") == 0.1);
    CHECK(exposed.samples.at("open") == -1.5);
    CHECK(std::isnan(exposed.samples.at("odd")));
    CHECK(exposed.samples.at("large") == HUGE_VAL);
    CHECK(exposed.samples.at("kept") == 12345678901234);
    CHECK(exposed.samples.size() == 6);
    CHECK(parsed(Metrics().render()).samples.empty());
}

TEST_CASE("Metrics: a histogram's buckets hold those below them, and their ends belong to them") {
    Metrics metrics;
    const std::vector<double> bounds = {0.1, 1, 10};
    Histogram &seconds = metrics.histogram("seconds", "Time.", bounds, {{"kind", "a"}});
    for (const double value : {0.05, 0.1, 0.5, 1.0, 5.0, 100.0, 1000.0}) {
        seconds.observe(value);
    }
    metrics.histogram("seconds", "Time.", bounds, {{"kind", "b"}});
    const Exposed exposed = parsed(metrics.render());
    CHECK(exposed.samples.at("seconds_bucket|kind=a|le=0.1") == 2);
    CHECK(exposed.samples.at("seconds_bucket|kind=a|le=1") == 4);
    CHECK(exposed.samples.at("seconds_bucket|kind=a|le=10") == 5);
    CHECK(exposed.samples.at("seconds_bucket|kind=a|le=+Inf") == 7);
    CHECK(exposed.samples.at("seconds_count|kind=a") == 7);
    CHECK(exposed.samples.at("seconds_sum|kind=a") == doctest::Approx(1106.65));
    CHECK(exposed.samples.at("seconds_bucket|kind=b|le=+Inf") == 0);
    CHECK(exposed.samples.size() == 12);
}

TEST_CASE("Metrics: names that Prometheus would not read, and two of one name, are refused") {
    Metrics metrics;
    metrics.counter("a_b:c", "Help.", {{"x1", "y"}});
    for (const char *name : {"", "1a", "a-b", "a b", "\xc3\xa9"}) {
        CHECK_THROWS_AS(metrics.counter(name, ""), std::invalid_argument);
    }
    for (const char *label : {"", "1", "a:b", "__a", "le"}) {
        CHECK_THROWS_AS(metrics.gauge("g", "", {{label, "x"}}), std::invalid_argument);
    }
    CHECK_THROWS_AS(metrics.gauge("a_b:c", "Help."), std::invalid_argument);
    CHECK_THROWS_AS(metrics.counter("a_b:c", "Other help."), std::invalid_argument);
    CHECK_THROWS_AS(metrics.histogram("h", "", {1, 1}), std::invalid_argument);
    metrics.histogram("h", "", {1, 2});
    CHECK_THROWS_AS(metrics.histogram("h", "", {1, 3}), std::invalid_argument);
}

TEST_CASE("Metrics: threads count while others read") {
    Metrics metrics;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < 1000; ++i) {
                metrics.counter("n", "N.", {{"i", std::to_string(i % 3)}}).add();
                metrics.histogram("h", "H.", {0.5}).observe(i % 2);
            }
        });
    }
    for (int i = 0; i < 50; ++i) {
        const Exposed now = parsed(metrics.render());
        if (now.samples.count("h_count") != 0) { // of one moment
            CHECK(now.samples.at("h_bucket|le=+Inf") == now.samples.at("h_count"));
            CHECK(now.samples.at("h_bucket|le=0.5") <= now.samples.at("h_count"));
        }
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    const Exposed exposed = parsed(metrics.render());
    CHECK(exposed.samples.at("n|i=0") + exposed.samples.at("n|i=1") + exposed.samples.at("n|i=2") ==
          4000);
    CHECK(exposed.samples.at("h_sum") == 2000);
    CHECK(exposed.samples.at("h_bucket|le=0.5") == 2000);
}
