//! From the servers' transaction numbers to tokens. A node is made once for a prefix: the time and the number of its
//! creation, and the number that stands in it, are the [`TokenBase`].
//!
//! What stands in it is an *addition*, empty for none, which only rises: with it [all later tokens](Session::raise_tokens)
//! do. A client reads the base once. So that none goes on with an old one, every transaction that makes a claim's node
//! checks the base: its version, and that it is the same node, for a node that was deleted and made anew begins with the
//! same version. What only the same node has is a child named after the number of its creation, the *mark*.
//!
//! A client raises the base to the servers' clock at its first use, so that an application that has been elsewhere, and
//! comes back, has higher tokens than it had there.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result, StoreToken, TokenBase};
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiWriter, Stat};

use crate::error::of_request;
use crate::keys::Keys;
use crate::session::Session;

/// From where tokens are counted, as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) base: TokenBase,
    addition: u64,
    czxid: i64,
    version: i32,
}

impl Tokens {
    pub(crate) fn read(data: &[u8], stat: &Stat) -> Result<Self, ZkError> {
        let addition = match data {
            [] => Some(0),
            data => std::str::from_utf8(data).ok().and_then(|data| data.trim().parse().ok()),
        };
        // Taken for nothing, it would have tokens fall.
        let addition: u64 = addition.ok_or(ZkError::BadArguments(&"the token base's addition is no number"))?;
        // The time is cut off to milliseconds.
        let time = Duration::from_millis(u64::try_from(stat.ctime).unwrap_or_default() + 1);
        let base = TokenBase::made_at(time.saturating_add(Duration::from_micros(addition)), stat.czxid);
        Ok(Self { base, addition, czxid: stat.czxid, version: stat.version })
    }

    fn mark(&self, keys: &Keys) -> String {
        format!("{}/{:016x}", keys.tokens(), self.czxid)
    }

    /// Has a transaction fail unless this still is so. Answers by how many of its operations.
    pub(crate) fn check(&self, writer: &mut MultiWriter<'_>, keys: &Keys) -> Result<usize, ZkError> {
        writer.add_check_version(&keys.tokens(), self.version)?;
        writer.add_check_version(&self.mark(keys), ANY)?;
        Ok(2)
    }
}

/// Any version.
const ANY: i32 = -1;

/// What a client has read.
#[derive(Debug, Default)]
pub(crate) struct Known(Mutex<Read>);

#[derive(Clone, Copy, Debug, Default)]
struct Read {
    tokens: Option<Tokens>,
    /// The servers said that this is not so any more.
    old: bool,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, tokens: Tokens) {
        *self.lock() = Read { tokens: Some(tokens), old: false };
    }

    /// The servers say that tokens are not counted from there any more.
    pub(crate) fn refused(&self, tokens: Tokens) {
        let mut read = self.lock();
        read.old |= read.tokens == Some(tokens);
    }
}

impl Session {
    /// From where the prefix' tokens are counted; made if there is nothing.
    pub(crate) async fn tokens(&self) -> Result<Tokens, ZkError> {
        let read = *self.settings.tokens.lock();
        match read.tokens {
            Some(tokens) if !read.old => Ok(tokens),
            None => self.catch_up_with_clock().await,
            before => self.read_tokens(before).await,
        }
    }

    /// Every claim that is made after this answered has a token above that one. Nothing is written if it would anyway.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there are none above. After any other it may have been done, and may be repeated.
    pub(crate) async fn raise_tokens(&self, above: StoreToken) -> Result<()> {
        if above.get() == StoreToken::MAX {
            return Err(Error::new(ErrorKind::Invalid, "no token is above the highest"));
        }
        tokio::time::timeout(self.settings.timeout, self.raise(above))
            .await
            .unwrap_or_else(|_| Err(of_request(ZkError::Timeout)))
    }

    /// Raises a stale base to the servers' clock when this client first uses the prefix.
    async fn catch_up_with_clock(&self) -> Result<Tokens, ZkError> {
        loop {
            let tokens = self.read_tokens(None).await?;
            let written = self.write_beacon().await?;
            // Cut off to milliseconds.
            let now = u64::try_from(written.mtime).unwrap_or_default().saturating_add(1).saturating_mul(1000);
            let behind = now.saturating_sub(tokens.base.token(written.mzxid).map_or(StoreToken::MAX, StoreToken::get));
            let alone = self.list(&self.settings.keys.beacons()).await?.is_none_or(|beacons| beacons.len() < 2);
            let is_stale = TokenBase::is_stale(Duration::from_micros(behind), alone);
            if !is_stale || self.add(tokens, behind).await? {
                return Ok(self.settings.tokens.lock().tokens.unwrap_or(tokens));
            }
        }
    }

    async fn raise(&self, above: StoreToken) -> Result<()> {
        loop {
            let tokens = self.read_tokens(None).await.map_err(of_request)?;
            // A transaction that is done: each later one has a higher number.
            let done = self.write_beacon().await.map_err(of_request)?.mzxid;
            let missing = above.get().saturating_sub(tokens.base.token(done)?.get());
            if missing == 0 || self.add(tokens, missing).await.map_err(of_request)? {
                return Ok(());
            }
        }
    }

    /// Adds to what was read. No, if somebody else changed it meanwhile.
    async fn add(&self, tokens: Tokens, missing: u64) -> Result<bool, ZkError> {
        let path = &self.settings.keys.tokens();
        let sum = &tokens.addition.saturating_add(missing).to_string();
        let version = Some(tokens.version);
        match self.ask(|client| async move { client.set_data(path, sum.as_bytes(), version).await }).await {
            // It may be a repetition of ours.
            Err(ZkError::BadVersion | ZkError::NoNode) => Ok(false),
            Ok(stat) if stat.czxid == tokens.czxid => {
                self.settings.tokens.set(Tokens::read(sum.as_bytes(), &stat)?);
                Ok(true)
            }
            // It is another node, whose time the addition does not belong to. It is higher than it need be.
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads it, as of now. `before` is what was read and is not so any more: it does not fall below that.
    async fn read_tokens(&self, before: Option<Tokens>) -> Result<Tokens, ZkError> {
        loop {
            let Some(found) = self.look_for_tokens().await? else {
                self.make_tokens().await?;
                continue;
            };
            // The time of a node that was made anew is later, and its number is higher too: by more than the time, if
            // the leader changed. Any number tells which of two bases is the higher one.
            let token = |tokens: Tokens| tokens.base.token(found.czxid).map_or(StoreToken::MAX, StoreToken::get);
            let missing = before.map_or(0, |before| token(before).saturating_sub(token(found)));
            if missing > 0 {
                self.add(found, missing).await?;
                continue;
            }
            if self.make_mark(&found).await? {
                self.settings.tokens.set(found);
                return Ok(found);
            }
        }
    }

    async fn look_for_tokens(&self) -> Result<Option<Tokens>, ZkError> {
        let path = &self.settings.keys.tokens();
        let looking = |client: std::sync::Arc<Client>| async move {
            // A server that is behind the others does not have it yet.
            client.sync(path).await?;
            client.get_data(path).await
        };
        match self.ask(looking).await {
            Err(ZkError::NoNode) => Ok(None),
            read => read.and_then(|(data, stat)| Tokens::read(&data, &stat)).map(Some),
        }
    }

    /// Or somebody else does.
    async fn make_tokens(&self) -> Result<(), ZkError> {
        let path = &self.settings.keys.tokens();
        match self.make_persistent(path).await {
            Ok(()) => Ok(()),
            Err(ZkError::NoNode) => match path.rsplit_once('/') {
                Some((parent, _)) => self.make_folder(parent).await,
                None => Err(ZkError::NoNode),
            },
            Err(error) => Err(error),
        }
    }

    /// No, if the node that it belongs to is gone.
    async fn make_mark(&self, tokens: &Tokens) -> Result<bool, ZkError> {
        let path = &tokens.mark(&self.settings.keys);
        if self.ask(|client| async move { client.check_stat(path).await }).await?.is_some() {
            return Ok(true);
        }
        match self.make_persistent(path).await {
            Err(ZkError::NoNode) => Ok(false),
            made => made.map(|()| true),
        }
    }

    async fn make_persistent(&self, path: &str) -> Result<(), ZkError> {
        let persistent = &CreateMode::Persistent.with_acls(self.settings.acls());
        match self.ask(|client| async move { client.create(path, b"", persistent).await }).await {
            Ok(_) | Err(ZkError::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(all(test, feature = "_servers"))]
mod tests {
    use lock_core::{Claim, DistributedLock, Holder, LockName, LockValue, OwnerId};
    use test_servers::ZookeeperServers;
    use zookeeper_client::Acls;

    use super::*;
    use crate::ZookeeperLock;

    const LEASE: Duration = Duration::from_secs(300);

    /// Far above whatever the servers' clock says.
    const FAR: u64 = 1 << 54;

    fn name(name: &str) -> LockName {
        LockName::new(name).unwrap()
    }

    async fn client(servers: &ZookeeperServers) -> ZookeeperLock {
        ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap()
    }

    /// The token of a claim on a name of its own.
    async fn token(lock: &ZookeeperLock, owner: &str) -> StoreToken {
        let claim = Claim::new(name(owner), OwnerId::from_store(owner), LEASE);
        lock.try_lock(&claim).await.unwrap().unwrap().token
    }

    async fn raw(servers: &ZookeeperServers) -> Client {
        Client::connect(&servers.addresses()[0].to_string()).await.unwrap()
    }

    async fn delete_base(raw: &Client) {
        for mark in raw.list_children("/oarlock-tokens").await.unwrap() {
            raw.delete(&format!("/oarlock-tokens/{mark}"), None).await.unwrap();
        }
        raw.delete("/oarlock-tokens", None).await.unwrap();
    }

    /// 135. Two clients are connected and have both read the base; one raises the tokens: the next of each is above.
    #[tokio::test]
    async fn what_one_client_raises_is_raised_for_all() {
        let servers = ZookeeperServers::start();
        let (one, other) = (client(&servers).await, client(&servers).await);
        let before = token(&one, "a").await.max(token(&other, "b").await);
        let above = StoreToken::new(before.get() + 1_000_000_000).unwrap();
        one.raise_tokens(&name("x"), above).await.unwrap();
        let (here, there) = (token(&one, "c").await, token(&other, "d").await);
        assert!(above < here && here < there, "{above:?} {here:?} {there:?}");
        // Now they are above anyway.
        let raw = raw(&servers).await;
        let written = raw.check_stat("/oarlock-tokens").await.unwrap();
        other.raise_tokens(&name("y"), above).await.unwrap();
        other.raise_tokens(&name("y"), StoreToken::new(1).unwrap()).await.unwrap();
        assert_eq!(raw.check_stat("/oarlock-tokens").await.unwrap(), written);
        // And again, by the other, from what the first one wrote.
        let above = StoreToken::new(there.get() + 1_000_000_000).unwrap();
        other.raise_tokens(&name("x"), above).await.unwrap();
        assert!(token(&one, "e").await > above);
        assert!(token(&client(&servers).await, "f").await > above);
        let highest = StoreToken::new(StoreToken::MAX).unwrap();
        assert_eq!(one.raise_tokens(&name("x"), highest).await.unwrap_err().kind(), ErrorKind::Invalid);
    }

    /// 135. Both raise at the same time, again and again: whoever was answered finds it so.
    #[tokio::test]
    async fn who_raises_beside_others_finds_it_raised() {
        let servers = ZookeeperServers::start();
        let clients = [client(&servers).await, client(&servers).await, client(&servers).await];
        let mut highest = token(&clients[0], "first").await.get();
        for round in 0..20 {
            let raising = clients.iter().enumerate().map(async |(number, lock)| {
                let above = StoreToken::new(highest + 1_000_000 * (number as u64 + 1)).unwrap();
                lock.raise_tokens(&name("x"), above).await.unwrap();
                let token = token(lock, &format!("{round}-{number}")).await;
                assert!(token > above);
                token.get()
            });
            highest = futures_util::future::join_all(raising).await.into_iter().max().unwrap();
        }
    }

    /// 135. Somebody deletes the base by hand while clients run: it is made anew, and tokens rise for all of them, also
    /// where they had been raised far above the clock, and where its version is what it was.
    #[tokio::test]
    async fn a_base_that_was_deleted_is_made_anew_and_higher() {
        for raised in [false, true] {
            let servers = ZookeeperServers::start();
            let (one, other, raw) = (client(&servers).await, client(&servers).await, raw(&servers).await);
            if raised {
                one.raise_tokens(&name("x"), StoreToken::new(FAR).unwrap()).await.unwrap();
            }
            let mut last = token(&one, "one").await.max(token(&other, "other").await);
            for round in 0..3 {
                delete_base(&raw).await;
                for (who, lock) in [("one", &one), ("other", &other), ("one again", &one)] {
                    let next = token(lock, &format!("{who} {round}")).await;
                    assert!(next > last, "{who}: {next:?} after {last:?}");
                    last = next;
                }
            }
            assert!(!raised || last.get() > FAR);
        }
    }

    /// 135. Another makes the base anew, with the version of the old one: a client that had read the old one notices.
    #[tokio::test]
    async fn another_base_with_the_same_version_is_not_taken_for_the_old_one() {
        let servers = ZookeeperServers::start();
        let (here, raw) = (client(&servers).await, raw(&servers).await);
        token(&here, "before").await;
        delete_base(&raw).await;
        let there = token(&client(&servers).await, "there").await;
        let stat = raw.check_stat("/oarlock-tokens").await.unwrap().unwrap();
        assert_eq!(stat.version, 0);
        assert!(token(&here, "here").await > there);
        // The mark alone is made again as it was.
        for mark in raw.list_children("/oarlock-tokens").await.unwrap() {
            raw.delete(&format!("/oarlock-tokens/{mark}"), None).await.unwrap();
        }
        assert!(token(&here, "after").await > there);
    }

    /// 135. Who looks when the base has been raised sees the token of each grant. Whatever another program made before that
    /// has none: the present base would place it after those who stand behind it.
    #[tokio::test]
    async fn a_look_shows_the_token_from_the_base_that_a_claim_had() {
        let servers = ZookeeperServers::start();
        let (lock, raw) = (client(&servers).await, raw(&servers).await);
        let claims = ["silent", "telling"].map(|owner| {
            let mut claim = Claim::new(name(owner), OwnerId::from_store(owner), LEASE);
            claim.value = (owner == "telling").then(|| LockValue::new("one").unwrap());
            claim
        });
        let mut shown = Vec::new();
        for claim in &claims {
            shown.push(Some(lock.try_lock(claim).await.unwrap().unwrap().token));
        }
        let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        for (folder, is_later) in [("/oarlock/before", false), ("/oarlock/after", true)] {
            if is_later {
                let above = StoreToken::new(shown[1].unwrap().get() + 1_000_000_000_000).unwrap();
                lock.raise_tokens(&name("x"), above).await.unwrap();
            }
            raw.mkdir(folder, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
            raw.create(&format!("{folder}/_c_theirs-lock-"), b"", &ephemeral).await.unwrap();
        }
        let other = client(&servers).await;
        let sees = async |of: &str| other.inspect(&name(of)).await.unwrap().into_holder().unwrap();
        for telling in ["one", "two"] {
            for (claim, token) in claims.iter().zip(&shown) {
                let seen = sees(claim.owner.as_str()).await;
                assert_eq!((Some(seen.token), seen.owner), (*token, claim.owner.clone()));
            }
            assert_eq!(sees("telling").await.value.unwrap().as_str(), telling);
            lock.proclaim(&claims[1], &LockValue::new("two").unwrap()).await.unwrap();
        }
        assert_eq!(sees("before").await.token, Holder::NO_TOKEN);
        assert!(Some(sees("after").await.token) > shown[1]);
    }

    /// 135. What is no number is not taken for none.
    #[tokio::test]
    async fn an_addition_that_is_no_number_is_refused() {
        let servers = ZookeeperServers::start();
        let raw = raw(&servers).await;
        let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
        raw.create("/oarlock-tokens", b"many", &persistent).await.unwrap();
        let lock = client(&servers).await;
        let claim = Claim::new(name("x"), OwnerId::from_store("a"), LEASE);
        let error = lock.try_lock(&claim).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("tokens are counted"), "{error}");
        raw.set_data("/oarlock-tokens", b"1000000000000", None).await.unwrap();
        let stat = raw.check_stat("/oarlock-tokens").await.unwrap().unwrap();
        assert!(
            lock.try_lock(&claim).await.unwrap().unwrap().token.get() > stat.ctime as u64 * 1000 + 1_000_000_000_000
        );
    }
}
