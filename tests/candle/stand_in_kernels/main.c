/* Calls run_mha as candle 0.11 does with keys in pages of 32 rows; the first argument is is_bf16. */
#include <stdint.h>
#include <stdlib.h>

void run_mha(void *, void *, void *, void *, void *, void *, int32_t *, int32_t *, uint32_t, uint32_t, uint32_t,
             uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
             uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, float, uint32_t, uint32_t, uint32_t, uint32_t,
             uint32_t, int, int, int, int, int, float, int32_t *, uint32_t, int, int32_t *, uint32_t, int, void *);

int main(int count, char **words) {
  static int32_t lengths[2] = {0, 32}, table[1];
  static uint16_t rows[32 * 256];
  static float lse[32];
  (void)count;
  run_mha(rows, rows, rows, rows, lse, NULL, lengths, lengths, 0, 0, 0, 0, 0, 256, 256, 256, 256, 256, 256, 256,
          256, 1, 1, 1, 256, 256, 0.0625f, 32, 32, 128, 128, 32, atoi(words[1]), 1, 1, -1, 0, 0, table, 1, 32,
          NULL, 0, 0, NULL);
  return 0;
}
