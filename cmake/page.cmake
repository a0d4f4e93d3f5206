# Texts of files, built in: apps/report/page/ and Chart.js, which pages embed, and the notes of `heed variants`.

# Writes a source file that defines, in a namespace, a std::string_view for each NAME=FILE[,FILE...].
function(heed_embed_texts out namespace)
  set(source "#include <string_view>\n\nnamespace ${namespace} {\n")
  foreach(one ${ARGN})
    string(REGEX MATCH "^([a-z_]+)=(.*)$" matched "${one}")
    set(name ${CMAKE_MATCH_1})
    string(REPLACE "," ";" files "${CMAKE_MATCH_2}")
    set(text)
    foreach(file ${files})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
      file(READ ${file} content)
      string(APPEND text "${content}")
    endforeach()
    string(TOLOWER "${text}" lower)
    if(lower MATCHES "</script|<!--|\\)heed-text\"")
      message(FATAL_ERROR "${files}: holds what ends a script in a page, or a text in C++")
    endif()
    string(APPEND source "extern const std::string_view ${name};\n"
                         "const std::string_view ${name} = R\"heed-text(${text})heed-text\";\n")
  endforeach()
  file(WRITE ${out}.new "${source}}  // namespace ${namespace}\n")
  file(COPY_FILE ${out}.new ${out} ONLY_IF_DIFFERENT)
  # Chart.js is one text of 200 kB; clang's -Wpedantic tells of those above the 64 kB that the standard asks of a compiler.
  set_source_files_properties(${out} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -Wno-overlength-strings)
endfunction()

find_file(HEED_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
          DOC "Chart.js 3.9, minified, which draws the charts of reports")
if(NOT HEED_CHART_JS)
  message(FATAL_ERROR "heed needs Chart.js 3.9, which draws the charts of reports (Debian: libjs-chart.js). "
          "Where it lies elsewhere: -D HEED_CHART_JS=/path/to/chart.min.js")
endif()
set(page_folder ${CMAKE_CURRENT_LIST_DIR}/../apps/report/page)
set(HEED_PAGE_TEXTS ${PROJECT_BINARY_DIR}/page/page_texts.cpp)
heed_embed_texts(${HEED_PAGE_TEXTS} heed::page style=${page_folder}/style.css script=${page_folder}/report.js
                 chart_library=${page_folder}/chart_licence.js,${HEED_CHART_JS})
