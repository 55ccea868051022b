// The XML of answers: what is read, and what is refused.
#include <doctest/doctest.h>

#include "modules/s3/xml.h"

using namespace stasis_s3;

namespace {

bool reads(const std::string &text) {
    Element root;
    return read_xml(text, root);
}

} // namespace

TEST_CASE("read_xml: elements, attributes, entities") {
    Element root;
    REQUIRE(read_xml("\xEF\xBB\xBF<?xml version='1.0'?>\n<a x=\"1>\" y = '2' >\n <b>x&amp;&lt;&gt;"
                     "&quot;&apos;&#65;&#x20AC;</b><c/><d  ></d ><b>second</b></a >\n",
                     root));
    CHECK(root.name == "a");
    CHECK(root.text.empty());
    REQUIRE(root.children.size() == 4);
    CHECK(root.text_of("b") == "x&<>\"'A\xE2\x82\xAC");
    CHECK(root.text_of("c").empty());
    CHECK(root.text_of("none").empty());
    CHECK(root.children[3].text == "second");
}

TEST_CASE("read_xml: what is refused") {
    for (const char *text : {"",
                             "a",
                             "<",
                             "<a",
                             "<a>",
                             "<a></b>",
                             "<a/><b/>",
                             "<a/>x",
                             "<a b></a>",
                             "<a b=c></a>",
                             "<a b='></a>",
                             "<a>&;</a>",
                             "<a>&x;</a>",
                             "<a>&amp</a>",
                             "<a>&#0;</a>",
                             "<a>&#xD800;</a>",
                             "<a>&#x110000;</a>",
                             "<a>&#99999999999;</a>",
                             "<a>&#x;</a>",
                             "<a><!-- --></a>",
                             "<a><![CDATA[x]]></a>",
                             "<!DOCTYPE a><a/>",
                             "<?xml <a/>",
                             "<a><b></a></b>",
                             "< a/>"}) {
        CAPTURE(text);
        CHECK(!reads(text));
    }
    const auto nested = [](int depth) {
        std::string text;
        for (int i = 0; i < depth; ++i) {
            text = "<a>" + text + "</a>";
        }
        return text;
    };
    CHECK(reads(nested(8)));
    CHECK(!reads(nested(9)));
    CHECK(!reads(std::string(1 << 20, '<')));
}

TEST_CASE("read_xml: every beginning of an answer is refused, and so is no prefix of it read") {
    const std::string whole = "<?xml version=\"1.0\"?><E a='b'><Code>X&amp;</Code><M/></E>";
    CHECK(reads(whole));
    for (size_t length = 0; length < whole.size(); ++length) {
        CAPTURE(length);
        CHECK(!reads(whole.substr(0, length)));
    }
}
