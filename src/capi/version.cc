// Versions and names: the part of the API that needs no handle.
#include "capi/convert_args.h"
#include "cellm/cellm.h"

#define CELLM_TEXT_INNER(x) #x
#define CELLM_TEXT(x) CELLM_TEXT_INNER(x)

extern "C" {

uint32_t cellm_version(void) {
  return CELLM_VERSION_MAJOR * 10000 + CELLM_VERSION_MINOR * 100 + CELLM_VERSION_PATCH;
}

const char* cellm_version_string(void) {
  return CELLM_TEXT(CELLM_VERSION_MAJOR) "." CELLM_TEXT(CELLM_VERSION_MINOR) "." CELLM_TEXT(
      CELLM_VERSION_PATCH);
}

uint32_t cellm_abi_version(void) { return CELLM_ABI_VERSION; }

const char* cellm_status_name(cellm_status status) {
  switch (status) {
    case CELLM_OK:
      return "ok";
    case CELLM_INVALID_ARGUMENT:
      return "invalid argument";
    case CELLM_NOT_FOUND:
      return "not found";
    case CELLM_UNSUPPORTED:
      return "unsupported";
    case CELLM_CORRUPT:
      return "corrupt";
    case CELLM_OUT_OF_MEMORY:
      return "out of memory";
    case CELLM_IO:
      return "input or output error";
    case CELLM_CANCELLED:
      return "cancelled";
    case CELLM_BUSY:
      return "busy";
    case CELLM_OUT_OF_RANGE:
      return "out of range";
    case CELLM_INTERNAL:
      return "internal error";
    default:
      return "unknown status";
  }
}

const char* cellm_finish_name(int32_t finish) {
  switch (finish) {
    case CELLM_FINISH_NONE:
      return "none";
    case CELLM_FINISH_END:
      return "end";
    case CELLM_FINISH_STOP:
      return "stop";
    case CELLM_FINISH_LENGTH:
      return "length";
    case CELLM_FINISH_CONTEXT:
      return "context";
    case CELLM_FINISH_CANCELLED:
      return "cancelled";
    case CELLM_FINISH_ERROR:
      return "error";
    default:
      return "unknown";
  }
}

}  // extern "C"
