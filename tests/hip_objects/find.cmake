# cmake [-DMHA_SINK_HIP_COMPILER=...] -P find.cmake: the command of the compiler found, one line.
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/HipCompiler.cmake)
mha_sink_find_hip_compiler(SCRATCH ${CMAKE_CURRENT_BINARY_DIR}/hip_compiler)
list(JOIN MHA_SINK_HIP_COMMAND " " command)
message(STATUS "command: ${command}")
