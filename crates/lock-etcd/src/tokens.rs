//! From the cluster's revisions to tokens: a key that is made once for a prefix. Its value is the time of that, by the
//! clock of the client that made it, for etcd tells no time; with its create revision that is the [`TokenBase`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse};
use lock_core::{Result, TokenBase};

use crate::Shared;
use crate::connection::Again;
use crate::error::nonsense;
use crate::keys::Keys;
use crate::requests::get_key;

/// Makes the key if there is none, and answers it.
pub(crate) fn make(keys: &Keys) -> Txn {
    let key = keys.tokens();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros().to_string();
    Txn::new()
        .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
        .and_then([TxnOp::put(key.as_str(), now, None), get_key(&key)])
        .or_else([get_key(&key)])
}

/// What a transaction with [`make`] in it, or with a look at the key at its end, was answered.
pub(crate) fn read(answer: &TxnResponse) -> Result<TokenBase> {
    let mut last = None;
    for response in answer.op_responses() {
        match response {
            TxnOpResponse::Get(mut get) => last = get.take_kvs().pop(),
            TxnOpResponse::Txn(inner) => return read(&inner),
            _ => {}
        }
    }
    of(&last.ok_or_else(nonsense)?)
}

fn of(key: &KeyValue) -> Result<TokenBase> {
    let time = key.value_str().ok().and_then(|time| time.parse().ok()).ok_or_else(nonsense)?;
    Ok(TokenBase::made_at(Duration::from_micros(time), key.create_revision()))
}

impl Shared {
    /// For who only looks. Without a base there is nobody who has a token, either.
    pub(crate) async fn token_base_if_any(&self) -> Result<TokenBase> {
        if let Some(session) = self.sessions.all().first() {
            return Ok(session.base);
        }
        let key = self.keys.tokens();
        let asking = self.connection.ask(Again::Yes, |link| {
            let (mut kv, key) = (link.kv.clone(), key.clone());
            async move { kv.get(key, None).await }
        });
        let mut answer = asking.await?.value;
        answer.take_kvs().first().map_or(Ok(TokenBase::made_at(Duration::ZERO, 0)), of)
    }
}
