// What must happen between the launches of one of upstream's launchers.
#pragma once

#include <flash_attention.h>

namespace flashdepot::fa2 {

// Calls `act` after this thread's next launch of a kernel of upstream, if that succeeds. In a backward
// pass that is the one that makes softmax_d (flash_bwd_launch_template.h 88-93 of 2.8.3.post2).
void after_next_launch(fa_status (*act)(const void *data), const void *data);

// The status of what was called, FA_STATUS_OK if nothing was. Nothing is left to be called.
fa_status end_of_launches();

}  // namespace flashdepot::fa2
