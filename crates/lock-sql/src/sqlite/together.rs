//! Several locks at once, while all of them are free.

use std::collections::HashMap;

use lock_core::{Claim, Grant, Result, StoreToken};
use serde_json::json;

use super::SqliteLock;
use super::statements::{Ask, GRANT_ALL};
use crate::keys::{duration, micros};

impl SqliteLock {
    /// Takes all of them, or writes nothing.
    pub(super) async fn take_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.sweep_if_due();
        let keys: Vec<_> = claims.iter().map(|claim| self.key(&claim.name)).collect();
        let wanted = claims.iter().zip(&keys);
        let wanted: Vec<_> =
            wanted.map(|(claim, key)| json!([key, claim.owner.as_str(), micros(claim.lease)])).collect();
        let wanted = json!(wanted).to_string();
        let answer =
            self.run_again(Ask { statement: GRANT_ALL, text: Some(&wanted), makes: true, ..Ask::default() }).await?;
        let tokens: HashMap<&str, i64> =
            answer.rows.iter().map(|row| (row.get::<&str>("name"), row.get::<i64>("token"))).collect();
        let granted = claims.iter().zip(&keys).map(|(claim, key)| {
            let Some(token) = tokens.get(key.as_str()) else { return Ok(None) };
            let until = answer.sent + duration(micros(claim.lease));
            Ok(Some(Grant::new(StoreToken::new(*token as u64)?, until)))
        });
        granted.collect()
    }
}
