#pragma once

#include <filesystem>

#include "heed/data/labelled_text.h"
#include "heed/data/text_file.h"

namespace heed {

/// Reads a folder that has one folder for each class, in which every file is one document: class and document
/// in the order of their names. Line ends become "\n". Throws Error, with the path, for a folder without
/// class folders, a file beside them, a folder among the documents, a class without documents, an empty
/// document, and bytes that the encoding does not have.
LabelledText read_document_folders(const std::filesystem::path& path, Encoding encoding = Encoding::utf8);

}  // namespace heed
