# The one list of kernel instances. Each csrc/hip/instances/<name>.hip becomes a code object that
# holds the kernel <name>; the library embeds all of them, so nothing is looked up at run time.
set(MHA_SINK_KERNELS
    mha_dot_do_o_bf16
    mha_dot_do_o_fp16
    mha_dq_dk_dv_bf16_hd32
    mha_dq_dk_dv_bf16_hd64
    mha_dq_dk_dv_bf16_hd96
    mha_dq_dk_dv_bf16_hd128
    mha_dq_dk_dv_bf16_hd160
    mha_dq_dk_dv_bf16_hd192x128
    mha_dq_dk_dv_bf16_hd192
    mha_dq_dk_dv_bf16_hd256
    mha_dq_dk_dv_fp16_hd32
    mha_dq_dk_dv_fp16_hd64
    mha_dq_dk_dv_fp16_hd96
    mha_dq_dk_dv_fp16_hd128
    mha_dq_dk_dv_fp16_hd160
    mha_dq_dk_dv_fp16_hd192x128
    mha_dq_dk_dv_fp16_hd192
    mha_dq_dk_dv_fp16_hd256
    mha_dq_bf16_hd32
    mha_dq_bf16_hd64
    mha_dq_bf16_hd96
    mha_dq_bf16_hd128
    mha_dq_bf16_hd160
    mha_dq_bf16_hd192x128
    mha_dq_bf16_hd192
    mha_dq_bf16_hd256
    mha_dq_fp16_hd32
    mha_dq_fp16_hd64
    mha_dq_fp16_hd96
    mha_dq_fp16_hd128
    mha_dq_fp16_hd160
    mha_dq_fp16_hd192x128
    mha_dq_fp16_hd192
    mha_dq_fp16_hd256
    mha_convert_dq_bf16
    mha_convert_dq_fp16
    mha_prepare_sequences
    mha_reduce_d_sink
    sparse_mla_count_slots
    sparse_mla_d_sink_partial
    sparse_mla_dkv_slots_bf16_h128
    sparse_mla_dkv_slots_bf16_h16
    sparse_mla_dkv_slots_bf16_h32
    sparse_mla_dkv_slots_bf16_h64
    sparse_mla_dkv_slots_fp16_h128
    sparse_mla_dkv_slots_fp16_h16
    sparse_mla_dkv_slots_fp16_h32
    sparse_mla_dkv_slots_fp16_h64
    sparse_mla_dq_bf16_h16
    sparse_mla_dq_bf16_h32
    sparse_mla_dq_bf16_h64
    sparse_mla_dq_fp16_h16
    sparse_mla_dq_fp16_h32
    sparse_mla_dq_fp16_h64
    sparse_mla_fill_entries
    sparse_mla_fwd_bf16_h16
    sparse_mla_fwd_bf16_h32
    sparse_mla_fwd_bf16_h64
    sparse_mla_fwd_fp16_h16
    sparse_mla_fwd_fp16_h32
    sparse_mla_fwd_fp16_h64
    sparse_mla_gather_dkv_bf16
    sparse_mla_gather_dkv_fp16
    sparse_mla_reduce_d_sink
    sparse_mla_scan_rows
    sparse_mla_scan_segments)

# Compiles the list and adds a source to `target` that defines mha_sink::embedded_kernels().
function(mha_sink_embed_kernels target)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/kernels)
  file(MAKE_DIRECTORY ${folder})
  set(KERNEL_DATA "")
  set(KERNEL_TABLE "")
  set(objects "")
  foreach(name IN LISTS MHA_SINK_KERNELS)
    set(object ${folder}/${name}.co)
    mha_sink_add_code_object(
      OUTPUT ${object}
      SOURCE ${MHA_SINK_ROOT}/csrc/hip/instances/${name}.hip
      INCLUDES ${MHA_SINK_ROOT}/csrc)
    list(APPEND objects ${object})
    string(APPEND KERNEL_DATA "EMBED(${name}, \"${object}\")\n")
    string(APPEND KERNEL_TABLE "      ENTRY(${name}),\n")
  endforeach()
  configure_file(${MHA_SINK_ROOT}/cmake/embedded_kernels.cpp.in
                 ${folder}/embedded_kernels.cpp @ONLY)
  # The assembler directives of this file do not survive link-time optimisation.
  set_source_files_properties(${folder}/embedded_kernels.cpp PROPERTIES
                              OBJECT_DEPENDS "${objects}" COMPILE_OPTIONS -fno-lto)
  target_sources(${target} PRIVATE ${folder}/embedded_kernels.cpp)
endfunction()
