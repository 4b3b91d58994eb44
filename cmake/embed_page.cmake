# Writes a C++ file with the contents of a folder (see tools/cellm/serve/page_assets.h).
#   cmake -DFOLDER=... -DOUTPUT=... -P embed_page.cmake
file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT files)
set(types_html "text/html; charset=utf-8")
set(types_css "text/css; charset=utf-8")
set(types_js "text/javascript; charset=utf-8")
set(types_mjs "text/javascript; charset=utf-8")
set(types_json "application/json")
set(types_svg "image/svg+xml")
set(types_png "image/png")
set(types_ico "image/x-icon")
set(types_woff2 "font/woff2")
set(types_webmanifest "application/manifest+json")
set(arrays "")
set(rows "")
set(index 0)
foreach(name ${files})
  if(name MATCHES "\\.(md|ts|map)$" OR name MATCHES "(^|/)\\.")
    continue()  # sources and notes are not served
  endif()
  string(REGEX REPLACE "^.*\\." "" ending ${name})
  if(NOT DEFINED types_${ending})
    message(FATAL_ERROR "${FOLDER}/${name}: no content type for .${ending}; add one to embed_page.cmake")
  endif()
  file(READ ${FOLDER}/${name} hex HEX)
  file(SHA256 ${FOLDER}/${name} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {${hex}0};\n")
  set(row "\"${types_${ending}}\", \"\\\"${hash}\\\"\", {reinterpret_cast<const char*>(kFile${index}), ${bytes}}")
  string(APPEND rows "    {\"/${name}\", ${row}},\n")
  if(name STREQUAL "index.html")
    string(APPEND rows "    {\"/\", ${row}},\n")
  endif()
  math(EXPR index "${index} + 1")
endforeach()
if(index EQUAL 0)
  set(body "std::span<const PageAsset> PageAssets() { return {}; }")
else()
  set(body "std::span<const PageAsset> PageAssets() {\n  static const PageAsset assets[] = {\n${rows}  };\n  return assets;\n}")
endif()
file(WRITE ${OUTPUT}.new "// Made by cmake/embed_page.cmake.
#include \"cellm/serve/page_assets.h\"

namespace cellm::tools::serve {
namespace {
${arrays}}  // namespace

${body}

}  // namespace cellm::tools::serve
")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.new)
