/* Runs the Rust program where it was linked as a static library. */
int candle_check(void);

int main(void) { return candle_check(); }
