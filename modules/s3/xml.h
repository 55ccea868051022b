// A reader of the XML with which S3 answers: elements, text and entities. Refuses all that such
// answers do not have: documents' own types and entities, CDATA, comments inside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stasis_s3 {

struct Element {
    std::string name, text; // text: of an element without children
    std::vector<Element> children;

    // The text of the first child of this name; empty: there is none.
    std::string_view text_of(std::string_view child) const;
};

// Reads a document into its outermost element. False: it is not one, or is nested more than 8 deep.
bool read_xml(std::string_view text, Element &root);

} // namespace stasis_s3
