// The handlers of the scalar instruction families.
#pragma once

#include "emulator/wave.h"

namespace mha_sink::emulator {

void fill_salu(HandlerTable& table);     // SOP1, SOP2, SOPC, SOPK and, by fill_control, SOPP
void fill_control(HandlerTable& table);  // branches, waits, barrier, end of program
void fill_smem(HandlerTable& table);

}  // namespace mha_sink::emulator
