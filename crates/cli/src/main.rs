//! The lodestone command.
fn main() {}
