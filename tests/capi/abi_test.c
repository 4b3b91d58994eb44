/* Holds cellm.h to the lists of docs/abi/, when it is compiled: nothing of this runs. A line that
 * is no longer true is an array of negative size here, or a second declaration of another type. */
#include "cellm/cellm.h"

extern char abi_holds[1];
#define HOLDS(condition) extern char abi_holds[(condition) ? 1 : -1];

#define CONSTANT(name, number) HOLDS((name) == (number))
#include "../../docs/abi/constants.txt"

#if UINTPTR_MAX == UINT64_MAX
#define FIELD(type, field, offset, size) \
  HOLDS(offsetof(type, field) == (offset) && sizeof(((type*)0)->field) == (size))
#define FIXED_SIZE(type, size) HOLDS(sizeof(type) == (size))
#include "../../docs/abi/structs.txt"
#endif

#define FUNCTION(result, name, parameters) result name parameters;
#define CALLBACK(result, name, parameters)       \
  extern result(*abi_pointer_##name) parameters; \
  extern name abi_pointer_##name;
#include "../../docs/abi/functions.txt"
