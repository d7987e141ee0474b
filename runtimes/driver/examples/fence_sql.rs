//! Prints the SQL of a fence, for `psql` and `sqlite3`: what makes the table, and the statement that admits a write.
//! Run it with `cargo run -p tenure-driver --example fence_sql`.

use tenure_driver::Fence;

fn main() {
    println!("{};\n{};", Fence::TABLE, Fence::ADMIT);
}
