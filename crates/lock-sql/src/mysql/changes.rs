//! How what was decided of a lock that several hold is written: see `modes.rs` for the rules.

use lock_core::{OwnerId, Result};

use super::decide::{Change, State};
use super::release::mark;
use super::statements::ALWAYS;
use super::{MySqlLock, changed, hex};
use crate::server::{Again, Answer};

impl MySqlLock {
    /// Writes what was decided. No, if the lock is not what it was any more.
    pub(super) async fn write(&self, key: &str, seen: &State, change: &Change) -> Result<bool> {
        let answer = self.ask_to_write(key, seen, change, None).await?;
        Ok(self.wrote(&answer, change).await)
    }

    pub(super) async fn ask_to_write(
        &self,
        key: &str,
        seen: &State,
        change: &Change,
        asks: Option<&OwnerId>,
    ) -> Result<Answer<sqlx::MySql>> {
        let (template, key) = (&self.statements, hex(key));
        let number = |number: i64| number.to_string();
        let owner = |owner: &Option<String>| owner.as_deref().map_or_else(|| "NULL".to_owned(), hex);
        let list = |owners: &mut dyn Iterator<Item = &str>| owners.map(hex).collect::<Vec<_>>().join(", ");
        let in_line = |owners: String| if owners.is_empty() { "x''".to_owned() } else { owners };
        let granted = || change.granted.iter().map(|(waits, _)| waits.owner.as_str());
        let known = in_line(list(&mut granted().chain(seen.absent.iter().map(String::as_str))));
        let nobody_else = super::script(&template.nobody_else, [("{known}", &known)]);
        let mut script = super::script(
            &template.decide,
            [
                ("{owner}", &owner(&change.owner)),
                ("{token}", &number(change.token)),
                ("{since}", &number(change.since_us)),
                ("{lease}", &number(change.lease_us)),
                ("{expires}", &number(change.expires_us)),
                ("{line}", &(if change.has_line { ALWAYS } else { "0" }).to_owned()),
                ("{rev}", &number(seen.rev)),
                ("{seen_owner}", &owner(&seen.owner)),
                ("{seen_token}", &number(seen.token)),
                ("{seen_expires}", &number(seen.expires_us)),
                ("{granted}", &in_line(list(&mut granted()))),
                ("{count}", &change.granted.len().to_string()),
                ("{and}", &if change.serves_all { nobody_else } else { String::new() }),
                ("{mark}", &hex(&asks.map(mark).unwrap_or_default())),
            ],
        );
        let mut then = |text: String| script.push_str(&text);
        if !change.removed.is_empty() {
            let removed = list(&mut change.removed.iter().map(String::as_str));
            then(super::script(&template.part_all, [("{owners}", &removed)]));
        }
        for held in &change.added {
            then(super::script(
                &template.join,
                [
                    ("{owner}", &hex(&held.owner)),
                    ("{token}", &number(held.token)),
                    ("{slots}", &hex(&held.slots.to_string())),
                    ("{lease}", &number(held.lease_us)),
                    ("{since}", &number(held.since_us)),
                    ("{expires}", &number(held.expires_us)),
                ],
            ));
        }
        for (waits, token) in &change.granted {
            let is_asking = asks.is_some_and(|asks| asks.as_str() == waits.owner);
            let statement = if is_asking { &template.out_of_line } else { &template.granted_in_line };
            let values =
                [("{owner}", &hex(&waits.owner)), ("{token}", &number(*token)), ("{at}", &number(seen.now_us))];
            then(super::script(statement, values));
        }
        then("; COMMIT".to_owned());
        let bells = bells(change);
        if !bells.is_empty() {
            then("; DO RELEASE_ALL_LOCKS()".to_owned());
            for (waits, token) in &change.granted {
                let values =
                    [("{client}", &waits.client), ("{token}", &number(*token)), ("{owner}", &hex(&waits.owner))];
                then(super::script(&template.show_safe, values));
            }
        }
        for (client, bell) in bells {
            let values = [("{client}", &client.to_string()), ("{bell}", &bell.to_string())];
            then(super::script(&template.ring_if_done, values));
        }
        let script = script.replace("{key}", &key);
        self.server.run_script(&template.decide, script, statements(change), Again::No).await
    }

    /// Was it written? Then those in line who were granted have been told.
    pub(super) async fn wrote(&self, answer: &Answer<sqlx::MySql>, change: &Change) -> bool {
        if changed(answer, 1) == 0 {
            return false;
        }
        // A bell that is none any more ends the script, and those behind it were not rung. Before them stands what shows that
        // the grants are safe.
        let rung = answer.results.len().saturating_sub(statements(change) + 1);
        for (client, bell) in bells(change).into_iter().skip(rung + 1) {
            let _ = self.ring(client, bell).await;
        }
        true
    }
}

/// After so many statements a change is written.
fn statements(change: &Change) -> usize {
    4 + usize::from(!change.removed.is_empty()) + change.added.len() + change.granted.len()
}

/// The clients of those in line who were granted, and their bells.
fn bells(change: &Change) -> Vec<(i64, i64)> {
    let granted = change.granted.iter().filter(|(waits, _)| waits.rings != 0);
    let mut bells: Vec<_> = granted.filter_map(|(waits, _)| Some((waits.client.parse().ok()?, waits.rings))).collect();
    bells.sort_unstable();
    bells.dedup();
    bells
}
