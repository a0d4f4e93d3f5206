#pragma once

#include <string>
#include <string_view>

namespace heed {

/// The stem of a lower-case ASCII word by Porter's rules ("An algorithm for suffix stripping", Program 14(3), 1980),
/// with the departures that NLTK's PorterStemmer makes in its default mode: a list of irregular words, "-ies" and "-ied"
/// of short words, "-y" after any consonant, and a few suffixes more. What is no letter counts as a consonant.
std::string porter_stem(std::string_view word);

}  // namespace heed
