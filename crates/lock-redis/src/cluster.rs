//! A cluster: which of its primaries has a slot, and a connection to each. See the "Redis cluster specification".
//!
//! The nodes say who has what; they are asked at the start, and when one answers that another has the slot or cannot be
//! reached.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::{Error, ErrorKind, HostPort, Result};
use redis::{AsyncConnectionConfig, Value};

use crate::address::Address;
use crate::answers::{nonsense, read};
use crate::connection::{Client, Connection, Target, field};
use crate::dial::majority;
use crate::error::of_connecting;

pub(crate) struct Cluster {
    client: Arc<Client>,
    seeds: Vec<Address>,
    state: Mutex<State>,
    /// Held by who asks for the map.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    map: Arc<Map>,
    /// How often the map was read.
    read: u64,
    /// Kept also when a node loses its slots: should it get them back, its connection knows its predecessors.
    connections: HashMap<Address, Arc<Connection>>,
    closed: bool,
}

/// By the last slot of each range: the first one, and whose it is.
type Map = BTreeMap<u16, (u16, Address)>;

/// What one node says.
struct View {
    /// How many changes it knows of: the later one is right.
    epoch: u64,
    map: Map,
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the cluster of")?;
        self.seeds.iter().try_for_each(|address| write!(f, " {address}"))
    }
}

impl Cluster {
    pub(crate) fn new(client: Arc<Client>, seeds: Vec<Address>) -> Self {
        Self { client, seeds, state: Mutex::default(), asking: tokio::sync::Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection to the primary that has this slot, and how often the map had been read then.
    pub(crate) async fn owner(&self, slot: u16) -> Result<(Arc<Connection>, u64)> {
        let found = |state: &mut State| {
            let address = state.map.range(slot..).next().filter(|(_, (first, _))| *first <= slot)?.1.1.clone();
            Some((self.connection(state, address), state.read))
        };
        if let Some(found) = found(&mut self.state()) {
            return Ok(found);
        }
        let read = self.state().read;
        Box::pin(self.refresh(read)).await?;
        found(&mut self.state()).ok_or_else(|| {
            let message = format!("no node of {self} has the slot {slot}; look at CLUSTER INFO");
            Error::new(ErrorKind::Unavailable, message)
        })
    }

    /// A connection to each primary.
    pub(crate) async fn primaries(&self) -> Result<Vec<Arc<Connection>>> {
        let read = self.state().read;
        self.refresh(read).await?;
        let mut state = self.state();
        let mut addresses: Vec<_> = state.map.values().map(|(_, address)| address.clone()).collect();
        addresses.sort();
        addresses.dedup();
        Ok(addresses.into_iter().map(|address| self.connection(&mut state, address)).collect())
    }

    fn connection(&self, state: &mut State, address: Address) -> Arc<Connection> {
        let closed = state.closed;
        let connection = state.connections.entry(address.clone()).or_insert_with(|| {
            let connection = Connection::new(Target::Fixed(address), Arc::clone(&self.client));
            if closed {
                connection.close();
            }
            Arc::new(connection)
        });
        Arc::clone(connection)
    }

    /// Reads the map anew, unless somebody has since it had been read so often.
    pub(crate) async fn refresh(&self, read: u64) -> Result<()> {
        let _turn = self.asking.lock().await;
        let before = {
            let state = self.state();
            if state.closed {
                return Err(Error::closed());
            }
            if state.read > read {
                return Ok(());
            }
            Arc::clone(&state.map)
        };
        let mut nodes: Vec<_> = before.values().map(|(_, address)| address.clone()).chain(self.seeds.clone()).collect();
        nodes.sort();
        nodes.dedup();
        let views = majority(nodes.iter().map(|node| self.ask(node)), self.client.dialer.timeout).await?;
        let latest = views.into_iter().max_by_key(|view| view.epoch).ok_or_else(nonsense)?;
        let mut state = self.state();
        state.read += 1;
        if !before.is_empty() && *before != latest.map {
            // Whoever has a slot now may not have what its former owner had.
            self.client.doubt();
        }
        state.map = Arc::new(latest.map);
        Ok(())
    }

    async fn ask(&self, node: &Address) -> Result<View> {
        let Client { dialer, login, .. } = &*self.client;
        let wire = dialer.dial(node, login, AsyncConnectionConfig::new()).await?;
        let mut pipe = redis::pipe();
        pipe.cmd("CLUSTER").arg("INFO").cmd("CLUSTER").arg("SLOTS");
        let answer = pipe.query_async(&mut wire.connection.clone()).await;
        let (info, ranges): (String, Vec<Vec<Value>>) = answer.map_err(|error| {
            if error.to_string().contains("cluster support disabled") {
                let message = format!("the server {node} is in no cluster; use a URL that begins with redis:");
                return Error::new(ErrorKind::Refused, message).with_source(error);
            }
            of_connecting(node, error)
        })?;
        let epoch = field(&info, "cluster_current_epoch").and_then(|epoch| epoch.parse().ok()).ok_or_else(nonsense)?;
        let map = ranges.into_iter().map(|range| part(range, node)).collect::<Result<_>>()?;
        Ok(View { epoch, map })
    }

    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.connections.values().for_each(|connection| connection.close());
    }
}

/// "first slot, last slot, its primary, replicas…", where a node is "host, port, id, …".
fn part(range: Vec<Value>, asked: &Address) -> Result<(u16, (u16, Address))> {
    let mut range = range.into_iter();
    let mut next = || range.next().ok_or_else(nonsense);
    let (first, last) = (read(next()?)?, read(next()?)?);
    let mut primary = read::<Vec<Value>>(next()?)?.into_iter();
    let (host, port): (Option<String>, u16) =
        (read(primary.next().ok_or_else(nonsense)?)?, read(primary.next().ok_or_else(nonsense)?)?);
    // A node that does not know its own address leaves it out.
    let host = match (host.filter(|host| !host.is_empty() && host != "?"), asked) {
        (Some(host), _) => host,
        (None, Address::Tcp(place)) => place.host.clone(),
        (None, Address::Unix(_)) => return Err(nonsense()),
    };
    Ok((last, (first, Address::Tcp(HostPort { host, port }))))
}
