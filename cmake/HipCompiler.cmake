# Finds the compiler that turns csrc/hip into gfx950 code objects, and compiles one .hip file.
#
#   mha_sink_find_hip_compiler(SCRATCH dir)      sets MHA_SINK_HIP_{COMMAND,COMPILER_NAME,VERSION,REASON}
#   mha_sink_add_code_object(OUTPUT co SOURCE hip [INCLUDES dir...] [OPTIONS option...])
#
# The first of these that compiles and links a probe kernel is taken: MHA_SINK_HIP_COMPILER (cache or
# environment), hipcc of ROCm >= 7, clang++ >= 20, the ziglang wheel (it carries clang and lld).
# `cmake -P cmake/HipCompiler.cmake` only looks: setup.py asks that way whether ziglang is needed.

get_filename_component(MHA_SINK_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)
set(MHA_SINK_HIP_ARCH gfx950)
set(MHA_SINK_ZIGLANG_VERSION 0.17.1)

# No HIP headers, device libraries or bundles, so any clang serves. A code object's default uid is
# a hash of its source path; without it, equal sources give equal bytes in every folder.
set(MHA_SINK_HIP_FLAGS
    -x hip --offload-arch=${MHA_SINK_HIP_ARCH} --offload-device-only --no-gpu-bundle-output
    -nogpulib -nogpuinc -fuse-cuid=none -mcode-object-version=5 -std=c++20 -O3 -Wall -Wextra)

# Line tables, which change no instruction. The folder that the compiler runs in would get into them.
set(MHA_SINK_HIP_LINE_FLAGS -gline-tables-only -ffile-compilation-dir=.)

# Runs a command; sets <out> to stdout and stderr together and <out>_OK.
function(_mha_sink_run out)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  string(STRIP "${text}" text)
  set(ok FALSE)
  if(result EQUAL 0)
    set(ok TRUE)
  endif()
  set(${out} "${text}" PARENT_SCOPE)
  set(${out}_OK ${ok} PARENT_SCOPE)
endfunction()

# A program on PATH or among HINTS. CMake's own prefixes are left out: they differ with -P.
macro(_mha_sink_find_program out)
  unset(${out})
  find_program(${out} ${ARGN} NO_CACHE NO_CMAKE_SYSTEM_PATH)
endmacro()

# All that follows the compiler in the command that makes one code object. The driver ignores -MD
# for a linked device image; cc1 does not.
function(_mha_sink_arguments out object source)
  set(${out}
      ${MHA_SINK_HIP_FLAGS} ${ARGN} -ffile-prefix-map=${MHA_SINK_ROOT}=.
      -Xclang -dependency-file -Xclang ${object}.d -Xclang -MT -Xclang ${object}
      -o ${object} ${source}
      PARENT_SCOPE)
endfunction()

# The probe needs what the kernels need: the arch, its newest MFMA, the C++ headers, and lld.
function(_mha_sink_probe command_list scratch error_out)
  file(MAKE_DIRECTORY ${scratch})
  file(WRITE ${scratch}/probe.hip [[
#include <cstddef>
#include <cstdint>
using Bf16x8 = __bf16 __attribute__((ext_vector_type(8)));
using F32x4 = float __attribute__((ext_vector_type(4)));
extern "C" __attribute__((global, amdgpu_flat_work_group_size(64, 64))) void probe(
    const Bf16x8* a, F32x4* d) {
  const uint32_t lane = __builtin_amdgcn_workitem_id_x();
  d[lane] = __builtin_amdgcn_mfma_f32_16x16x32_bf16(a[lane], a[lane], d[lane], 0, 0, 0);
}
]])
  file(REMOVE ${scratch}/probe.co)
  _mha_sink_arguments(arguments ${scratch}/probe.co ${scratch}/probe.hip -I${scratch})
  _mha_sink_run(output ${command_list} ${arguments})
  if(output_OK AND EXISTS ${scratch}/probe.co)
    set(${error_out} "" PARENT_SCOPE)
  else()
    # The first error line says why; the rest is the compiler quoting our probe.
    string(REGEX MATCH "[^\n]*error:[^\n]*" line "${output}")
    if(NOT line)
      string(REGEX MATCH "[^\n]+" line "${output}")
    endif()
    set(${error_out} "cannot compile for ${MHA_SINK_HIP_ARCH}: ${line}" PARENT_SCOPE)
  endif()
endfunction()

# zig clang has no resource directory of its own and its driver calls a program named lld.
function(_mha_sink_zig_command zig scratch command_out)
  get_filename_component(zig "${zig}" REALPATH)
  get_filename_component(home "${zig}" DIRECTORY)
  file(WRITE ${scratch}/zig/lld "#!/bin/sh\n# The driver calls: lld -flavor gnu ...\nshift 2\nexec '${zig}' ld.lld \"$@\"\n")
  file(CHMOD ${scratch}/zig/lld PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(${command_out} "${zig};clang;-B${scratch}/zig;-resource-dir=${home}/lib" PARENT_SCOPE)
endfunction()

# Judges one candidate. Sets <result>_command ("" when refused), _version, _name, and _why: for a
# candidate taken, an addition to the reason; for one refused, what is wrong with it.
function(_mha_sink_judge path scratch result)
  foreach(field command version name why)
    set(${field} "")
  endforeach()
  set(name ${path})
  get_filename_component(file ${path} NAME)
  if(file MATCHES "^(python-)?zig")
    _mha_sink_run(version ${path} version)
    if(NOT version_OK)
      set(why "does not run: ${version}")
    else()
      if(file STREQUAL "zig")
        set(name "zig clang")
      endif()
      _mha_sink_zig_command(${path} ${scratch} command)
      _mha_sink_run(text ${command} --version)
      string(REGEX MATCH "clang version ([0-9.]+)" text "${text}")
      set(version "zig ${version}, clang ${CMAKE_MATCH_1}")
    endif()
  else()
    _mha_sink_run(text ${path} --version)
    if(NOT text_OK)
      set(why "does not run: ${text}")
    elseif(text MATCHES "HIP version: *([0-9]+)([0-9.]*)")
      set(version "HIP ${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
      set(release ${CMAKE_MATCH_1})
      if(text MATCHES "clang version ([0-9.]+)")
        string(APPEND version ", clang ${CMAKE_MATCH_1}")
      endif()
      if(release LESS 7)
        set(why "is ROCm ${release}, needs >= 7")
      else()
        set(command ${path})
      endif()
    elseif(text MATCHES "clang version ([0-9]+)([0-9.]*)")
      set(version "clang ${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
      if(CMAKE_MATCH_1 LESS 20)
        set(why "is clang ${CMAKE_MATCH_1}, needs >= 20")
      else()
        set(command ${path})
      endif()
    else()
      set(why "is neither hipcc nor clang++ nor zig")
    endif()
  endif()

  if(command)
    _mha_sink_probe("${command}" ${scratch} why)
    if(why)
      set(command "")
    endif()
  endif()
  if(NOT command AND why MATCHES "cannot compile" AND version MATCHES "^HIP")
    # hipcc is a wrapper whose own options can get in the way: ask for the clang++ behind it.
    get_filename_component(folder ${path} DIRECTORY)
    _mha_sink_find_program(hipconfig hipconfig HINTS ${folder})
    if(hipconfig)
      _mha_sink_run(clang_path ${hipconfig} --hipclangpath)
      _mha_sink_probe("${clang_path}/clang++" ${scratch} clang_why)
      if(NOT clang_why)
        set(why "; its clang++ is called directly, because hipcc ${why}")
        set(command ${clang_path}/clang++)
        set(name ${command})
      endif()
    endif()
  endif()
  foreach(field command version name why)
    set(${result}_${field} "${${field}}" PARENT_SCOPE)
  endforeach()
endfunction()

# The zig binary of the ziglang wheel, as seen by the Python that runs the build.
function(_mha_sink_find_ziglang path_out)
  set(${path_out} "" PARENT_SCOPE)
  set(pythons ${MHA_SINK_PYTHON} ${Python_EXECUTABLE})
  _mha_sink_find_program(python3 NAMES python3 python)
  if(python3)
    list(APPEND pythons ${python3})
  endif()
  foreach(python IN LISTS pythons)
    _mha_sink_run(folder ${python} -c "print(__import__('ziglang').__path__[0])")
    if(folder_OK AND EXISTS "${folder}/zig")
      set(${path_out} ${folder}/zig PARENT_SCOPE)
      return()
    endif()
  endforeach()
  _mha_sink_find_program(zig zig)
  if(zig)
    set(${path_out} ${zig} PARENT_SCOPE)
  endif()
endfunction()

macro(_mha_sink_take reason)
  string(APPEND chosen_reason "${reason}${judged_why}")
  set(MHA_SINK_HIP_COMMAND "${judged_command}" PARENT_SCOPE)
  set(MHA_SINK_HIP_COMPILER_NAME "${judged_name}" PARENT_SCOPE)
  set(MHA_SINK_HIP_VERSION "${judged_version}" PARENT_SCOPE)
  set(MHA_SINK_HIP_REASON "${chosen_reason}" PARENT_SCOPE)
  message(STATUS "HIP compiler: ${judged_name} (${judged_version}): ${chosen_reason}")
  return()
endmacro()

# Looks at every configure: a path kept from an earlier one may be a build environment long gone.
function(mha_sink_find_hip_compiler)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SCRATCH" "")
  set(wanted "${MHA_SINK_HIP_COMPILER}")
  if(NOT wanted)
    set(wanted "$ENV{MHA_SINK_HIP_COMPILER}")
  endif()
  if(wanted STREQUAL "ziglang")
    _mha_sink_find_ziglang(wanted)
    if(NOT wanted)
      message(FATAL_ERROR "MHA_SINK_HIP_COMPILER is ziglang, and that wheel is not installed: "
                          "pip install ziglang==${MHA_SINK_ZIGLANG_VERSION}")
    endif()
  endif()
  if(wanted)
    _mha_sink_find_program(path "${wanted}")
    if(NOT path)
      message(FATAL_ERROR "MHA_SINK_HIP_COMPILER is '${wanted}', which is not a program")
    endif()
    _mha_sink_judge(${path} ${arg_SCRATCH} judged)
    if(NOT judged_command)
      message(FATAL_ERROR "MHA_SINK_HIP_COMPILER is '${wanted}', which ${judged_why}")
    endif()
    _mha_sink_take("MHA_SINK_HIP_COMPILER names it")
  endif()

  set(refused "")
  _mha_sink_find_program(hipcc hipcc HINTS $ENV{ROCM_PATH}/bin $ENV{HIP_PATH}/bin /opt/rocm/bin)
  if(hipcc)
    _mha_sink_judge(${hipcc} ${arg_SCRATCH} judged)
    if(judged_command)
      _mha_sink_take("hipcc is preferred")
    endif()
    string(APPEND refused "; ${hipcc} ${judged_why}")
  else()
    string(APPEND refused "; no hipcc found")
  endif()

  set(seen_clang FALSE)
  foreach(name clang++ clang++-23 clang++-22 clang++-21 clang++-20)
    _mha_sink_find_program(clang ${name} HINTS $ENV{ROCM_PATH}/llvm/bin /opt/rocm/llvm/bin)
    if(clang)
      set(seen_clang TRUE)
      _mha_sink_judge(${clang} ${arg_SCRATCH} judged)
      if(judged_command)
        string(SUBSTRING "${refused}" 2 -1 refused)
        _mha_sink_take("${refused}")
      endif()
      string(APPEND refused "; ${clang} ${judged_why}")
    endif()
  endforeach()
  if(NOT seen_clang)
    string(APPEND refused "; no clang++ found")
  endif()

  _mha_sink_find_ziglang(zig)
  if(zig)
    _mha_sink_judge(${zig} ${arg_SCRATCH} judged)
    if(judged_command)
      string(SUBSTRING "${refused}" 2 -1 refused)
      _mha_sink_take("${refused}")
    endif()
    string(APPEND refused "; ${zig} ${judged_why}")
  else()
    string(APPEND refused "; no ziglang found")
  endif()
  string(SUBSTRING "${refused}" 2 -1 refused)
  message(FATAL_ERROR "No HIP compiler for ${MHA_SINK_HIP_ARCH} (${refused}). "
                      "Install ROCm >= 7, or clang++ >= 20 with lld, "
                      "or run: pip install ziglang==${MHA_SINK_ZIGLANG_VERSION}")
endfunction()

# One .hip file to one code object. Make and Ninja both read the dependency file, so an edited
# header rebuilds what includes it.
function(mha_sink_add_code_object)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUTPUT;SOURCE" "INCLUDES;OPTIONS")
  list(TRANSFORM arg_INCLUDES PREPEND -I)
  get_filename_component(name ${arg_SOURCE} NAME)
  _mha_sink_arguments(arguments ${arg_OUTPUT} ${arg_SOURCE} ${arg_OPTIONS} ${arg_INCLUDES})
  add_custom_command(
    OUTPUT ${arg_OUTPUT}
    COMMAND ${MHA_SINK_HIP_COMMAND} ${arguments}
    DEPENDS ${arg_SOURCE}
    DEPFILE ${arg_OUTPUT}.d
    COMMENT "Compiling ${name} for ${MHA_SINK_HIP_ARCH}"
    VERBATIM)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  mha_sink_find_hip_compiler(SCRATCH ${CMAKE_CURRENT_BINARY_DIR}/hip_compiler)
endif()
