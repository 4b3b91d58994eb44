#ifndef CELLM_TOOLS_CELLM_SERVE_PAGE_ASSETS_H_
#define CELLM_TOOLS_CELLM_SERVE_PAGE_ASSETS_H_

// The files of the web page, inside the binary: everything in tools/cellm/serve/page/, put into a
// table by cmake/embed_page.cmake at build time. index.html is also "/". No file system is involved
// when a browser asks for one.

#include <span>
#include <string_view>

namespace cellm::tools::serve {

struct PageAsset {
  std::string_view path;  // "/", "/app.js"
  std::string_view content_type;
  std::string_view etag;  // with its quotes
  std::string_view bytes;
};

std::span<const PageAsset> PageAssets();

}  // namespace cellm::tools::serve

#endif  // CELLM_TOOLS_CELLM_SERVE_PAGE_ASSETS_H_
