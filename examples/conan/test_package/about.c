#include <flash_attention.h>
#include <stdio.h>

int main(void) {
  fa_info info = FA_INFO_INIT;
  if (fa_build_info(&info) != FA_STATUS_OK) return 1;
  printf("%s %s, CUDA %d\n", info.families->name, info.families->upstream, info.cuda);
  return 0;
}
