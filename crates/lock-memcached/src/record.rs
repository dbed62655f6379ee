//! What stands at a lock's key: who holds it, since when and for how long; or nothing, while somebody is about to take it.

use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Holder, LockName, LockValue, OwnerId, Result, StoreToken, TokenBase};
use serde::{Deserialize, Serialize};

use crate::wire::Item;

/// A hold, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The lock's name, which its key may not tell.
    pub(crate) name: String,
    /// The owner's whole text.
    pub(crate) owner: String,
    /// By how much its token is above the CAS number that the item had first.
    pub(crate) above: i64,
    /// The token, once that number is not the item's any more.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) token: Option<u64>,
    /// When it was granted, in seconds by the server's clock.
    pub(crate) since: u64,
    /// When the item expires, in seconds by the server's clock.
    pub(crate) until: u64,
    /// How long its lease lasts, or what is left to one that was kept, in milliseconds.
    pub(crate) lease_ms: u64,
    /// What its owner shows.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) value: Option<String>,
}

/// What was found at a lock's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet: an empty item, to be replaced.
    Free,
    /// A hold, by this record.
    Held(Box<Record>),
}

impl Record {
    /// A hold of this claim's, from this second until that one.
    pub(crate) fn new(claim: &Claim, above: i64, since: u64, until: u64) -> Self {
        Self {
            name: claim.name.to_string(),
            owner: claim.owner.as_str().to_owned(),
            above,
            token: None,
            since,
            until,
            lease_ms: milliseconds(claim.lease),
            value: claim.value.as_ref().map(|value| value.as_str().to_owned()),
        }
    }

    /// The same hold until then, by an item that has this CAS number until it is replaced.
    pub(crate) fn prolonged(&self, cas: u64, lease: Duration, until: u64) -> Result<Self> {
        let token = Some(self.token(cas)?.get());
        Ok(Self { token, until, lease_ms: milliseconds(lease), ..self.clone() })
    }

    /// The token of the hold whose item has this CAS number.
    ///
    /// # Errors
    /// As [`StoreToken::new`].
    pub(crate) fn token(&self, cas: u64) -> Result<StoreToken> {
        match self.token {
            Some(token) => StoreToken::new(token),
            None => TokenBase::with_above(self.above).token(i64::try_from(cas).unwrap_or(i64::MAX)),
        }
    }

    /// The holder, at this second.
    pub(crate) fn holder(&self, cas: u64, second: u64) -> Result<Holder> {
        let held_for = Duration::from_secs(second.saturating_sub(self.since));
        let left = Duration::from_secs(self.until.saturating_sub(second)).min(self.lease());
        let value = self.value.as_ref().and_then(|value| LockValue::from_store(value.as_bytes()));
        let owner = OwnerId::from_store(&self.owner);
        Ok(Holder::new(owner, self.token(cas)?, held_for, left).with_value(value))
    }

    /// How long its lease lasts, from its last renewal on.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// As it is stored.
    pub(crate) fn text(&self) -> Result<String> {
        serde_json::to_string(self)
            .map_err(|error| Error::new(ErrorKind::Invalid, "this hold cannot be written down").with_source(error))
    }
}

impl Found {
    /// What this item says of the lock.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if it is something else, or another lock's.
    pub(crate) fn read(item: &Item, name: &LockName) -> Result<Self> {
        if item.value.is_empty() {
            return Ok(Self::Free);
        }
        let wrong = "at this lock's key stands something that is no lock of this name; look at it, and delete it";
        let refused = || Error::new(ErrorKind::Refused, wrong);
        let record: Record = serde_json::from_slice(&item.value).map_err(|error| refused().with_source(error))?;
        if record.name == name.as_str() { Ok(Self::Held(Box::new(record))) } else { Err(refused()) }
    }
}

fn milliseconds(time: Duration) -> u64 {
    // Rounded up, so that no lease seems to be over sooner than it is.
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> LockName {
        LockName::new("x").unwrap()
    }

    fn item(value: &str) -> Item {
        Item { value: value.into(), cas: 7, left: None }
    }

    #[test]
    fn a_hold_is_read_back_with_its_token_whatever_was_written_since() {
        let claim = Claim::new(name(), OwnerId::from_store("a \"b\"\n#1"), Duration::from_millis(1500));
        let record = Record::new(&claim, 100, 50, 54);
        let prolonged = record.prolonged(7, Duration::from_secs(9), 60).unwrap();
        for (record, cas) in [(&record, 7), (&prolonged, 12)] {
            let read = Found::read(&item(&record.text().unwrap()), &name()).unwrap();
            assert_eq!(read, Found::Held(Box::new(record.clone())));
            assert_eq!(record.token(cas).unwrap().get(), 107);
        }
        let holder = record.holder(7, 51).unwrap();
        assert_eq!((holder.owner, holder.held_for), (claim.owner.clone(), Duration::from_secs(1)));
        // The item stands longer than the lease.
        assert_eq!(holder.remaining, claim.lease);
        assert_eq!(prolonged.holder(12, 58).unwrap().remaining, Duration::from_secs(2));
    }

    #[test]
    fn what_is_no_lock_of_this_name_is_refused() {
        assert_eq!(Found::read(&item(""), &name()).unwrap(), Found::Free);
        let claim = Claim::new(LockName::new("y").unwrap(), OwnerId::from_store("a"), Duration::from_secs(1));
        for bad in ["no lock", "{}", "null", "\u{0}", &Record::new(&claim, 0, 0, 0).text().unwrap()] {
            assert_eq!(Found::read(&item(bad), &name()).unwrap_err().kind(), ErrorKind::Refused, "{bad:?}");
        }
    }

    #[test]
    fn no_token_overflows() {
        let claim = Claim::new(name(), OwnerId::from_store("a"), Duration::MAX);
        let record = Record::new(&claim, i64::MAX, u64::MAX, u64::MAX);
        assert!(record.token(u64::MAX).is_err() && record.holder(1, 0).is_err());
    }
}
