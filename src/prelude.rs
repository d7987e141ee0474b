//! What most programs name: `use tenure::prelude::*;`.
