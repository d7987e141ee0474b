//! The same on smol: two instances of a program want one lease; the second has it as soon as the first gives it back.
//!
//! Everything else is as with tokio: the handles, the stores, what is promised. Run it with
//! `cargo run --features smol --example smol`.

use std::error::Error;
use std::time::Duration;

use futures::future::try_join;
use tenure::{MemoryStore, Tenure};

/// Works for a moment under the lease, and gives it back.
async fn import(tenure: &Tenure) -> Result<(), Box<dyn Error>> {
    let instance = tenure.identity().instance();
    let lease = tenure.acquire("import").await?;
    println!("{instance} imports, with token {}", lease.token());
    // Dropped at its next await point, should the lease be lost.
    lease.run(smol::Timer::after(Duration::from_millis(100))).await?;
    lease.release().await?;
    println!("{instance} is done");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    smol::block_on(async {
        let store = MemoryStore::new();
        let blue = tenure::smol::builder().instance("blue").store(store.handle()).start()?;
        let green = tenure::smol::builder().instance("green").store(store).start()?;
        try_join(import(&blue), import(&green)).await?;
        blue.shutdown().await?;
        green.shutdown().await?;
        Ok(())
    })
}
