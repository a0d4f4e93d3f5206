#pragma once

#include "../common/settings.h"
#include "heed/data/labelled_text.h"

namespace heed::programs {

/// The "data" settings: which texts, in which form, and how they are parted.
Json data_defaults();
/// --data, --valid, --format, --encoding, --valid-fraction and --test-fraction.
void add_data_flags(SettingFlags& flags);
/// --format and --encoding alone, for commands that read other data than the run's.
void add_format_flags(SettingFlags& flags);

/// True when the settings name data; false: ListOps by rule.
bool has_data(const Settings& settings);
/// Reads texts of the form that data.format names. Where it names none a folder is read as folders of
/// documents and a name that ends in .csv as CSV; for any other name the user has to say. Throws UsageError
/// for a form that does not exist or cannot be told, Error for data that cannot be read.
LabelledText read_labelled_text(const Settings& settings, const std::string& path);
/// Reads the data of the settings, or draws expressions when they name none, and parts them.
TextParts load_text(const Settings& settings);

}  // namespace heed::programs
