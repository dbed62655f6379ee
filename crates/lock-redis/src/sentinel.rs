//! Asks sentinels which server is the primary, and hears of a fail-over. See Redis's "Guidelines for Redis clients with
//! support for Redis Sentinel".

use std::collections::HashMap;
use std::fmt;

use lock_core::{Error, ErrorKind, HostPort, Result};
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, RedisConnectionInfo, Value};

use crate::address::Address;
use crate::answers::nonsense;
use crate::dial::{Dialer, Wire, majority};
use crate::error::of_connecting;

const SWITCHED: &str = "+switch-master";

pub(crate) struct Sentinels {
    pub(crate) addresses: Vec<Address>,
    /// How they call the primary and its replicas.
    pub(crate) name: String,
    pub(crate) login: RedisConnectionInfo,
}

/// What one sentinel says.
struct View {
    /// How many fail-overs it knows of: the later one is right.
    epoch: u64,
    primary: Address,
    wire: Wire,
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the sentinels", self.name)?;
        self.addresses.iter().try_for_each(|address| write!(f, " {address}"))
    }
}

impl Sentinels {
    /// The primary, by those who answer in time; it ends as soon as more than half did. The connections to them tell of
    /// a fail-over as long as they are kept.
    pub(crate) async fn primary(
        &self,
        dialer: &Dialer,
        switched: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Result<(Address, Vec<Wire>)> {
        let asked = self.addresses.iter().map(|address| self.ask(address, dialer, switched.clone()));
        // Half of the time is left for the primary.
        let mut views = majority(asked, dialer.timeout / 2).await?;
        views.sort_by_key(|view| view.epoch);
        let primary = views.last().ok_or_else(nonsense)?.primary.clone();
        Ok((primary, views.into_iter().map(|view| view.wire).collect()))
    }

    async fn ask(
        &self,
        address: &Address,
        dialer: &Dialer,
        switched: impl Fn() + Send + Sync + 'static,
    ) -> Result<View> {
        let config = AsyncConnectionConfig::new().set_push_sender(listener(self.name.clone(), switched));
        let wire = dialer.dial(address, &self.login, config).await?;
        let mut connection = wire.connection.clone();
        // First, so that nothing happens between the answer and the subscription.
        connection.subscribe(SWITCHED).await.map_err(|error| of_connecting(address, error))?;
        let mut ask = Cmd::new();
        ask.arg("SENTINEL").arg("MASTER").arg(&self.name);
        let answer: HashMap<String, String> = ask.query_async(&mut connection).await.map_err(|error| {
            if error.detail().is_some_and(|detail| detail.contains("No such master")) {
                let message = format!("the sentinel {address} knows no primary called {:?}; check the URL", self.name);
                return Error::new(ErrorKind::Refused, message).with_source(error);
            }
            of_connecting(address, error)
        })?;
        let field = |name| answer.get(name).ok_or_else(nonsense);
        let number = |name| field(name)?.parse::<u64>().map_err(|_| nonsense());
        let port = u16::try_from(number("port")?).map_err(|_| nonsense())?;
        let primary = Address::Tcp(HostPort { host: field("ip")?.clone(), port });
        Ok(View { epoch: number("config-epoch")?, primary, wire })
    }
}

/// A message is "name, old host and port, new host and port".
fn listener(name: String, switched: impl Fn()) -> impl Fn(PushInfo) -> Result<(), redis::aio::SendError> {
    move |push| {
        if push.kind == PushKind::Message
            && let Some(Value::BulkString(message)) = push.data.last()
            && String::from_utf8_lossy(message).split(' ').next() == Some(&name)
        {
            switched();
        }
        Ok(())
    }
}
