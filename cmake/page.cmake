# Turns the files of training/page/ and Chart.js into one source file with a text for each (training/page.h).

find_file(HEED_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
          DOC "Chart.js 3.9, minified, which draws the charts of reports")
if(NOT HEED_CHART_JS)
  message(FATAL_ERROR "heed needs Chart.js 3.9, which draws the charts of reports (Debian: libjs-chart.js). "
          "Where it lies elsewhere: -D HEED_CHART_JS=/path/to/chart.min.js")
endif()

set(page_texts "#include \"heed/training/page.h\"\n\nnamespace heed::page {\n")
function(heed_add_page_text name)
  set(text)
  foreach(file ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} content)
    string(APPEND text "${content}")
  endforeach()
  string(TOLOWER "${text}" lower)
  if(lower MATCHES "</script|<!--|\\)heed-page\"")
    message(FATAL_ERROR "${ARGN}: holds what ends a script in a page, or a text in C++")
  endif()
  set(page_texts "${page_texts}const std::string_view ${name} = R\"heed-page(${text})heed-page\";\n" PARENT_SCOPE)
endfunction()
set(page_folder ${PROJECT_SOURCE_DIR}/training/page)
heed_add_page_text(style ${page_folder}/style.css)
heed_add_page_text(chart_library ${page_folder}/chart_licence.js ${HEED_CHART_JS})
heed_add_page_text(charts ${page_folder}/charts.js)
heed_add_page_text(maps ${page_folder}/maps.js)
heed_add_page_text(live ${page_folder}/live.js)
set(HEED_PAGE_TEXTS ${PROJECT_BINARY_DIR}/page/page_texts.cpp)
file(WRITE ${HEED_PAGE_TEXTS}.new "${page_texts}}  // namespace heed::page\n")
file(COPY_FILE ${HEED_PAGE_TEXTS}.new ${HEED_PAGE_TEXTS} ONLY_IF_DIFFERENT)
# Chart.js is one text of 200 kB; clang's -Wpedantic tells of those above the 64 kB that the standard asks of a compiler.
set_source_files_properties(${HEED_PAGE_TEXTS} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS -Wno-overlength-strings)
