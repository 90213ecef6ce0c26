fn main() {
    std::process::exit(candle_check::run());
}
