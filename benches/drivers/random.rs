//! Randomness for the module `wire`.

use uuid::Uuid;

#[derive(Clone, Default)]
pub struct Random;

impl Random {
    pub fn uuid(&self) -> Uuid {
        Uuid::new_v4()
    }

    pub fn number(&self) -> u64 {
        rand::random()
    }
}
